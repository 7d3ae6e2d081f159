// The messages of a chat in memory, as events change them.

import assert from "node:assert/strict";
import { test } from "node:test";
import type { Chat, ClientEvent, Message } from "@tidewire/client";
import { Timeline } from "../src/model/timeline.ts";

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
  // As a page of what was missed brings them: all events of it at once.
  timeline.handle(received(message(2, { text: "a secret" })));
  timeline.handle(changed(message(2, { text: "", isDeleted: true })));
  timeline.handle(received(message(3)));
  await Promise.resolve();
  assert.deepEqual(
    timeline.messages.map((one) => one.text),
    ["text 1", "", "text 3"],
  );
});
