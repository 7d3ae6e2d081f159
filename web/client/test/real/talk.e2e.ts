// The client in Node with a real server at the address TIDEWIRE_URL.

import assert from "node:assert/strict";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, test } from "node:test";
import {
  type Chat,
  Client,
  type ClientEvent,
  LoginNeeded,
  type Message,
  MessageTooLarge,
  type OpenOptions,
  RefusedByServer,
  StoreUnusable,
} from "../../src/node.ts";

const URL = process.env.TIDEWIRE_URL!;
const folder = mkdtempSync(join(tmpdir(), "tidewire-real-"));
const open: Client[] = [];
let made = 0;

after(() => rmSync(folder, { recursive: true }));
afterEach(async () => {
  await Promise.all(open.splice(0).map((client) => client.close()));
});

const named = (name: string): string => `${name}${process.pid}x${++made}`;

const enter = async (username: string, more: OpenOptions = {}): Promise<Client> => {
  const store = join(folder, `${username}.tidewire`);
  const client = await Client.open(URL, { username, password: "correct horse", store, ...more });
  open.push(client);
  await client.ready();
  return client;
};

const pair = async (): Promise<[Client, Client, Chat, Chat]> => {
  const ann = await enter(named("ann"));
  const ben = await enter(named("ben"));
  const chat = await ann.direct(ben.username!);
  await until(ben, () => ben.chat(chat.chatId).isMember);
  return [ann, ben, chat, ben.chat(chat.chatId)];
};

/** Wait until `isSo` is true; it is called again after each event. */
const until = (client: Client, isSo: () => boolean): Promise<void> =>
  new Promise((resolve, reject) => {
    const late = setTimeout(() => reject(new Error(`it did not become so: ${isSo}`)), 10_000);
    const look = (): void => {
      if (!isSo()) return;
      clearTimeout(late);
      stop();
      resolve();
    };
    const stop = client.on(look);
    queueMicrotask(look);
  });

const texts = (messages: Message[]): string[] => messages.map((message) => message.text);

test("two people talk: order, ticks, unread, names", async () => {
  const [ann, ben, chat, theirs] = await pair();
  const sent = await chat.send("lunch at noon?");
  await chat.send("or at one?");
  assert.equal(await sent.stored(), 1);
  await ann.flush();
  await sent.delivered();
  await until(ben, () => theirs.unread === 2);
  assert.deepEqual(texts(await theirs.messages()), ["lunch at noon?", "or at one?"]);
  const [first] = await theirs.messages();
  assert.equal(first!.senderName, ann.username);
  assert.equal(first!.tick, null);
  await theirs.read(first);
  await until(ben, () => theirs.unread === 1);
  await sent.read();
  await until(ann, () => chat.othersDelivered === 2);
  const [mine, second] = await chat.messages();
  assert.deepEqual([mine!.tick, second!.tick], ["read", "delivered"]);
  assert.equal(chat.name, ben.username);
  assert.equal(chat.otherId, ben.userId);
  assert.equal(chat.last!.text, "or at one?");
  assert.deepEqual(texts(await ann.search("LUNCH")), ["lunch at noon?"]);
});

test("the next life goes on where this one ended, without a password", async () => {
  const [ann, ben, chat, theirs] = await pair();
  await chat.send("one");
  await ann.flush();
  await until(ben, () => theirs.lastSequence === 1);
  await ben.close();
  await chat.send("two");
  await ann.flush();
  const store = join(folder, `${ben.username}.tidewire`);
  const again = await Client.open(URL, { store });
  open.push(again);
  // Before the server has answered:
  assert.deepEqual(texts(await again.chat(chat.chatId).messages()), ["one"]);
  await again.ready();
  assert.deepEqual(texts(await again.chat(chat.chatId).messages()), ["one", "two"]);
  assert.equal(again.deviceId, ben.deviceId);
});

test("events come until they are confirmed, and a bot answers once", async () => {
  const [ann, ben, chat, theirs] = await pair();
  await chat.send("question");
  const answered = async (client: Client): Promise<ClientEvent> => {
    for await (const event of client.events())
      if (event.type === "MessageReceived") {
        await client.chat(event.message.chatId).reply(event.message, "answer");
        return event;
      }
    throw new Error("no event came");
  };
  const event = await answered(ben);
  assert.equal(event.redelivered, false);
  await ben.flush();
  await ben.close();
  const store = join(folder, `${ben.username}.tidewire`);
  const again = await Client.open(URL, { store });
  open.push(again);
  const repeated = await answered(again);
  assert.equal(repeated.redelivered, true);
  again.confirm(repeated);
  await again.flush();
  await until(ann, () => chat.lastSequence >= 2);
  assert.deepEqual(texts(await chat.messages()), ["question", "answer"]);
  assert.equal(theirs.chatId, chat.chatId);
});

test("a listener hears of messages, ticks, typing and states", async () => {
  const [, ben, chat, theirs] = await pair();
  const heard: string[] = [];
  ben.on((event) => heard.push(event.type));
  chat.typing();
  await until(ben, () => theirs.typists.length === 1);
  await chat.send("done");
  await until(ben, () => theirs.lastSequence === 1);
  chat.typing(false);
  await until(ben, () => theirs.typists.length === 0);
  for (const type of ["Typing", "MessageReceived", "TicksMoved"]) assert.ok(heard.includes(type));
});

test("groups: members, roles, names, leaving", async () => {
  const [ann, ben] = await pair();
  const carl = await enter(named("carl"));
  const group = await ann.group("Friday", ben.username!);
  await until(ben, () => ben.chat(group.chatId).isMember);
  await group.add(carl.username!);
  await group.add(carl.username!);
  await until(carl, () => carl.chat(group.chatId).isMember);
  await group.setRole(ben.userId!, "admin");
  const roles = Object.fromEntries((await group.members()).map((one) => [one.userId, one.role]));
  assert.deepEqual(roles, {
    [ann.userId!]: "owner",
    [ben.userId!]: "admin",
    [carl.userId!]: "member",
  });
  await group.rename("Saturday");
  await until(carl, () => carl.chat(group.chatId).name === "Saturday");
  await carl.chat(group.chatId).leave();
  await until(carl, () => !carl.chat(group.chatId).isMember);
  await group.handOver(ben.userId!);
  await group.mute(2);
  assert.ok(group.mutedUntil! > new Date());
  await group.unmute();
  assert.equal(group.mutedUntil, null);
  assert.ok((await ann.chats()).some((chat) => chat.chatId === group.chatId));
});

test("history goes on at the server where the store ends, and is kept", async () => {
  const [ann, ben, chat] = await pair();
  for (let number = 1; number <= 120; number++) await chat.send(`text ${number}`);
  await ann.flush();
  await until(ben, () => ben.chat(chat.chatId).lastSequence === 120);
  // Another device of the same person begins at the person's position.
  const phone = await enter(ann.username!, { store: join(folder, `${named("phone")}.tidewire`) });
  const there = phone.chat(chat.chatId);
  assert.deepEqual(await there.messages(), []);
  const newest = await there.history({ limit: 30 });
  assert.deepEqual(
    [newest[0]!.text, newest.at(-1)!.text, newest.length],
    ["text 91", "text 120", 30],
  );
  const older = await there.history({ before: newest[0]!.sequence, limit: 60 });
  assert.deepEqual([older[0]!.text, older.at(-1)!.text, older.length], ["text 31", "text 90", 60]);
  // The fetched messages are in the store now.
  assert.equal((await there.messages({ limit: 1000 })).length, 90);
  const around = await there.history({ around: 10, limit: 4 });
  assert.deepEqual(texts(around), ["text 8", "text 9", "text 10", "text 11", "text 12"]);
  assert.equal((await there.messages({ limit: 1000 })).length, 90);
  assert.equal((await there.message(7))!.text, "text 7");
  assert.equal(await there.message(999), null);
  const rest = await there.history({ before: 31, limit: 500 });
  assert.deepEqual([rest[0]!.text, rest.length], ["text 1", 30]);
  assert.deepEqual(texts(await there.history({ after: 118 })), ["text 119", "text 120"]);
  assert.deepEqual(texts(await there.history({ after: 0, limit: 2 })), ["text 1", "text 2"]);
  const middle = older[20]!;
  assert.equal((await there.messageAt(middle.createdAt))!.createdAt >= middle.createdAt, true);
  assert.equal(await there.messageAt(new Date(Date.now() + 1e6)), null);
});

test("the same id is the same message, in this life and the next", async () => {
  const [ann, , chat] = await pair();
  const clientMessageId = "6F1C7C52-3F0E-4D8A-9A53-0F3C1F1C9A10";
  const [a, b] = await Promise.all([
    chat.send("once", { clientMessageId }),
    chat.send("once", { clientMessageId }),
  ]);
  assert.equal(await a!.stored(), await b!.stored());
  const c = await chat.send("once", { clientMessageId });
  assert.equal(c.sequence, a!.sequence);
  await ann.flush();
  assert.equal((await chat.messages()).length, 1);
});

test("what cannot be sent is refused here, and what may not be there", async () => {
  const [, , chat] = await pair();
  await assert.rejects(chat.send(""), /at least one byte/);
  await assert.rejects(chat.send("x".repeat(4097)), MessageTooLarge);
  await assert.rejects(chat.send("a\0b"), /NUL/);
  await assert.rejects(chat.send("half \ud83d"), /half of a character/);
  const carl = await enter(named("carl"));
  const sent = await carl.chat(chat.chatId).send("let me in");
  await assert.rejects(sent.stored(), /NOT_A_MEMBER/);
  assert.equal(sent.tick, "failed");
  assert.equal(await sent.drop(), true);
  assert.deepEqual(carl.outbox(), []);
});

test("accounts: wrong passwords, sessions, blocks, a changed password", async () => {
  const [ann, ben] = await pair();
  await assert.rejects(
    Client.open(URL, { username: ann.username!, password: "not the one", store: ":memory:" }),
    (error: RefusedByServer) => error.code === "INVALID_CREDENTIALS",
  );
  const store = join(folder, `${ann.username}2.tidewire`);
  await enter(ann.username!, { store });
  const sessions = await ann.sessions();
  assert.deepEqual(
    sessions.map((session) => session.isCurrent),
    [true, false],
  );
  assert.ok(sessions[0]!.createdAt instanceof Date);
  assert.equal(await ann.changePassword("correct horse", "battery staple"), 1);
  await open.at(-1)!.closed;
  assert.equal(open.at(-1)!.status.reason, "session_revoked");
  await ann.block(ben.username!);
  assert.deepEqual(
    (await ann.blocked()).map((person) => person.userId),
    [ben.userId],
  );
  await ann.unblock(ben.userId!);
  assert.equal((await ann.setDisplayName("Ann B.")).displayName, "Ann B.");
  assert.equal((await ben.find(ann.username!)).userId, ann.userId);
  await assert.rejects(ben.find("nobody.at.all"), RefusedByServer);
});

test("a store is one person's, on one server, in one process", async () => {
  const ann = await enter(named("ann"));
  const store = join(folder, `${ann.username}.tidewire`);
  await assert.rejects(Client.open(URL, { store }), /in use by another process/);
  await ann.close();
  await assert.rejects(
    Client.open(URL, { username: named("ben"), password: "correct horse", store }),
    /belongs to/,
  );
  await assert.rejects(Client.open("http://127.0.0.1:1", { store }), StoreUnusable);
  await assert.rejects(Client.open(URL, { store: ":memory:" }), LoginNeeded);
});

test("logging out ends the login and deletes the store", async () => {
  const ann = await enter(named("ann"));
  const store = join(folder, `${ann.username}.tidewire`);
  assert.ok(existsSync(store));
  await ann.logout();
  assert.ok(!existsSync(store));
  assert.deepEqual((await ann.closed).reason, "logged_out");
  await assert.rejects(ann.chat("chat_x").send("too late"), /closed/);
});

/** A person writes, edits, and deletes the account; returns what a new device of the other gets. */
const leftBehind = async (options?: { eraseMessages: boolean }): Promise<Message[]> => {
  const [ann, ben, chat, theirs] = await pair();
  await chat.send("first thoughts");
  await ann.flush();
  const [mine] = await chat.messages();
  await (await mine!.edit("second thoughts")).stored();
  await until(ben, () => theirs.lastSequence === 2);
  await (await theirs.send("an answer")).stored();
  const store = join(folder, `${ann.username}.tidewire`);
  await assert.rejects(
    ann.deleteAccount("not the one", options),
    (error: RefusedByServer) => error.code === "INVALID_CREDENTIALS",
  );
  assert.ok(existsSync(store));
  await ann.deleteAccount("correct horse", options);
  assert.ok(!existsSync(store));
  // Both the server and this client end the connection: either may be first.
  assert.match((await ann.closed).reason!, /^(session_revoked|logged_out)$/);
  assert.equal((await ben.user(ann.userId!)).isDeleted, true);
  if (options?.eraseMessages) await until(ben, () => theirs.lastSequence === 4);
  const held = await theirs.messages();
  const other = await enter(ben.username!, { store: ":memory:" });
  const told = await other.chat(chat.chatId).history();
  assert.deepEqual(texts(told), texts(held));
  return told;
};

test("a deleted account leaves its messages", async () => {
  assert.deepEqual(texts(await leftBehind()), ["second thoughts", "an answer"]);
});

test("a deleted account takes its texts along if it is told to", async () => {
  const left = await leftBehind({ eraseMessages: true });
  assert.deepEqual(
    left.map((message) => [message.text, message.isDeleted]),
    [
      ["", true],
      ["an answer", false],
    ],
  );
});

test("a store that forgets acknowledges what was shown, and says so", async () => {
  const [ann, , chat, theirs] = await pair();
  const carl = await enter(named("carl"), { store: ":memory:" });
  assert.equal(carl.isDurable, false);
  const with_ = await ann.direct(carl.username!);
  const sent = await with_.send("are you there?");
  await sent.stored();
  await until(carl, () => carl.chat(with_.chatId).lastSequence === 1);
  assert.equal(sent.tick, "sent");
  await carl.chat(with_.chatId).messages();
  await sent.delivered();
  assert.equal(theirs.chatId, chat.chatId);
});

test("a token of the application's own is used, and asked for", async () => {
  const ann = await enter(named("ann"));
  await ann.close();
  let asked = 0;
  const response = await fetch(`${URL}/api/v1/auth/login`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({
      username: ann.username,
      password: "correct horse",
      device_id: "0f3c1f1c-3f0e-4d8a-9a53-6f1c7c529a10",
    }),
  });
  const { data } = (await response.json()) as { data: { tokens: { access_token: string } } };
  const getToken = (): string => {
    asked++;
    return data.tokens.access_token;
  };
  const me = await Client.open(URL, { getToken, store: ":memory:" });
  open.push(me);
  await me.ready();
  assert.equal(me.userId, ann.userId);
  assert.equal(me.deviceId, "0f3c1f1c-3f0e-4d8a-9a53-6f1c7c529a10");
  assert.ok(asked > 0);
});
