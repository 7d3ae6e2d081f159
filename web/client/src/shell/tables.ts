/**
 * The tables of the store, for every tab: all tabs read them and write into the outbox. They are
 * the same in IndexedDB, in memory and in a file. Writes of the leading tab alone: keeping.ts.
 */

import { names, type Row } from "../core/fold.ts";
import type { OutboxEntry } from "../core/outbox.ts";
import { type ReplicaRecord, UNREAD_MAX } from "../core/record.ts";
import type { ChatUpdatePayload } from "../wire/frames.ts";
import type { Backend, Tx } from "./backend.ts";
import { OutboxFull } from "./errors.ts";

const UNREAD_SCAN_MAX = 1000;
/** Above every sequence. */
export const ABOVE_ALL = Number.MAX_SAFE_INTEGER;

/** Facts of a chat that are kept beside the core's numbers. */
export interface Extras {
  /** Everything above it, up to `cursor`, is held; at most `start`. */
  floor?: number;
  /** After a restore: rows up to here must be compared with the server's. */
  doubted_through?: number;
  /** The last message as it is now, or as a list of chats showed it. */
  last?: Row | null;
  muted_until?: string | null;
  other_id?: string | null;
  /** When the chat changed last: its place in the list if it has no message. */
  updated_at?: string;
  /** This device does not hold everything that the server is known to have. */
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

/** An event for the application, as it is stored; `after` is looked up when the event is read. */
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
  /** Display names by user id. */
  people: [id: string, name: string][];
}

const RISING = ["delivered", "read", "others_delivered", "others_read"] as const;

/** Merge news into a chat: its positions never go back, the rest is replaced. */
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

  /** Load everything but messages, as the last run or another tab has left it: in one transaction,
   * because a page shows nothing before that is done. */
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

  /** Add entries, numbered in the order of writing over all tabs. Returns, by id, the messages that
   * the server has stored already; these are not added. */
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

  /** Which of these are not in the outbox any more, with their sequence. Null: it was dropped, or
   * it is a change of a message, of which only the effect is stored. */
  left(ids: readonly string[]): Promise<[id: string, sequence: number | null][]> {
    return this.backend.run("read", async (tx) => {
      const left: [string, number | null][] = [];
      for (const id of ids)
        if (!(await tx.get("outbox", id)))
          left.push([id, (await ownRows(tx, id))[0]?.sequence ?? null]);
      return left;
    });
  }

  /** An entry about a message that was in the outbox, now with that message's sequence. */
  resolved(entry: OutboxEntry): Promise<OutboxEntry> {
    return this.backend.run("read", (tx) => resolve(tx, { ...entry }));
  }

  // Reading.

  /** Messages between two sequences, ascending. `limit` takes the highest of them if `isNewest`,
   * else the lowest. */
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

  /** Count unread messages of others, and those of them that mention the user, among the last
   * messages, own and deleted ones included. The server finds mentions wherever they are. */
  countUnread(chatId: string, read: number, ownId: string): Promise<[number, number]> {
    return this.backend.run("read", async (tx) => {
      const range = { ...chatRange(chatId, read + 1), limit: UNREAD_SCAN_MAX, isDown: true };
      const unread = (await tx.all<Row>("messages", range)).filter(
        (row) => row.sender_id !== ownId && !row.is_deleted,
      );
      const mentions = unread.filter((row) => names(row.mentions, ownId));
      return [Math.min(unread.length, UNREAD_MAX), Math.min(mentions.length, UNREAD_MAX)];
    });
  }

  // Events.

  /** The application has confirmed all events up to here. */
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

/** The message that it is about may have been stored while no core ran to set the target. */
const resolve = async (tx: Tx, entry: OutboxEntry): Promise<OutboxEntry> => {
  const [row] = entry.target_id ? await ownRows(tx, entry.target_id) : [];
  if (row) {
    entry.target_id = null;
    entry.body = { ...entry.body, target: row.sequence };
  }
  return entry;
};

/** Write facts; null deletes one. */
export const putMeta = (tx: Tx, values: Record<string, unknown>): void => {
  for (const [name, value] of Object.entries(values)) {
    if (value === null) tx.delete("meta", name);
    else tx.put("meta", { name, value });
  }
};

const ownRows = (tx: Tx, id: string): Promise<StoredRow[]> =>
  tx.all<StoredRow>("messages", { index: "own_id", from: id, to: id, limit: 1 });
