// The outbox, its disk, which is always late, and a page that is killed at any instant.

import assert from "node:assert/strict";
import { test } from "node:test";
import { DEFAULTS } from "../src/core/options.ts";
import { Outbox, type OutboxEntry } from "../src/core/outbox.ts";

const CHAT = "chat_1";
const WALL_MS = 1000;

const half = (): number => 0.5;

const entry = (number: number, more: Partial<OutboxEntry> = {}): OutboxEntry => ({
  client_message_id: `key_${number}`,
  chat_id: CHAT,
  kind: "message",
  body: { content: `text ${number}` },
  seen_sequence: 0,
  created_at_ms: 0,
  number,
  left_at_ms: WALL_MS,
  state: "queued",
  is_doubtful: false,
  is_first: false,
  tries: 0,
  code: null,
  reason: null,
  ...more,
});

const editing = (number: number): OutboxEntry =>
  entry(number, { kind: "edit", body: { content: "better", target: 7 } });

const numbers = (entries: readonly OutboxEntry[]): number[] => entries.map((one) => one.number);

const take = (box: Outbox, wallMs = WALL_MS): number[] => numbers(box.take(0, wallMs)[0]);

/** How an entry ends without being stored: the second one of these, or the first on its way. */
const ENDS: Record<string, [second: OutboxEntry, next: number, end: (box: Outbox) => unknown]> = {
  dropped: [entry(2), 3, (box) => box.stored("key_1", 1) && box.drop("key_2")],
  erased: [editing(2), 3, (box) => box.stored("key_1", 1) && box.erase(CHAT, 7)],
  refused: [editing(2), 2, (box) => box.refused("key_1", "FORBIDDEN", "no", 0, 0)],
};

for (const [how, [second, next, end]] of Object.entries(ENDS))
  test(`nothing leaves before the disk has that an earlier one was ${how}`, () => {
    const box = new Outbox(DEFAULTS, half);
    for (const one of [entry(1), second, entry(3)]) box.add(one);
    box.release(CHAT);
    assert.deepEqual(take(box), [1]);
    const ended = end(box) as OutboxEntry[];
    assert.equal(ended.length, 1);
    assert.deepEqual(take(box), []);
    box.add(entry(4));
    box.release(CHAT);
    assert.deepEqual(take(box), [], "it is on the disk, but so is the one that has ended");
    box.saved(ended);
    assert.deepEqual(take(box), [next]);
  });

test("nothing leaves before the disk has that the fate of an earlier one is unknown", () => {
  const box = new Outbox(DEFAULTS, half, [entry(1), entry(2, { left_at_ms: null })]);
  box.release(CHAT);
  const [leaving, doubtful] = box.take(0, WALL_MS + DEFAULTS.fateMsMax);
  assert.deepEqual([numbers(leaving), numbers(doubtful)], [[], [1]]);
  assert.deepEqual(take(box), []);
  box.saved(doubtful);
  assert.deepEqual(take(box), [2]);
});

test("a connection that is lost does not open a chat for which the disk is late", () => {
  const waiting = [2, 3].map((number) => entry(number, { left_at_ms: null }));
  const box = new Outbox(DEFAULTS, half, [entry(1), ...waiting]);
  box.release(CHAT);
  assert.deepEqual(take(box), [1]);
  const dropped = box.drop("key_2");
  box.lost();
  box.stored("key_1", 1);
  box.release(CHAT);
  assert.deepEqual(take(box), []);
  // Of another chat, or not waited for.
  box.saved([entry(9, { chat_id: "chat_2" }), entry(8)]);
  assert.deepEqual(take(box), []);
  box.saved(dropped);
  assert.deepEqual(take(box), [3]);
});

/** An outbox and its disk, which does one thing after the other, when it is told to. */
class Device {
  box!: Outbox;
  server: number[] = [];
  written = 0;
  private _disk = new Map<string, OutboxEntry>();
  private _jobs: [write: () => void, then: () => void][] = [];
  private _flying: OutboxEntry[] = [];

  constructor() {
    this.start();
  }

  /** After a kill, too: what the server has, a sync brings before anything leaves. */
  start(): void {
    this._jobs = [];
    this._flying = [];
    const entries = [...this._disk.values()].sort((a, b) => a.number - b.number);
    this.box = new Outbox(DEFAULTS, half, structuredClone(entries));
    for (const number of this.server) this._arrived(`key_${number}`, number);
    this.box.release(CHAT);
  }

  private _arrived(id: string, sequence: number): void {
    if (this.box.stored(id, sequence)) this._job(() => this._disk.delete(id));
  }

  private _job(write: () => unknown, then = () => {}): void {
    this._jobs.push([write, then]);
  }

  private _save(entries: readonly OutboxEntry[]): void {
    for (const one of entries) this._disk.set(one.client_message_id, structuredClone(one));
  }

  work(): void {
    const [write, then] = this._jobs.shift() ?? [];
    write?.();
    then?.();
  }

  write(left_at_ms: number | null): void {
    const one = entry(++this.written, { left_at_ms });
    this._job(
      () => this._save([one]),
      () => {
        this.box.add(one);
        this.box.release(CHAT);
      },
    );
  }

  take(): void {
    const [leaving] = this.box.take(0, WALL_MS);
    this._flying.push(...leaving.filter((one) => one.left_at_ms !== null));
    const unmarked = leaving.filter((one) => one.left_at_ms === null);
    if (unmarked.length)
      this._job(
        () => {
          for (const { client_message_id } of unmarked)
            this._disk.get(client_message_id)!.left_at_ms = WALL_MS;
        },
        () => this._flying.push(...this.box.marked(unmarked, WALL_MS)),
      );
  }

  /** The server stores one; its answer is still to come. */
  arrive(): void {
    const one = this._flying.find(({ number }) => !this.server.includes(number));
    if (one) this.server.push(one.number);
  }

  answer(isRefused = false): void {
    const one = this._flying.shift();
    if (!one) return;
    const { client_message_id, number } = one;
    if (!isRefused && !this.server.includes(number)) this.server.push(number);
    if (this.server.includes(number)) {
      this._arrived(client_message_id, number);
      return;
    }
    const failed = this.box.refused(client_message_id, "FORBIDDEN", "no", 0, 0);
    this._job(
      () => this._save(failed),
      () => this.box.saved(failed),
    );
  }

  drop(): void {
    for (const { client_message_id } of this.box.entries()) {
      const dropped = this.box.drop(client_message_id);
      if (!dropped.length) continue;
      this._job(
        () => this._disk.delete(client_message_id),
        () => this.box.saved(dropped),
      );
      return;
    }
  }

  /** Change a text in place, as the driver does. */
  amend(): void {
    const one = this.box.entries().find(({ client_message_id: id }) => this.box.isHere(id));
    if (!one) return;
    one.left_at_ms = null;
    const copy = { ...one };
    this._job(() => this._save([copy]));
  }
}

/** What happens, each as often as it is in this list. */
const STEPS: readonly (readonly [name: string, (device: Device) => void])[] = [
  ["write", (device) => device.write(WALL_MS)],
  ["write offline", (device) => device.write(null)],
  ["take", (device) => device.take()],
  ["arrive", (device) => device.arrive()],
  ["answer", (device) => device.answer()],
  ["refuse", (device) => device.answer(true)],
  ["drop", (device) => device.drop()],
  ["amend", (device) => device.amend()],
  ...Array.from({ length: 3 }, () => ["work", (device: Device) => device.work()] as const),
  ["kill", (device) => device.start()],
];

/** Numbers below `below`, always the same ones from a seed. */
const dice = (seed: number) => {
  let state = seed;
  return (below: number): number => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
};

test("the order of writing survives every kill", () => {
  for (let seed = 1; seed <= 4000; seed++) {
    const roll = dice(seed);
    const steps = Array.from({ length: 60 }, () => STEPS[roll(STEPS.length)]!);
    const device = new Device();
    for (const [, step] of steps) step(device);
    device.start();
    for (let turn = 0; turn < 4 * device.written + 4; turn++) {
      device.take();
      device.answer();
      device.work();
    }
    const inOrder = [...new Set(device.server)].sort((a, b) => a - b);
    const how = `seed ${seed}: ${steps.map(([name]) => name)}`;
    assert.deepEqual(device.server, inOrder, how);
    assert.deepEqual(device.box.waitingChats(), [], how);
  }
});
