/** News that the leading tab sends to all tabs, itself included: changed state, as plain data. */

import type { Status } from "../core/effects.ts";
import type { OutboxEntry } from "../core/outbox.ts";
import type { TypingIndicatorPayload } from "../wire/frames.ts";
import type { ChatState, Happening } from "./tables.ts";

export interface News {
  status?: Status;
  userId?: string;
  roundTripMs?: number | null;
  chats?: ChatState[];
  happened?: Happening[];
  /** Entries of the outbox as they are now. */
  outbox?: OutboxEntry[];
  /** Entries that have left the outbox: their sequence, or null if they were dropped. */
  left?: [id: string, sequence: number | null][];
  typing?: TypingIndicatorPayload;
  names?: Record<string, string>;
}
