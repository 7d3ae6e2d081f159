// The user's settings of the page: kept in this browser; none of them is secret.

import { LANGUAGES, type Language, preferredLanguage, speak } from "../words/app.ts";
import { effect, signal } from "./signals.ts";

const KEY = "tidewire-settings";

export type Theme = "auto" | "light" | "dark";

interface Kept {
  theme: Theme;
  language: Language | null;
  isNotifying: boolean;
}

function read(): Kept {
  const kept: Kept = { theme: "auto", language: null, isNotifying: false };
  try {
    const found = JSON.parse(localStorage.getItem(KEY) ?? "{}");
    if (found.theme === "light" || found.theme === "dark") kept.theme = found.theme;
    if (found.language in LANGUAGES) kept.language = found.language;
    kept.isNotifying = found.isNotifying === true;
  } catch {
    // There is no storage, or its value is not ours: use the defaults.
  }
  return kept;
}

const found = read();
export const theme = signal<Theme>(found.theme);
export const chosenLanguage = signal<Language | null>(found.language);
export const isNotifying = signal(found.isNotifying);

/** Apply theme and language, and store the settings; now and whenever they change. */
export async function applySettings(): Promise<void> {
  effect(() => {
    const kept: Kept = {
      theme: theme.value,
      language: chosenLanguage.value,
      isNotifying: isNotifying.value,
    };
    try {
      localStorage.setItem(KEY, JSON.stringify(kept));
    } catch {
      // Without storage, settings hold until the page is closed.
    }
  });
  effect(() => {
    const root = document.documentElement;
    if (theme.value === "auto") root.removeAttribute("data-theme");
    else root.dataset.theme = theme.value;
  });
  await changeLanguage(chosenLanguage.peek());
}

export async function changeLanguage(wanted: Language | null): Promise<void> {
  chosenLanguage.value = wanted;
  const language = wanted ?? preferredLanguage();
  await speak(language);
  document.documentElement.lang = language;
}
