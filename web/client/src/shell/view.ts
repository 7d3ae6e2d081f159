/** The state that one tab knows: the leader tells it, which may be this tab. */

import type { Status } from "../core/effects.ts";
import type { OutboxEntry } from "../core/outbox.ts";
import type { ChatState } from "./tables.ts";

export class View {
  status: Status = { state: "offline", reason: null };
  roundTripMs: number | null = null;
  chats = new Map<string, ChatState>();
  outbox = new Map<string, OutboxEntry>();
  /** Display names by user id. */
  names = new Map<string, string>();
  /** The users who type, by chat, each with the timer that removes them. */
  typists = new Map<string, Map<string, ReturnType<typeof setTimeout>>>();

  /** The entries of the outbox for a chat, or for all, in the order of writing. */
  entries(chatId?: string): OutboxEntry[] {
    return [...this.outbox.values()]
      .filter((entry) => chatId === undefined || entry.chat_id === chatId)
      .sort((a, b) => a.number - b.number);
  }
}
