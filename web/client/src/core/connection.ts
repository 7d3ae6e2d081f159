/**
 * One device's conversation with the server, over as many sockets as it takes. PURE.
 *
 * Calls report events and return effects as values; the module itself does no I/O. No input from
 * the server throws an exception.
 *
 *     offline      no socket; `nextDeadlineMs` says when the next try is
 *     connecting   a socket is being opened, or is open and the server has not introduced itself
 *     syncing      the digest is being read, or chats are behind
 *     ready        this device holds everything that the digest listed
 *     closed       closed for good; the status has the reason
 *
 * The connection routes: each part keeps one thing, gets the inputs for it and returns effects.
 *
 *     Link         the socket: its state, heartbeats, waits between tries
 *     Replicas     what is held of each chat, and what is missing
 *     Outbox       what waits to be sent, and in which order it leaves
 *     Acks         what is held and read, but not told to the server yet
 *     Requests     which requests are open, and when their answers are overdue
 *
 * An entry without an answer is sent again on the next connection, after its chat is synced.
 */

import type { ClientFrame, ErrorPayload, ServerFrame } from "../wire/frames.ts";
import { Acks } from "./acks.ts";
import type { Effect, Keep, Now, Refusal, Status } from "./effects.ts";
import { Link } from "./link.ts";
import { earliest, type Options, type Random } from "./options.ts";
import { DELETED, frameOf, Outbox, type OutboxEntry } from "./outbox.ts";
import type { ReplicaRecord } from "./record.ts";
import type { Replica } from "./replica.ts";
import { Replicas } from "./replicas.ts";

const PROTOCOL_VERSION = 1;
const ACK_PAUSE_MS = 1000;
/** No server has to be left alone for longer; one that names more is broken. */
const RETRY_AFTER_S_MAX = 3600;
const DIGEST = "digest";

/** What a request asks for: a page of a chat, to store an entry, or the digest. */
type Subject = { page: Replica } | { entry: OutboxEntry } | typeof DIGEST;

/** The requests of this connection that are not answered yet. */
class Requests {
  private _made = 0;
  /** Oldest first, so the first one's answer is the first to be overdue. */
  private _open = new Map<string, [Subject, number]>();

  constructor(private _answerMsMax: number) {}

  newId(): string {
    return String(++this._made);
  }

  /** Open a request; returns its id. */
  ask(subject: Subject, now: Now): string {
    const id = this.newId();
    this._open.set(id, [subject, now.ms + this._answerMsMax]);
    return id;
  }

  /** Close the request that this answers, if it is of this kind; returns its subject. */
  answered<T>(
    id: string | null | undefined,
    pick: (subject: Subject) => T | undefined,
  ): T | undefined {
    const found = this._open.get(id ?? "");
    const subject = found && pick(found[0]);
    if (subject !== undefined) this._open.delete(id!);
    return subject;
  }

  /** Close requests for a digest. It may come unasked and in pages, so ids tell nothing. */
  digestAnswered(): void {
    for (const [id, [subject]] of this._open) if (subject === DIGEST) this._open.delete(id);
  }

  clear(): void {
    this._open.clear();
  }

  /** When the first answer is overdue. */
  nextDeadlineMs(): number | null {
    for (const [, expiresAtMs] of this._open.values()) return expiresAtMs;
    return null;
  }
}

export interface Memory {
  outbox: Iterable<OutboxEntry>;
  replicas: Iterable<ReplicaRecord>;
  userId: string | null;
  epoch: string | null;
  isDurable?: boolean;
}

export class Connection {
  outbox: Outbox;
  epoch: string | null;
  private _replicas: Replicas;
  private _link: Link;
  private _acks: Acks;
  private _requests: Requests;

  /** `memory`: the state that the last run left, if there was one. */
  constructor(
    private _options: Options,
    random: Random,
    memory: Memory,
  ) {
    this.outbox = new Outbox(_options, random, memory.outbox);
    this.epoch = memory.epoch;
    this._replicas = new Replicas(_options, random, memory.replicas, memory.userId);
    this._link = new Link(_options, random);
    this._acks = new Acks(_options, memory.isDurable);
    this._requests = new Requests(_options.answerMsMax);
  }

  get status(): Status {
    return this._link.status;
  }

  /** Every chat that this device knows of, also those that were left. */
  get replicas(): ReadonlyMap<string, Replica> {
    return this._replicas.byChat;
  }

  /** Our own user id; null until the server has sent it for the first time. */
  get userId(): string | null {
    return this._replicas.userId;
  }

  /** How long the last heartbeat's answer took. */
  get roundTripMs(): number | null {
    return this._link.roundTripMs;
  }

  // The socket.

  /** Start, or try again at once if the next try is still to come. */
  start(now: Now): Effect[] {
    return this._finish(this._link.start(now), now);
  }

  /** The network may be back, or a person sends: do not wait for the next try. See `Link.hurry`. */
  hurry(now: Now, pauseMs = 0): Effect[] {
    const [effects, isAsked] = this._link.hurry(now, pauseMs);
    if (isAsked) effects.push(this._heartbeat(now));
    return this._finish(effects, now);
  }

  /** The socket is open. Nothing is sent before the server has introduced itself (CL-03). */
  opened(now: Now): Effect[] {
    this._link.heard(now);
    return this._finish([], now);
  }

  /** The server did not upgrade the request. */
  refused(refusal: Refusal, now: Now): Effect[] {
    return this._finish(this._link.refused(refusal, now), now);
  }

  /** The socket is gone, or could not be opened. A second call does nothing. */
  lost(now: Now, code: number | null = null, reason = "lost"): Effect[] {
    if (this._link.hasSocket) this._forgetSocket();
    return this._finish(this._link.lost(now, code, reason), now);
  }

  /** There is a new token: once all sends are answered, change to a connection with it. */
  renew(now: Now): Effect[] {
    this._link.renew(now);
    return this._finish([], now);
  }

  /** Close for good, after acknowledging what is on the disk (AK-04). */
  stop(now: Now, reason: string): Effect[] {
    const effects = this._link.isEstablished ? this._acksDue(now, true) : [];
    this._forgetSocket();
    return this._finish([...effects, ...this._link.stop(reason)], now);
  }

  // Time.

  /** To be called when `nextDeadlineMs` has come; earlier or later does no harm. */
  tick(now: Now): Effect[] {
    const link = this._link;
    let effects: Effect[] = [];
    if (link.isEstablished) effects = this._watch(now);
    else if (link.isDue(now))
      effects = link.hasSocket ? this._giveUp(now, "handshake_timeout") : link.start(now);
    return this._finish(effects, now);
  }

  nextDeadlineMs(): number | null {
    const link = this._link;
    return earliest(
      link.nextDeadlineMs(),
      link.isEstablished ? this._requests.nextDeadlineMs() : null,
      // Only while sending is allowed: else these stay due, and the timer fires for ever.
      ...(link.maySend
        ? [
            this._replicas.nextDeadlineMs(),
            this._acks.nextDeadlineMs(),
            this.outbox.nextDeadlineMs(),
          ]
        : []),
    );
  }

  // What the application and the store do.

  /** Send an entry that is in the outbox on the disk. */
  submit(entry: OutboxEntry, now: Now): Effect[] {
    if (!this.outbox.get(entry.client_message_id) && !this.outbox.add(entry))
      return this._finish([{ do: "failed", entry }], now);
    return this.resubmit(entry, now);
  }

  /** An entry is in the queue again, because the user retries it. */
  resubmit(entry: OutboxEntry, now: Now): Effect[] {
    if (this._replicas.isOpen(entry.chat_id)) this.outbox.release(entry.chat_id);
    return this._finish([], now);
  }

  /** The disk has the mark that these are about to leave. */
  marked(entries: readonly OutboxEntry[], leftAtMs: number, now: Now): Effect[] {
    return this._finish(this._sends(this.outbox.marked(entries, leftAtMs), now), now);
  }

  /** The disk has it that these have failed, or were dropped: later ones may leave. */
  saved(entries: readonly OutboxEntry[], now: Now): Effect[] {
    this.outbox.saved(entries);
    return this._finish([], now);
  }

  /** The store has carried out a `Keep`: its entries are on the disk. */
  stored(keep: Keep, now: Now): Effect[] {
    const { replica, generation } = keep;
    this._replicas.stored(replica, keep.through, keep.items.length, generation);
    if (generation === replica.generation) this._acks.stored(replica, keep.items.length, now.ms);
    return this._finish([], now);
  }

  /** The application has got everything up to here. */
  shown(chatId: string, sequence: number, now: Now): Effect[] {
    const replica = this.replicas.get(chatId);
    if (replica && sequence > replica.shown) {
      replica.shown = sequence;
      this._acks.shown(replica, now.ms);
    }
    return this._finish([], now);
  }

  /** The user has seen everything up to here. The position never goes above what is held. */
  read(chatId: string, sequence: number, now: Now): Effect[] {
    const effects: Effect[] = [];
    const replica = this.replicas.get(chatId);
    if (replica?.readThrough(sequence)) {
      replica.shown = Math.max(replica.shown, replica.read);
      this._acks.read(replica, now.ms);
      effects.push({ do: "replica", replica }, { do: "recount", replica });
    }
    return this._finish(effects, now);
  }

  /** The user types, or has stopped. Without a connection nothing happens. */
  type(chat_id: string, isTyping: boolean, now: Now): Effect[] {
    const type = isTyping ? "typing_start" : "typing_stop";
    return this._finish(
      this._link.maySend ? [{ do: "send", frame: { type, payload: { chat_id } } }] : [],
      now,
    );
  }

  /** Add a chat that was just made or found, but not over the socket. */
  adopt(record: ReplicaRecord, now: Now): Effect[] {
    return this._finish(this._replicas.adopt(record, now), now);
  }

  // What the server says.

  receive(frame: ServerFrame, now: Now): Effect[] {
    const link = this._link;
    if (!link.hasSocket) return [];
    link.heard(now);
    let effects: Effect[] = [];
    if (
      link.isEstablished ||
      ["connection_established", "connection_closing", "error"].includes(frame?.type)
    ) {
      try {
        effects = this._on(frame, now);
      } catch (error) {
        effects = [{ do: "ignored", type: frame?.type, error }];
      }
    }
    return this._finish(effects, now);
  }

  private _on(frame: ServerFrame, now: Now): Effect[] {
    const { _replicas: replicas, _link: link } = this;
    switch (frame.type) {
      case "connection_established":
        return this._onEstablished(frame.payload, now);
      case "chat_digest":
        return this._onDigest(frame.payload, now);
      case "message":
      case "entry":
        return replicas.entry(frame.payload, now);
      case "send_message_ack":
        return this._onSendAck(frame, now);
      case "sync_response": {
        const replica = this._requests.answered(frame.request_id, pageOf);
        return replica ? replicas.page(replica, frame.payload, now) : [];
      }
      case "error":
        return this._onError(frame, now);
      case "heartbeat_ack":
        if (link.heartbeatAnswered(frame.request_id, now)) this._acks.heartbeatAnswered();
        return [];
      case "status_update":
        return replicas.status(frame.payload);
      case "chat_update":
        return replicas.chatUpdate(frame.payload, now);
      case "typing_indicator":
        return [{ do: "typed", typing: frame.payload }];
      case "resync":
        replicas.wantDigest(now.ms + frame.payload.delay_ms);
        return [];
      case "connection_closing": {
        // Acknowledge what is on the disk; from here on send nothing new (CL-05, AK-04).
        const effects = link.isEstablished ? this._acksDue(now, true) : [];
        link.closing = [frame.payload.reason, frame.payload.reconnect_delay_ms];
        return effects;
      }
      default:
        return [{ do: "ignored", type: (frame as { type: string }).type, error: null }];
    }
  }

  private _onEstablished(
    payload: Extract<ServerFrame, { type: "connection_established" }>["payload"],
    now: Now,
  ): Effect[] {
    const { user_id, epoch, features = [] } = payload;
    const link = this._link;
    if (link.isEstablished) return [];
    if (payload.protocol_version !== PROTOCOL_VERSION) return link.stop("unsupported_version");
    if (this.userId !== null && user_id !== this.userId) return link.stop("other_user");
    const isNewEpoch = this.epoch !== null && epoch !== this.epoch;
    this.epoch = epoch;
    this._requests.ask(DIGEST, now);
    return [
      ...this._replicas.connected(user_id, epoch, isNewEpoch),
      // After `restart`: a store that gets the new epoch first would keep its old cursors.
      { do: "introduced", user_id, epoch, features },
      ...link.established(payload.heartbeat_interval_ms, now),
    ];
  }

  private _onDigest(
    payload: Extract<ServerFrame, { type: "chat_digest" }>["payload"],
    now: Now,
  ): Effect[] {
    const hadDigest = this._replicas.isDigestComplete;
    const effects = this._replicas.digest(payload, now);
    if (payload.last) {
      this._requests.digestAnswered();
      if (!hadDigest) {
        this._acks.reconnected(this.replicas.values(), now.ms);
        for (const chatId of this.outbox.waitingChats())
          if (this._replicas.isOpen(chatId)) this.outbox.release(chatId);
      }
    }
    return effects;
  }

  private _onSendAck(
    frame: Extract<ServerFrame, { type: "send_message_ack" }>,
    now: Now,
  ): Effect[] {
    const { payload } = frame;
    const sent = this._requests.answered(frame.request_id, entryOf);
    if (!sent) return [];
    this._replicas.ownAnswered(sent.chat_id);
    const entry = this.outbox.stored(sent.client_message_id, payload.sequence);
    // A page has brought the entry before its answer came.
    if (!entry) return [];
    return [
      { do: "settled", entry, sequence: payload.sequence },
      ...this._replicas.ownStored(entry, payload, now),
    ];
  }

  private _onError(
    frame: { request_id?: string | null; payload: ErrorPayload },
    now: Now,
  ): Effect[] {
    const { code, message } = frame.payload;
    const details = frame.payload.details ?? {};
    const seconds = Number(details.retry_after_seconds);
    const retryAfterMs = seconds > 0 ? Math.trunc(Math.min(seconds, RETRY_AFTER_S_MAX) * 1000) : 0;
    if (code === "UNAUTHORIZED") this._link.needsNewToken = true;
    // Some of what it was told may be lost, and it names none of it.
    if (!frame.request_id && code === "RATE_LIMITED")
      this._acks.dropped(now.ms + Math.max(retryAfterMs, ACK_PAUSE_MS));
    const subject = this._requests.answered(frame.request_id, (one) => one);
    if (!subject) return [];
    if (subject === DIGEST) {
      this._replicas.digestFailed(now.ms + Math.max(retryAfterMs, this._options.backoffMs));
      return [];
    }
    if ("page" in subject)
      return this._replicas.pageRefused(subject.page, code, details, retryAfterMs, now);
    const { chat_id, client_message_id, kind } = subject.entry;
    this._replicas.ownAnswered(chat_id);
    if (kind === "delete" && code === DELETED) {
      const sequence = Number(details.deleted_sequence) || 0;
      const entry = this.outbox.stored(client_message_id, sequence);
      return entry ? [{ do: "done", entry, sequence }] : [];
    }
    if (code === "INVALID_MENTION" && Array.isArray(details.user_ids))
      if (this.outbox.unmention(client_message_id, details.user_ids))
        return [{ do: "rewritten", entry: subject.entry }];
    const after = typeof details.after === "string" ? details.after : null;
    const effects: Effect[] = this.outbox
      .refused(client_message_id, code, message, retryAfterMs, now.ms, after)
      .map((entry) => ({ do: "failed", entry }));
    if (code === "NOT_A_MEMBER" || code === "NOT_FOUND")
      effects.push(...this._replicas.leave(chat_id));
    return effects;
  }

  // Saying.

  /** Route effects to other parts, then send everything that can be sent now. */
  private _finish(effects: Effect[], now: Now): Effect[] {
    const routed: Effect[] = [];
    for (const effect of effects) {
      if (effect.do === "release") {
        this.outbox.release(effect.chat_id);
      } else {
        if (effect.do === "keep") routed.push(...this._ownArrived(effect));
        routed.push(effect);
      }
    }
    if (this._link.isEstablished) {
      if (this._replicas.isComplete && this.status.state === "syncing")
        routed.push(...this._link.ready());
      routed.push(...this._due(now));
    }
    return routed;
  }

  /** Take out of the outbox entries of ours that came back, even if their answer is lost. */
  private _ownArrived(keep: Keep): Effect[] {
    const effects: Effect[] = [];
    for (const { sender_id, is_damaged, client_message_id, sequence } of keep.items) {
      if (sender_id !== this.userId || is_damaged) continue;
      const entry = this.outbox.stored(client_message_id, sequence);
      if (entry) effects.push({ do: "settled", entry, sequence });
    }
    return effects;
  }

  private _due(now: Now): Effect[] {
    if (!this._link.maySend)
      return this._link.isRenewing && !this.outbox.flyingCount ? this._finishRenewal(now) : [];
    const effects: Effect[] = this._replicas.takePages(now.ms).map((replica) => ({
      do: "send",
      frame: {
        type: "sync_request",
        request_id: this._requests.ask({ page: replica }, now),
        payload: {
          chat_id: replica.chat_id,
          last_acked_sequence: replica.cursor,
          limit: this._options.pageMessages,
        },
      },
    }));
    const [leaving, doubtful] = this.outbox.take(now.ms, now.wallMs);
    const unmarked = leaving.filter((entry) => entry.left_at_ms === null);
    effects.push(
      ...this._sends(
        leaving.filter((entry) => entry.left_at_ms !== null),
        now,
      ),
    );
    if (unmarked.length) effects.push({ do: "mark", entries: unmarked });
    for (const entry of doubtful) effects.push({ do: "failed", entry });
    return effects.concat(this._acksDue(now));
  }

  private _sends(entries: readonly OutboxEntry[], now: Now): Effect[] {
    return entries.map((entry) => {
      this._replicas.ownSent(entry.chat_id);
      return { do: "send", frame: frameOf(entry, this._requests.ask({ entry }, now)) };
    });
  }

  private _acksDue(now: Now, isLast = false): Effect[] {
    if (this._link.closing) return [];
    return this._acks.flush(now.ms, isLast).map((frame) => ({ do: "send", frame }));
  }

  private _heartbeat(now: Now): Effect {
    return this._ask("heartbeat", this._beat(now));
  }

  private _beat(now: Now): string {
    const id = this._requests.newId();
    this._link.heartbeatSent(id, now);
    this._acks.heartbeatSent();
    return id;
  }

  private _ask(type: "heartbeat" | "digest_request", request_id: string): Effect {
    return { do: "send", frame: { type, request_id, payload: {} } as ClientFrame };
  }

  // The end of a socket.

  private _watch(now: Now): Effect[] {
    const { _link: link, _requests: requests } = this;
    const answerByMs = requests.nextDeadlineMs();
    const isUnanswered = answerByMs !== null && answerByMs <= now.ms;
    if (isUnanswered || link.isSilent(now))
      return this._giveUp(now, isUnanswered ? "no_answer" : "silence");
    if (link.isRenewing && link.isDue(now)) return this._finishRenewal(now);
    const effects: Effect[] = [];
    if (link.isHeartbeatDue(now)) effects.push(this._heartbeat(now));
    if (link.maySend && this._replicas.takeDigest(now.ms))
      effects.push(this._ask("digest_request", requests.ask(DIGEST, now)));
    return effects;
  }

  private _giveUp(now: Now, reason: string): Effect[] {
    this._forgetSocket();
    return this._link.giveUp(now, reason);
  }

  private _finishRenewal(now: Now): Effect[] {
    const effects = this._acksDue(now, true);
    this._forgetSocket();
    return [...effects, ...this._link.finishRenewal(now)];
  }

  private _forgetSocket(): void {
    this._replicas.disconnected();
    this._requests.clear();
    this.outbox.lost();
  }
}

const pageOf = (subject: Subject): Replica | undefined =>
  typeof subject === "object" && "page" in subject ? subject.page : undefined;

const entryOf = (subject: Subject): OutboxEntry | undefined =>
  typeof subject === "object" && "entry" in subject ? subject.entry : undefined;
