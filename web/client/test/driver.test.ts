// The leader's part with a server that the test plays: what it writes, sends and tells.

import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { Client } from "../src/node.ts";
import type { ClientEvent } from "../src/types.ts";

globalThis.fetch = async () => {
  throw new Error("there is no REST");
};

const open: Client[] = [];
const held: (() => void)[] = [];
afterEach(async () => {
  // A test that has failed leaves its store held, and a client closes after it has written.
  for (const letGo of held.splice(0)) letGo();
  await Promise.all(open.splice(0).map((client) => client.close()));
});

// biome-ignore lint/suspicious/noExplicitAny: frames, as they are on the wire
type Frame = any;

/** The server's end of the only connection. */
class Server {
  readyState = 1;
  heard: Frame[] = [];
  onmessage: (event: { data: string }) => void = () => {};
  onopen = () => {};
  onclose = (_: { code: number }) => {};
  private _listener = () => {};

  say(type: string, payload: object, request_id?: string): void {
    this.onmessage({ data: JSON.stringify({ type, request_id, payload }) });
  }

  send(text: string): void {
    const said = JSON.parse(text);
    this.heard.push(...(Array.isArray(said) ? said : [said]));
    this._listener();
  }

  close(code: number): void {
    this.readyState = 3;
    this.onclose({ code });
  }

  /** Wait for the next frame of this type, and take it. */
  async next(type: string): Promise<Frame> {
    for (;;) {
      const at = this.heard.findIndex((frame) => frame.type === type);
      if (at >= 0) return this.heard.splice(at, 1)[0];
      await new Promise<void>((heard) => {
        this._listener = heard;
      });
    }
  }

  refuse({ request_id }: Frame, code: string, details = {}): void {
    this.say("error", { code, message: "no", details }, request_id);
  }

  /** Push an entry of another user. */
  push(sequence: number, more: object = {}): void {
    const created_at = "2031-05-04T11:20:07.000Z";
    this.say("entry", {
      chat_id: "chat_1",
      message_id: `msg_${sequence}`,
      sequence,
      prev_sequence: sequence - 1,
      sender_id: "user_b",
      client_message_id: `key_${sequence}`,
      created_at,
      content: "hello",
      ...more,
    });
  }

  store({ request_id, payload }: Frame, sequence: number): void {
    const { client_message_id, chat_id } = payload;
    const numbers = { message_id: `msg_${sequence}`, sequence, prev_sequence: sequence - 1 };
    const created_at = "2031-05-04T11:20:07.000Z";
    const answer = { client_message_id, chat_id, ...numbers, created_at, deduplicated: false };
    this.say("send_message_ack", answer, request_id);
  }
}

const CHAT = {
  chat_id: "chat_1",
  chat_type: "group",
  head: 0,
  membership_version: 1,
  joined_sequence: 0,
  delivered: 0,
  read: 0,
  others_delivered: 0,
  others_read: 0,
  unread: 0,
  mentions_unread: 0,
};

/** A client that is ready, and its server. `chat`: how the digest lists its chat. */
const connected = async (chat: Partial<typeof CHAT> = {}): Promise<[Client, Server]> => {
  let connect: (server: Server) => void;
  const connecting = new Promise<Server>((done) => {
    connect = done;
  });
  const client = await Client.open("http://127.0.0.1:9", {
    store: ":memory:",
    getToken: async () => "",
    webSocket: class extends Server {
      constructor() {
        super();
        connect(this);
      }
    } as unknown as typeof WebSocket,
  });
  open.push(client);
  const server = await connecting;
  server.onopen();
  server.say("connection_established", {
    user_id: "user_own",
    epoch: "one",
    heartbeat_interval_ms: 30_000,
    protocol_version: 1,
    features: ["batch", "entries"],
  });
  server.say("chat_digest", { digest_id: "d", page: 0, last: true, chats: [{ ...CHAT, ...chat }] });
  // Not `ready`, which waits for names.
  await client._until("", () => client.status.state === "ready");
  return [client, server];
};

/** The store does nothing until the returned function is called. */
const hold = (client: Client): (() => void) => {
  const { backend } = client._tables;
  const run = backend.run.bind(backend);
  let letGo!: () => void;
  const isOver = new Promise<void>((done) => {
    letGo = done;
  });
  held.push(letGo);
  backend.run = async (mode, body) => {
    await isOver;
    return run(mode, body);
  };
  return letGo;
};

/** Everything that can happen without the server and the store has happened. */
const turn = (): Promise<void> => new Promise((done) => setImmediate(done));

const textsOf = (server: Server): string[] =>
  server.heard.filter(({ type }) => type === "send_message").map(({ payload }) => payload.content);

test("nothing leaves behind a dropped message until the store has that", async () => {
  const [client, server] = await connected();
  const chat = client.chat("chat_1");
  const [first, second] = await Promise.all(["1", "2", "3"].map((text) => chat.send(text)));
  const said = await server.next("send_message");
  const letGo = hold(client);
  const dropping = second!.drop();
  await turn();
  assert.equal(second!.tick, "failed");
  server.store(said, 1);
  await turn();
  assert.deepEqual([first!.sequence, textsOf(server)], [1, []]);
  letGo();
  assert.ok(await dropping);
  assert.equal((await server.next("send_message")).payload.content, "3");
});

test("nothing leaves behind a refused message until the store has that", async () => {
  const [client, server] = await connected();
  const chat = client.chat("chat_1");
  const [first] = await Promise.all(["1", "2"].map((text) => chat.send(text)));
  const said = await server.next("send_message");
  const letGo = hold(client);
  server.refuse(said, "FORBIDDEN");
  await turn();
  assert.deepEqual([first!.code, textsOf(server)], ["FORBIDDEN", []]);
  letGo();
  assert.equal((await server.next("send_message")).payload.content, "2");
});

test("an edit of a refused message is made in place, and the chat goes on", async () => {
  const [client, server] = await connected();
  const chat = client.chat("chat_1");
  const sent = await chat.send("first");
  const late = await sent.edit("an edit that followed it");
  server.refuse(await server.next("send_message"), "FORBIDDEN");
  await assert.rejects(sent.stored());
  assert.ok((await sent.edit("second")) === sent);
  assert.deepEqual([sent.text, late.tick, chat.pending().length], ["second", "failed", 1]);
  const next = await chat.send("next");
  server.store(await server.next("send_message"), 1);
  await next.stored();
  await client.flush();
  assert.ok(await sent.retry());
  const again = await server.next("send_message");
  assert.equal(again.payload.content, "second");
  server.store(again, 2);
  await sent.stored();
});

test("a deletion of what another has deleted counts as done", async () => {
  const [client, server] = await connected();
  server.push(1);
  await client._command("flushed");
  const sent = await client._send("chat_1", "delete", { target: 1 });
  server.refuse(await server.next("delete_message"), "MESSAGE_DELETED", { deleted_sequence: 2 });
  assert.deepEqual([sent.sequence, client.outbox()], [2, []]);
  server.push(2, { kind: "delete", target: 1, content: undefined });
  assert.equal(await sent.stored(), 2);
  await client._command("flushed");
  assert.deepEqual((await client._tables.load()).entries, []);
});

test("a change of what another has deleted is removed, and tells why", async () => {
  const [client, server] = await connected();
  server.push(1);
  await client._command("flushed");
  const told: ClientEvent[] = [];
  client.on((event) => {
    if (event.type === "MessageRefused") told.push(event);
  });
  const changes = { edit: { content: "secret" }, react: { emoji: "+", is_on: true } } as const;
  for (const [kind, body] of Object.entries(changes)) {
    const sent = await client._send("chat_1", kind as "edit" | "react", { ...body, target: 1 });
    server.refuse(await server.next(kind === "edit" ? "edit_message" : kind), "MESSAGE_DELETED");
    await assert.rejects(sent.stored(), /MESSAGE_DELETED/);
    assert.deepEqual([sent.tick, sent.text, client.outbox()], ["failed", "", []]);
    assert.equal(await sent.retry(), false);
  }
  await client._command("flushed");
  assert.deepEqual((await client._tables.load()).entries, []);
  assert.deepEqual(
    told.map((event) => event.type === "MessageRefused" && [event.kind, event.code, event.text]),
    [
      ["edit", "MESSAGE_DELETED", ""],
      ["react", "MESSAGE_DELETED", ""],
    ],
  );
});

test("an edit that is on its way when its message is deleted is removed", async () => {
  const [client, server] = await connected();
  server.push(1);
  await client._command("flushed");
  const sent = await client._send("chat_1", "edit", { content: "secret", target: 1 });
  const said = await server.next("edit_message");
  const next = await client.chat("chat_1").send("next");
  server.push(2, { kind: "delete", target: 1, content: undefined });
  await assert.rejects(sent.stored(), /MESSAGE_DELETED/);
  assert.deepEqual([sent.tick, sent.text], ["failed", ""]);
  server.refuse(said, "MESSAGE_DELETED", { deleted_sequence: 2 });
  server.store(await server.next("send_message"), 3);
  await next.stored();
  await client._command("flushed");
  assert.deepEqual([client.outbox(), (await client._tables.load()).entries], [[], []]);
});

test("a message without a refused mention is in the store before it leaves again", async () => {
  const [client, server] = await connected();
  const sent = await client.chat("chat_1").send("@ben @carl", { mentions: ["user_b", "user_c"] });
  const said = await server.next("send_message");
  server.refuse(said, "INVALID_MENTION", { user_ids: ["user_c"] });
  const again = await server.next("send_message");
  assert.deepEqual(again.payload, { ...said.payload, mentions: ["user_b"] });
  const [entry] = (await client._tables.load()).entries;
  assert.deepEqual(entry!.body, { content: "@ben @carl", mentions: ["user_b"] });
  assert.ok(entry!.left_at_ms);
  server.store(again, 1);
  assert.equal(await sent.stored(), 1);
});
