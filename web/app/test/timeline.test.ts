// The messages of a chat in memory, and how events change them.

import assert from "node:assert/strict";
import { test } from "node:test";
import type { Chat, ClientEvent, Message } from "@tidewire/client";
import { MESSAGES_MAX, Timeline } from "../src/model/timeline.ts";

const message = (sequence: number, more: Partial<Message> = {}): Message =>
  ({
    sequence,
    chatId: "chat_1",
    clientMessageId: `key_${sequence}`,
    senderId: "user_b",
    createdAt: new Date(1_900_000_000_000 + sequence),
    text: `text ${sequence}`,
    ...more,
  }) as Message;

const opened = async (): Promise<Timeline> => {
  const timeline = new Timeline({
    chatId: "chat_1",
    unread: 0,
    pending: () => [],
    messages: async () => [message(1)],
    history: async () => [],
  } as unknown as Chat);
  await timeline.open();
  return timeline;
};

const received = (one: Message) =>
  ({ type: "MessageReceived", message: one, position: 1, redelivered: false }) as ClientEvent;
const changed = (after: Message) =>
  ({ type: "MessageChanged", chatId: "chat_1", kind: "edit", after }) as unknown as ClientEvent;

test("a message that is changed in the turn in which it comes is shown as it is now", async () => {
  const timeline = await opened();
  // All events at once, as a page of missed entries brings them.
  timeline.handle(received(message(2, { text: "a secret" })));
  timeline.handle(changed(message(2, { text: "", isDeleted: true })));
  timeline.handle(received(message(3)));
  await Promise.resolve();
  assert.deepEqual(
    timeline.messages.map((one) => one.text),
    ["text 1", "", "text 3"],
  );
});

/** A chat whose store answers only at `answer`, with the messages that it had when it was asked. */
class SlowChat {
  readonly chatId = "chat_1";
  readonly stored: Message[] = [];
  unread = 0;
  lastRead = 0;
  #answers: (() => void)[] = [];

  constructor(count: number) {
    for (let sequence = 1; sequence <= count; sequence++) this.stored.push(message(sequence));
  }

  get last(): Message {
    return this.stored.at(-1)!;
  }

  pending = () => [];
  messages = ({ limit }: { limit: number }) => this.#held(this.stored.slice(-limit));
  history = ({ around = 0, after = 0, before = 0, limit = 0 }) => {
    if (before) return this.#held(this.stored.slice(Math.max(0, before - 1 - limit), before - 1));
    const from = around ? Math.max(0, around - limit / 2) : after;
    return this.#held(this.stored.slice(from, from + limit));
  };

  message = async (sequence: number) => (await this.#held([this.stored[sequence - 1]!]))[0]!;

  #held(found: Message[]): Promise<Message[]> {
    return new Promise((done) => this.#answers.push(() => done(found)));
  }

  /** Answer all requests so far. */
  async answer(): Promise<void> {
    for (const answer of this.#answers.splice(0)) answer();
    for (let turn = 0; turn < 10; turn++) await Promise.resolve();
  }

  async receive(timeline: Timeline, count: number): Promise<void> {
    for (let one = 0; one < count; one++) {
      this.stored.push(message(this.stored.length + 1));
      timeline.handle(received(this.last));
    }
    await Promise.resolve();
  }
}

const upTo = (timeline: Timeline): number[] => timeline.messages.map(({ sequence }) => sequence);
const withoutHole = (timeline: Timeline, last: number): void => {
  const shown = upTo(timeline);
  assert.equal(shown.at(-1), last);
  assert.deepEqual(
    shown,
    shown.map((_, at) => shown[0]! + at),
  );
};

/** A timeline of a thousand messages, opened at the first new one. */
const farFromTheEnd = async (): Promise<[SlowChat, Timeline]> => {
  const chat = new SlowChat(1000);
  [chat.unread, chat.lastRead] = [700, 300];
  const timeline = new Timeline(chat as unknown as Chat);
  void timeline.open();
  await chat.answer();
  await chat.answer();
  assert.equal(timeline.isEnd.value, false);
  return [chat, timeline];
};

test("what comes while the newest messages are read leaves no hole", async () => {
  const [chat, timeline] = await farFromTheEnd();
  void timeline.latest();
  await chat.receive(timeline, 5);
  timeline.handle(changed(message(1003, { text: "", isDeleted: true })));
  await chat.answer();
  assert.equal(timeline.isEnd.value, true);
  await chat.receive(timeline, 1);
  withoutHole(timeline, 1006);
  assert.equal(timeline.messages.find(({ sequence }) => sequence === 1003)?.text, "");
});

test("what comes while a chat is opened leaves no hole", async () => {
  const chat = new SlowChat(300);
  const timeline = new Timeline(chat as unknown as Chat);
  void timeline.open();
  await chat.receive(timeline, 5);
  await chat.answer();
  await chat.receive(timeline, 1);
  withoutHole(timeline, 306);
});

test("what comes while the end is found leaves no hole", async () => {
  const [chat, timeline] = await farFromTheEnd();
  for (let page = 0; page < 3; page++) {
    void timeline.newer();
    await chat.answer();
  }
  assert.equal(timeline.messages.at(-1)?.sequence, 1000);
  // The page after the last message is empty, and is requested while the next message comes.
  void timeline.newer();
  await chat.receive(timeline, 1);
  await chat.answer();
  await chat.receive(timeline, 1);
  withoutHole(timeline, 1002);
});

test("a page that was read before a deletion does not bring the text back", async () => {
  const [chat, timeline] = await farFromTheEnd();
  const first = upTo(timeline)[0]!;
  void timeline.older();
  timeline.handle(changed(message(first - 1, { text: "", isDeleted: true })));
  await chat.answer();
  assert.equal(timeline.messages.find(({ sequence }) => sequence === first - 1)?.text, "");
});

test("a quote that was asked for before a deletion does not bring the text back", async () => {
  const [chat, timeline] = await farFromTheEnd();
  const quote = timeline.quote(7);
  timeline.handle(changed(message(7, { text: "", isDeleted: true })));
  await chat.answer();
  assert.equal(quote.value?.text, "");
});

test("if more happens meanwhile than is remembered, the page is read again", async () => {
  const [chat, timeline] = await farFromTheEnd();
  void timeline.latest();
  await chat.receive(timeline, MESSAGES_MAX + 1);
  await chat.answer();
  assert.equal(timeline.isEnd.value, false);
  await chat.receive(timeline, MESSAGES_MAX);
  await chat.answer();
  assert.equal(timeline.isEnd.value, true);
  await chat.receive(timeline, 1);
  withoutHole(timeline, 1000 + 2 * MESSAGES_MAX + 2);
});

test("what comes while a new device asks for the past is shown once", async () => {
  let answer: (page: Message[]) => void = () => undefined;
  const timeline = new Timeline({
    chatId: "chat_1",
    unread: 0,
    pending: () => [],
    messages: async () => [],
    history: () =>
      new Promise<Message[]>((done) => {
        answer = done;
      }),
  } as unknown as Chat);
  void timeline.open();
  await new Promise((turn) => setTimeout(turn));
  // These are synced before the request for older messages is answered.
  for (const sequence of [2, 3]) timeline.handle(received(message(sequence)));
  await Promise.resolve();
  assert.deepEqual(upTo(timeline), [2, 3]);
  answer([message(1), message(2), message(3)]);
  await new Promise((turn) => setTimeout(turn));
  assert.deepEqual(upTo(timeline), [1, 2, 3]);
});
