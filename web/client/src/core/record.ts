/** The numbers of a chat: what the store keeps of a replica, and ticks. PURE. */

import type { ChatType } from "../wire/frames.ts";

export const UNREAD_MAX = 100;

export type Tick = "sending" | "sent" | "delivered" | "read" | "failed";

/** The tick of an own message that the server has. */
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
  /** Where this device began: older messages are fetched on demand and never count. */
  start: number;
  /** Everything from `start` up to here is held. In the store: everything up to here is stored. */
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

/** A chat that is new to this device: it holds nothing above `start`, which is the position that
 * the user had reached on any device, or joined at. Older messages are fetched on demand. */
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
