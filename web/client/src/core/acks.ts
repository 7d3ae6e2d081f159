/**
 * Decides when to tell the server what this device has stored and its user has read. PURE.
 *
 * A chat that has sent no acknowledgement for a while sends one at once, so that a tick takes no
 * longer than a round trip; after that it gathers some entries or waits some time. Acknowledgements
 * never go above what is on the disk, and leave in bundles that stay below the server's limits. A
 * new connection acknowledges everything again: an acknowledgement may be lost with the old one.
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

export class Acks {
  /** Chats with something to tell, longest waiting first. */
  private _due = new Map<string, Due>();
  private _notBeforeMs = 0;

  /** `isDurable` false: the store is lost with the page, so only shown entries are acknowledged. */
  constructor(
    private _options: Options,
    private _isDurable = true,
  ) {}

  /** Acknowledge everything again: what the last connection sent may be lost. */
  reconnected(replicas: Iterable<Replica>, nowMs: number): void {
    this._due.clear();
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

  /** Send nothing before this time: the server wants fewer acknowledgements. */
  wait(untilMs: number): void {
    this._notBeforeMs = Math.max(this._notBeforeMs, untilMs);
  }

  /** Take what is due now. `isLast` takes all, because the connection is about to end. */
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
    // The pause grows with the bundle, so small and full bundles have the same rate.
    this.wait(nowMs + Math.ceil((ackIntervalMs * frames.length) / ackFramesMax));
    return frames;
  }

  nextDeadlineMs(): number | null {
    const dueMs = earliest(...[...this._due.values()].map(({ atMs }) => atMs));
    return dueMs === null ? null : Math.max(dueMs, this._notBeforeMs);
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
