/**
 * What people see of a message: a function of the entries about it, in their order. PURE.
 *
 * Every part of a row has the sequence of its entry, and for each part the higher sequence counts.
 * So an old row and the entries since then give the current row, and a history page and entries may
 * come in any order. A row may begin as a stub, if an entry is about a message not held here (yet).
 */

import type { EntryItem, HistoryItem } from "../wire/frames.ts";

/** One emoji on one message. */
export interface Reactions {
  /** How many people have it. */
  count: number;
  /** The entry that `count` comes from. */
  sequence: number;
  /** By user: the user's last entry with this emoji, and whether that put the emoji there or took
   * it back. Entry 0: the state is known from a page, and the entry is not. */
  users: Record<string, [sequence: number, isOn: boolean]>;
}

/** The current state of a message. Without `message_id` it is a stub. */
export interface Row {
  chat_id: string;
  sequence: number;
  message_id?: string;
  sender_id: string;
  client_message_id: string;
  created_at: string;
  content: string;
  is_damaged?: boolean;
  is_deleted?: boolean;
  reply_to?: number;
  mentions?: readonly string[];
  edited_sequence?: number;
  deleted_sequence?: number;
  reactions?: Record<string, Reactions>;
}

export const ALL = "@all";

/** Whether an entry is a message, which is shown by itself; others change a message. */
export const isMessage = (item: { kind?: string | null }): boolean =>
  !item.kind || item.kind === "message";

/** Whether a user is among the mentioned ones, by id or by `@all`. */
export const names = (mentions: readonly string[] | null | undefined, userId: string): boolean =>
  !!mentions && (mentions.includes(userId) || mentions.includes(ALL));

/** The row of a message, with its current state (`now`) if it comes from a history page. */
export const rowOf = (
  chat_id: string,
  item: EntryItem & Pick<HistoryItem, "now">,
  ownId = "",
): Row => {
  const { now } = item;
  const row: Row = {
    chat_id,
    sequence: item.sequence,
    message_id: item.message_id,
    sender_id: item.sender_id,
    client_message_id: item.client_message_id,
    created_at: item.created_at,
    content: item.content ?? "",
  };
  if (item.is_damaged) row.is_damaged = true;
  if (item.reply_to) row.reply_to = item.reply_to;
  if (item.mentions?.length) row.mentions = item.mentions;
  if (now?.edited_sequence) {
    row.edited_sequence = now.edited_sequence;
    row.content = now.content ?? "";
  }
  if (item.is_deleted || now?.deleted_sequence) return erased(row, now?.deleted_sequence);
  for (const { emoji, count, sequence, is_own, own_sequence, users } of now?.reactions ?? []) {
    const known: Reactions["users"] = {};
    for (const userId of users ?? []) known[userId] = [0, true];
    if (own_sequence) known[ownId] = [own_sequence, !!is_own];
    row.reactions = { ...row.reactions, [emoji]: { count, sequence, users: known } };
  }
  return row;
};

/** An empty row for a message that is not held, so that entries about it can be folded into it. */
export const stubOf = (chat_id: string, sequence: number): Row => ({
  chat_id,
  sequence,
  sender_id: "",
  client_message_id: "",
  created_at: "",
  content: "",
});

/** A deleted message: the text and everything else that its author gave is removed. */
const erased = (row: Row, deletedSequence?: number | null): Row => {
  const { mentions, edited_sequence, reactions, ...rest } = row;
  const gone: Row = { ...rest, content: "", is_deleted: true };
  if (deletedSequence) gone.deleted_sequence = deletedSequence;
  return gone;
};

/** The row after an entry about it; the same one, if the entry changes nothing. */
export const folded = (row: Row, entry: EntryItem): Row => {
  const { sequence } = entry;
  switch (entry.kind) {
    case "delete":
      return row.deleted_sequence ? row : erased(row, sequence);
    case "edit":
      // The server erases the text of an edit whose message was deleted: the deletion follows.
      if (row.is_deleted || entry.is_deleted || sequence <= (row.edited_sequence ?? 0)) return row;
      row = { ...row, content: entry.content ?? "", edited_sequence: sequence };
      if (entry.is_damaged) row.is_damaged = true;
      else delete row.is_damaged;
      return row;
    case "react":
      return row.is_deleted || !entry.emoji ? row : reacted(row, entry, entry.emoji);
    default:
      return row;
  }
};

const reacted = (row: Row, entry: EntryItem, emoji: string): Row => {
  const { sequence, sender_id } = entry;
  const isOn = entry.is_on !== false;
  const known = row.reactions?.[emoji] ?? { count: 0, sequence: 0, users: {} };
  const before = known.users[sender_id];
  const isLast = sequence > known.sequence;
  if (!isLast && sequence <= (before?.[0] ?? known.sequence)) return row;
  return {
    ...row,
    reactions: {
      ...row.reactions,
      [emoji]: {
        // The answer to an own entry has no count here; our own state before is always known.
        count: isLast
          ? (entry.count ?? known.count + Number(isOn) - Number(before?.[1] ?? false))
          : known.count,
        sequence: Math.max(sequence, known.sequence),
        users: { ...known.users, [sender_id]: [sequence, isOn] },
      },
    },
  };
};

/** Join the stored row of a message with the one of a page: the higher sequence of each part. */
export const merged = (held: Row, told: Row): Row => {
  // A damaged copy does not replace a whole one.
  const base = held.message_id && (told.is_damaged || !told.message_id) ? held : told;
  const row: Row = { ...base };
  const isDeleted = held.is_deleted || told.is_deleted;
  if (isDeleted) return erased(row, held.deleted_sequence ?? told.deleted_sequence);
  if ((held.edited_sequence ?? 0) > (told.edited_sequence ?? 0)) {
    row.edited_sequence = held.edited_sequence!;
    row.content = held.content;
  }
  for (const [emoji, ours] of Object.entries(held.reactions ?? {})) {
    const theirs = told.reactions?.[emoji];
    const isOurs = !theirs || ours.sequence > theirs.sequence;
    row.reactions = {
      ...row.reactions,
      [emoji]: !isOurs ? theirs : { ...ours, users: { ...theirs?.users, ...ours.users } },
    };
  }
  return row;
};
