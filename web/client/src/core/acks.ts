/**
 * Decides when to tell the server what this device has stored and its user has read. PURE.
 *
 * A chat that has sent no acknowledgement for a while sends one at once, so that a tick takes no
 * longer than a round trip; after that it gathers some entries or waits some time. Acknowledgements
 * never go above what is on the disk, and leave in bundles that stay below the server's limits. A
 * new connection acknowledges everything again: an acknowledgement may be lost with the old one.
 *
 * A server that is told too much drops some of it, and says so without naming it. Then everything is
 * told again of which it is not proven that the server took it, and the bundles leave more slowly.
 * The proof is a heartbeat's answer: the server reads in order, and tells of a drop before it answers.
 */

import type { ClientFrame } from "../wire/frames.ts";
import { earliest, type Options } from "./options.ts";
import type { Replica } from "./replica.ts";

type AckFrame = Extract<ClientFrame, { type: "ack" | "read" }>;

/** The acknowledgement that is due for one chat, and when. */
interface Due {
  replica: Replica;
  atMs: number;
  entries: number;
}

/** What the server surely knows of chats: what was told before all that it may have dropped. */
type Known = Map<Replica, [acked: number, readTold: number]>;

/** At most this many times as slowly as usual: three acknowledgements in two seconds. */
const SLOWNESS_MAX = 256;

export class Acks {
  /** Chats with something to tell, longest waiting first. */
  private _due = new Map<string, Due>();
  private _notBeforeMs = 0;
  // Chats of which something was told since the last heartbeat, and before it, without proof.
  private _toldSince: Known = new Map();
  private _toldBefore: Known = new Map();
  private _slowness = 1;

  /** `isDurable` false: the store is lost with the page, so only shown entries are acknowledged. */
  constructor(
    private _options: Options,
    private _isDurable = true,
  ) {}

  /** Acknowledge everything again: what the last connection sent may be lost. */
  reconnected(replicas: Iterable<Replica>, nowMs: number): void {
    this._due.clear();
    this._toldSince.clear();
    this._toldBefore.clear();
    this._slowness = 1;
    for (const replica of replicas) {
      replica.acked = replica.readTold = 0;
      if (replica.is_member && this._frames(replica).length) this._tell(replica, nowMs);
    }
  }

  /** `count` more entries are on the disk. */
  stored(replica: Replica, count: number, nowMs: number): void {
    if (!count) return;
    const due = this._tell(replica, this._fromMs(replica, nowMs));
    due.entries += count;
    if (due.entries >= this._options.ackMessages) this._tell(replica, nowMs);
  }

  /** The application got more entries. If the store is not durable, they are acknowledged now. */
  shown(replica: Replica, nowMs: number): void {
    if (!this._isDurable) this._tell(replica, this._fromMs(replica, nowMs));
  }

  /** The user has read further; this is told at once. */
  read(replica: Replica, nowMs: number): void {
    this._tell(replica, nowMs);
  }

  heartbeatSent(): void {
    for (const [replica, known] of this._toldSince)
      if (!this._toldBefore.has(replica)) this._toldBefore.set(replica, known);
    this._toldSince.clear();
  }

  /** The server has taken everything that was told before the last heartbeat and did not come back
   * in `dropped`. */
  heartbeatAnswered(): void {
    if (this._toldBefore.size) this._slowness = Math.max(this._slowness / 2, 1);
    this._toldBefore.clear();
  }

  /** Send nothing before this time. */
  wait(untilMs: number): void {
    this._notBeforeMs = Math.max(this._notBeforeMs, untilMs);
  }

  /** The server has dropped some of what it was told, and wants nothing before this time. */
  dropped(untilMs: number): void {
    this.wait(untilMs);
    const doubted: Known = new Map([...this._toldSince, ...this._toldBefore]);
    this._toldSince.clear();
    this._toldBefore.clear();
    if (doubted.size) this._slowness = Math.min(2 * this._slowness, SLOWNESS_MAX);
    for (const [replica, known] of doubted) {
      [replica.acked, replica.readTold] = known;
      this._tell(replica, untilMs);
    }
  }

  /** Take what is due now. `isLast` takes all, because the connection is about to end. */
  flush(nowMs: number, isLast = false): ClientFrame[] {
    const deadlineMs = this.nextDeadlineMs();
    const frames: ClientFrame[] = [];
    if (!isLast && (deadlineMs === null || nowMs < deadlineMs)) return frames;
    const { ackFramesMax, ackIntervalMs } = this._options;
    const framesMax = Math.max(Math.trunc(ackFramesMax / this._slowness), 1);
    for (const [id, due] of this._due) {
      if (frames.length >= framesMax && !isLast) break;
      if (due.atMs <= nowMs || isLast) {
        this._due.delete(id);
        frames.push(...this._told(due.replica, nowMs));
      }
    }
    // The pause grows with the bundle, so small and full bundles have the same rate.
    const intervalMs = ackIntervalMs * this._slowness;
    this.wait(nowMs + Math.ceil((intervalMs * frames.length) / ackFramesMax));
    return frames;
  }

  nextDeadlineMs(): number | null {
    const dueMs = earliest(...[...this._due.values()].map(({ atMs }) => atMs));
    return dueMs === null ? null : Math.max(dueMs, this._notBeforeMs);
  }

  private _told(replica: Replica, nowMs: number): AckFrame[] {
    const frames = replica.is_member ? this._frames(replica) : [];
    if (frames.length && !this._toldSince.has(replica))
      this._toldSince.set(replica, [replica.acked, replica.readTold]);
    for (const frame of frames) {
      if (frame.type === "read") {
        replica.readTold = frame.payload.last_read_sequence;
        replica.acked = Math.max(replica.acked, replica.readTold);
      } else {
        replica.acked = frame.payload.last_acked_sequence;
      }
      replica.toldAtMs = nowMs;
    }
    return frames;
  }

  /** When to acknowledge one more entry, if no others follow. */
  private _fromMs(replica: Replica, nowMs: number): number {
    const { ackMs, ackDirectMs } = this._options;
    // The user read it before it was on the disk, and a read is told at once.
    if (Math.min(replica.read, replica.stored) > replica.readTold) return nowMs;
    // Only own ones are new: the server knows that their author has them. Usually another user's
    // reply comes before this time, and one acknowledgement covers both.
    if (replica.othersThrough <= replica.acked) return nowMs + 6 * ackMs;
    if (replica.toldAtMs === null) return nowMs;
    const waitMs = replica.chat_type === "direct" ? Math.min(ackDirectMs, ackMs) : ackMs;
    return Math.max(nowMs, replica.toldAtMs + waitMs);
  }

  private _tell(replica: Replica, atMs: number): Due {
    let due = this._due.get(replica.chat_id);
    if (!due) {
      due = { replica, atMs, entries: 0 };
      this._due.set(replica.chat_id, due);
    }
    due.atMs = Math.min(due.atMs, atMs);
    return due;
  }

  /** The acknowledgements of this replica that this connection has not sent yet. */
  private _frames(replica: Replica): AckFrame[] {
    const { chat_id, start } = replica;
    const held = this._isDurable ? replica.stored : Math.min(replica.stored, replica.shown);
    const last_read_sequence = Math.min(replica.read, held);
    const isRead = last_read_sequence > replica.readTold;
    // Entries up to `start` are not stored here: another device has to acknowledge them.
    const last_acked_sequence = held > start ? held : 0;
    const frames: AckFrame[] = [];
    if (isRead) frames.push({ type: "read", payload: { chat_id, last_read_sequence } });
    if (last_acked_sequence > Math.max(replica.acked, isRead ? last_read_sequence : 0))
      frames.push({ type: "ack", payload: { chat_id, last_acked_sequence } });
    return frames;
  }
}
