// What a handle shows of its entry in a tab that only hears of it.

import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import type { OutboxEntry } from "../src/core/outbox.ts";
import { Client } from "../src/node.ts";

const open: Client[] = [];
afterEach(() => Promise.all(open.splice(0).map((client) => client.close())));

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

/** Without a network. */
const alone = async (): Promise<Client> => {
  const client = await Client.open("http://127.0.0.1:9", {
    getToken: async () => "",
    webSocket: class {
      constructor() {
        throw new Error("there is no network");
      }
    } as unknown as typeof WebSocket,
  });
  open.push(client);
  return client;
};

test("a change of what was on its way knows its message when that has been stored", async () => {
  const client = await alone();
  const edit = { kind: "edit", body: { content: "better" }, target_id: "key_1" } as const;
  client._tell({ outbox: [entry(1), entry(2, edit), entry(3)] });
  const [, change, other] = client.outbox();
  assert.equal(change!.target, null);
  client._tell({ left: [["key_1", 41]] });
  assert.deepEqual([change!.target, other!.target], [41, null]);
  assert.deepEqual(
    client._changesOf("chat_1", 41).map(({ number }) => number),
    [2],
  );
});

test("what was dropped is not shown as on its way", async () => {
  const client = await alone();
  client._tell({ outbox: [entry(1)] });
  const [sent] = client.outbox();
  assert.equal(sent!.tick, "sending");
  client._tell({ left: [["key_1", null]] });
  assert.equal(sent!.tick, "failed");
  await assert.rejects(sent!.stored(), /DROPPED/);
});
