/**
 * When the server is told what this device holds and its user has read. PURE.
 *
 * At once in a chat in which nothing was told for a while, so that a tick takes no longer than the
 * way there and back; after that some entries or some time are gathered. Never above what is on the
 * disk; in bundles that stay below the server's limits. A new connection tells everything again: an
 * acknowledgement that was lost with the old one is healed by that.
 */

import type { ClientFrame } from "../wire/frames.ts";
import type { Options } from "./options.ts";
import type { Replica } from "./replica.ts";

type AckFrame = Extract<ClientFrame, { type: "ack" | "read" }>;

/** What is to be told of one chat, and when. */
interface Due {
  replica: Replica;
  atMs: number;
  entries: number;
}

export class Acks {
  /** Chats with something to tell, longest waiting first. */
  private _due = new Map<string, Due>();
  private _notBeforeMs = 0;

  /** `isDurable` false: the store forgets, so only what was shown is acknowledged. */
  constructor(
    private _options: Options,
    private _isDurable = true,
  ) {}

  /** A new connection knows nothing of what the last one was told. */
  reconnected(replicas: Iterable<Replica>, nowMs: number): void {
    this._due.clear();
    for (const replica of replicas) {
      replica.acked = replica.readTold = 0;
      if (replica.is_member && this._frames(replica).length) this._tell(replica, nowMs);
    }
  }

  /** So many entries more are on the disk. */
  stored(replica: Replica, count: number, nowMs: number): void {
    if (!count) return;
    const due = this._tell(replica, this._fromMs(replica, nowMs));
    due.entries += count;
    if (due.entries >= this._options.ackMessages) this._tell(replica, nowMs);
  }

  /** The application was shown more; where the store forgets, that is what is acknowledged. */
  shown(replica: Replica, nowMs: number): void {
    if (!this._isDurable) this._tell(replica, this._fromMs(replica, nowMs));
  }

  /** The user has read on: that is told at once. */
  read(replica: Replica, nowMs: number): void {
    this._tell(replica, nowMs);
  }

  /** The server wants fewer of these. */
  wait(untilMs: number): void {
    this._notBeforeMs = Math.max(this._notBeforeMs, untilMs);
  }

  /** What is to be told now. `isLast`: all of it, because the connection is about to end. */
  flush(nowMs: number, isLast = false): ClientFrame[] {
    const deadlineMs = this.nextDeadlineMs();
    const frames: ClientFrame[] = [];
    if (!isLast && (deadlineMs === null || nowMs < deadlineMs)) return frames;
    const { ackFramesMax, ackIntervalMs } = this._options;
    for (const [id, due] of this._due) {
      if (frames.length >= ackFramesMax && !isLast) break;
      if (due.atMs <= nowMs || isLast) {
        this._due.delete(id);
        frames.push(...this._told(due.replica, nowMs));
      }
    }
    // The same rate for small bundles and full ones.
    this.wait(nowMs + Math.ceil((ackIntervalMs * frames.length) / ackFramesMax));
    return frames;
  }

  nextDeadlineMs(): number | null {
    if (!this._due.size) return null;
    let dueMs = Number.POSITIVE_INFINITY;
    for (const due of this._due.values()) dueMs = Math.min(dueMs, due.atMs);
    return Math.max(dueMs, this._notBeforeMs);
  }

  private _told(replica: Replica, nowMs: number): AckFrame[] {
    const frames = replica.is_member ? this._frames(replica) : [];
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

  /** When one entry more is told of, if no further ones come. */
  private _fromMs(replica: Replica, nowMs: number): number {
    const { ackMs, ackDirectMs } = this._options;
    // Read before it was on the disk: that was to be told at once.
    if (Math.min(replica.read, replica.stored) > replica.readTold) return nowMs;
    // Only own ones are new: the server knows that their author has them, and as a rule somebody
    // answers before.
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

  /** What the server has not been told of this replica on this connection. */
  private _frames(replica: Replica): AckFrame[] {
    const { chat_id, start } = replica;
    const held = this._isDurable ? replica.stored : Math.min(replica.stored, replica.shown);
    const last_read_sequence = Math.min(replica.read, held);
    const isRead = last_read_sequence > replica.readTold;
    // What this device did not store itself is for others to acknowledge.
    const last_acked_sequence = held > start ? held : 0;
    const frames: AckFrame[] = [];
    if (isRead) frames.push({ type: "read", payload: { chat_id, last_read_sequence } });
    if (last_acked_sequence > Math.max(replica.acked, isRead ? last_read_sequence : 0))
      frames.push({ type: "ack", payload: { chat_id, last_acked_sequence } });
    return frames;
  }
}
