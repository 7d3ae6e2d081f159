// When a page or the digest is asked for again after the server has said no.

import assert from "node:assert/strict";
import { test } from "node:test";
import { DEFAULTS } from "../src/core/options.ts";
import { firstRecord } from "../src/core/record.ts";
import { Replica } from "../src/core/replica.ts";
import { Replicas } from "../src/core/replicas.ts";
import { Syncs } from "../src/core/syncs.ts";

const half = (): number => 0.5;

test("the wait after a failed sync is not cut short until its end", () => {
  const syncs = new Syncs(DEFAULTS, half);
  const behind = new Replica(firstRecord("chat_1", "direct", 0, 5), 1);
  syncs.want(behind, 500);
  syncs.failed(behind, 0, 9000);
  // A push says nothing of whether the server can answer.
  syncs.want(behind, 10);
  assert.equal(syncs.nextDeadlineMs(), 9000);
  assert.deepEqual(syncs.take(8999), []);
  assert.deepEqual(syncs.take(9000), [behind]);
  // A chat that was left and is back has no wait.
  syncs.answered("chat_1");
  syncs.failed(behind, 9000, 20_000);
  syncs.want(behind, 9010);
  assert.equal(syncs.nextDeadlineMs(), 29_000);
  syncs.forget("chat_1");
  syncs.want(behind, 9020);
  assert.deepEqual(syncs.take(9020), [behind]);
});

test("a digest that failed is not asked for before its time again", () => {
  const replicas = new Replicas(DEFAULTS, half, [], "user_own");
  const digest = { digest_id: "1", page: 0, last: true, chats: [] };
  const now = { ms: 0, wallMs: 0 };
  const connect = (): void => {
    replicas.connected("user_own", "e", false);
    replicas.digest(digest, now);
  };
  connect();
  replicas.wantDigest(0);
  assert.ok(replicas.takeDigest(0));
  // Wanted while it was on its way, and after it failed.
  replicas.wantDigest(5);
  replicas.digestFailed(700);
  replicas.wantDigest(10);
  assert.equal(replicas.nextDeadlineMs(), 700);
  assert.ok(!replicas.takeDigest(699));
  assert.ok(replicas.takeDigest(700));
  replicas.digest(digest, now);
  replicas.wantDigest(710);
  assert.ok(replicas.takeDigest(710));
  replicas.digestFailed(1700);
  replicas.disconnected();
  connect();
  replicas.wantDigest(720);
  assert.ok(replicas.takeDigest(720));
});
