/**
 * The entries that wait to be sent: their order, their times, their retries, their outcome. PURE.
 *
 * Per chat, entries leave in the order in which they were written; by default one is on its way at
 * a time, so that the order survives failures. An entry leaves the outbox when it is known to be
 * stored. An entry that was refused for good stays as failed, one whose fate cannot be found out
 * stays as unknown, until the user retries or drops it. Neither holds back later entries.
 *
 * The server stores the entries of a connection for a chat in the order of sending: if it refuses
 * one that may be retried, it refuses the later ones too. So after such a refusal nothing leaves
 * until all entries on their way are answered; then they leave again, in the order of writing. If
 * one is given up, the next one tells the server not to wait for it (`is_first`).
 *
 * An edit, a deletion or a reaction may be about a message that is still in the outbox
 * (`target_id`): it waits until that message's sequence is known, and fails if the message fails. If
 * the message's fate is unknown, it waits outside of its lane until the message is retried or known
 * to be stored. A deletion removes the edits of its message that have not left.
 *
 * An entry that fails or is removed without being stored is still in its place on the disk for a
 * moment. Nothing leaves for its chat until the disk has that, too (`saved`): else a page that is
 * killed in that moment would send it again, after entries that were written later.
 */

import type { ClientFrame, SendPayload } from "../wire/frames.ts";
import { backoffMs, earliest, type Options, type Random } from "./options.ts";

export type SendState = "queued" | "flying" | "failed" | "unknown";
export type EntryKind = "message" | "edit" | "delete" | "react";

/** The content of an entry, as its author gave it. */
export type Body = Pick<
  SendPayload,
  "content" | "reply_to" | "mentions" | "target" | "base" | "emoji" | "is_on" | "reason"
>;

/** `number` orders the entries. `left_at_ms` is when it may first have left this device, as noted
 * on the disk; null: surely not yet. `is_doubtful`: it left, and no final answer came. */
export interface OutboxEntry {
  client_message_id: string;
  chat_id: string;
  kind: EntryKind;
  body: Body;
  target_id?: string | null;
  seen_sequence: number;
  created_at_ms: number;
  number: number;
  left_at_ms: number | null;
  state: SendState;
  is_doubtful: boolean;
  is_first: boolean;
  tries: number;
  code: string | null;
  reason: string | null;
}

const FRAMES = {
  message: "send_message",
  edit: "edit_message",
  delete: "delete_message",
  react: "react",
} as const;

export const frameOf = (entry: OutboxEntry, request_id: string): ClientFrame => {
  const { client_message_id, chat_id, kind, seen_sequence } = entry;
  const payload: SendPayload = { client_message_id, chat_id, ...entry.body };
  if (kind === "message") payload.seen_sequence = seen_sequence;
  if (entry.is_first) payload.is_first = true;
  return { type: FRAMES[kind], request_id, payload };
};

/** Prefixes of the codes in docs/protocol.md that are final; an unknown code may be retried. */
const FINAL =
  /^(INVALID_|MESSAGE_|IDEMPOTENCY_|CURSOR_|FORBIDDEN|NOT_|DEVICE_|BAD_|METHOD_|VALIDATION_|CHAT_FULL|USER_NOT|CONFLICT|ALREADY_|PAYLOAD_|UNPROCESSABLE_|TARGET_|EDIT_|TOO_MANY_)/;
export const DELETED = "MESSAGE_DELETED";
const PASSING = /^(UNAUTHORIZED|RATE_LIMITED|SLOW_CONSUMER|SERVER_BUSY|SERVICE_UNAVAILABLE)$/;

/** Whether the same request may succeed later; if the code is newer than we are, it may. */
export const isRetryable = (code: string): boolean => !FINAL.test(code);

/** The entries of one chat. */
interface Lane {
  chat_id: string;
  queued: OutboxEntry[];
  flying: Map<string, OutboxEntry>;
  failures: number;
  retryAtMs: number | null;
  isHeld: boolean;
  /** An entry was refused, and those that left after it are not all answered yet. */
  isRefused: boolean;
}

const isOnItsWay = (entry?: OutboxEntry): boolean =>
  entry?.state === "queued" || entry?.state === "flying";

/** The message that an entry is about: its sequence, or its key while it is in the outbox. */
const aboutOf = ({ body, target_id }: OutboxEntry) => body.target ?? target_id;

const byNumber = (a: OutboxEntry, b: OutboxEntry): number => a.number - b.number;

export class Outbox {
  flyingCount = 0;
  /** Entries that wait in their place on the disk, but not here any more. */
  readonly unsaved = new Set<OutboxEntry>();
  private _entries = new Map<string, OutboxEntry>();
  private _lanes = new Map<string, Lane>();
  /** Lanes that may have something to send, in the order of their turns. */
  private _ready = new Set<Lane>();
  private _paused = new Set<Lane>();
  /** Chats in which the server may wait for an entry that will not be sent again. */
  private _givenUp = new Set<string>();

  /** `entries`: those of earlier runs, in their order. */
  constructor(
    private _options: Options,
    private _random: Random,
    entries: Iterable<OutboxEntry> = [],
  ) {
    for (const entry of entries) {
      // An entry that was on its way when that run ended has left, and its answer was lost.
      entry.is_doubtful = entry.left_at_ms !== null;
      if (entry.state === "flying") entry.state = "queued";
      this._entries.set(entry.client_message_id, entry);
      if (entry.state === "queued") this._queue(entry);
    }
  }

  get(id: string): OutboxEntry | undefined {
    return this._entries.get(id);
  }

  /** All entries, or those of a chat, in the order in which they were written. */
  entries(chatId?: string): OutboxEntry[] {
    return [...this._entries.values()]
      .filter((entry) => chatId === undefined || entry.chat_id === chatId)
      .sort(byNumber);
  }

  // In.

  /** Add an entry that is on the disk. The first entry of a chat waits for `release`. False: it has
   * failed, because the message that it is about has failed or was dropped. */
  add(entry: OutboxEntry): boolean {
    const { client_message_id, target_id } = entry;
    this._entries.set(client_message_id, entry);
    if (target_id && (this._entries.get(target_id)?.state ?? "failed") === "failed") {
      this._fail(entry, "TARGET_NOT_FOUND", "its message was not sent");
      return false;
    }
    this._queue(entry);
    return true;
  }

  /** Queue a failed or unknown entry again, behind all that wait already, and behind it those about
   * it. Empty: it is neither, or the message that it is about has not been retried. */
  retry(id: string, number: number): OutboxEntry[] {
    const entry = this._entries.get(id);
    // The message that it is about has to be sent first.
    if (!entry || isOnItsWay(entry) || this._isParked(entry)) return [];
    const again = [entry, ...this._about(id).sort(byNumber)];
    for (const one of again) {
      one.state = "queued";
      one.code = one.reason = one.left_at_ms = null;
      one.tries = 0;
      one.is_doubtful = false;
      one.number = number++;
      this._queue(one);
    }
    return again;
  }

  /** Remove an entry that is not on its way, and those about it. Empty: there is no such entry. */
  drop(id: string): OutboxEntry[] {
    const entry = this._entries.get(id);
    if (!entry || (entry.state !== "unknown" && !this.isHere(id))) return [];
    const dropped = [entry, ...this._about(id)];
    for (const one of dropped) {
      this.unsaved.add(one);
      this._forget(one);
    }
    return dropped;
  }

  /** The user deletes a message: remove edits of it that surely have not left; returns them. */
  dropEdits(deletion: OutboxEntry): OutboxEntry[] {
    if (deletion.kind !== "delete") return [];
    return this._edits(deletion.chat_id, aboutOf(deletion)).flatMap((edit) =>
      this.drop(edit.client_message_id),
    );
  }

  /** A message was deleted: remove edits of it, and their texts. Returns them. */
  erase(chatId: string, target: number): OutboxEntry[] {
    const edits = this._edits(chatId, target);
    for (const edit of edits) this._fail(edit, DELETED, "this message was deleted");
    return edits;
  }

  /** Whether an entry has surely not left, so that it may be changed in place. */
  isHere(id: string): boolean {
    const entry = this._entries.get(id);
    return entry?.state === "failed" || (entry?.state === "queued" && !entry.is_doubtful);
  }

  // Out.

  /** The chat is in sync with the server: its entries may leave. */
  release(chatId: string): void {
    const lane = this._lanes.get(chatId);
    if (lane) lane.isHeld = false;
    this._considerChat(chatId);
  }

  /** Chats for which something waits, or is on its way. */
  waitingChats(): string[] {
    return [...this._lanes.keys()];
  }

  /** Take the entries that leave now, and those that do not because only the user can decide. The
   * first ones are "flying" from here on, the others "unknown". */
  take(nowMs: number, wallMs: number): [leaving: OutboxEntry[], doubtful: OutboxEntry[]] {
    for (const lane of this._paused) {
      if (lane.retryAtMs === null || lane.retryAtMs <= nowMs) {
        this._paused.delete(lane);
        lane.retryAtMs = null;
        this._consider(lane);
      }
    }
    const leaving: OutboxEntry[] = [];
    const doubtful: OutboxEntry[] = [];
    for (const lane of this._ready) {
      if (this.flyingCount >= this._options.sendsMax) break;
      // Chats take turns: each sends one entry, then goes to the end.
      this._ready.delete(lane);
      const entry = lane.queued.shift()!;
      const ageMs = wallMs - (entry.left_at_ms ?? wallMs);
      if (entry.is_doubtful && ageMs >= this._options.fateMsMax) {
        entry.state = "unknown";
        this.unsaved.add(entry);
        doubtful.push(entry);
        lane.queued = lane.queued.filter((one) => !this._isParked(one));
      } else {
        entry.state = "flying";
        entry.is_first = this._givenUp.delete(lane.chat_id);
        lane.flying.set(entry.client_message_id, entry);
        this.flyingCount++;
        leaving.push(entry);
      }
      this._settleLane(lane);
    }
    return [leaving, doubtful];
  }

  /** The disk has the mark that these are about to leave. Returns those that still have to. */
  marked(entries: Iterable<OutboxEntry>, leftAtMs: number): OutboxEntry[] {
    const leaving: OutboxEntry[] = [];
    for (const entry of entries) {
      // Meanwhile the connection may have been lost, or a page may have brought the message.
      const isWaiting = entry.state === "flying" && this._entries.has(entry.client_message_id);
      if (entry.left_at_ms === null && isWaiting) leaving.push(entry);
      entry.left_at_ms = leftAtMs;
      this._considerChat(entry.chat_id);
    }
    return leaving;
  }

  /** The disk has it that these have failed, or were removed. */
  saved(entries: Iterable<OutboxEntry>): void {
    for (const entry of entries) {
      this.unsaved.delete(entry);
      this._considerChat(entry.chat_id);
    }
  }

  nextDeadlineMs(): number | null {
    return earliest(...[...this._paused].map((lane) => lane.retryAtMs));
  }

  // What became of it.

  /** Remove an entry that the server has stored, as an answer or an entry of a page says. Entries
   * about it get its sequence. */
  stored(id: string, sequence: number): OutboxEntry | null {
    const entry = this._entries.get(id);
    if (!entry) return null;
    const lane = this._lanes.get(entry.chat_id);
    if (lane) lane.failures = 0;
    this._forget(entry);
    for (const one of this._about(id)) {
      one.target_id = null;
      one.body.target = sequence;
      if (one.state !== "queued") continue;
      // It waited in the lane, or outside of it.
      if (lane) lane.queued = lane.queued.filter((other) => other !== one);
      this._queue(one);
    }
    return entry;
  }

  /** The server refused an entry. It is sent again if the code allows it, else it has failed.
   * `after`: it was refused only because this earlier one was, which has to be sent again first.
   * Returns the entries that have failed: this one, and those about it. A change of a message that
   * was deleted is removed, because the user has nothing to decide about it. */
  refused(
    id: string,
    code: string,
    reason: string,
    retryAfterMs: number,
    nowMs: number,
    after: string | null = null,
  ): OutboxEntry[] {
    const entry = this._entries.get(id);
    if (entry?.state !== "flying") return [];
    const lane = this._lanes.get(entry.chat_id)!;
    const failed: OutboxEntry[] = [];
    this._land(lane, entry);
    if (after === null) entry.tries++;
    // After an error of the server itself, or a code that is newer than we are: a few more tries.
    const isTried = isRetryable(code) && entry.tries < this._options.triesMax;
    if (isTried || PASSING.test(code)) {
      entry.state = "queued";
      entry.is_doubtful = true;
      this._requeue(lane, [entry]);
      lane.isRefused = lane.flying.size > 0;
      if (after !== null && !this._isComing(lane, after)) this._givenUp.add(lane.chat_id);
      this._pause(lane, nowMs, retryAfterMs, after === null);
    } else {
      if (isRetryable(code)) {
        this._givenUp.add(lane.chat_id);
        // The server refuses those that left after it, and they have to go first.
        lane.isRefused = lane.flying.size > 0;
      }
      failed.push(entry, ...this._about(id));
      for (const one of failed) {
        lane.queued = lane.queued.filter((other) => other !== one);
        this._fail(one, code, reason);
      }
    }
    this._settleLane(lane);
    return failed;
  }

  /** Some of the mentioned users are no members: queue the same text again at once, without these
   * mentions. False: none of them is in it, or it is not on its way. */
  unmention(id: string, userIds: readonly unknown[]): boolean {
    const entry = this._entries.get(id);
    const { mentions } = entry?.body ?? {};
    const left = mentions?.filter((userId) => !userIds.includes(userId));
    if (entry?.state !== "flying" || !left || left.length === mentions!.length) return false;
    const lane = this._lanes.get(entry.chat_id)!;
    this._land(lane, entry);
    entry.body = { ...entry.body, mentions: left };
    entry.state = "queued";
    // It was answered, and in its new form it has not left yet.
    entry.left_at_ms = null;
    this._requeue(lane, [entry]);
    this._settleLane(lane);
    return true;
  }

  /** The connection is gone, and with it every answer that was still to come. */
  lost(): void {
    for (const lane of this._lanes.values()) {
      const landed = [...lane.flying.values()];
      for (const entry of landed) {
        this._land(lane, entry);
        entry.state = "queued";
        entry.is_doubtful = true;
      }
      this._requeue(lane, landed);
      lane.retryAtMs = null;
      lane.isRefused = false;
      lane.isHeld = true;
    }
    this._paused.clear();
    this._ready.clear();
    this._givenUp.clear();
  }

  /** Let nothing leave for this chat for a while, longer after each failure. */
  private _pause(lane: Lane, nowMs: number, retryAfterMs: number, isFailure: boolean): void {
    if (isFailure || !lane.failures) lane.failures++;
    const waitMs = backoffMs(lane.failures, this._random, this._options);
    if (isFailure || lane.retryAtMs === null)
      lane.retryAtMs = nowMs + Math.max(waitMs, retryAfterMs);
    this._paused.add(lane);
  }

  /** Whether the entry that the server waits for is on its way, or waits to be sent. */
  private _isComing(lane: Lane, id: string): boolean {
    const key = id.toLowerCase();
    return lane.flying.has(key) || lane.queued.some((one) => one.client_message_id === key);
  }

  /** The entries about an entry that is in the outbox itself. */
  private _about(id: string): OutboxEntry[] {
    return [...this._entries.values()].filter((entry) => entry.target_id === id);
  }

  private _edits(chatId: string, about: unknown): OutboxEntry[] {
    return this.entries(chatId).filter((one) => one.kind === "edit" && aboutOf(one) === about);
  }

  /** Whether the message that it is about is not on its way, so that it must not block its lane. */
  private _isParked({ target_id }: OutboxEntry): boolean {
    return !!target_id && !isOnItsWay(this._entries.get(target_id));
  }

  // Lanes.

  private _queue(entry: OutboxEntry): void {
    if (this._isParked(entry)) return;
    const { chat_id } = entry;
    let lane = this._lanes.get(chat_id);
    if (!lane) {
      lane = {
        chat_id,
        queued: [],
        flying: new Map(),
        failures: 0,
        retryAtMs: null,
        isHeld: true,
        isRefused: false,
      };
      this._lanes.set(chat_id, lane);
    }
    if (lane.queued.length && lane.queued.at(-1)!.number > entry.number)
      this._requeue(lane, [entry]);
    else lane.queued.push(entry);
    this._consider(lane);
  }

  private _requeue(lane: Lane, entries: readonly OutboxEntry[]): void {
    lane.queued = [...entries, ...lane.queued].sort(byNumber);
  }

  private _considerChat(chatId: string): void {
    const lane = this._lanes.get(chatId);
    if (lane) this._consider(lane);
  }

  private _consider(lane: Lane): void {
    const isReady =
      lane.queued.length &&
      !lane.queued[0]!.target_id &&
      !lane.isHeld &&
      lane.retryAtMs === null &&
      [...this.unsaved].every(({ chat_id }) => chat_id !== lane.chat_id) &&
      !(lane.isRefused && lane.flying.size) &&
      lane.flying.size < this._options.window &&
      // What may leave at once does not pass what the disk has to mark first.
      (lane.queued[0]!.left_at_ms === null ||
        [...lane.flying.values()].every((one) => one.left_at_ms !== null));
    if (isReady) this._ready.add(lane);
    else this._ready.delete(lane);
  }

  private _settleLane(lane: Lane): void {
    this._consider(lane);
    if (!lane.queued.length && !lane.flying.size) {
      this._lanes.delete(lane.chat_id);
      this._paused.delete(lane);
    }
  }

  private _land(lane: Lane, entry: OutboxEntry): void {
    if (lane.flying.delete(entry.client_message_id)) {
      this.flyingCount--;
      lane.isRefused &&= lane.flying.size > 0;
    }
  }

  /** If its message was deleted, it has no effect any more, and its text must not stay. */
  private _fail(entry: OutboxEntry, code: string, reason: string): void {
    this.unsaved.add(entry);
    if (code === DELETED && entry.kind !== "message") {
      this._forget(entry);
      entry.body = { ...entry.body, content: "" };
    }
    entry.state = "failed";
    entry.code = code;
    entry.reason = reason;
  }

  private _forget(entry: OutboxEntry): void {
    this._entries.delete(entry.client_message_id);
    const lane = this._lanes.get(entry.chat_id);
    if (!lane) return;
    if (entry.state === "flying") this._land(lane, entry);
    else lane.queued = lane.queued.filter((one) => one !== entry);
    this._settleLane(lane);
  }
}
