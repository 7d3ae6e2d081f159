// The language of the page, and how times are written in it.

import { computed, signal } from "../model/signals.ts";
import { en, type Words } from "./en.ts";

export type { Words } from "./en.ts";

export const LANGUAGES = { en: "English", de: "Deutsch" } as const;
export type Language = keyof typeof LANGUAGES;

export const language = signal<Language>("en");
export const words = signal<Words>(en);

/** The languages that the browser prefers, best first. */
function asked(): readonly string[] {
  return globalThis.navigator?.languages ?? [];
}

/** The first language that the browser prefers and that we have; else English. */
export function preferredLanguage(): Language {
  for (const wanted of asked()) {
    const short = wanted.slice(0, 2).toLowerCase();
    if (short in LANGUAGES) return short as Language;
  }
  return "en";
}

export async function speak(wanted: Language): Promise<void> {
  words.value = wanted === "de" ? (await import("./de.ts")).de : en;
  language.value = wanted;
}

const formats = computed(() => {
  // The browser's country decides on formats, if that locale is in the language of the page.
  const locale =
    asked().find((one) => one.slice(0, 2).toLowerCase() === language.value) ?? language.value;
  const format = (options: Intl.DateTimeFormatOptions) => new Intl.DateTimeFormat(locale, options);
  return {
    time: format({ hour: "2-digit", minute: "2-digit" }),
    weekday: format({ weekday: "long" }),
    date: format({ day: "numeric", month: "long" }),
    dateWithYear: format({ day: "numeric", month: "long", year: "numeric" }),
    short: format({ day: "2-digit", month: "2-digit", year: "2-digit" }),
    full: format({ dateStyle: "full", timeStyle: "short" }),
  };
});

export function timeOf(date: Date): string {
  return formats.value.time.format(date);
}

export function fullTimeOf(date: Date): string {
  return formats.value.full.format(date);
}

/** The name of a day in a conversation. */
export function dayOf(date: Date, now = new Date()): string {
  const days = daysBetween(date, now);
  if (days === 0) return words.value.today;
  if (days === 1) return words.value.yesterday;
  if (days > 1 && days < 7) return formats.value.weekday.format(date);
  const { date: short, dateWithYear } = formats.value;
  return (date.getFullYear() === now.getFullYear() ? short : dateWithYear).format(date);
}

/** A time in the past or future, as short as possible: for lists. */
export function whenOf(date: Date, now = new Date()): string {
  const days = daysBetween(date, now);
  if (days === 0) return timeOf(date);
  if (days < 0) return `${formats.value.short.format(date)}, ${timeOf(date)}`;
  if (days < 7) return dayOf(date, now);
  return formats.value.short.format(date);
}

function daysBetween(date: Date, now: Date): number {
  const midnight = (one: Date) => new Date(one.getFullYear(), one.getMonth(), one.getDate());
  return Math.round((midnight(now).getTime() - midnight(date).getTime()) / 86_400_000);
}
