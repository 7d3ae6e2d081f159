/**
 * What this device holds of all chats, and what it is missing. PURE.
 *
 * Entries come as pushes, in pages and as answers to own entries. An entry that continues the
 * prefix of its chat goes to the disk; the others wait until the missing ones are fetched. The
 * digest tells the state of all chats. It is merged and never overrules: an entry of it that is
 * older than what is known is ignored, and at its end the user counts as removed only from chats
 * that were held before it began and were neither listed nor changed meanwhile.
 *
 * Every input returns its effects.
 */

import type {
  ChatDigestPayload,
  ChatUpdatePayload,
  DigestEntry,
  EntryItem,
  PushedEntry,
  SendMessageAckPayload,
  StatusUpdatePayload,
  SyncResponsePayload,
} from "../wire/frames.ts";
import type { Effect, Now } from "./effects.ts";
import { earliest, type Options, type Random } from "./options.ts";
import { isRetryable, type OutboxEntry } from "./outbox.ts";
import { firstRecord, type ReplicaRecord } from "./record.ts";
import { Replica } from "./replica.ts";
import { Syncs } from "./syncs.ts";

/** How many chats that are not known yet may have an answer to an own entry. */
export const EARLY_CHATS_MAX = 1000;
const GONE = ["NOT_A_MEMBER", "NOT_FOUND", "FORBIDDEN"];

export class Replicas {
  /** Every chat that this device knows of, also those that were left. */
  byChat = new Map<string, Replica>();
  /** This connection has received a whole digest. */
  isDigestComplete = false;
  private _isLive = false;
  private _syncs: Syncs;
  // The digest: whether one is coming, from what time on another one is wanted, and which chats
  // were held when it began and have not been mentioned since.
  private _isDigestComing = false;
  private _digestFromMs: number | null = null;
  private _hasDigestFailed = false;
  private _unheard = new Set<string>();
  /** Chats that have been behind since the connection began: it is ready when none is left. */
  private _behind = new Set<string>();
  private _unstored = 0;
  // Chats that are not known yet, though the server has stored an entry of ours there: the sequence
  // before the first such entry.
  private _early = new Map<string, number>();

  /** `records` and `userId` are those of the last run, if there was one. */
  constructor(
    private _options: Options,
    random: Random,
    records: Iterable<ReplicaRecord>,
    public userId: string | null,
  ) {
    for (const record of records) this._add(record);
    this._syncs = new Syncs(_options, random);
  }

  /** This device holds everything that the digest listed. */
  get isComplete(): boolean {
    return this.isDigestComplete && !this._behind.size;
  }

  /** Whether entries for this chat may leave: it is synced, or by the digest none of ours. */
  isOpen(chatId: string): boolean {
    const replica = this.byChat.get(chatId);
    return replica?.is_member ? replica.isCaughtUp : this.isDigestComplete;
  }

  // The connection.

  /** The server has introduced itself; its digest is on its way. */
  connected(userId: string, epoch: string, isNewEpoch: boolean): Effect[] {
    this.userId = userId;
    this._isLive = true;
    this._expectDigest();
    if (!isNewEpoch) return [];
    this._early.clear();
    const replicas = [...this.byChat.values()];
    for (const replica of replicas) replica.restart(replica.start);
    return [{ do: "restart", replicas, epoch }];
  }

  disconnected(): void {
    this._isLive = this.isDigestComplete = this._isDigestComing = false;
    this._digestFromMs = null;
    this._behind.clear();
    this._syncs.clear();
    for (const replica of this.byChat.values()) replica.disconnected();
  }

  // What to ask for.

  /** A push may have been missed: request a digest at this time, or earlier if planned so. If the
   * last request failed, the time of the next one stands. */
  wantDigest(fromMs: number): void {
    if (!this._hasDigestFailed) this._digestFromMs = earliest(this._digestFromMs, fromMs);
  }

  /** Whether to request a digest now, one at a time; it then counts as requested. */
  takeDigest(nowMs: number): boolean {
    const isDue = this._digestFromMs !== null && this._digestFromMs <= nowMs;
    if (!isDue || this._isDigestComing) return false;
    this._expectDigest();
    return true;
  }

  digestFailed(againAtMs: number): void {
    this._isDigestComing = false;
    this._unheard.clear();
    this._digestFromMs = againAtMs;
    this._hasDigestFailed = true;
  }

  /** Chats of which a page is to be requested now; they then count as requested. */
  takePages(nowMs: number): Replica[] {
    return this._isFull ? [] : this._syncs.take(nowMs);
  }

  /** When the next request is due. */
  nextDeadlineMs(): number | null {
    return earliest(
      this._isFull ? null : this._syncs.nextDeadlineMs(),
      this._isDigestComing ? null : this._digestFromMs,
    );
  }

  /** The disk is far behind the network: no more pages are requested. */
  private get _isFull(): boolean {
    return this._unstored >= this._options.unstoredMax;
  }

  private _expectDigest(): void {
    this._isDigestComing = true;
    this._hasDigestFailed = false;
    this._digestFromMs = null;
    this._unheard.clear();
    for (const replica of this.byChat.values())
      if (replica.is_member) this._unheard.add(replica.chat_id);
  }

  // What the server says.

  /** One page of the digest. */
  digest(payload: ChatDigestPayload, now: Now): Effect[] {
    const effects = payload.chats.flatMap((entry) => this._listed(entry, now));
    if (payload.last) {
      for (const chatId of this._unheard) effects.push(...this.leave(chatId));
      this._unheard.clear();
      this._isDigestComing = false;
      this.isDigestComplete = true;
    }
    return effects;
  }

  private _listed(entry: DigestEntry, now: Now): Effect[] {
    const { chat_id, chat_type, head } = entry;
    this._unheard.delete(chat_id);
    let replica = this.byChat.get(chat_id);
    if (!replica) {
      const start = Math.max(entry.delivered, entry.joined_sequence);
      replica = this._add(firstRecord(chat_id, chat_type, start, head));
    } else if (entry.membership_version < replica.membership_version) {
      return [];
    }
    replica.mergeDigest(entry);
    replica.isListed = true;
    const effects: Effect[] = [{ do: "replica", replica }, ...this._progress(replica, now)];
    if (replica.isBehind && !this.isDigestComplete) this._behind.add(chat_id);
    return effects;
  }

  /** A message or another entry was pushed. */
  entry(item: PushedEntry, now: Now): Effect[] {
    const replica = this.byChat.get(item.chat_id);
    if (!replica?.is_member) {
      // The push that announced this chat was missed.
      this.wantDigest(now.ms);
      return [];
    }
    return this._keep(replica, replica.offer(item), now);
  }

  /** The server has stored an entry of ours: keep it like any other entry of the chat. */
  ownStored(entry: OutboxEntry, ack: SendMessageAckPayload, now: Now): Effect[] {
    const { chat_id } = ack;
    const replica = this.byChat.get(chat_id);
    if (!replica) {
      // The push that announces this chat comes later, or was missed.
      const early = this._early;
      if (early.size < EARLY_CHATS_MAX && !early.has(chat_id))
        early.set(chat_id, ack.prev_sequence);
      this.wantDigest(now.ms);
      return [];
    }
    const item = ownItem(entry, ack, this.userId ?? "");
    if (ack.sequence <= replica.cursor) {
      // Sent in an earlier run, and below the start of this device: it is shown all the same.
      this._unstored++;
      const { cursor: through, generation } = replica;
      return [{ do: "keep", replica, items: [item], through, generation, is_complete: false }];
    }
    replica.ownThrough = Math.max(replica.ownThrough, ack.sequence);
    return this._keep(replica, replica.offer(item), now);
  }

  /** The answer to `takePages`. */
  page(replica: Replica, page: SyncResponsePayload, now: Now): Effect[] {
    const { chat_id, cursor: before } = replica;
    this._syncs.answered(chat_id);
    if (page.chat_id !== chat_id) return [];
    const taken = replica.offerPage(page.messages, page.synced_through);
    const isComplete = !page.has_more && replica.cursor >= page.synced_through;
    if (isComplete) {
      this._syncs.succeeded(chat_id);
      replica.isInDoubt = false;
    }
    const effects = this._keep(replica, taken, now, isComplete, true);
    // The page brought nothing: ask again after a wait, not at once in an endless loop.
    if (replica.isBehind && replica.cursor === before) this._syncs.failed(replica, now.ms, 0);
    return effects;
  }

  pageRefused(
    replica: Replica,
    code: string,
    details: Readonly<Record<string, unknown>>,
    retryAfterMs: number,
    now: Now,
  ): Effect[] {
    this._syncs.answered(replica.chat_id);
    if (GONE.includes(code)) return this.leave(replica.chat_id);
    if (code === "CURSOR_AHEAD") {
      replica.restart(typeof details.head === "number" ? details.head : 0);
      this._syncs.want(replica, now.ms);
      return [{ do: "restart", replicas: [replica], epoch: null }];
    }
    if (isRetryable(code)) {
      this._syncs.failed(replica, now.ms, retryAfterMs);
      return [];
    }
    // Another request would be refused too; the next digest tells more.
    replica.stopSyncing();
    return this._progress(replica, now);
  }

  status(status: StatusUpdatePayload): Effect[] {
    const replica = this.byChat.get(status.chat_id);
    if (!replica) return [];
    const hasRead = replica.mergeStatus(status);
    return [{ do: "replica", replica }, ...(hasRead ? [{ do: "recount", replica } as const] : [])];
  }

  chatUpdate(update: ChatUpdatePayload, now: Now): Effect[] {
    const { chat_id, chat_type, change, head, membership_version } = update;
    let replica = this.byChat.get(chat_id);
    if (replica && membership_version < replica.membership_version) return [];
    const isMe = update.user_id === this.userId;
    // The chat changed while the digest was read, so what the digest says of it is old.
    this._unheard.delete(chat_id);
    if (change === "member_removed" && isMe) {
      // Kept, because an older push that says otherwise may still be on its way.
      replica ??= this._add(firstRecord(chat_id, chat_type, head, head));
      replica.membership_version = membership_version;
      return [...this.leave(chat_id), { do: "chat", update }];
    }
    if (!replica) {
      if (change !== "created" && !(isMe && change === "member_added")) {
        this.wantDigest(now.ms);
        return [];
      }
      replica = this._add(firstRecord(chat_id, chat_type, update.joined_sequence ?? 0, head));
    }
    replica.isListed = replica.is_member = true;
    replica.membership_version = membership_version;
    if (chat_type === "group") replica.name = update.name ?? null;
    replica.head = Math.max(replica.head, head);
    return [{ do: "replica", replica }, ...this._progress(replica, now), { do: "chat", update }];
  }

  // What the device does.

  /** Add a chat that was just made or found, but not over the socket. */
  adopt(record: ReplicaRecord, now: Now): Effect[] {
    let replica = this.byChat.get(record.chat_id);
    if (!replica) {
      replica = this._add(record);
      replica.isListed = this._isLive;
    } else if (record.membership_version >= replica.membership_version) {
      replica.is_member = true;
      replica.membership_version = record.membership_version;
      replica.name = record.name || replica.name;
      replica.head = Math.max(replica.head, record.head);
    }
    return [{ do: "replica", replica }, ...this._progress(replica, now)];
  }

  /** An entry of ours has left for this chat. */
  ownSent(chatId: string): void {
    const replica = this.byChat.get(chatId);
    if (replica) replica.sendsFlying++;
  }

  ownAnswered(chatId: string): void {
    const replica = this.byChat.get(chatId);
    if (replica?.sendsFlying) replica.sendsFlying--;
  }

  /** The store has carried out a `Keep`: its entries are on the disk. */
  stored(replica: Replica, through: number, count: number, generation: number): void {
    this._unstored -= count;
    if (generation === replica.generation) replica.stored = Math.max(replica.stored, through);
  }

  /** The user is not in the chat any more. What is held stays. */
  leave(chatId: string): Effect[] {
    const replica = this.byChat.get(chatId);
    if (!replica) return [];
    replica.leave();
    this._syncs.forget(chatId);
    this._behind.delete(chatId);
    const effects: Effect[] = [{ do: "replica", replica }];
    // The server has to refuse entries that wait for it, not this client (EH-03).
    if (this.isDigestComplete) effects.push({ do: "release", chat_id: chatId });
    return effects;
  }

  // Entries.

  /** Send entries that continue the prefix to the disk; request those that are missing. */
  private _keep(
    replica: Replica,
    items: readonly EntryItem[],
    now: Now,
    is_complete = false,
    isPage = false,
  ): Effect[] {
    const effects: Effect[] = [];
    if (items.length) {
      // Only the server can tell whether a message that was never held here was unread.
      const { read, start, countedThrough } = replica;
      const isNew = ({ kind, target, sequence }: EntryItem): boolean =>
        kind === "delete" && target! > read && sequence > countedThrough;
      if (read < start && items.some(isNew)) this.wantDigest(now.ms);
      replica.countUnread(items, this.userId ?? "");
      this._unstored += items.length;
    }
    if (items.length || isPage) {
      const { cursor: through, generation } = replica;
      effects.push({ do: "keep", replica, items, through, generation, is_complete });
    }
    return effects.concat(this._progress(replica, now));
  }

  /** Request missing entries; if there are none, let entries for this chat leave. */
  private _progress(replica: Replica, now: Now): Effect[] {
    const { chat_id } = replica;
    if (replica.isBehind) {
      if (replica.is_member && this._isLive) {
        // While an answer to an own message is due, that answer may fill the gap.
        const isOwn = replica.isCaughtUp && replica.sendsFlying > 0;
        this._syncs.want(replica, now.ms + (isOwn ? this._options.gapGraceMs : 0));
      }
      return [];
    }
    this._behind.delete(chat_id);
    if (replica.isListed && !replica.isCaughtUp) {
      replica.isCaughtUp = true;
      return [{ do: "release", chat_id }];
    }
    return [];
  }

  private _add(record: ReplicaRecord): Replica {
    const { chat_id, start } = record;
    const before = this._early.get(chat_id) ?? start;
    // The server counts an own entry as delivered, but this device does not hold it yet.
    if (before < start) record.start = record.cursor = before;
    this._early.delete(chat_id);
    const replica = new Replica(record, this._options.waitingMax);
    this.byChat.set(chat_id, replica);
    return replica;
  }
}

/** An own entry as others get it: what was sent, with the numbers of the answer. */
const ownItem = (entry: OutboxEntry, ack: SendMessageAckPayload, sender_id: string): EntryItem => ({
  ...entry.body,
  kind: entry.kind,
  message_id: ack.message_id,
  sequence: ack.sequence,
  prev_sequence: ack.prev_sequence,
  created_at: ack.created_at,
  client_message_id: entry.client_message_id,
  sender_id,
});
