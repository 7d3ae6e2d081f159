/**
 * Writes that only the leading tab does: received entries, folded into the current state of their
 * messages (core/fold.ts) in the same transaction that moves the cursor.
 *
 * The leader's number is in the store, and each of its transactions checks it first: a tab that was
 * frozen, and wakes up when another tab leads, writes nothing (NotLeader).
 */

import type { Keep } from "../core/effects.ts";
import { folded, isMessage, merged, type Row, rowOf, stubOf } from "../core/fold.ts";
import type { OutboxEntry } from "../core/outbox.ts";
import type { ReplicaRecord } from "../core/record.ts";
import type { EntryItem } from "../wire/frames.ts";
import type { Backend, Mode, Tx } from "./backend.ts";
import {
  ABOVE_ALL,
  type ChatState,
  chatRange,
  fact,
  type Happening,
  mergeChat,
  putMeta,
  type StoredRow,
} from "./tables.ts";

const HAPPENINGS_MAX = 10_000;

/** Another tab leads. */
export class NotLeader extends Error {}

/** The writes of one transaction of the leader: all of them or none. */
export interface Job {
  keeps: Keep[];
  chats: ReplicaRecord[];
  /** Entries of the outbox to write as they are; in `dropped` the ids of those to delete. */
  entries: OutboxEntry[];
  dropped: string[];
  happened: ((position: number) => Happening)[];
  meta: Record<string, unknown>;
}

/** The result of a job: events, chats as they are now, messages that were deleted. */
export interface Outcome {
  happened: Happening[];
  chats: ChatState[];
  erased: [chatId: string, target: number][];
}

export class Keeping {
  /** This tab's number, once it leads. */
  leader: number | null = null;
  /** The last position given out. */
  private _position = 0;

  constructor(private _backend: Backend) {}

  /** Become the leader: from here on the transactions of all other tabs' leaders fail. */
  async lead(): Promise<number> {
    this.leader = await this._backend.run("strict", async (tx) => {
      const leader = ((await fact<number>(tx, "leader")) ?? 0) + 1;
      putMeta(tx, { leader });
      const happenings = await tx.all<Happening>("happenings");
      for (const { position } of happenings.slice(0, -HAPPENINGS_MAX))
        tx.delete("happenings", position);
      const [last] = await tx.all<StoredRow>("messages", {
        index: "position",
        isDown: true,
        limit: 1,
      });
      const confirmed = (await fact<number>(tx, "confirmed")) ?? 0;
      this._position = Math.max(last?.position ?? 0, happenings.at(-1)?.position ?? 0, confirmed);
      return leader;
    });
    return this.leader;
  }

  /** Whether this tab still leads. */
  async isLeading(): Promise<boolean> {
    const leader = await this._backend.run("read", (tx) => fact<number>(tx, "leader"));
    return leader === this.leader;
  }

  private _asLeader<T>(mode: Mode, body: (tx: Tx) => Promise<T>): Promise<T> {
    return this._backend.run(mode, async (tx) => {
      if ((await fact<number>(tx, "leader")) !== this.leader) throw new NotLeader();
      return body(tx);
    });
  }

  /** Carry out a job. */
  write(job: Job): Promise<Outcome> {
    // Nothing depends on the rest: numbers of chats, and who the user and the server are.
    const strict = [...job.keeps, ...job.entries, ...job.dropped, ...job.happened];
    return this._asLeader(strict.length ? "strict" : "write", async (tx) => {
      const outcome: Outcome = { happened: [], chats: [], erased: [] };
      const chats = new Map<string, ChatState>();
      const ownId = (job.meta.user_id as string) ?? (await fact<string>(tx, "user_id")) ?? "";
      putMeta(tx, job.meta);
      for (const record of job.chats) {
        const known = await tx.get<ChatState>("chats", record.chat_id);
        // Only entries (`keeps`) move the cursor, and only a restart moves the start.
        const { start, cursor } = known ?? record;
        chats.set(record.chat_id, mergeChat(known, { ...record, start, cursor }));
      }
      for (const keep of job.keeps) {
        const { chat_id } = keep.replica;
        const known = chats.get(chat_id) ?? (await tx.get<ChatState>("chats", chat_id));
        chats.set(
          chat_id,
          await this._keep(tx, known ?? keep.replica.record(), keep, ownId, outcome),
        );
      }
      for (const chat of chats.values()) tx.put("chats", chat);
      for (const entry of job.entries) tx.put("outbox", entry);
      for (const id of job.dropped) {
        tx.delete("outbox", id);
        // Its text must go too, and the server may never send a deletion for it.
        tx.erase();
      }
      for (const make of job.happened) {
        const one = make(++this._position);
        const key = one.about ?? 0;
        const about = (await tx.get<Row>("messages", key)) ?? (await tx.get<Row>("stubs", key));
        if (about?.is_deleted && "text" in one) {
          // The message was deleted before this refusal came, which is the reason for it.
          tx.delete("outbox", one.client_message_id);
          one.text = "";
        }
        this._happen(tx, one, outcome);
      }
      outcome.chats = [...chats.values()];
      return outcome;
    });
  }

  private _happen(tx: Tx, happening: Happening, outcome: Outcome): void {
    outcome.happened.push(happening);
    // The text of a message is stored only in its row.
    if (happening.kind !== "message") tx.put("happenings", { ...happening, after: null });
  }

  /** Store entries that continue the prefix; returns the chat after that. */
  private async _keep(
    tx: Tx,
    chat: ChatState,
    keep: Keep,
    ownId: string,
    outcome: Outcome,
  ): Promise<ChatState> {
    const { chat_id, doubted_through = 0, cursor } = chat;
    let { last } = chat;
    const compared = doubted_through ? await this._compare(tx, chat, keep, ownId) : null;
    for (const item of keep.items) {
      const { sequence, client_message_id } = item;
      const isOwn = item.sender_id === ownId;
      if (isOwn) tx.delete("outbox", client_message_id);
      let shown: Row | undefined;
      if (isMessage(item)) {
        shown =
          compared?.get(sequence) ??
          (sequence <= cursor ? await tx.get<Row>("messages", [chat_id, sequence]) : undefined);
        if (!shown) {
          const row: StoredRow = rowOf(chat_id, item, ownId);
          row.position = ++this._position;
          if (isOwn) row.own_id = client_message_id;
          tx.put("messages", row);
          this._happen(tx, { kind: "message", position: row.position, row }, outcome);
          shown = row;
        }
      } else if (["edit", "delete", "react"].includes(item.kind!) && item.target) {
        shown = await this._fold(tx, chat_id, item, sequence <= doubted_through, outcome);
      } else {
        // Without its content: no deletion that this version knows would erase that text.
        tx.put("held", { ...item, chat_id, content: "" });
      }
      if (shown && shown.sequence >= (last?.sequence ?? 0)) last = forLast(shown, last);
    }
    const next: ChatState = { ...chat, last: last ?? null };
    next.cursor = Math.max(cursor, keep.through);
    next.head = Math.max(chat.head, keep.through);
    if (keep.is_complete || keep.through >= doubted_through) next.doubted_through = 0;
    return next;
  }

  /** Fold an entry into the message that it is about. A deletion erases the text in all tables. */
  private async _fold(
    tx: Tx,
    chat_id: string,
    item: EntryItem,
    isRepeated: boolean,
    outcome: Outcome,
  ): Promise<Row> {
    const target = item.target!;
    const key = [chat_id, target];
    const held = await tx.get<StoredRow>("messages", key);
    const before = held ?? (await tx.get<Row>("stubs", key)) ?? stubOf(chat_id, target);
    const after = folded(before, item);
    tx.put(held ? "messages" : "stubs", after);
    if (item.kind === "delete") {
      const about = await tx.all<Happening>("happenings", { index: "about", from: key, to: key });
      for (const one of about)
        tx.put("happenings", { ...one, before: null, ...("text" in one && { text: "" }) });
      for (const entry of await tx.all<OutboxEntry>("outbox"))
        if (entry.chat_id === chat_id && entry.body.target === target && entry.body.content)
          tx.delete("outbox", entry.client_message_id);
      for (const { message_id } of await tx.all<Row>("gone", { from: key, to: [...key, []] }))
        tx.delete("gone", [...key, message_id!]);
      tx.erase();
      outcome.erased.push([chat_id, target]);
    }
    if (!isRepeated)
      this._happen(
        tx,
        {
          kind: "changed",
          position: ++this._position,
          about: [chat_id, target],
          chat_id,
          entry_kind: item.kind!,
          sequence: item.sequence,
          sender_id: item.sender_id,
          before: !held ? null : item.kind === "delete" ? after : before,
          after: held ? after : null,
        },
        outcome,
      );
    return after;
  }

  /** After a restore, compare rows with the server's entries. A message that the server has lost
   * moves to `gone`; one that it still has is built anew, because it may have lost changes of it.
   * Returns the latter, by sequence. */
  private async _compare(
    tx: Tx,
    chat: ChatState,
    keep: Keep,
    ownId: string,
  ): Promise<Map<number, Row>> {
    const { chat_id, cursor, doubted_through = 0 } = chat;
    const upTo = keep.is_complete ? Math.max(doubted_through, keep.through) : keep.through;
    const held = await tx.all<StoredRow>("messages", chatRange(chat_id, cursor + 1, upTo));
    const items = new Map(keep.items.map((item) => [item.sequence, item]));
    const same = new Map<number, Row>();
    for (const row of held) {
      const item = items.get(row.sequence);
      if (item && (item.is_damaged || item.message_id === row.message_id)) {
        const { position, own_id, is_deleted } = row;
        // A deletion is final, even if the server has lost it.
        const anew: StoredRow = item.is_damaged || is_deleted ? row : rowOf(chat_id, item, ownId);
        if (position) anew.position = position;
        if (own_id) anew.own_id = own_id;
        tx.put("messages", anew);
        same.set(row.sequence, anew);
      } else {
        tx.delete("messages", [chat_id, row.sequence]);
        const { position, own_id, ...gone } = row;
        if (!row.is_deleted) tx.put("gone", gone);
      }
    }
    return same;
  }

  /** Begin these chats again at their start. Messages above it stay until the server has shown
   * whether it still has them; those up to it are removed, and fetched again on demand. Of these,
   * deletions are remembered as stubs, because the server may have lost them. */
  restart(records: readonly ReplicaRecord[], epoch: string | null): Promise<void> {
    return this._asLeader("strict", async (tx) => {
      if (epoch !== null) putMeta(tx, { epoch });
      for (const { chat_id, start, head } of records) {
        const chat = await tx.get<ChatState>("chats", chat_id);
        if (!chat) continue;
        const doubted_through = Math.max(chat.doubted_through ?? 0, chat.cursor);
        tx.put("chats", {
          ...chat,
          start,
          head,
          cursor: start,
          floor: start,
          doubted_through,
          last: null,
        });
        for (const table of ["messages", "stubs"] as const)
          for (const row of await tx.all<Row>(
            table,
            chatRange(chat_id, 0, table === "stubs" ? ABOVE_ALL : start),
          )) {
            tx.delete(table, [chat_id, row.sequence]);
            if (row.is_deleted) tx.put("stubs", row);
          }
      }
    });
  }

  /** Note in the store that these entries are about to leave. */
  markLeft(ids: readonly string[], left_at_ms: number): Promise<void> {
    return this._asLeader("strict", async (tx) => {
      for (const id of ids) {
        const entry = await tx.get<OutboxEntry>("outbox", id);
        if (entry && entry.left_at_ms === null) tx.put("outbox", { ...entry, left_at_ms });
      }
    });
  }
}

/** The last message of a chat, to be shown: a row without the fields that only the store needs. A
 * stub may change the last message, but is never shown itself, because it has no text. */
const forLast = (shown: StoredRow, last: Row | null | undefined): Row | null => {
  const { position, own_id, ...row } = shown;
  if (row.message_id) return row;
  if (last?.sequence !== row.sequence) return last ?? null;
  return row.edited_sequence || row.is_deleted ? merged(row, last) : last;
};
