import assert from "node:assert/strict";
import { test } from "node:test";
import type { Message, Sent } from "@tidewire/client";
import { keepRows, type Row, rowsOf } from "../src/model/rows.ts";

const NOON = new Date(2030, 4, 6, 12).getTime();

function message(sequence: number, minutes: number, senderId = "ben"): Message {
  return {
    sequence,
    senderId,
    clientMessageId: `m${sequence}`,
    isOwn: senderId === "me",
    createdAt: new Date(NOON + minutes * 60_000),
  } as Message;
}

function sent(name: string, minutes: number): Sent {
  return { clientMessageId: name, createdAt: new Date(NOON + minutes * 60_000) } as Sent;
}

/** A short form of rows, with `(` before the first and `)` after the last row of a group. */
function shown(rows: readonly Row[]): string {
  return rows
    .map((row) =>
      row.kind === "message" || row.kind === "sent"
        ? `${row.isFirst ? "(" : ""}${row.key}${row.isLast ? ")" : ""}`
        : row.kind,
    )
    .join(" ");
}

test("messages of one author within minutes belong together", () => {
  const rows = rowsOf([message(1, 0), message(2, 1), message(3, 2, "me"), message(4, 20, "me")]);
  assert.equal(shown(rows), "day (m1 m2) (m3) (m4)");
});

test("a day begins with its line", () => {
  const rows = rowsOf([message(1, 0), message(2, 719), message(3, 721)]);
  assert.equal(shown(rows), "day (m1) (m2) day (m3)");
});

test("what is new begins with a line, own messages apart", () => {
  const messages = [message(1, 0), message(2, 0, "me"), message(5, 1), message(6, 1)];
  assert.equal(shown(rowsOf(messages, [], 1)), "day (m1) (m2) new (m5 m6)");
  assert.equal(shown(rowsOf(messages, [], 6)), "day (m1) (m2) (m5 m6)");
  assert.equal(shown(rowsOf(messages, [], 0)), "day new (m1) (m2) (m5 m6)");
});

test("what is new on a new day has its line below the day's", () => {
  assert.equal(shown(rowsOf([message(1, 0), message(2, 1440)], [], 1)), "day (m1) day new (m2)");
});

test("what waits comes last, and once", () => {
  const rows = rowsOf([message(1, 0), message(2, 1, "me")], [sent("m2", 1), sent("x", 2)]);
  assert.equal(shown(rows), "day (m1) (m2 x)");
});

test("the beginning is said only if it is one", () => {
  assert.equal(shown(rowsOf([message(1, 0)], [], null, true)), "beginning day (m1)");
  assert.equal(shown(rowsOf([], [], null, true)), "beginning");
  assert.equal(shown(rowsOf([])), "");
});

test("keys are unique", () => {
  const messages = Array.from({ length: 50 }, (_, at) => message(at + 1, at * 300));
  const keys = rowsOf(messages, [sent("a", 20_000)], 10, true).map((row) => row.key);
  assert.equal(new Set(keys).size, keys.length);
});

test("rows that look the same stay the same objects", () => {
  const messages = [message(1, 0), message(2, 1)];
  const before = rowsOf(messages);
  const after = keepRows(before, rowsOf([...messages, message(3, 2)]));
  assert.equal(after[0], before[0]);
  assert.equal(after[1], before[1]);
  // This row is not the last of its group any more.
  assert.notEqual(after[2], before[2]);
});
