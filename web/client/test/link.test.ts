// The part of this link that the Python one does not have: `hurry`.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Connection } from "../src/core/connection.ts";
import type { Effect, Now } from "../src/core/effects.ts";
import { DEFAULTS } from "../src/core/options.ts";
import type { ServerFrame } from "../src/wire/frames.ts";

const at = (ms: number): Now => ({ ms, wallMs: 1_900_000_000_000 + ms });

const fresh = (): Connection =>
  new Connection(DEFAULTS, () => 0.5, { outbox: [], replicas: [], userId: null, epoch: null });

const established: ServerFrame = {
  type: "connection_established",
  timestamp: "",
  payload: {
    connection_id: "conn_1",
    user_id: "user_own",
    device_id: "d",
    server_time: "2031-05-04T11:20:07.412Z",
    heartbeat_interval_ms: 30_000,
    protocol_version: 1,
    epoch: "e",
  },
};
const digest: ServerFrame = {
  type: "chat_digest",
  timestamp: "",
  payload: { digest_id: "1", page: 0, last: true, chats: [] },
};

const ready = (ms: number): Connection => {
  const core = fresh();
  core.start(at(ms));
  core.opened(at(ms));
  core.receive(established, at(ms));
  core.receive(digest, at(ms));
  assert.equal(core.status.state, "ready");
  return core;
};

const did = (effects: Effect[]): string[] =>
  effects.map((effect) => (effect.do === "send" ? effect.frame.type : effect.do));

test("a wait is cut short when the network may be back", () => {
  const core = fresh();
  core.start(at(0));
  core.lost(at(10));
  assert.equal(core.status.state, "offline");
  assert.deepEqual(did(core.hurry(at(20))), ["status", "connect"]);
});

test("a person's send cuts a wait short, but not again and again", () => {
  const core = fresh();
  core.start(at(0));
  core.lost(at(10));
  assert.deepEqual(did(core.hurry(at(500), 1000)), []);
  assert.deepEqual(did(core.hurry(at(1000), 1000)), ["status", "connect"]);
});

test("what the server said about when to come back is not cut short", () => {
  const core = ready(0);
  const payload = { reason: "server_shutdown", message: "", reconnect_delay_ms: 5000 };
  core.receive({ type: "connection_closing", timestamp: "", payload }, at(10));
  core.lost(at(20), 1012);
  assert.deepEqual(did(core.hurry(at(1000))), []);
  assert.ok(core.nextDeadlineMs()! >= 5020);
  // Except when the user wants it.
  assert.deepEqual(did(core.start(at(2000))), ["status", "connect"]);
});

test("a try that began in a network that is gone is begun anew", () => {
  const core = fresh();
  core.start(at(0));
  assert.deepEqual(did(core.hurry(at(100))), []);
  assert.deepEqual(did(core.hurry(at(1000))), ["disconnect", "connect"]);
});

test("a connection that may be dead is asked, and replaced at once if it does not answer", () => {
  const core = ready(0);
  assert.deepEqual(did(core.hurry(at(5000))), ["heartbeat"]);
  assert.deepEqual(did(core.hurry(at(5001))), []);
  assert.equal(core.nextDeadlineMs(), 5000 + DEFAULTS.probeMs);
  assert.deepEqual(did(core.tick(at(5800))), ["disconnect", "status", "status", "connect"]);
});

test("a sign of life is enough", () => {
  const core = ready(0);
  core.hurry(at(5000));
  const payload = { server_time: "" };
  core.receive({ type: "heartbeat_ack", request_id: "2", timestamp: "", payload }, at(5100));
  assert.deepEqual(did(core.tick(at(5800))), []);
  assert.equal(core.status.state, "ready");
});

test("a person's send does not doubt a connection that stands", () => {
  assert.deepEqual(did(ready(0).hurry(at(5000), 1000)), []);
});

test("a broken frame is told and ends nothing", () => {
  const core = ready(0);
  for (const frame of [{ type: "of_next_year", payload: {} }, { type: "status_update" }, null])
    assert.deepEqual(did(core.receive(frame as never, at(1))), ["ignored"]);
  assert.equal(core.status.state, "ready");
});
