/**
 * What a device must not lose, as every tab reads it and writes into its outbox: the same in
 * IndexedDB, in the memory and in a file. What only the leading tab writes is in keeping.ts.
 */

import { names, type Row } from "../core/fold.ts";
import type { OutboxEntry } from "../core/outbox.ts";
import { type ReplicaRecord, UNREAD_MAX } from "../core/record.ts";
import type { ChatUpdatePayload } from "../wire/frames.ts";
import type { Backend, Tx } from "./backend.ts";
import { OutboxFull } from "./errors.ts";

const UNREAD_SCAN_MAX = 1000;
/** The highest sequence that there can be, and more. */
export const ABOVE_ALL = Number.MAX_SAFE_INTEGER;

/** What is kept of a chat beside the core's numbers. */
export interface Extras {
  /** Everything above it is held; at most `start`. */
  floor?: number;
  /** After a restore: what is held up to here has to be compared. */
  doubted_through?: number;
  /** The last message as it is now, or what a list of chats told of it. */
  last?: Row | null;
  muted_until?: string | null;
  other_id?: string | null;
  /** When the chat moved last, for a chat without a message. */
  updated_at?: string;
  /** Not all that the server is known to have is held. */
  is_behind?: boolean;
}

export type ChatState = ReplicaRecord & Extras;

export interface StoredRow extends Row {
  position?: number;
  own_id?: string;
}

interface Happened {
  position: number;
  about?: [chatId: string, target: number];
}

/** What is told to the application, as it is stored; rows are looked up when it is read. */
export type Happening = Happened &
  (
    | { kind: "message"; row: Row }
    | {
        kind: "changed";
        chat_id: string;
        entry_kind: string;
        sequence: number;
        sender_id: string;
        before: Row | null;
        after: Row | null;
      }
    | {
        kind: "refused";
        chat_id: string;
        client_message_id: string;
        entry_kind: string;
        text: string;
        code: string | null;
        reason: string | null;
      }
    | { kind: "chat"; update: ChatUpdatePayload }
  );

export interface Loaded {
  meta: Record<string, unknown>;
  chats: ChatState[];
  entries: OutboxEntry[];
  /** What people are called, by their ids. */
  people: [id: string, name: string][];
}

const RISING = ["delivered", "read", "others_delivered", "others_read"] as const;

/** A chat's numbers, which never go back, and whatever else is new. */
export const mergeChat = (known: ChatState | undefined, news: ChatState): ChatState => {
  const chat: ChatState = { ...known, ...news };
  if (known) for (const name of RISING) chat[name] = Math.max(known[name], news[name]);
  return chat;
};

export const chatRange = (chatId: string, from = 0, to = ABOVE_ALL) => ({
  from: [chatId, from],
  to: [chatId, to],
});

export class Tables {
  constructor(readonly backend: Backend) {}

  // Facts.

  meta(): Promise<Record<string, unknown>> {
    return this.backend.run("read", facts);
  }

  setMeta(values: Record<string, unknown>): Promise<void> {
    return this.backend.run("strict", async (tx) => putMeta(tx, values));
  }

  // Chats.

  /** Everything but messages, as the last life or another tab has left it: one transaction, because a
   * page shows nothing before it. */
  load(): Promise<Loaded> {
    return this.backend.run("read", async (tx) => {
      const [meta, chats, found, names] = await Promise.all([
        facts(tx),
        tx.all<ChatState>("chats"),
        tx.all<OutboxEntry>("outbox"),
        tx.all<{ user_id: string; name: string }>("people"),
      ]);
      const entries = structuredClone(found);
      for (const entry of entries) await resolve(tx, entry);
      entries.sort((a, b) => a.number - b.number);
      return { meta, chats, entries, people: names.map(({ user_id, name }) => [user_id, name]) };
    });
  }

  // The outbox: every tab writes into it by itself.

  /** Take entries in, in the order of writing over all tabs. By id: what the server has already. */
  enter(entries: readonly OutboxEntry[], entriesMax: number): Promise<Map<string, StoredRow>> {
    return this.backend.run("strict", async (tx) => {
      const known = new Map<string, StoredRow>();
      const waiting = await tx.all<OutboxEntry>("outbox");
      if (waiting.length + entries.length > entriesMax)
        throw new OutboxFull(
          `${waiting.length} messages wait in the outbox, more are not taken; ` +
            "wait until they are sent, or drop failed ones",
        );
      let number = Math.max(0, ...waiting.map((entry) => entry.number));
      for (const entry of entries) {
        const [row] = await ownRows(tx, entry.client_message_id);
        if (row) {
          known.set(entry.client_message_id, row);
        } else {
          entry.number = ++number;
          tx.put("outbox", entry);
        }
      }
      return known;
    });
  }

  /** Which of these are not in the outbox any more, and where they are now. Null: it was dropped, or
   * is a change, of which only its effect is kept. */
  left(ids: readonly string[]): Promise<[id: string, sequence: number | null][]> {
    return this.backend.run("read", async (tx) => {
      const left: [string, number | null][] = [];
      for (const id of ids)
        if (!(await tx.get("outbox", id)))
          left.push([id, (await ownRows(tx, id))[0]?.sequence ?? null]);
      return left;
    });
  }

  /** An entry that is about one which was in the outbox, with where that is now. */
  resolved(entry: OutboxEntry): Promise<OutboxEntry> {
    return this.backend.run("read", (tx) => resolve(tx, { ...entry }));
  }

  // Reading.

  /** Messages between two sequences, ascending; the highest of them, or the lowest. */
  messages(
    chatId: string,
    before: number,
    after: number,
    limit: number,
    isNewest: boolean,
  ): Promise<Row[]> {
    if (before - after < 2) return Promise.resolve([]);
    return this.backend.run("read", (tx) =>
      tx.all<Row>("messages", {
        ...chatRange(chatId, after + 1, before - 1),
        limit,
        isDown: isNewest,
      }),
    );
  }

  /** Unread messages of others, and those that mention the user. */
  countUnread(chatId: string, read: number, ownId: string): Promise<[number, number]> {
    return this.backend.run("read", async (tx) => {
      const range = { ...chatRange(chatId, read + 1), limit: UNREAD_SCAN_MAX };
      const unread = (await tx.all<Row>("messages", range)).filter(
        (row) => row.sender_id !== ownId && !row.is_deleted,
      );
      const mentions = unread.filter((row) => names(row.mentions, ownId));
      return [Math.min(unread.length, UNREAD_MAX), Math.min(mentions.length, UNREAD_MAX)];
    });
  }

  // Events.

  /** The application is done with everything up to here. */
  confirm(position: number): Promise<void> {
    return this.backend.run("write", async (tx) => {
      putMeta(tx, { confirmed: position });
      for (const one of await tx.all<Happening>("happenings", { to: position }))
        tx.delete("happenings", one.position);
    });
  }
}

const facts = async (tx: Tx): Promise<Record<string, unknown>> =>
  Object.fromEntries(
    (await tx.all<{ name: string; value: unknown }>("meta")).map(({ name, value }) => [
      name,
      value,
    ]),
  );

export const fact = async <T>(tx: Tx, name: string): Promise<T | undefined> =>
  (await tx.get<{ value: T }>("meta", name))?.value;

/** What it is about may have been stored while there was no core to tell it. */
const resolve = async (tx: Tx, entry: OutboxEntry): Promise<OutboxEntry> => {
  const [row] = entry.target_id ? await ownRows(tx, entry.target_id) : [];
  if (row) {
    entry.target_id = null;
    entry.body = { ...entry.body, target: row.sequence };
  }
  return entry;
};

/** Null forgets. */
export const putMeta = (tx: Tx, values: Record<string, unknown>): void => {
  for (const [name, value] of Object.entries(values)) {
    if (value === null) tx.delete("meta", name);
    else tx.put("meta", { name, value });
  }
};

const ownRows = (tx: Tx, id: string): Promise<StoredRow[]> =>
  tx.all<StoredRow>("messages", { index: "own_id", from: id, to: id, limit: 1 });
