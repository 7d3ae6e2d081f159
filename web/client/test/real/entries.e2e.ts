// Changes of messages, between two clients on a real server at the address TIDEWIRE_URL.

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, test } from "node:test";
import { type Chat, Client, type MessageChanged, type OpenOptions } from "../../src/node.ts";

const URL = process.env.TIDEWIRE_URL!;
const folder = mkdtempSync(join(tmpdir(), "tidewire-entries-"));
const open: Client[] = [];
let made = 0;

after(() => rmSync(folder, { recursive: true }));
afterEach(async () => {
  await Promise.all(open.splice(0).map((client) => client.close()));
});

const storeOf = (name: string): string => join(folder, `${name}.tidewire`);

const enter = async (username: string, more: OpenOptions = {}): Promise<Client> => {
  const password = "correct horse";
  const store = storeOf(username);
  const client = await Client.open(URL, { username, password, store, ...more });
  open.push(client);
  await client.ready();
  return client;
};

const pair = async (): Promise<[Client, Client, Chat, Chat]> => {
  const suffix = `${process.pid}y${++made}`;
  const ann = await enter(`ann${suffix}`);
  const ben = await enter(`ben${suffix}`);
  const chat = await ann.direct(ben.username!);
  const theirs = ben.chat(chat.chatId);
  await until(ben, () => theirs.isMember);
  return [ann, ben, chat, theirs];
};

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

/** The same person without a network: nothing is sent. */
const offline = (name: string): Promise<Client> =>
  Client.open(URL, {
    store: storeOf(name),
    webSocket: class {
      constructor() {
        throw new Error("there is no network");
      }
    } as unknown as typeof WebSocket,
  });

const first = async (chat: Chat) => (await chat.messages())[0]!;

test("edits, reactions and replies arrive, and are shown as they are now", async () => {
  const [ann, ben, chat, theirs] = await pair();
  await (await chat.send("lunhc?")).stored();
  const changes: MessageChanged[] = [];
  ben.on((event) => event.type === "MessageChanged" && changes.push(event));
  await (await (await first(chat)).edit("lunch?")).stored();
  await until(ben, () => theirs.lastSequence === 2);
  const seen = await first(theirs);
  assert.deepEqual([seen.text, seen.isEdited, seen.editedSequence], ["lunch?", true, 2]);
  assert.deepEqual([changes[0]!.kind, changes[0]!.before!.text], ["edit", "lunhc?"]);

  await (await seen.react("👍")).stored();
  await until(ann, () => chat.lastSequence === 3);
  const reacted = (await first(chat)).reactions;
  assert.deepEqual(reacted, [{ emoji: "👍", count: 1, isOwn: false, userIds: [ben.userId] }]);
  assert.deepEqual((await first(theirs)).reactions[0]!.isOwn, true);
  await (await (await first(theirs)).unreact("👍")).stored();
  await until(ann, () => chat.lastSequence === 4);
  assert.deepEqual((await first(chat)).reactions, []);

  await (await seen.reply("gladly", { mentions: [ann.userId!] })).stored();
  await until(ann, () => chat.lastSequence === 5);
  const answer = (await chat.messages()).at(-1)!;
  assert.deepEqual([answer.text, answer.replyTo, answer.mentionsMe], ["gladly", 1, true]);
  assert.deepEqual([chat.unread, chat.mentionsUnread], [1, 1]);
  await chat.read();
  await until(ann, () => chat.unread === 0 && chat.mentionsUnread === 0);
});

test("a deletion takes the text away, here, there, in what is found, and in the file", async () => {
  const [, ben, chat, theirs] = await pair();
  await (await chat.send("a secret")).stored();
  await until(ben, () => theirs.unread === 1);
  const mine = await first(chat);
  const sent = await mine.delete();
  // It is shown as deleted at once.
  assert.equal((await first(chat)).isDeleted, true);
  await sent.stored();
  await until(ben, () => theirs.lastSequence === 2);
  const left = await first(theirs);
  assert.deepEqual([left.text, left.isDeleted, left.tick], ["", true, null]);
  assert.deepEqual(await ben.search("secret"), []);
  assert.equal(theirs.last!.isDeleted, true);
  await until(ben, () => theirs.unread === 0);
  await ben.flush();
  assert.ok(!readFileSync(storeOf(ben.username!), "utf8").includes("a secret"));
  await assert.rejects((await left.react("👍")).stored(), /MESSAGE_DELETED/);
});

test("what was written offline changes in place, and what may have left gets its edit behind it", async () => {
  const [ann, ben, chat, theirs] = await pair();
  await ann.close();
  const away = await offline(ann.username!);
  const there = away.chat(chat.chatId);
  const waiting = await there.send("writen offline");
  assert.equal(await waiting.edit("written offline"), waiting);
  assert.deepEqual(
    there.pending().map((one) => [one.text, one.tick]),
    [["written offline", "sending"]],
  );
  await away.close();
  const back = await enter(ann.username!);
  await back.flush();
  await until(ben, () => theirs.lastSequence >= 1);
  assert.equal((await first(theirs)).text, "written offline");
  assert.equal((await first(theirs)).isEdited, false);
  const flying = await back.chat(chat.chatId).send("sned");
  await (await flying.edit("send")).stored();
  await until(ben, () => theirs.last!.text === "send");
});

test("an edit that waits goes with its message, and nobody ever sees it", async () => {
  const [ann, ben, chat, theirs] = await pair();
  await (await chat.send("one")).stored();
  await (await chat.send("two")).stored();
  await until(ben, () => theirs.lastSequence === 2);
  const changes: string[] = [];
  ben.on((event) => event.type === "MessageChanged" && changes.push(event.kind));
  await ann.close();
  const away = await offline(ann.username!);
  const there = away.chat(chat.chatId);
  const [one, two] = await there.messages();
  const edits = [await one!.edit("never to be seen"), await one!.edit("nor this")];
  await two!.edit("TWO");
  await one!.react("👍");
  await one!.delete();
  const waiting = ["edit", "react", "delete"];
  assert.deepEqual(
    there.pending().map(({ kind }) => kind),
    waiting,
  );
  for (const edit of edits) await assert.rejects(edit.stored(), /DROPPED/);
  await away.close();
  assert.ok(!readFileSync(storeOf(ann.username!), "utf8").includes("never to be seen"));
  const back = await enter(ann.username!);
  await back.flush();
  await until(ben, () => theirs.lastSequence === 5);
  assert.deepEqual(changes, waiting);
  assert.deepEqual(
    (await theirs.messages()).map(({ text, isDeleted }) => [text, isDeleted]),
    [
      ["", true],
      ["TWO", false],
    ],
  );
});

test("a device that comes later sees what became of it, and goes on from there", async () => {
  const [ann, ben, chat, theirs] = await pair();
  for (const text of ["one", "two", "three"]) await chat.send(text);
  await ann.flush();
  const [one, two, three] = await chat.messages();
  await one!.edit("ONE");
  await two!.delete();
  await three!.react("🎉");
  await ann.flush();
  await until(ben, () => theirs.lastSequence === 6);
  const phone = await enter(ann.username!, { store: storeOf(`${ann.username}2`) });
  const there = phone.chat(chat.chatId);
  const shown = await there.history();
  assert.deepEqual(
    shown.map((message) => [message.text, message.isDeleted, message.reactions[0]?.count ?? 0]),
    [
      ["ONE", false, 0],
      ["", true, 0],
      ["three", false, 1],
    ],
  );
  assert.equal(shown[2]!.reactions[0]!.isOwn, true);
  await (await (await theirs.messages())[2]!.react("🎉")).stored();
  await until(phone, () => there.lastSequence === 7);
  assert.equal((await there.messages())[2]!.reactions[0]!.count, 2);
});

test("one device may edit again and again; of two the slower is told", async () => {
  const [ann, , chat] = await pair();
  await (await chat.send("draft")).stored();
  const message = await first(chat);
  await message.edit("better");
  await (await message.edit("best")).stored();
  assert.equal((await first(chat)).text, "best");
  const name = `${ann.username}3`;
  const phone = await enter(ann.username!, { store: storeOf(name) });
  await phone.chat(chat.chatId).history();
  await phone.close();
  const away = await offline(name);
  await (await first(away.chat(chat.chatId))).edit("on the phone");
  await away.close();
  await (await message.edit("on the desk")).stored();
  const back = await enter(ann.username!, { store: storeOf(name) });
  const there = back.chat(chat.chatId);
  await until(back, () => there.pending()[0]?.tick === "failed");
  assert.equal(there.pending()[0]!.code, "EDIT_CONFLICT");
  assert.equal((await first(there)).text, "on the desk");
  // The edit that the user saw may be older than the last one that this device knows by now.
  const { editedSequence } = message;
  const late = await (await first(chat)).edit("of what was there before", {
    base: editedSequence ?? 0,
  });
  await assert.rejects(late.stored(), /EDIT_CONFLICT/);
  assert.equal((await first(chat)).text, "on the desk");
});
