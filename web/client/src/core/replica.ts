/**
 * What a device knows of one chat: how far it holds everything, and everyone's positions. PURE.
 *
 * The chain: an entry continues what is held if `prev_sequence` ≤ cursor < `sequence`. A hole in
 * the numbers means nothing; an entry whose predecessor is not held waits until the missing entries
 * are fetched. So `offer` always returns the next part of a complete, ordered prefix.
 */

import type { ChatType, DigestEntry, EntryItem, StatusUpdatePayload } from "../wire/frames.ts";
import { isMessage, names } from "./fold.ts";
import { firstRecord, type ReplicaRecord, UNREAD_MAX } from "./record.ts";

const max = Math.max;

/** One chat on one device. */
export class Replica implements ReplicaRecord {
  chat_id!: string;
  chat_type!: ChatType;
  name!: string | null;
  membership_version!: number;
  is_member!: boolean;
  start!: number;
  cursor!: number;
  head!: number;
  delivered!: number;
  read!: number;
  others_delivered!: number;
  others_read!: number;
  unread!: number;
  mentions_unread!: number;
  hidden_through!: number | null;

  /** Everything up to here is on the disk; at most `cursor`, up to which it was received. */
  stored: number;
  /** The last entry that the user has read on this device. */
  seen: number;
  /** The last entry that the application got; without a disk nothing above it is acknowledged. */
  shown: number;
  /** Entries up to here are in `unread` already, if they are unread. */
  countedThrough: number;
  /** Entries whose predecessor is missing, by sequence. */
  waiting = new Map<number, EntryItem>();
  /** The server may have fewer entries than this device: only a sync can tell. */
  isInDoubt = false;
  /** Rises when the replica begins again; what is stored for an earlier one does not count. */
  generation = 0;
  /** The last entry of another user that was received. */
  othersThrough = 0;
  /** When the last acknowledgement was sent. */
  toldAtMs: number | null = null;
  // What this connection has done so far.
  acked = 0;
  readTold = 0;
  isListed = false;
  isCaughtUp = false;
  sendsFlying = 0;
  /** The last own entry that the server has answered, whether it is held here yet or not. */
  ownThrough = 0;

  constructor(
    record: ReplicaRecord,
    private _waitingMax: number,
  ) {
    Object.assign(this, firstRecord(record.chat_id, record.chat_type, 0, 0), record);
    this.stored = this.countedThrough = this.cursor;
    this.head = max(this.head, this.cursor);
    this.seen = this.shown = this.read;
  }

  disconnected(): void {
    this.isListed = this.isCaughtUp = false;
    this.sendsFlying = this.ownThrough = 0;
  }

  /** The part of it that may be written to the disk, with the cursor that is stored there. */
  record(): ReplicaRecord {
    const record = firstRecord(this.chat_id, this.chat_type, 0, 0);
    for (const name of Object.keys(record)) Object.assign(record, { [name]: this[name as "name"] });
    record.cursor = this.stored;
    return record;
  }

  // The chain.

  /** A sync is needed: entries are missing here, or may be missing on the server. */
  get isBehind(): boolean {
    return this.cursor < this.head || this.isInDoubt;
  }

  /** The server has an entry of ours, and an entry before it is missing here. */
  get isOwnMissing(): boolean {
    return this.ownThrough > this.cursor;
  }

  /** Add one entry; returns those of it and the waiting ones that continue the prefix. */
  offer(item: EntryItem): EntryItem[] {
    const { sequence } = item;
    if (sequence <= this.cursor) return [];
    this.head = max(this.head, sequence);
    if (item.prev_sequence > this.cursor) {
      if (this.waiting.size < this._waitingMax) this.waiting.set(sequence, item);
      return [];
    }
    this.cursor = sequence;
    return [item, ...this._continued()];
  }

  /** Add a page that says it is complete up to `through`; returns what continues the prefix. A page
   * whose own entries are no chain is taken up to the first missing entry. */
  offerPage(items: readonly EntryItem[], through: number): EntryItem[] {
    const taken: EntryItem[] = [];
    let isWhole = true;
    for (const item of items) {
      if (item.sequence <= this.cursor) continue;
      if (item.prev_sequence > this.cursor) {
        isWhole = false;
        break;
      }
      this.cursor = item.sequence;
      taken.push(item);
    }
    if (isWhole) this.cursor = max(this.cursor, through);
    this.head = max(this.head, this.cursor);
    return taken.concat(this._continued());
  }

  private _continued(): EntryItem[] {
    const taken: EntryItem[] = [];
    for (const sequence of [...this.waiting.keys()].sort((a, b) => a - b)) {
      const item = this.waiting.get(sequence)!;
      if (sequence > this.cursor) {
        if (item.prev_sequence > this.cursor) break;
        this.cursor = sequence;
        taken.push(item);
      }
      this.waiting.delete(sequence);
    }
    return taken;
  }

  /** Forget how far this device was: the server's store is another one now. */
  restart(head: number): void {
    this.start = Math.min(this.start, head);
    this.cursor = this.stored = this.start;
    this.head = max(head, this.start);
    this.countedThrough = head;
    this.waiting.clear();
    this.ownThrough = 0;
    // Sync even if there is nothing to fetch: the answer tells what the server has lost.
    this.isInDoubt = true;
    this.generation++;
  }

  /** The user is no member any more. What is held stays, and nothing is missing. */
  leave(): void {
    this.is_member = false;
    this.waiting.clear();
    this.ownThrough = 0;
    this.stopSyncing();
  }

  /** Treat the entries that are held as complete. */
  stopSyncing(): void {
    this.head = this.cursor;
    this.isInDoubt = false;
  }

  // Numbers: they merge, and never go back.

  mergeDigest(entry: DigestEntry): void {
    this.membership_version = entry.membership_version;
    this.is_member = true;
    this.hidden_through = entry.is_hidden ? entry.head : null;
    this.isInDoubt ||= entry.head < this.cursor;
    this.head = max(this.head, entry.head);
    this.delivered = max(this.delivered, entry.delivered);
    this._mergeOthers(entry);
    if (entry.read >= this.read) {
      // Otherwise the server does not know our last read yet, and its count is too old.
      this.read = entry.read;
      this.unread = entry.unread;
      this.mentions_unread = entry.mentions_unread ?? 0;
    }
    this.countedThrough = max(this.countedThrough, entry.head);
  }

  /** True if the status has a read position of ours, and it is not below the known one. */
  mergeStatus(status: StatusUpdatePayload): boolean {
    this._mergeOthers(status);
    this.delivered = max(this.delivered, status.own_delivered ?? 0);
    const hasRead = (status.own_read ?? -1) >= this.read;
    if (hasRead) {
      this.read = status.own_read!;
      if (status.unread != null) {
        this.unread = status.unread;
        this.mentions_unread = status.mentions_unread ?? 0;
      }
    }
    return hasRead;
  }

  private _mergeOthers(others: { others_delivered: number; others_read: number }): void {
    this.others_delivered = max(this.others_delivered, others.others_delivered);
    this.others_read = max(this.others_read, others.others_read);
  }

  /** Count entries that were just received and continue what is held. */
  countUnread(items: readonly EntryItem[], ownId: string): void {
    for (const item of items) {
      const isOwn = item.sender_id === ownId;
      if (!isOwn) this.othersThrough = item.sequence;
      if (item.sequence > this.countedThrough) {
        this.countedThrough = item.sequence;
        if (!isOwn && item.sequence > this.read && isMessage(item) && !item.is_deleted) {
          this.unread = Math.min(this.unread + 1, UNREAD_MAX);
          if (names(item.mentions, ownId))
            this.mentions_unread = Math.min(this.mentions_unread + 1, UNREAD_MAX);
        }
      }
    }
  }

  /** The user has seen everything up to here, if it is held; true if that is new. */
  readThrough(sequence: number): boolean {
    sequence = Math.min(sequence, this.cursor);
    this.seen = max(this.seen, sequence);
    if (sequence <= this.read) return false;
    this.read = sequence;
    return true;
  }
}
