// The store's tables with each backend: what is kept, folded and erased, and which tab may write.

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import "fake-indexeddb/auto";
import type { Keep } from "../src/core/effects.ts";
import type { OutboxEntry } from "../src/core/outbox.ts";
import { firstRecord } from "../src/core/record.ts";
import { Replica } from "../src/core/replica.ts";
import type { Backend } from "../src/shell/backend.ts";
import { OutboxFull, StoreUnusable } from "../src/shell/errors.ts";
import { FileBackend } from "../src/shell/file.ts";
import { goneOf, keepHistory, searchIn } from "../src/shell/history.ts";
import { openIdb } from "../src/shell/idb.ts";
import { type Job, Keeping, NotLeader, type Outcome } from "../src/shell/keeping.ts";
import { saveExtras } from "../src/shell/learning.ts";
import { nextEvents } from "../src/shell/listening.ts";
import { MemoryBackend } from "../src/shell/memory.ts";
import { Tables as Reading } from "../src/shell/tables.ts";
import type { EntryItem, HistoryItem } from "../src/wire/frames.ts";

const OWN = "user_own";

/** A tab that can become the leader. */
class Tables extends Reading {
  keeping = new Keeping(this.backend);
  lead = () => this.keeping.lead();
  isLeading = () => this.keeping.isLeading();
  write = (job: Job) => this.keeping.write(job);
  markLeft = (ids: string[], atMs: number) => this.keeping.markLeft(ids, atMs);
  nextEvents = (after: number, limit: number) => nextEvents(this.backend, after, limit);
  restart = (...args: Parameters<Keeping["restart"]>) => this.keeping.restart(...args);
}
const folder = mkdtempSync(join(tmpdir(), "tidewire-tables-"));
after(() => rmSync(folder, { recursive: true }));

let made = 0;
const BACKENDS: Record<string, () => Promise<Backend>> = {
  memory: async () => new MemoryBackend(),
  IndexedDB: () => openIdb(`db ${++made}`),
  file: () => FileBackend.open(join(folder, `${++made}.tidewire`)),
};

const on = (name: string, body: (tables: Tables) => Promise<void>): void => {
  for (const [kind, open] of Object.entries(BACKENDS))
    test(`${name} (${kind})`, async () => {
      const tables = new Tables(await open());
      await tables.lead();
      await body(tables);
      await tables.backend.close();
    });
};

const item = (sequence: number, more: Partial<EntryItem> = {}): EntryItem => ({
  message_id: `msg_${sequence}`,
  sequence,
  prev_sequence: sequence - 1,
  sender_id: "user_b",
  client_message_id: `key_${sequence}`,
  created_at: `2031-05-04T11:20:07.${String(sequence).padStart(3, "0")}Z`,
  content: `text ${sequence}`,
  ...more,
});
const edit = (sequence: number, target: number, content: string): EntryItem =>
  item(sequence, { kind: "edit", target, content });
const deletion = (sequence: number, target: number): EntryItem => {
  const { content, ...entry } = item(sequence, { kind: "delete", target });
  return entry;
};
const reaction = (sequence: number, target: number, count: number, isOn = true): EntryItem =>
  item(sequence, { kind: "react", target, emoji: "👍", is_on: isOn, count, content: "" });

const replicaOf = (chatId = "chat_1", start = 0): Replica =>
  new Replica(firstRecord(chatId, "direct", start, start), 100);

const kept = (replica: Replica, items: EntryItem[], through?: number): Keep => ({
  do: "keep",
  replica,
  items,
  through: through ?? items.at(-1)?.sequence ?? 0,
  generation: 0,
  is_complete: false,
});

const write = (tables: Tables, job: Partial<Job>): Promise<Outcome> =>
  tables.write({
    keeps: [],
    chats: [],
    entries: [],
    dropped: [],
    happened: [],
    meta: { user_id: OWN },
    ...job,
  });

const texts = async (tables: Tables, chatId = "chat_1"): Promise<string[]> =>
  (await tables.messages(chatId, Number.MAX_SAFE_INTEGER, 0, 1000, true)).map((row) => row.content);

const queued = (id: string, more: Partial<OutboxEntry> = {}): OutboxEntry => ({
  client_message_id: id,
  chat_id: "chat_1",
  kind: "message",
  body: { content: id },
  seen_sequence: 0,
  created_at_ms: 0,
  number: 0,
  left_at_ms: null,
  state: "queued",
  is_doubtful: false,
  is_first: false,
  tries: 0,
  code: null,
  reason: null,
  ...more,
});

on("messages are kept in their order, newest or oldest of a range", async (tables) => {
  const items = [1, 2, 3, 4, 5].map((sequence) => item(sequence));
  const { chats } = await write(tables, { keeps: [kept(replicaOf(), items)] });
  assert.equal(chats[0]!.cursor, 5);
  assert.equal(chats[0]!.last!.content, "text 5");
  const some = async (...range: [number, number, number, boolean]) =>
    (await tables.messages("chat_1", ...range)).map((row) => row.sequence);
  assert.deepEqual(await some(5, 0, 2, true), [3, 4]);
  assert.deepEqual(await some(99, 2, 2, false), [3, 4]);
  assert.deepEqual(await some(99, 0, 1000, true), [1, 2, 3, 4, 5]);
  // There is nothing between: IndexedDB refuses a range whose lower end is above the upper one.
  assert.deepEqual(await some(3, 5, 10, true), []);
});

on("entries are folded into their messages, in one transaction or several", async (tables) => {
  const replica = replicaOf();
  await write(tables, { keeps: [kept(replica, [item(1), item(2), edit(3, 1, "better")])] });
  const { happened } = await write(tables, {
    keeps: [kept(replica, [reaction(4, 2, 1), edit(5, 1, "best")])],
  });
  assert.deepEqual(await texts(tables), ["best", "text 2"]);
  const [, second] = await tables.messages("chat_1", 99, 0, 9, true);
  assert.deepEqual(second!.reactions!["👍"]!.count, 1);
  const changed = happened.filter((one) => one.kind === "changed");
  assert.deepEqual(
    changed.map((one) => [one.sequence, one.before?.content, one.after?.content]),
    [
      [4, "text 2", "text 2"],
      [5, "better", "best"],
    ],
  );
});

on("a deletion erases the text wherever it is", async (tables) => {
  const replica = replicaOf();
  await write(tables, { keeps: [kept(replica, [item(1), edit(2, 1, "a secret")])] });
  await tables.enter([queued("a", { kind: "edit", body: { content: "s", target: 1 } })], 10);
  const { erased, happened, chats } = await write(tables, {
    keeps: [kept(replica, [deletion(3, 1)])],
  });
  assert.deepEqual(erased, [["chat_1", 1]]);
  assert.deepEqual(await texts(tables), [""]);
  assert.equal(chats[0]!.last!.content, "");
  assert.deepEqual((await tables.load()).entries, []);
  assert.equal(happened[0]!.kind === "changed" && happened[0]!.before!.content, "");
  const [events] = await tables.nextEvents(0, 99);
  assert.ok(!JSON.stringify(events).includes("secret"));
  assert.ok(!JSON.stringify(events).includes("text 1"));
});

on("a deleted message gets no text back from what comes late", async (tables) => {
  const replica = replicaOf();
  await write(tables, { keeps: [kept(replica, [item(1), deletion(2, 1)])] });
  await write(tables, { keeps: [kept(replica, [edit(3, 1, "again"), reaction(4, 1, 1)])] });
  await keepHistory(tables, "chat_1", [{ ...item(1), chat_id: "chat_1" }], OWN, 0);
  const [row] = await tables.messages("chat_1", 99, 0, 9, true);
  assert.deepEqual([row!.content, row!.is_deleted, row!.reactions], ["", true, undefined]);
});

on("a kind that is not known is held, moves the cursor and is not shown", async (tables) => {
  const pin = item(2, { kind: "pin", target: 1 });
  const { chats, happened } = await write(tables, { keeps: [kept(replicaOf(), [item(1), pin])] });
  assert.equal(chats[0]!.cursor, 2);
  assert.equal(happened.length, 1);
  assert.deepEqual(await texts(tables), ["text 1"]);
  const held = await tables.backend.run("read", (tx) => tx.all("held"));
  assert.equal(held.length, 1);
});

on(
  "what is said about a message that is not held counts when history brings it",
  async (tables) => {
    const replica = replicaOf("chat_1", 10);
    await write(tables, {
      keeps: [kept(replica, [edit(11, 4, "newer"), reaction(12, 5, 3), deletion(13, 6)])],
    });
    assert.deepEqual(await texts(tables), []);
    const page: HistoryItem[] = [4, 5, 6].map((sequence) => ({
      ...item(sequence),
      chat_id: "chat_1",
      now: sequence === 4 ? { content: "older", edited_sequence: 9 } : {},
    }));
    const rows = await keepHistory(tables, "chat_1", page, OWN, 3);
    assert.deepEqual(
      rows.map((row) => [row.content, row.reactions?.["👍"]?.count, row.is_deleted]),
      [
        ["newer", undefined, undefined],
        ["text 5", 3, undefined],
        ["", undefined, true],
      ],
    );
    assert.deepEqual(await texts(tables), ["newer", "text 5", ""]);
    // Later entries continue from there.
    await write(tables, { keeps: [kept(replica, [edit(14, 5, "later")])] });
    assert.deepEqual(await texts(tables), ["newer", "later", ""]);
    assert.equal((await tables.load()).chats[0]!.floor, 3);
  },
);

on(
  "a page of history that is not kept changes nothing, and is folded all the same",
  async (tables) => {
    await write(tables, { keeps: [kept(replicaOf("chat_1", 10), [edit(11, 4, "newer")])] });
    const rows = await keepHistory(
      tables,
      "chat_1",
      [{ ...item(4), chat_id: "chat_1" }],
      OWN,
      null,
    );
    assert.equal(rows[0]!.content, "newer");
    assert.deepEqual(await texts(tables), []);
  },
);

on("after a restore what the server has lost is gone, and the rest begins anew", async (tables) => {
  const replica = replicaOf();
  const items = [item(1), item(2, { sender_id: OWN }), item(3), edit(4, 1, "lost edit")];
  await write(tables, { keeps: [kept(replica, items)] });
  replica.restart(0);
  await tables.restart([replica.record()], "epoch 2");
  assert.deepEqual(await texts(tables), ["lost edit", "text 2", "text 3"]);
  const after = item(1001, { prev_sequence: 2 });
  const { happened } = await write(tables, {
    keeps: [{ ...kept(replica, [item(1), item(2, { sender_id: OWN }), after]), is_complete: true }],
  });
  assert.deepEqual(await texts(tables), ["text 1", "text 2", "text 1001"]);
  assert.deepEqual(
    happened.map((one) => one.kind === "message" && one.row.sequence),
    [1001],
  );
  assert.deepEqual(
    (await goneOf(tables, "chat_1", 9)).map((row) => row.content),
    ["text 3"],
  );
  const { chats } = await tables.load();
  assert.deepEqual([chats[0]!.doubted_through, chats[0]!.last!.content], [0, "text 1001"]);
  // The id of an own message is still known.
  assert.equal((await tables.enter([queued("key_2")], 9)).get("key_2")!.sequence, 2);
});

on("a whole copy is not replaced by a damaged one", async (tables) => {
  const replica = replicaOf();
  await write(tables, { keeps: [kept(replica, [item(1)])] });
  replica.restart(0);
  await tables.restart([replica.record()], null);
  await write(tables, { keeps: [kept(replica, [item(1, { is_damaged: true, content: "" })])] });
  assert.deepEqual(await texts(tables), ["text 1"]);
});

on("a restored server brings no deleted text back", async (tables) => {
  const replica = replicaOf();
  const items = [item(1, { content: "secret" }), item(2), deletion(3, 1)];
  await write(tables, { keeps: [kept(replica, items)] });
  replica.restart(0);
  await tables.restart([replica.record()], "epoch 2");
  const again = [item(1, { content: "secret" }), item(2), item(1001, { prev_sequence: 2 })];
  await write(tables, { keeps: [{ ...kept(replica, again), is_complete: true }] });
  await write(tables, { keeps: [kept(replica, [edit(1002, 1, "secret again")])] });
  assert.deepEqual(await texts(tables), ["", "text 2", "text 1001"]);
});

on("nor does a page of its history, of what is not held", async (tables) => {
  const replica = replicaOf("chat_1", 5);
  const page: HistoryItem[] = [{ ...item(4, { content: "secret" }), chat_id: "chat_1" }];
  // One message that was held below the start, and one that was never held.
  await write(tables, { keeps: [kept(replica, [item(6)])] });
  await keepHistory(tables, "chat_1", page, OWN, 4);
  await write(tables, { keeps: [kept(replica, [deletion(7, 4), deletion(8, 3)])] });
  replica.restart(5);
  await tables.restart([replica.record()], "epoch 2");
  const rows = await keepHistory(
    tables,
    "chat_1",
    [{ ...item(3, { content: "secret" }), chat_id: "chat_1" }, ...page],
    OWN,
    null,
  );
  assert.deepEqual(
    rows.map((row) => [row.sequence, row.content, row.is_deleted]),
    [
      [3, "", true],
      [4, "", true],
    ],
  );
});

on("what a restored server has lost is erased if it is deleted later", async (tables) => {
  const replica = replicaOf();
  await write(tables, { keeps: [kept(replica, [item(1), item(2), item(3)])] });
  replica.restart(0);
  await tables.restart([replica.record()], "epoch 2");
  const after = item(1001, { prev_sequence: 1 });
  await write(tables, { keeps: [{ ...kept(replica, [item(1), after]), is_complete: true }] });
  await write(tables, { keeps: [kept(replica, [deletion(1002, 2)])] });
  assert.deepEqual(
    (await goneOf(tables, "chat_1", 9)).map((row) => row.content),
    ["text 3"],
  );
});

on("an edit that is refused after the deletion leaves no text", async (tables) => {
  await write(tables, { keeps: [kept(replicaOf(), [item(1), deletion(2, 1)])] });
  const body = { target: 1, content: "secret" };
  const refused = queued("e", { kind: "edit", body, state: "failed", code: "MESSAGE_DELETED" });
  await write(tables, {
    entries: [refused],
    happened: [
      (position) => ({
        kind: "refused",
        position,
        about: ["chat_1", 1],
        chat_id: "chat_1",
        client_message_id: "e",
        entry_kind: "edit",
        text: "secret",
        code: "MESSAGE_DELETED",
        reason: "this message was deleted",
      }),
    ],
  });
  assert.deepEqual((await tables.load()).entries, []);
  const [events] = await tables.nextEvents(0, 9);
  assert.ok(!JSON.stringify(events).includes("secret"));
});

on("what an unknown kind says is not kept", async (tables) => {
  const pin = item(2, { kind: "pin", target: 1, content: "secret" });
  await write(tables, { keeps: [kept(replicaOf(), [item(1), pin])] });
  const held = await tables.backend.run("read", (tx) => tx.all<EntryItem>("held"));
  assert.deepEqual(
    held.map((one) => [one.sequence, one.kind, one.content]),
    [[2, "pin", ""]],
  );
});

on("who does not lead any more writes nothing", async (tables) => {
  const other = new Tables(tables.backend);
  await other.lead();
  assert.equal(await tables.isLeading(), false);
  await assert.rejects(write(tables, { keeps: [kept(replicaOf(), [item(1)])] }), NotLeader);
  await assert.rejects(tables.markLeft(["a"], 1), NotLeader);
  await assert.rejects(tables.restart([], "x"), NotLeader);
  assert.deepEqual(await texts(tables), []);
  await write(other, { keeps: [kept(replicaOf(), [item(1)])] });
  assert.deepEqual(await texts(tables), ["text 1"]);
});

on(
  "the outbox orders what all tabs write, knows what is stored, and is bounded",
  async (tables) => {
    await write(tables, { keeps: [kept(replicaOf(), [item(1, { sender_id: OWN })])] });
    const known = await tables.enter([queued("b"), queued("key_1"), queued("a")], 3);
    assert.deepEqual([...known.keys()], ["key_1"]);
    await new Tables(tables.backend).enter([queued("c")], 3);
    assert.deepEqual(
      (await tables.load()).entries.map((entry) => [entry.client_message_id, entry.number]),
      [
        ["b", 1],
        ["a", 2],
        ["c", 3],
      ],
    );
    await assert.rejects(tables.enter([queued("d")], 3), OutboxFull);
    await tables.markLeft(["a"], 77);
    assert.equal((await tables.load()).entries[1]!.left_at_ms, 77);
  },
);

on(
  "an own entry that has come back leaves the outbox, and what is about it knows where",
  async (tables) => {
    await tables.enter([queued("key_1"), queued("e", { kind: "edit", target_id: "key_1" })], 9);
    await write(tables, { keeps: [kept(replicaOf(), [item(1, { sender_id: OWN })])] });
    const { entries } = await tables.load();
    assert.deepEqual(
      entries.map((entry) => [entry.client_message_id, entry.target_id, entry.body.target]),
      [["e", null, 1]],
    );
  },
);

on("a chat's numbers never go back, and what a list tells is kept beside them", async (tables) => {
  const replica = replicaOf();
  replica.read = 5;
  await write(tables, { chats: [replica.record()] });
  replica.read = 3;
  replica.name = "Ben";
  await write(tables, { chats: [replica.record()] });
  await saveExtras(tables, new Map([["chat_1", { muted_until: "2031-01-01T00:00:00.000Z" }]]));
  const { chats } = await write(tables, { chats: [replica.record()] });
  assert.deepEqual(
    [chats[0]!.read, chats[0]!.name, chats[0]!.muted_until],
    [5, "Ben", "2031-01-01T00:00:00.000Z"],
  );
});

on("events come in stored order, until they are confirmed", async (tables) => {
  const replica = replicaOf();
  await write(tables, { keeps: [kept(replica, [item(1), edit(2, 1, "b"), item(3)])] });
  const [events, offered] = await tables.nextEvents(0, 2);
  assert.deepEqual(
    events.map((one) => one.kind),
    ["message", "changed"],
  );
  assert.equal(offered, 0);
  await tables.confirm(events[0]!.position);
  const next = new Tables(tables.backend);
  await next.lead();
  const [again, wasOffered] = await next.nextEvents(events[0]!.position, 9);
  assert.deepEqual(
    again.map((one) => [one.kind, one.position <= wasOffered]),
    [
      ["changed", true],
      ["message", false],
    ],
  );
  assert.equal(again[0]!.kind === "changed" && again[0]!.after!.content, "b");
  // Positions continue from where they were.
  const { happened } = await write(next, { keeps: [kept(replica, [item(4)])] });
  assert.ok(happened[0]!.position > again[1]!.position);
});

on("unread messages and mentions are counted, without own and deleted ones", async (tables) => {
  const items = [
    item(1),
    item(2, { sender_id: OWN }),
    item(3, { mentions: [OWN] }),
    item(4, { mentions: ["@all"] }),
    deletion(5, 4),
    reaction(6, 1, 1),
  ];
  await write(tables, { keeps: [kept(replicaOf(), items)] });
  assert.deepEqual(await tables.countUnread("chat_1", 0, OWN), [2, 1]);
  assert.deepEqual(await tables.countUnread("chat_1", 1, OWN), [1, 1]);
});

on("unread of one who is far behind is that of the last messages", async (tables) => {
  const own = (from: number, count: number) =>
    Array.from({ length: count }, (_, at) => item(from + at, { sender_id: OWN }));
  const items = [
    ...[item(1), item(2, { mentions: [OWN] }), item(3), item(4), item(5)],
    ...own(6, 996),
    ...[item(1002), deletion(1003, 1002)],
    ...[item(1004), item(1005, { mentions: ["@all"] }), reaction(1006, 1, 1)],
  ];
  await write(tables, { keeps: [kept(replicaOf(), items)] });
  // The last 1000 messages are those from 5 on, with the own ones and the deleted one. No more are
  // read, so the mention in message 2 is not found.
  assert.deepEqual(await tables.countUnread("chat_1", 0, OWN), [3, 1]);
  assert.deepEqual(await tables.countUnread("chat_1", 4, OWN), [3, 1]);
  assert.deepEqual(await tables.countUnread("chat_1", 1004, OWN), [1, 1]);
});

on("search finds what is shown now, newest first, in one chat or all", async (tables) => {
  await write(tables, {
    keeps: [
      kept(replicaOf("chat_1"), [
        item(1, { content: "Über uns" }),
        item(2),
        edit(3, 2, "über alles"),
      ]),
      kept(replicaOf("chat_2"), [item(5, { content: "ÜBER dies" }), item(6)]),
    ],
  });
  const found = async (text: string, chat: string | null) =>
    (await searchIn(tables, text, chat, 9)).map((row) => row.content);
  assert.deepEqual(await found("über", null), ["ÜBER dies", "über alles", "Über uns"]);
  assert.deepEqual(await found("über", "chat_1"), ["über alles", "Über uns"]);
  assert.deepEqual(await found("text 2", null), []);
});

on("search looks everywhere, however much there is", async (tables) => {
  const many = (from: number, count: number, word: string) =>
    Array.from({ length: count }, (_, at) => item(from + at, { content: `${word} ${from + at}` }));
  await write(tables, {
    keeps: [
      kept(replicaOf("chat_1"), many(1, 2345, "one")),
      kept(replicaOf("chat_2"), many(1, 1000, "two")),
    ],
  });
  const count = async (text: string, chat: string | null, limit = 10_000) =>
    (await searchIn(tables, text, chat, limit)).length;
  assert.equal(await count("o", null), 3345);
  assert.equal(await count("one", "chat_1"), 2345);
  assert.equal(await count("two", "chat_1"), 0);
  assert.equal(await count("two", "chat_2"), 1000);
  assert.equal(await count("one", "chat_1", 20), 20);
});

// Only the file backend.

const place = (): string => join(folder, `${++made}.tidewire`);

const withText = async (path: string, content: string): Promise<void> => {
  const tables = new Tables(await FileBackend.open(path));
  await tables.lead();
  await write(tables, { keeps: [kept(replicaOf(), [item(1, { content })])] });
  await tables.backend.close();
};

test("a file is found again as it was left", async () => {
  const path = place();
  await withText(path, "kept");
  const tables = new Tables(await FileBackend.open(path));
  assert.deepEqual(await texts(tables), ["kept"]);
  await tables.backend.close();
});

test("a line that was torn was never done, and nothing else is lost", async () => {
  const path = place();
  await withText(path, "kept");
  const whole = readFileSync(path, "utf8");
  for (const torn of [
    `${whole}0123456789abcdef [["meta"`,
    whole.slice(0, -9),
    `${whole}garbage\n`,
  ]) {
    writeFileSync(path, torn);
    const backend = await FileBackend.open(path);
    await backend.close();
    assert.ok(readFileSync(path, "utf8").endsWith("\n"));
  }
});

test("damage in the middle is told, and not passed over", async () => {
  const path = place();
  await withText(path, "kept");
  const lines = readFileSync(path, "utf8").split("\n");
  lines[2] = lines[2]!.replace(/\d/, (digit) => String((Number(digit) + 1) % 10));
  writeFileSync(path, lines.join("\n"));
  await assert.rejects(FileBackend.open(path), /damaged in line 3/);
});

test("a file of others, of a newer version, or in use is refused with a sentence", async () => {
  const path = place();
  writeFileSync(path, "my diary\n");
  await assert.rejects(FileBackend.open(path), /some other program/);
  writeFileSync(path, "tidewire-client 99\n");
  await assert.rejects(FileBackend.open(path), /newer Tidewire/);
  const other = place();
  const backend = await FileBackend.open(other);
  await assert.rejects(FileBackend.open(other), /in use by another process/);
  await backend.close();
  await (await FileBackend.open(other)).close();
  await assert.rejects(FileBackend.open(join(folder, "none", "x")), StoreUnusable);
});

test("a text that was deleted is in no line of the file", async () => {
  const path = place();
  await withText(path, "a secret");
  const tables = new Tables(await FileBackend.open(path));
  await tables.lead();
  const replica = replicaOf();
  await write(tables, { keeps: [kept(replica, [edit(2, 1, "a secret, too")])] });
  assert.ok(readFileSync(path, "utf8").includes("a secret"));
  await write(tables, { keeps: [kept(replica, [deletion(3, 1)])] });
  assert.ok(!readFileSync(path, "utf8").includes("a secret"));
  await tables.backend.close();
});

test("a text that was dropped before it left is in no line of the file", async () => {
  const path = place();
  const tables = new Tables(await FileBackend.open(path));
  await tables.lead();
  await tables.enter([queued("a", { body: { content: "a secret" } })], 9);
  assert.ok(readFileSync(path, "utf8").includes("a secret"));
  await write(tables, { dropped: ["a"] });
  await tables.backend.close();
  assert.ok(!readFileSync(path, "utf8").includes("a secret"));
});

test("a drop is on the disk when it is done, with nothing else to write, too", async () => {
  const path = place();
  const tables = new Tables(await FileBackend.open(path));
  await tables.lead();
  await tables.enter([queued("a", { body: { content: "a secret" } })], 9);
  await write(tables, { dropped: ["a"] });
  assert.ok(!readFileSync(path, "utf8").includes("a secret"));
  await tables.backend.close();
});

test("a file that is deleted is gone", async () => {
  const path = place();
  const backend = await FileBackend.open(path);
  await backend.destroy();
  assert.throws(() => readFileSync(path));
});

test("a journal is rewritten for its bytes, whatever letters it has", async () => {
  const path = join(folder, "long.tidewire");
  const tables = new Tables(await FileBackend.open(path));
  for (let n = 0; n < 5; n++) await tables.setMeta({ draft: "€".repeat(500_000) });
  // Five lines of 1.5 MB would be 7.5: the fourth was written anew, as the only one.
  assert.ok(statSync(path).size < 4 * 1024 * 1024);
  await tables.backend.close();
});
