// The rows of a conversation: messages, own ones that wait, and the lines between them. Pure.

import type { Message, Sent } from "@tidewire/client";

export type Row =
  | { readonly kind: "beginning"; readonly key: "beginning" }
  | { readonly kind: "day"; readonly key: string; readonly date: Date }
  | { readonly kind: "new"; readonly key: "new" }
  | {
      readonly kind: "message";
      readonly key: string;
      readonly message: Message;
      /** It begins or ends a group: messages of one author that belong together. */
      readonly isFirst: boolean;
      readonly isLast: boolean;
    }
  | {
      readonly kind: "sent";
      readonly key: string;
      readonly sent: Sent;
      readonly isFirst: boolean;
      readonly isLast: boolean;
    };

export type Shown = Extract<Row, { kind: "message" | "sent" }>;

/** Messages of one author with at most this time between them belong together. */
const TOGETHER_MS = 5 * 60_000;
const OWN = "";

/**
 * The rows of a conversation.
 *
 * `newSince`: there is a line before the first message of another user above this sequence; null:
 * no line. `isStart`: nothing comes before the first message. An own message has the same key in
 * the outbox and later, so that its row stays the same.
 */
export function rowsOf(
  messages: readonly Message[],
  waiting: readonly Sent[] = [],
  newSince: number | null = null,
  isStart = false,
): Row[] {
  const rows: Row[] = isStart ? [{ kind: "beginning", key: "beginning" }] : [];
  let day = "";
  let last: { author: string; at: number } | null = null;
  let isNewShown = newSince === null;
  const stored = new Set(
    waiting.length ? messages.slice(-waiting.length - 50).map((one) => one.clientMessageId) : [],
  );

  const put = (author: string, date: Date, make: (isFirst: boolean) => Shown): void => {
    const today = dayOf(date);
    if (today !== day) {
      endGroup(rows);
      rows.push({ kind: "day", key: `day ${today}`, date });
      day = today;
      last = null;
    }
    const at = date.getTime();
    const isFirst = last?.author !== author || at - last.at > TOGETHER_MS;
    if (isFirst) endGroup(rows);
    rows.push(make(isFirst));
    last = { author, at };
  };

  for (const message of messages) {
    if (!isNewShown && !message.isOwn && message.sequence > newSince!) {
      const isDay = dayOf(message.createdAt) !== day;
      endGroup(rows);
      if (isDay) {
        day = dayOf(message.createdAt);
        rows.push({ kind: "day", key: `day ${day}`, date: message.createdAt });
      }
      rows.push({ kind: "new", key: "new" });
      last = null;
      isNewShown = true;
    }
    put(message.isOwn ? OWN : message.senderId, message.createdAt, (isFirst) => ({
      kind: "message",
      key: message.clientMessageId || `#${message.sequence}`,
      message,
      isFirst,
      isLast: false,
    }));
  }
  for (const sent of waiting) {
    // The message was announced as stored before it left the outbox: show it once.
    if (stored.has(sent.clientMessageId)) continue;
    put(OWN, sent.createdAt, (isFirst) => ({
      kind: "sent",
      key: sent.clientMessageId,
      sent,
      isFirst,
      isLast: false,
    }));
  }
  endGroup(rows);
  return rows;
}

/** Mark the last row so far as the end of its group. */
function endGroup(rows: Row[]): void {
  const row = rows[rows.length - 1];
  if (row && (row.kind === "message" || row.kind === "sent")) {
    rows[rows.length - 1] = { ...row, isLast: true };
  }
}

function dayOf(date: Date): string {
  return `${date.getFullYear()}-${date.getMonth() + 1}-${date.getDate()}`;
}

/** The new rows; a row that has not changed keeps its old object, so it is not rendered again. */
export function keepRows(before: readonly Row[], after: readonly Row[]): Row[] {
  const known = new Map(before.map((row) => [row.key, row]));
  return after.map((row) => {
    const old = known.get(row.key);
    return old && isSameRow(old, row) ? old : row;
  });
}

function isSameRow(one: Row, other: Row): boolean {
  if (one.kind !== other.kind || one.key !== other.key) return false;
  if (one.kind === "message" && other.kind === "message") {
    return (
      one.message === other.message && one.isFirst === other.isFirst && one.isLast === other.isLast
    );
  }
  if (one.kind === "sent" && other.kind === "sent") {
    return one.sent === other.sent && one.isFirst === other.isFirst && one.isLast === other.isLast;
  }
  return true;
}
