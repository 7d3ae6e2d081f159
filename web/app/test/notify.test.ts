// Notifications for a user who does not look at the page, and which of them are closed again.

import "./page.ts";
import assert from "node:assert/strict";
import { test } from "node:test";
import type { ClientEvent, Message } from "@tidewire/client";
import type { Live } from "../src/model/live.ts";
import { notify } from "../src/model/notify.ts";
import { isNotifying } from "../src/model/settings.ts";
import { signal } from "../src/model/signals.ts";
import { shown } from "./page.ts";

test("a notification of a message goes with the message", () => {
  isNotifying.value = true;
  let tell = (_event: ClientEvent): void => {};
  const stop = notify({
    unread: signal(0),
    client: { isLeader: true, chat: () => ({ type: "direct", mutedUntil: null }) },
    listen: (listener: (event: ClientEvent) => void) => {
      tell = listener;
      return () => {};
    },
  } as unknown as Live);
  const message = (sequence: number, text: string) =>
    ({ chatId: "chat_1", sequence, text, senderName: "Ann", createdAt: new Date() }) as Message;
  const received = (one: Message) => tell({ type: "MessageReceived", message: one } as ClientEvent);
  const deleted = (sequence: number) =>
    tell({
      type: "MessageChanged",
      chatId: "chat_1",
      kind: "delete",
      after: message(sequence, ""),
    } as unknown as ClientEvent);
  received(message(1, "a secret"));
  assert.equal(shown.get("chat_1"), "a secret");
  deleted(1);
  assert.equal(shown.size, 0);
  // The deletion of an older message leaves the notification of a newer one.
  received(message(3, "older"));
  received(message(4, "newer"));
  deleted(3);
  assert.equal(shown.get("chat_1"), "newer");
  stop();
});
