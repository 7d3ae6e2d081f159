// The parts of a text, for display: plain text, links, mentions. Pure.

export type Part =
  | { readonly kind: "plain"; readonly text: string }
  | { readonly kind: "link"; readonly text: string; readonly href: string }
  | { readonly kind: "mention"; readonly text: string; readonly userId: string };

/** A person who may be mentioned in a text, with the name to look for. */
export interface Named {
  readonly userId: string;
  readonly name: string;
}

const LINK = /\bhttps?:\/\/[^\s<>"']+/giu;
/** Characters at the end that belong to the sentence, not to the link. */
const TAIL = /[.,;:!?…)\]}»”]+$/u;
const JUMBO_MAX = 3;
const PICTURE = /^(?:\p{Extended_Pictographic}|\p{Emoji_Component}|\s)+$/u;
const DIGITS = /[0-9#*]/u;

/** The parts of a text, in order; together they are the text. */
export function partsOf(text: string, named: readonly Named[] = []): Part[] {
  const parts: Part[] = [];
  let at = 0;
  for (const match of text.matchAll(LINK)) {
    const found = withoutTail(match[0]);
    const href = safeHref(found);
    if (!href) continue;
    parts.push(...mentionsIn(text.slice(at, match.index), named));
    parts.push({ kind: "link", text: found, href });
    at = match.index + found.length;
  }
  parts.push(...mentionsIn(text.slice(at), named));
  return parts;
}

function mentionsIn(text: string, named: readonly Named[]): Part[] {
  const parts: Part[] = [];
  let plain = 0;
  for (let at = text.indexOf("@"); at >= 0; at = text.indexOf("@", at + 1)) {
    // The longest name first: "@Ann Lee" is not "@Ann".
    const person = named
      .filter(({ name }) => text.startsWith(name, at + 1))
      .sort((a, b) => b.name.length - a.name.length)[0];
    if (!person) continue;
    if (at > plain) parts.push({ kind: "plain", text: text.slice(plain, at) });
    plain = at + 1 + person.name.length;
    parts.push({ kind: "mention", text: text.slice(at, plain), userId: person.userId });
    at = plain - 1;
  }
  if (plain < text.length) parts.push({ kind: "plain", text: text.slice(plain) });
  return parts;
}

/** A link without the characters at its end that belong to the sentence. */
function withoutTail(link: string): string {
  const tail = TAIL.exec(link)?.[0] ?? "";
  let kept = link.slice(0, link.length - tail.length);
  // A bracket that was opened inside the link belongs to it: …/Tide_(disambiguation)
  for (const mark of tail) {
    if (mark !== ")" || count(kept, "(") <= count(kept, ")")) break;
    kept += mark;
  }
  return kept;
}

function count(text: string, mark: string): number {
  return text.split(mark).length - 1;
}

/** The URL as a browser reads it; null if it is not http or https. */
function safeHref(text: string): string | null {
  try {
    const url = new URL(text);
    return (url.protocol === "http:" || url.protocol === "https:") && url.host ? url.href : null;
  } catch {
    return null;
  }
}

/** True for a few emoji and nothing else: they are shown large. */
export function isJumbo(text: string): boolean {
  if (text.length > 40 || !PICTURE.test(text) || DIGITS.test(text)) return false;
  const letters = [...new Intl.Segmenter().segment(text)].filter(({ segment }) => segment.trim());
  return letters.length > 0 && letters.length <= JUMBO_MAX;
}

/** One line of a text, for lists and quotes. */
export function lineOf(text: string, charactersMax = 200): string {
  const line = text
    .slice(0, charactersMax * 2 + 2)
    .replace(/\s+/gu, " ")
    .trim();
  const letters = [...line];
  return letters.length <= charactersMax
    ? line
    : `${letters.slice(0, charactersMax - 1).join("")}…`;
}

/** One or two letters, shown in place of a picture. */
export function initialsOf(name: string): string {
  const words = name
    .trim()
    .split(/[\s._-]+/u)
    .filter(Boolean);
  const first = [...(words[0] ?? "")][0] ?? "?";
  const last = words.length > 1 ? ([...words[words.length - 1]!][0] ?? "") : "";
  return (first + last).toUpperCase();
}

/** The number of the colour of a person or a group; always the same for an id. */
export function hueOf(id: string, count: number): number {
  let sum = 7;
  for (let at = 0; at < id.length; at++) sum = (sum * 31 + id.charCodeAt(at)) >>> 0;
  return sum % count;
}

/** The size of a text on the wire, in bytes. */
export function bytesOf(text: string): number {
  return new TextEncoder().encode(text).length;
}

/** The user ids of people whose "@name" is in a text. */
export function mentionedIn(text: string, people: readonly Named[]): string[] {
  const parts = partsOf(text, people);
  return [...new Set(parts.flatMap((part) => (part.kind === "mention" ? [part.userId] : [])))];
}
