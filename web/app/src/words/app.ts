// All texts of the web chat: those of a conversation, and its own.

import { computed, signal } from "../model/signals.ts";
import { type AppWords, enApp } from "./en-app.ts";
import { type Language, words as shared, speak as speakShared } from "./index.ts";

export {
  dayOf,
  LANGUAGES,
  type Language,
  preferredLanguage,
  timeOf,
  whenOf,
} from "./index.ts";

const own = signal<AppWords>(enApp);
export const words = computed(() => ({ ...shared.value, ...own.value }));

export async function speak(wanted: Language): Promise<void> {
  const more = wanted === "de" ? (await import("./de-app.ts")).deApp : enApp;
  await speakShared(wanted);
  own.value = more;
}
