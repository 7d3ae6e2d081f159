// Drafts: texts that were not sent. They are kept when another chat is opened or the page reloads.

import { signal } from "./signals.ts";

export interface Draft {
  readonly text: string;
  /** The sequence of the message that it answers. */
  readonly replyTo: number | null;
}

const KEY = "tidewire-drafts";
const DRAFTS_MAX = 100;

function read(): ReadonlyMap<string, Draft> {
  try {
    return new Map(JSON.parse(sessionStorage.getItem(KEY) ?? "[]"));
  } catch {
    return new Map();
  }
}

export const drafts = signal(read());

export function keepDraft(chatId: string, draft: Draft | null): void {
  const next = new Map(drafts.peek());
  next.delete(chatId);
  if (draft && (draft.text.trim() || draft.replyTo !== null)) next.set(chatId, draft);
  for (const oldest of next.keys()) {
    if (next.size <= DRAFTS_MAX) break;
    next.delete(oldest);
  }
  drafts.value = next;
  try {
    sessionStorage.setItem(KEY, JSON.stringify([...next]));
  } catch {
    // Without storage, drafts hold until the page is closed.
  }
}

export function forgetDrafts(): void {
  drafts.value = new Map();
  try {
    sessionStorage.removeItem(KEY);
  } catch {
    // There is no storage, so there is nothing in it.
  }
}
