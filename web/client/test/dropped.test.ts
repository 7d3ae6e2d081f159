// Positions that the server drops, because it was told of too many at once. As the Python core's
// tests have it: tests/unit/client/test_connection_dropped.py and test_acks.py.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Acks } from "../src/core/acks.ts";
import { Connection } from "../src/core/connection.ts";
import type { Effect, Now } from "../src/core/effects.ts";
import { DEFAULTS } from "../src/core/options.ts";
import { firstRecord } from "../src/core/record.ts";
import { Replica } from "../src/core/replica.ts";
import type { ClientFrame, ServerFrame } from "../src/wire/frames.ts";

const HOUR_MS = 3_600_000;

/** A frame of the server's; what no core reads is left out. */
const frameOf = (type: string, payload: object, request_id?: string): ServerFrame =>
  ({ type, timestamp: "", request_id, payload }) as unknown as ServerFrame;

const rateLimited = (details: object = {}, request_id?: string): ServerFrame =>
  frameOf("error", { code: "RATE_LIMITED", message: "", details }, request_id);

const beatAck = (request_id: string): ServerFrame =>
  frameOf("heartbeat_ack", { server_time: "" }, request_id);

const push = (sequence: number): ServerFrame =>
  frameOf("message", {
    chat_id: "chat_1",
    message_id: `msg_${sequence}`,
    sequence,
    prev_sequence: sequence - 1,
    sender_id: "user_b",
    client_message_id: `key_${sequence}`,
    created_at: "2031-05-04T11:20:07.000Z",
    content: "hello",
  });

/** A connection that is ready, with one direct chat and a disk that is never late. */
class Stage {
  core: Connection;
  private _ms = 0;

  constructor() {
    const replicas = [firstRecord("chat_1", "direct", 0, 0)];
    const memory = { outbox: [], replicas, userId: null, epoch: null };
    this.core = new Connection(DEFAULTS, () => 0.5, memory);
    this.core.start(this.now);
    this.core.opened(this.now);
    this.hear(
      frameOf("connection_established", {
        user_id: "user_own",
        epoch: "e",
        heartbeat_interval_ms: 30_000,
        protocol_version: 1,
      }),
      frameOf("chat_digest", {
        digest_id: "d",
        page: 0,
        last: true,
        chats: [{ ...replicas[0], joined_sequence: 0 }],
      }),
    );
    assert.equal(this.core.status.state, "ready");
  }

  get now(): Now {
    return { ms: this._ms, wallMs: 1_900_000_000_000 + this._ms };
  }

  /** Store what is to be stored; returns the frames that leave, one after the other. */
  did(effects: Effect[]): ClientFrame[] {
    return effects.flatMap((effect) => {
      if (effect.do === "send") return [effect.frame];
      return effect.do === "keep" ? this.did(this.core.stored(effect, this.now)) : [];
    });
  }

  hear(...frames: ServerFrame[]): ClientFrame[] {
    return frames.flatMap((frame) => this.did(this.core.receive(frame, this.now)));
  }

  wait(ms: number): ClientFrame[] {
    const frames: ClientFrame[] = [];
    for (const untilMs = this._ms + ms; ; ) {
      const dueMs = this.core.nextDeadlineMs()!;
      this._ms = Math.max(this._ms, Math.min(dueMs, untilMs));
      if (dueMs > untilMs) return frames;
      frames.push(...this.did(this.core.tick(this.now)));
    }
  }

  /** Wait, and let the server answer the heartbeats. */
  live(ms: number): ClientFrame[] {
    const frames: ClientFrame[] = [];
    for (const untilMs = this._ms + ms; this._ms < untilMs; ) {
      const some = this.wait(Math.min(20_000, untilMs - this._ms));
      for (const one of some) if (one.type === "heartbeat") this.hear(beatAck(one.request_id!));
      frames.push(...some);
    }
    return frames;
  }

  read(sequence: number): ClientFrame[] {
    return this.did(this.core.read("chat_1", sequence, this.now));
  }
}

/** What was acknowledged and read, as these frames tell it. */
const told = (frames: ClientFrame[]): { acks: number[]; reads: number[] } => ({
  acks: frames.flatMap((one) => (one.type === "ack" ? one.payload.last_acked_sequence : [])),
  reads: frames.flatMap((one) => (one.type === "read" ? one.payload.last_read_sequence : [])),
});

const beatOf = (frames: ClientFrame[]): string => {
  const [beat, ...more] = frames.filter((one) => one.type === "heartbeat");
  assert.ok(beat && !more.length);
  return beat.request_id!;
};

const NOTHING = { acks: [], reads: [] };

test("positions that the server has dropped are told again when it says", () => {
  const stage = new Stage();
  assert.deepEqual(told([...stage.hear(push(1), push(2)), ...stage.wait(300)]).acks, [1, 2]);
  assert.deepEqual(told(stage.read(1)).reads, [1]);
  assert.deepEqual(told([...stage.hear(push(3)), ...stage.wait(300)]).acks, [3]);
  stage.hear(rateLimited({ retry_after_seconds: 3 }));
  assert.deepEqual(told([...stage.hear(push(4)), ...stage.wait(2990)]), NOTHING);
  // The highest, and each once.
  assert.deepEqual(told(stage.wait(20)), { acks: [4], reads: [1] });
  assert.deepEqual(told(stage.wait(20_000)), NOTHING);
  // That was dropped, too.
  stage.hear(rateLimited());
  assert.deepEqual(told(stage.wait(1100)), { acks: [4], reads: [1] });
});

test("an answered heartbeat proves what was told before it", () => {
  const stage = new Stage();
  stage.hear(push(1));
  stage.read(1);
  let beat = beatOf(stage.wait(33_000));
  assert.deepEqual(told(stage.hear(push(2))).acks, [2]);
  stage.hear(beatAck(beat), rateLimited());
  assert.deepEqual(told(stage.wait(1100)), { acks: [2], reads: [] });
  beat = beatOf(stage.wait(33_000));
  stage.hear(beatAck(beat), rateLimited());
  assert.deepEqual(told(stage.wait(2000)), NOTHING);
});

test("a heartbeat that is not answered proves nothing", () => {
  const stage = new Stage();
  stage.hear(push(1));
  stage.read(1);
  const first = beatOf(stage.wait(33_000));
  stage.hear(rateLimited({}, first));
  assert.deepEqual(told(stage.hear(push(2))).acks, [2]);
  const second = beatOf(stage.wait(33_000));
  assert.notEqual(second, first);
  stage.hear(beatAck(first), rateLimited());
  assert.deepEqual(told(stage.wait(1100)), { acks: [2], reads: [1] });
});

test("a heartbeat whose answer is on its way proves nothing yet", () => {
  const stage = new Stage();
  stage.hear(push(1));
  stage.read(1);
  const beat = beatOf(stage.wait(33_000));
  assert.deepEqual(told(stage.hear(push(2))).acks, [2]);
  stage.hear(rateLimited(), beatAck(beat));
  assert.deepEqual(told(stage.wait(1100)), { acks: [2], reads: [1] });
});

test("a heartbeat that asks for a sign of life is a proof as well", () => {
  const stage = new Stage();
  stage.hear(push(1));
  const beat = beatOf(stage.did(stage.core.hurry(stage.now)));
  stage.hear(beatAck(beat), rateLimited());
  assert.deepEqual(told(stage.wait(2000)), NOTHING);
});

test("a wait that makes no sense is no fault of ours", () => {
  for (const retry_after_seconds of [1e308, -1, 0, "soon", true, null]) {
    const stage = new Stage();
    stage.hear(push(1), rateLimited({ retry_after_seconds }));
    for (let sequence = 2; sequence < 12; sequence++) stage.hear(push(sequence));
    const isLong = retry_after_seconds === 1e308;
    if (isLong) assert.deepEqual(told(stage.live(HOUR_MS - 20_000)), NOTHING);
    assert.deepEqual(told(stage.live(isLong ? 20_000 : 1000)).acks, [11]);
  }
});

test("nobody waits longer than an hour for a page", () => {
  const stage = new Stage();
  const [asked] = stage.hear(push(9)).concat(stage.wait(300));
  assert.equal(asked!.type, "sync_request");
  const { request_id } = asked as Extract<ClientFrame, { type: "sync_request" }>;
  stage.hear(rateLimited({ retry_after_seconds: 1e308 }, request_id));
  const isPage = (one: ClientFrame): boolean => one.type === "sync_request";
  assert.ok(!stage.live(HOUR_MS - 20_000).some(isPage));
  assert.ok(stage.live(20_000).some(isPage));
});

// The bundles.

const replicaOf = (number: number): Replica =>
  new Replica({ ...firstRecord(`chat_${number}`, "direct", 0, 0), cursor: 5 }, 1);

const replicasOf = (count: number): Replica[] =>
  Array.from({ length: count }, (_, number) => replicaOf(number));

test("nothing is told again that was not told on this connection", () => {
  const acks = new Acks(DEFAULTS);
  const [here, left] = replicasOf(2);
  acks.reconnected([here!, left!], 1000);
  assert.equal(acks.flush(1000).length, 2);
  left!.is_member = false;
  acks.dropped(2000);
  assert.equal(acks.flush(2000).length, 1);
  acks.reconnected([], 3000);
  acks.dropped(4000);
  assert.equal(acks.nextDeadlineMs(), null);
});

test("a new connection is as fast as the first", () => {
  const acks = new Acks({ ...DEFAULTS, ackFramesMax: 8 });
  acks.reconnected(replicasOf(20), 0);
  assert.equal(acks.flush(0).length, 8);
  acks.dropped(1000);
  assert.equal(acks.flush(1000).length, 4);
  acks.reconnected(replicasOf(20), 2000);
  assert.equal(acks.flush(2000).length, 8);
});

test("bundles become smaller when some is dropped, and grow when all is taken", () => {
  const acks = new Acks({ ...DEFAULTS, ackFramesMax: 8, ackIntervalMs: 80 });
  acks.reconnected(replicasOf(60), 0);
  const sizes: [nowMs: number, size: number][] = [];
  for (let nowMs = 0; nowMs < 2000; nowMs += 10) {
    if (nowMs === 40) acks.dropped(nowMs);
    if (nowMs === 400) {
      acks.heartbeatSent();
      acks.heartbeatAnswered();
    }
    const { length } = acks.flush(nowMs);
    if (length) sizes.push([nowMs, length]);
  }
  const instants = sizes.map(([nowMs]) => nowMs).slice(0, 8);
  assert.deepEqual(instants, [0, 80, 160, 240, 320, 400, 480, 560]);
  const lengths = sizes.map(([, size]) => size);
  assert.deepEqual(lengths.slice(0, 8), [8, 4, 4, 4, 4, 8, 8, 8]);
  assert.equal(
    lengths.reduce((sum, size) => sum + size),
    68,
  );
});

/** A server that takes so many acknowledgements a second. It tells of what it drops as the real one
 * does, and each error takes a while. */
class Limited {
  told = new Set<string>();
  dropped = 0;
  private _room: number;
  private _atMs = 0;
  private _toldAtMs = -1000;
  private _errors: number[] = [];

  constructor(
    private _perSecond: number,
    private _wayMs: number,
  ) {
    this._room = _perSecond;
  }

  take(frames: ClientFrame[], nowMs: number): void {
    const refilled = ((nowMs - this._atMs) * this._perSecond) / 1000;
    this._room = Math.min(this._room + refilled, this._perSecond);
    this._atMs = nowMs;
    for (const frame of frames) {
      assert.ok(frame.type === "ack");
      if (this._room >= 1) {
        this._room--;
        this.told.add(frame.payload.chat_id);
        continue;
      }
      this.dropped++;
      if (nowMs >= this._toldAtMs + 1000) {
        this._toldAtMs = nowMs;
        this._errors.push(nowMs + this._wayMs);
      }
    }
  }

  hasError(nowMs: number): boolean {
    return this._errors[0]! <= nowMs && this._errors.shift() !== undefined;
  }
}

test("many positions arrive at a server with a low limit", () => {
  for (const perSecond of [5, 20, 50, 300]) {
    const acks = new Acks(DEFAULTS);
    const server = new Limited(perSecond, 80);
    acks.reconnected(replicasOf(2000), 0);
    let nowMs = 0;
    while (acks.nextDeadlineMs() !== null) {
      nowMs += 10;
      server.take(acks.flush(nowMs), nowMs);
      if (server.hasError(nowMs)) acks.dropped(nowMs + 1000);
      if (nowMs % 30_000 === 0) acks.heartbeatSent();
      if (nowMs % 30_000 === 200) acks.heartbeatAnswered();
      assert.ok(nowMs < 20 * 60_000, "it does not end");
    }
    assert.equal(server.told.size, 2000);
    assert.ok(server.dropped < 400, `${server.dropped} dropped of ${perSecond} a second`);
    assert.ok((server.dropped * 60_000) / nowMs < 1000, "the server would end the connection");
  }
});
