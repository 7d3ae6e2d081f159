/** What one tab knows: told by the leader, which may be this one. */

import type { Status } from "../core/effects.ts";
import type { OutboxEntry } from "../core/outbox.ts";
import type { ChatState } from "./tables.ts";

export class View {
  status: Status = { state: "offline", reason: null };
  roundTripMs: number | null = null;
  chats = new Map<string, ChatState>();
  outbox = new Map<string, OutboxEntry>();
  /** What people are called, by their ids. */
  names = new Map<string, string>();
  /** Who types, by chat, and the timer that takes it back. */
  typists = new Map<string, Map<string, ReturnType<typeof setTimeout>>>();

  /** What waits for a chat, or for all, in the order of writing. */
  entries(chatId?: string): OutboxEntry[] {
    return [...this.outbox.values()]
      .filter((entry) => chatId === undefined || entry.chat_id === chatId)
      .sort((a, b) => a.number - b.number);
  }
}
