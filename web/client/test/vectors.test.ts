// Runs the steps of the Python core and expects the same results: web/vectors, from tests/web.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { Acks } from "../src/core/acks.ts";
import { folded, isMessage, type Row, rowOf, stubOf } from "../src/core/fold.ts";
import { DEFAULTS, type Options } from "../src/core/options.ts";
import { Outbox, type OutboxEntry } from "../src/core/outbox.ts";
import { firstRecord, type Tick, tickOf } from "../src/core/record.ts";
import { Replica } from "../src/core/replica.ts";
import type { EntryItem } from "../src/wire/frames.ts";

// biome-ignore lint/suspicious/noExplicitAny: the exporter decides on the form of a case
type Case = any;

const casesOf = (name: string): Case[] =>
  JSON.parse(readFileSync(join(process.cwd(), "../vectors", `${name}.json`), "utf8"));

/** Options of the vectors with the names used here: `ack_frames_max` is `ackFramesMax`. */
const optionsOf = (told: Record<string, number>): Options => {
  const options: Record<string, number> = { ...DEFAULTS };
  for (const [name, value] of Object.entries(told)) options[camel(name)] = value;
  return options as unknown as Options;
};

const camel = (name: string): string => name.replace(/_(\w)/g, (_, letter) => letter.toUpperCase());

const half = () => 0.5;

test("replica: the chain and the numbers are those of the Python core", () => {
  for (const { record, waiting_max, own_id, steps } of casesOf("replica")) {
    const replica = new Replica(record, waiting_max);
    for (const step of steps) {
      let taken: EntryItem[] = [];
      if (step.offer) taken = replica.offer(step.offer);
      else if (step.page) taken = replica.offerPage(step.page, step.through);
      else if (step.digest) replica.mergeDigest(step.digest);
      else if (step.status) replica.mergeStatus(step.status);
      else if (step.read !== undefined) replica.readThrough(step.read);
      else replica.restart(step.restart);
      replica.countUnread(taken, own_id);
      const { cursor, head, start, read, unread, delivered, others_delivered, others_read, seen } =
        replica;
      assert.deepEqual(
        {
          taken: taken.map((item) => item.sequence),
          ...{ cursor, head, start, read, unread, delivered, others_delivered, others_read, seen },
          is_behind: replica.isBehind,
          waiting: [...replica.waiting.keys()].sort((a, b) => a - b),
        },
        step.expect,
      );
    }
  }
});

test("acks: the same frames at the same instants", () => {
  for (const { options, chats, steps } of casesOf("acks")) {
    const acks = new Acks(optionsOf(options));
    const replicas = new Map<string, Replica>();
    for (const chat_id of Object.keys(chats))
      replicas.set(chat_id, new Replica(firstRecord(chat_id, chats[chat_id], 0, 0), 9));
    for (const step of steps) {
      const replica = replicas.get(step.chat_id)!;
      for (const [name, value] of Object.entries(step.set))
        Object.assign(replica, { [camel(name)]: value });
      let frames: unknown[] = [];
      if (step.do === "stored") acks.stored(replica, step.count, step.now_ms);
      else if (step.do === "read") acks.read(replica, step.now_ms);
      else if (step.do === "reconnected") acks.reconnected(replicas.values(), step.now_ms);
      else if (step.do === "wait") acks.wait(step.now_ms + 500);
      else frames = acks.flush(step.now_ms, step.do === "flush_last");
      assert.deepEqual({ frames, next_deadline_ms: acks.nextDeadlineMs() }, step.expect);
    }
  }
});

test("tick: the same marks", () => {
  for (const { sequence, tick, ...others } of casesOf("tick"))
    assert.equal(tickOf(sequence, others), tick as Tick);
});

test("outbox: the same order, waits and ends", () => {
  for (const { options, steps } of casesOf("outbox")) {
    const box = new Outbox(optionsOf(options), half);
    const ever = new Map<string, OutboxEntry>();
    for (const step of steps) {
      const result = outboxStep(box, step, ever);
      for (const one of box.entries()) ever.set(one.client_message_id, one);
      assert.deepEqual(
        {
          result,
          entries: box.entries().map((one) => [one.client_message_id, one.state]),
          flying_count: box.flyingCount,
          next_deadline_ms: box.nextDeadlineMs(),
        },
        step.expect,
        JSON.stringify(step),
      );
    }
  }
});

test("outbox: a deletion takes the same edits along", () => {
  for (const { options, entries, steps, target, dropped } of casesOf("edits")) {
    const box = new Outbox(optionsOf(options), half);
    for (const { key, number, kind, target } of entries) {
      box.add(entryOf(key, number, "chat_1"));
      const content = kind !== "react" && `text ${number}`;
      const body = { ...(content && { content }), ...(kind !== "message" && { target }) };
      Object.assign(box.get(key)!, { kind, body });
    }
    box.release("chat_1");
    for (const step of steps) {
      if (step === "take") box.take(1000, 1000);
      else box.lost();
    }
    const deletion = { ...entryOf("key_99", 99, "chat_1"), kind: "delete", body: { target } };
    const gone = box.dropEdits(deletion as OutboxEntry).map((one) => one.client_message_id);
    assert.deepEqual(gone.sort(), dropped);
  }
});

const entryOf = (client_message_id: string, number: number, chat_id: string): OutboxEntry => ({
  client_message_id,
  chat_id,
  kind: "message",
  body: { content: `text ${number}` },
  seen_sequence: 0,
  created_at_ms: number,
  number,
  left_at_ms: null,
  state: "queued",
  is_doubtful: false,
  is_first: false,
  tries: 0,
  code: null,
  reason: null,
});

const outboxStep = (box: Outbox, step: Case, ever: Map<string, OutboxEntry>): unknown => {
  const { key, number, chat_id, now_ms } = step;
  switch (step.do) {
    case "add":
      box.add({
        ...entryOf(key, number, chat_id),
        kind: step.kind,
        body: { content: `text ${number}`, ...(step.kind === "edit" && { target: 41 }) },
      });
      return null;
    case "release":
      box.release(chat_id);
      return null;
    case "take": {
      const [leaving, doubtful] = box.take(now_ms, now_ms);
      return {
        leaving: leaving.map((one) => [one.client_message_id, one.is_first]),
        doubtful: doubtful.map((one) => one.client_message_id),
      };
    }
    case "mark": {
      const entry = box.get(key);
      return box.marked(entry ? [entry] : [], now_ms).map((one) => one.client_message_id);
    }
    case "stored":
      return box.stored(key, number) !== null;
    case "refused":
      return box.refused(key, step.code, "no", step.retry_after_ms, now_ms, step.after).length > 0;
    case "lost":
      box.lost();
      return null;
    case "retry":
      return box.retry(key, number).length > 0;
    case "saved":
      box.saved(step.keys.map((one: string) => ever.get(one)!));
      return null;
    case "erase":
      return box
        .erase(chat_id, 41)
        .map((one) => one.client_message_id)
        .sort();
    default:
      return box.drop(key).length > 0;
  }
};

// The fold.

/** The rows of a device that has got these entries, in their order. */
const shownAfter = (entries: EntryItem[], rows = new Map<number, Row>()): Map<number, Row> => {
  for (const entry of entries) {
    if (isMessage(entry)) rows.set(entry.sequence, rowOf("chat_1", entry));
    else if (entry.target) {
      const row = rows.get(entry.target) ?? stubOf("chat_1", entry.target);
      rows.set(entry.target, folded(row, entry));
    }
  }
  return rows;
};

const plain = (rows: Map<number, Row>): unknown[] =>
  [...rows.values()]
    .sort((a, b) => a.sequence - b.sequence)
    .map((row) => {
      const reactions: Record<string, string[]> = {};
      for (const [emoji, { count, users }] of Object.entries(row.reactions ?? {})) {
        const on = Object.keys(users).filter((user) => users[user]![1]);
        assert.equal(count, on.length, "a count is the size of its set");
        if (count) reactions[emoji] = on.sort();
      }
      return {
        sequence: row.sequence,
        sender_id: row.sender_id,
        is_deleted: row.is_deleted ?? false,
        deleted_sequence: row.deleted_sequence ?? null,
        content: row.content,
        edited_sequence: row.edited_sequence ?? null,
        reply_to: row.reply_to ?? null,
        mentions: row.mentions ?? [],
        reactions,
      };
    });

test("fold: the view is that of the reference, wherever it is looked at", () => {
  for (const { entries, served, views } of casesOf("fold")) {
    for (const [end, view] of Object.entries(views))
      assert.deepEqual(plain(shownAfter(entries.slice(0, Number(end)))), view);
    assert.deepEqual(plain(shownAfter(served)), views[entries.length], "as it is synced later");
  }
});

test("fold: a stale view and what came since are a fresh view, at every split", () => {
  for (const { entries, served, views } of casesOf("fold"))
    for (let split = 0; split <= entries.length; split++) {
      const stale = shownAfter(entries.slice(0, split));
      // Entries since the page are fetched, some of them a second time.
      const since = served
        .slice(Math.max(split - 3, 0))
        .filter((entry: EntryItem) => (isMessage(entry) ? !stale.has(entry.sequence) : true));
      assert.deepEqual(plain(shownAfter(since, stale)), views[entries.length]);
    }
});

test("fold: counts need no help of the server as long as all entries are held", () => {
  for (const { entries, views } of casesOf("fold")) {
    const without = entries.map(({ count, ...entry }: EntryItem) => entry);
    assert.deepEqual(plain(shownAfter(without)), views[entries.length]);
  }
});
