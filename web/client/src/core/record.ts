/** What is known of a chat in numbers: what the store keeps of a replica, and ticks. PURE. */

import type { ChatType } from "../wire/frames.ts";

export const UNREAD_MAX = 100;

export type Tick = "sending" | "sent" | "delivered" | "read" | "failed";

/** What stands beside an own entry that the server has. */
export const tickOf = (
  sequence: number,
  others: { others_delivered: number; others_read: number },
): Tick =>
  sequence <= others.others_read
    ? "read"
    : sequence <= others.others_delivered
      ? "delivered"
      : "sent";

/** What the store keeps of a chat. */
export interface ReplicaRecord {
  chat_id: string;
  chat_type: ChatType;
  name: string | null;
  membership_version: number;
  is_member: boolean;
  /** Where this device began: what is older is fetched on demand and never counts. */
  start: number;
  /** The end of what is held without a hole. In the store: of what is stored. */
  cursor: number;
  /** The last entry that the server is known to have. */
  head: number;
  delivered: number;
  read: number;
  others_delivered: number;
  others_read: number;
  unread: number;
  mentions_unread: number;
  /** The chat is hidden until there is a message above this one; null: it is not. */
  hidden_through: number | null;
}

/** A chat that this device hears of for the first time: it holds nothing above `start`, which is
 * where its user had got to on any device, or joined. What is older comes on demand. */
export const firstRecord = (
  chat_id: string,
  chat_type: ChatType,
  start: number,
  head: number,
  more: Partial<ReplicaRecord> = {},
): ReplicaRecord => {
  start = Math.min(start, head);
  return {
    chat_id,
    chat_type,
    name: null,
    membership_version: 0,
    is_member: true,
    start,
    cursor: start,
    head,
    delivered: 0,
    read: 0,
    others_delivered: 0,
    others_read: 0,
    unread: 0,
    mentions_unread: 0,
    hidden_through: null,
    ...more,
  };
};
