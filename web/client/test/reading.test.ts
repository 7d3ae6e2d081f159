// What `chat.read()` takes for held: all that was shown. A client over a store whose disk is slow.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Client } from "../src/node.ts";
import type { Mode, Tx } from "../src/shell/backend.ts";
import { MemoryBackend } from "../src/shell/memory.ts";
import type { ClientFrame } from "../src/wire/frames.ts";

/** As a file: what was written is seen at once, and counts when it is on the disk. */
class SlowBackend extends MemoryBackend {
  override readonly isDurable = true;
  disk: Promise<void> = Promise.resolve();
  reads: () => Promise<unknown> = async () => {};
  protected override changed(): Promise<void> {
    return this.disk;
  }
  override async run<T>(mode: Mode, work: (tx: Tx) => Promise<T>): Promise<T> {
    const done = await super.run(mode, work);
    if (mode === "read") await this.reads();
    return done;
  }
}

/** A server with one chat, as far as the other end of its socket can tell. */
class Line {
  static last: Line;
  readyState = 1;
  heard: ClientFrame[] = [];
  onopen?: () => void;
  onmessage?: (event: { data: string }) => void;
  onclose?: (event: { code: number }) => void;

  constructor() {
    Line.last = this;
    queueMicrotask(() => {
      this.onopen!();
      this.say({
        type: "connection_established",
        payload: {
          connection_id: "conn_1",
          user_id: "user_own",
          device_id: "device",
          server_time: "2031-05-04T11:20:07.000Z",
          heartbeat_interval_ms: 30_000,
          protocol_version: 1,
          epoch: "epoch_1",
        },
      });
      this.say({ type: "chat_digest", payload: { chats: [LISTED], last: true } });
    });
  }

  say(frame: object): void {
    this.onmessage!({ data: JSON.stringify(frame) });
  }

  send(text: string): void {
    this.heard.push(JSON.parse(text));
  }

  close(code: number): void {
    this.onclose!({ code });
  }
}

const LISTED = {
  chat_id: "chat_1",
  chat_type: "direct",
  membership_version: 1,
  joined_sequence: 0,
  head: 0,
  delivered: 0,
  read: 0,
  others_delivered: 0,
  others_read: 0,
  unread: 0,
};

const messageOf = (sequence: number): object => ({
  type: "message",
  payload: {
    chat_id: "chat_1",
    message_id: `msg_${sequence}`,
    sequence,
    prev_sequence: sequence - 1,
    sender_id: "user_b",
    client_message_id: `key_${sequence}`,
    created_at: "2031-05-04T11:20:07.000Z",
    content: `text ${sequence}`,
  },
});

const until = async (isSo: () => boolean | Promise<boolean>): Promise<void> => {
  for (let tries = 0; tries < 400; tries++) {
    if (await isSo()) return;
    await sleep(5);
  }
  assert.fail(`it did not become so: ${isSo}`);
};

test("what is shown is read, although it is not on the disk yet", async () => {
  const backend = new SlowBackend();
  // It knows no names.
  globalThis.fetch = async () => new Response(null, { status: 404 });
  Client._platform = { ...Client._platform, open: async () => backend };
  const client = await Client.open("http://127.0.0.1:1", {
    getToken: () => "token",
    webSocket: Line as unknown as typeof WebSocket,
  });
  try {
    await client.ready();
    const chat = client.chat("chat_1");
    let synced!: () => void;
    backend.disk = new Promise((resolve) => {
      synced = resolve;
    });
    Line.last.say(messageOf(1));
    await until(async () => (await chat.messages()).length === 1);
    // Counting what is left unread takes a while, too.
    backend.reads = () => sleep(50);
    const reading = chat.read();
    synced();
    await reading;
    assert.deepEqual([chat.lastRead, chat.unread], [1, 0]);
    const told = (): number[] =>
      Line.last.heard.flatMap((frame) =>
        frame.type === "read" ? frame.payload.last_read_sequence : [],
      );
    await until(() => told().length > 0);
    assert.deepEqual(told(), [1]);
  } finally {
    await client.close();
  }
});
