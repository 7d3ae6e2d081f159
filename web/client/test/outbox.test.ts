// Parts of this outbox that differ from the Python one: entries about entries, refused mentions.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { DEFAULTS } from "../src/core/options.ts";
import { frameOf, isRetryable, Outbox, type OutboxEntry } from "../src/core/outbox.ts";

const entry = (number: number, more: Partial<OutboxEntry> = {}): OutboxEntry => ({
  client_message_id: `key_${number}`,
  chat_id: "chat_1",
  kind: "message",
  body: { content: `text ${number}` },
  seen_sequence: 0,
  created_at_ms: 0,
  number,
  left_at_ms: null,
  state: "queued",
  is_doubtful: false,
  is_first: false,
  tries: 0,
  code: null,
  reason: null,
  ...more,
});

const about = (number: number, target: number): OutboxEntry =>
  entry(number, { kind: "edit", body: { content: "better" }, target_id: `key_${target}` });

const opened = (...entries: OutboxEntry[]): Outbox => {
  const box = new Outbox(DEFAULTS, () => 0.5);
  for (const one of entries) box.add(one);
  box.release("chat_1");
  return box;
};

const numbers = (entries: readonly OutboxEntry[]): number[] => entries.map((one) => one.number);

const take = (box: Outbox, nowMs = 0): number[] =>
  box.take(nowMs, nowMs)[0].map((one) => one.number);

test("an edit of what is in the outbox waits for its sequence, and leaves with it", () => {
  const box = opened(entry(1), about(2, 1), entry(3));
  assert.deepEqual(take(box), [1]);
  box.stored("key_1", 41);
  assert.deepEqual(take(box), [2]);
  const frame = frameOf(box.get("key_2")!, "1");
  assert.equal(frame.type, "edit_message");
  assert.deepEqual(frame.payload, {
    client_message_id: "key_2",
    chat_id: "chat_1",
    content: "better",
    target: 41,
  });
  box.stored("key_2", 42);
  assert.deepEqual(take(box), [3]);
});

test("what may leave at once does not pass what the disk has to mark first", () => {
  const box = new Outbox({ ...DEFAULTS, window: 3 }, () => 0.5);
  for (const one of [entry(1), entry(2), entry(3, { left_at_ms: 5 })]) box.add(one);
  box.release("chat_1");
  const [leaving] = box.take(0, 0);
  assert.deepEqual(numbers(leaving), [1, 2]);
  assert.deepEqual(take(box), []);
  box.marked(leaving, 9);
  assert.deepEqual(take(box), [3]);
});

test("a deletion takes edits of its message along, but for one that may have left", () => {
  const edit = (number: number, target: number, more: Partial<OutboxEntry> = {}): OutboxEntry =>
    entry(number, { kind: "edit", body: { content: "better", target }, ...more });
  const deletion = entry(9, { kind: "delete", body: { target: 41 } });
  const box = opened(
    edit(1, 41),
    edit(2, 41),
    edit(3, 42),
    edit(4, 41, { chat_id: "chat_2" }),
    entry(5, { kind: "react", body: { target: 41, emoji: "+", is_on: true } }),
    edit(6, 41, { is_doubtful: true }),
  );
  assert.deepEqual(take(box), [1]);
  assert.deepEqual(box.dropEdits(edit(8, 41)), []);
  assert.deepEqual(
    box.dropEdits(deletion).map((one) => one.number),
    [2],
  );
  assert.deepEqual(
    box.entries().map((one) => one.number),
    [1, 3, 4, 5, 6],
  );
  // Edits of a message that is in the outbox itself, and may have left.
  const behind = opened(entry(1), about(2, 1), about(3, 1), entry(4));
  take(behind);
  behind.dropEdits(entry(9, { kind: "delete", body: {}, target_id: "key_1" }));
  assert.deepEqual(
    behind.entries().map((one) => one.number),
    [1, 4],
  );
});

test("what is about a message that is refused for good fails with it, and holds nothing back", () => {
  const box = opened(entry(1), about(2, 1), entry(3));
  take(box);
  const failed = box.refused("key_1", "FORBIDDEN", "no", 0, 0);
  assert.deepEqual(
    failed.map((one) => [one.number, one.state, one.code]),
    [
      [1, "failed", "FORBIDDEN"],
      [2, "failed", "FORBIDDEN"],
    ],
  );
  box.saved(failed);
  assert.deepEqual(take(box), [3]);
  // The message that it is about has to be sent first.
  assert.deepEqual(box.retry("key_2", 9), []);
  assert.deepEqual(numbers(box.retry("key_1", 10)), [10, 11]);
  box.stored("key_3", 40);
  assert.deepEqual(take(box), [10]);
  box.stored("key_1", 41);
  assert.deepEqual(take(box), [11]);
});

test("a change of a message that has failed meanwhile fails, and holds nothing back", () => {
  const box = opened(entry(1));
  take(box);
  box.saved(box.refused("key_1", "FORBIDDEN", "no", 0, 0));
  assert.equal(box.add(about(2, 1)), false);
  assert.equal(box.add(about(3, 9)), false);
  box.saved([box.get("key_2")!, box.get("key_3")!]);
  assert.deepEqual(
    [box.get("key_2")!.state, box.get("key_3")!.code],
    ["failed", "TARGET_NOT_FOUND"],
  );
  box.add(entry(4));
  box.release("chat_1");
  assert.deepEqual(take(box), [4]);
  assert.deepEqual(numbers(box.retry("key_1", 5)), [5, 6]);
});

/** A message whose fate is unknown, with a change of it from before and one from after. */
const unknown = (): Outbox => {
  const old = entry(1, { left_at_ms: 0, state: "flying" });
  const box = new Outbox(DEFAULTS, () => 0.5, [old, about(2, 1), entry(3)]);
  box.release("chat_1");
  const [leaving, doubtful] = box.take(0, DEFAULTS.fateMsMax);
  assert.deepEqual([numbers(leaving), numbers(doubtful)], [[], [1]]);
  box.saved(doubtful);
  assert.deepEqual(take(box), [3]);
  assert.ok(box.add(about(4, 1)));
  box.add(entry(5));
  box.stored("key_3", 40);
  assert.deepEqual(take(box), [5]);
  box.stored("key_5", 41);
  assert.deepEqual(box.waitingChats(), []);
  return box;
};

test("what is about a message of unknown fate waits, and holds nothing back", () => {
  assert.deepEqual(numbers(unknown().drop("key_1")), [1, 2, 4]);
  const again = unknown();
  assert.deepEqual(numbers(again.retry("key_1", 6)), [6, 7, 8]);
  again.release("chat_1");
  assert.deepEqual(take(again), [6]);
  // In the next run, too.
  const { state, ...message } = again.entries()[0]!;
  const next = new Outbox(DEFAULTS, () => 0.5, [
    { ...message, state: "unknown" },
    about(7, 1),
    entry(9),
  ]);
  next.release("chat_1");
  assert.deepEqual(take(next), [9]);
  // The server has it after all.
  const found = unknown();
  found.stored("key_1", 39);
  found.release("chat_1");
  assert.deepEqual(take(found), [2]);
  assert.equal(found.get("key_2")!.body.target, 39);
  found.stored("key_2", 42);
  assert.deepEqual(take(found), [4]);
});

test("what has surely not left is changed in place, also if it left and was refused", () => {
  const box = opened(entry(1), entry(2, { left_at_ms: 5 }));
  take(box);
  assert.deepEqual([box.isHere("key_1"), box.isHere("key_2")], [false, true]);
  box.marked([box.get("key_1")!], 7);
  box.refused("key_1", "SERVER_BUSY", "later", 0, 0);
  assert.equal(box.isHere("key_1"), false);
  take(box, 1e6);
  box.refused("key_1", "FORBIDDEN", "no", 0, 0);
  assert.equal(box.isHere("key_1"), true);
  const doubtful = unknown();
  assert.deepEqual([doubtful.isHere("key_1"), doubtful.isHere("key_2")], [false, true]);
});

test("a message whose mention is refused goes again without it, before the next", () => {
  const box = opened(
    entry(1, { body: { content: "@ann @ben", mentions: ["ann", "ben"] } }),
    entry(2),
  );
  take(box);
  assert.ok(box.unmention("key_1", ["ben"]));
  assert.deepEqual(take(box), [1]);
  assert.deepEqual(box.get("key_1")!.body.mentions, ["ann"]);
  // It has no such mention: then it is a refusal like any other.
  assert.equal(box.unmention("key_1", ["carl"]), false);
});

test("a deletion takes the texts of edits with it, also of one that is on its way", () => {
  const edit = (number: number) =>
    entry(number, { kind: "edit", body: { content: "secret", target: 7 } });
  const box = opened(edit(1), edit(2));
  assert.deepEqual(take(box), [1]);
  const gone = box.erase("chat_1", 7);
  assert.deepEqual(
    gone.map((one) => [one.number, one.state, one.code, one.body.content]),
    [
      [1, "failed", "MESSAGE_DELETED", ""],
      [2, "failed", "MESSAGE_DELETED", ""],
    ],
  );
  assert.deepEqual([box.entries(), box.flyingCount, box.waitingChats()], [[], 0, []]);
  // The server's answer to the first one is of no use any more.
  assert.deepEqual(box.refused("key_1", "MESSAGE_DELETED", "no", 0, 0), []);
});

test("a change of a deleted message is removed when it is refused, and its text with it", () => {
  const reaction = { target: 7, emoji: "+", is_on: true };
  const box = opened(
    entry(1, { kind: "edit", body: { content: "secret", target: 7 } }),
    entry(2, { kind: "react", body: reaction }),
    entry(3),
  );
  for (const number of [1, 2, 3]) {
    assert.deepEqual(take(box), [number]);
    const [refused] = box.refused(`key_${number}`, "MESSAGE_DELETED", "gone", 0, 0);
    assert.deepEqual(
      [refused!.state, refused!.code, refused!.reason],
      ["failed", "MESSAGE_DELETED", "gone"],
    );
    assert.equal(refused!.body.content, number < 3 ? "" : "text 3");
    box.saved([refused!]);
  }
  // What its user has written for itself stays.
  assert.deepEqual(numbers(box.entries()), [3]);
});

test("every code of the protocol is tried again if its row says so, and only then", () => {
  const page = readFileSync(join(process.cwd(), "../../docs/protocol.md"), "utf8");
  const rows = [...page.matchAll(/^\| `([A-Z_]+)` \| \d+ \|[^|]*\| (yes|no) \|/gm)];
  assert.ok(rows.length > 25);
  for (const [, code, retry] of rows) assert.equal(isRetryable(code!), retry === "yes", code);
  assert.ok(isRetryable("OF_NEXT_YEAR"));
});
