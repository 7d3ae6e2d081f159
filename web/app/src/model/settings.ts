// How a person wants the page: kept in this browser, and nothing of it is secret.

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
    // No storage, or not ours: the defaults hold.
  }
  return kept;
}

const found = read();
export const theme = signal<Theme>(found.theme);
export const chosenLanguage = signal<Language | null>(found.language);
export const isNotifying = signal(found.isNotifying);

/** Make the page look and speak as chosen, now and whenever that changes. */
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
      // It holds until the page is closed.
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
