// Where a device begins in a chat of which its first news is the answer to a message of its own, and
// what it counts there.

import assert from "node:assert/strict";
import { test } from "node:test";
import type { Now } from "../src/core/effects.ts";
import { DEFAULTS } from "../src/core/options.ts";
import type { OutboxEntry } from "../src/core/outbox.ts";
import { EARLY_CHATS_MAX, Replicas } from "../src/core/replicas.ts";
import type {
  DigestEntry,
  PushedEntry,
  SendMessageAckPayload,
  StatusUpdatePayload,
} from "../src/wire/frames.ts";

const NOW: Now = { ms: 1000, wallMs: 1_900_000_000_000 };

const connected = (): Replicas => {
  const made = new Replicas(DEFAULTS, () => 0.5, [], "user_own");
  made.connected("user_own", "one", false);
  digest(made);
  return made;
};

const digest = (made: Replicas, ...chats: DigestEntry[]): void => {
  made.digest({ digest_id: "d", page: 0, last: true, chats }, NOW);
};

const listed = (chat_id: string, head: number, delivered: number): DigestEntry => ({
  chat_id,
  chat_type: "group",
  head,
  membership_version: 1,
  joined_sequence: 0,
  delivered,
  read: 0,
  others_delivered: 0,
  others_read: 0,
  unread: 0,
  mentions_unread: 0,
});

const ownStored = (made: Replicas, chat_id: string, sequence: number): void => {
  const entry = { chat_id, kind: "message", body: { content: "x" } } as OutboxEntry;
  const ack = { chat_id, sequence, prev_sequence: sequence - 1 } as SendMessageAckPayload;
  assert.deepEqual(made.ownStored(entry, ack, NOW), []);
};

test("a chat whose first news is an own message starts before it", () => {
  const made = connected();
  ownStored(made, "chat", 8);
  ownStored(made, "chat", 9);
  assert.ok(made.takeDigest(NOW.ms));
  // The server moves an author's own position to what the author sends.
  digest(made, listed("chat", 9, 9));
  const replica = made.byChat.get("chat");
  assert.deepEqual([replica?.start, replica?.cursor], [7, 7]);
  assert.deepEqual(made.takePages(NOW.ms), [replica]);
});

test("a read position on another device brings both counts, or none", () => {
  const made = connected();
  digest(made, { ...listed("chat", 9, 9), unread: 5, mentions_unread: 2 });
  const counts = (own_read: number, more: Partial<StatusUpdatePayload> = {}): unknown => {
    made.status({ chat_id: "chat", others_delivered: 0, others_read: 0, own_read, ...more });
    const { read, unread, mentions_unread } = made.byChat.get("chat")!;
    return [read, unread, mentions_unread];
  };
  assert.deepEqual(counts(4), [4, 5, 2]);
  assert.deepEqual(counts(6, { unread: 3, mentions_unread: 1 }), [6, 3, 1]);
  assert.deepEqual(counts(5, { unread: 4, mentions_unread: 2 }), [6, 3, 1]);
  assert.deepEqual(counts(7, { unread: 2 }), [7, 2, 0]);
});

test("a deletion of what may be unread and was never held asks for the count", () => {
  const made = connected();
  digest(made, { ...listed("chat", 9, 7), read: 4, unread: 5 });
  const deletion = (sequence: number, target: number) =>
    ({
      chat_id: "chat",
      sequence,
      prev_sequence: sequence - 1,
      kind: "delete",
      target,
    }) as PushedEntry;
  const replica = made.byChat.get("chat")!;
  // The digest has counted the deletions of this page.
  const messages = [deletion(8, 6), deletion(9, 8)];
  made.page(replica, { chat_id: "chat", messages, synced_through: 9, has_more: false }, NOW);
  assert.equal(made.takeDigest(NOW.ms), false);
  made.entry(deletion(10, 3), NOW);
  assert.equal(made.takeDigest(NOW.ms), false, "it was read");
  made.entry(deletion(11, 5), NOW);
  assert.equal(made.takeDigest(NOW.ms), true);
  digest(made, { ...listed("chat", 11, 11), read: 4, unread: 4 });
  made.entry(deletion(12, 9), NOW);
  assert.equal(made.takeDigest(NOW.ms), true, "the store cannot count what is below its start");
  digest(made, { ...listed("chat", 12, 12), read: 7, unread: 3 });
  made.entry(deletion(13, 9), NOW);
  assert.equal(made.takeDigest(NOW.ms), false, "the store can count");
});

test("own messages of chats that stay unknown are bounded", () => {
  const made = connected();
  for (let n = 0; n < EARLY_CHATS_MAX + 5; n++) ownStored(made, `chat-${n}`, 8);
  const last = `chat-${EARLY_CHATS_MAX}`;
  digest(made, listed("chat-0", 8, 8), listed(last, 8, 8));
  assert.equal(made.byChat.get("chat-0")?.start, 7);
  assert.equal(made.byChat.get(last)?.start, 8);
});

test("numbers of own messages mean nothing in a new epoch", () => {
  const made = connected();
  ownStored(made, "chat", 8);
  made.connected("user_own", "two", true);
  digest(made, listed("chat", 9, 9));
  assert.equal(made.byChat.get("chat")?.start, 9);
});
