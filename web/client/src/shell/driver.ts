/**
 * Carries out the effects of the core: the socket, the store, timers. Only the leading tab has one.
 *
 * Writes are gathered while a transaction runs, and go into the next one together; so do those that
 * come from one message of the server. Nothing is acknowledged before its transaction is done, and
 * no entry is sent before the store has the mark that it leaves.
 */

import { Connection } from "../core/connection.ts";
import type { Effect, Status } from "../core/effects.ts";
import { earliest, type Options } from "../core/options.ts";
import type { OutboxEntry } from "../core/outbox.ts";
import type { ReplicaRecord } from "../core/record.ts";
import type { Replica } from "../core/replica.ts";
import type { ServerFrame } from "../wire/frames.ts";
import type { Credentials } from "./credentials.ts";
import { LoginNeeded } from "./errors.ts";
import { now, sleep } from "./ground.ts";
import { type Job, Keeping, NotLeader } from "./keeping.ts";
import type { News } from "./news.ts";
import type { Rest } from "./rest.ts";
import { type Hearing, Socket } from "./socket.ts";
import { type ChatState, mergeChat, type Tables } from "./tables.ts";

/** How long changed numbers of chats may wait for another write to be stored with. */
const NUMBERS_DELAY_MS = 200;
const TOKEN_RETRY_MS = 30_000;
/** A send makes a client that is offline reconnect at once, but not more often than this. */
const HURRY_PAUSE_MS = 1000;
/** A tab in which nothing ran for longer than this may have been frozen. */
const SLEPT_MS = 4000;
const FEATURES = ["batch", "entries"];

/** The parts that a driver works with. */
export interface Ground {
  tables: Tables;
  credentials: Credentials;
  rest: Rest;
  options: Options;
  socketUrl: string;
  webSocket: typeof WebSocket;
  tell(news: News): void;
  /** The chats as this tab knows them; newer than the store, after a change of leaders. */
  chats: ReadonlyMap<string, ChatState>;
  /** Another tab leads. */
  onDeposed(): void;
}

const emptyJob = (): Job => ({
  keeps: [],
  chats: [],
  entries: [],
  dropped: [],
  happened: [],
  meta: {},
});

export class Driver {
  core!: Connection;
  private _keeping: Keeping;
  private _socket: Socket | null = null;
  private _leaving: Socket[] = [];
  private _connecting = 0;
  private _timer: ReturnType<typeof setTimeout> | undefined;
  private _timerAtMs = 0;
  private _isTimerSoon = false;
  private _isRenewing = false;
  private _isOver = false;
  // Writing.
  private _job = emptyJob();
  private _changed = new Map<string, Replica>();
  /** The last count of unread messages that began. */
  private _counting?: Promise<void>;
  private _numbers: ReturnType<typeof setTimeout> | undefined;
  private _isSoon = false;
  private _last: Promise<void> = Promise.resolve();
  // Whether this tab still leads.
  private _aliveAtMs = 0;
  private _held: (() => void)[] = [];

  constructor(private _ground: Ground) {
    this._keeping = new Keeping(_ground.tables.backend);
  }

  /** The number of this tab as the leader. */
  get leader(): number {
    return this._keeping.leader ?? 0;
  }

  get status(): Status {
    return this.core.status;
  }

  // Beginning and end.

  /** Load what the last leader left in the store, and connect. */
  async start(): Promise<void> {
    const { tables, options, credentials, chats } = this._ground;
    await this._keeping.lead();
    const { chats: records, entries, meta } = await tables.load();
    this.core = new Connection(options, Math.random, {
      outbox: entries,
      replicas: records.map((record) => {
        const known = chats.get(record.chat_id);
        const { start, cursor, head } = record;
        return known ? { ...mergeChat(known, record), start, cursor, head } : record;
      }),
      userId: credentials.userId,
      epoch: (meta.epoch as string) ?? null,
      isDurable: tables.backend.isDurable,
    });
    this._ground.tell({ chats: records, outbox: entries, status: this.status });
    // The last leader may have ended before it did this.
    for (const entry of entries) this._dropped(this.core.outbox.dropEdits(entry));
    this._aliveAtMs = Date.now();
    if (!this._isOver) this.apply(this.core.start(now()));
  }

  /** Wait up to `lingerMs` for the outbox, acknowledge what is stored, and end. */
  async close(lingerMs: number): Promise<void> {
    const untilMs = performance.now() + lingerMs;
    while (
      performance.now() < untilMs &&
      this.core.outbox.waitingChats().length &&
      ["syncing", "ready"].includes(this.status.state)
    )
      await sleep(20);
    await this.flushed();
    this.apply(this.core.stop(now(), "closed"));
    await this.flushed();
    await Promise.all(this._leaving.map((socket) => socket.gone()));
    this.end();
  }

  /** End at once, without acknowledging: another tab leads, or the client is closed. */
  end(): void {
    this._isOver = true;
    clearTimeout(this._timer);
    clearTimeout(this._numbers);
    this._letGo(1000);
  }

  // Commands of the application, from this tab or another.

  do(name: string, args: unknown[]): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this._gated(() => this._do(name, args).then(resolve, reject));
    });
  }

  private async _do(name: string, args: unknown[]): Promise<unknown> {
    const [id] = args as [string];
    const { core } = this;
    const replica = core.replicas.get(id);
    switch (name) {
      case "submit":
        return this._submit(args[0] as OutboxEntry);
      case "read":
        this.apply(core.read(id, args[1] as number, now()));
        return this._counting;
      case "shown":
        return this.apply(core.shown(id, args[1] as number, now()));
      case "typing":
        return this.apply(core.type(id, args[1] as boolean, now()));
      case "adopt":
        for (const record of args[0] as ReplicaRecord[]) this.apply(core.adopt(record, now()));
        return this.flushed();
      case "name":
        if (replica && replica.name !== args[1]) {
          replica.name = args[1] as string;
          this._replicaChanged(replica);
        }
        return;
      case "hidden":
        if (replica) {
          replica.hidden_through = args[1] ? replica.head : null;
          this._replicaChanged(replica);
        }
        return;
      case "flushed":
        return this.flushed();
      case "amend":
        return this._amend(id, args[1] as string);
      case "retry":
        return this._retry(id);
      case "drop":
        return this._drop(id);
      case "start":
        return this.apply(core.start(now()));
      case "hurry":
        return this.apply(core.hurry(now()));
      case "state":
        this._ground.tell({ status: this.status, roundTripMs: core.roundTripMs });
    }
  }

  private async _submit(entry: OutboxEntry): Promise<void> {
    const { core } = this;
    const { target_id } = entry;
    if (target_id && !core.outbox.get(target_id)) {
      // The message that it is about has left the outbox meanwhile.
      await this.flushed();
      entry = await this._ground.tables.resolved(entry);
    }
    this._dropped(core.outbox.dropEdits(entry));
    this.apply(core.submit(entry, now()));
    this.apply(core.hurry(now(), HURRY_PAUSE_MS));
  }

  /** Replace the text of an entry that has surely not left. False: it may have left. */
  private async _amend(id: string, content: string): Promise<boolean> {
    const { outbox } = this.core;
    const entry = outbox.get(id);
    if (!entry || !outbox.isHere(id)) return false;
    entry.body = { ...entry.body, content };
    // It may leave when the new text is in the store, so it is marked after that.
    entry.left_at_ms = null;
    // Earlier edits of it would overwrite this text.
    this._dropped(outbox.dropEdits({ ...entry, kind: "delete", body: {}, target_id: id }));
    await this._save(entry);
    return true;
  }

  private async _retry(id: string): Promise<boolean> {
    const last = this.core.outbox.entries().at(-1);
    const again = this.core.outbox.retry(id, (last?.number ?? 0) + 1);
    if (!again.length) return false;
    await this._save(...again);
    this.apply(this.core.resubmit(again[0]!, now()));
    return true;
  }

  private async _drop(id: string): Promise<boolean> {
    const dropped = this.core.outbox.drop(id);
    this._dropped(dropped);
    await this.flushed();
    return dropped.length > 0;
  }

  private _dropped(entries: readonly OutboxEntry[], sequence: number | null = null): void {
    for (const entry of entries) {
      const { client_message_id } = entry;
      this._job.dropped.push(client_message_id);
      this._ground.tell({ outbox: [{ ...entry }], left: [[client_message_id, sequence]] });
      this._soon();
    }
  }

  private async _save(...entries: OutboxEntry[]): Promise<void> {
    this._job.entries.push(...entries.map((entry) => ({ ...entry })));
    this._ground.tell({ outbox: entries.map((entry) => ({ ...entry })) });
    await this.flushed();
  }

  // Effects.

  apply(effects: readonly Effect[]): void {
    if (this._isOver) return;
    for (const effect of effects) this._apply(effect);
    if (!this._isTimerSoon) {
      // Once in a turn of the event loop, however much happens in it.
      this._isTimerSoon = true;
      queueMicrotask(() => this._setTimer());
    }
  }

  private _apply(effect: Effect): void {
    const { tell } = this._ground;
    switch (effect.do) {
      case "keep":
        this._job.keeps.push(effect);
        // The unread count has changed, too.
        this._changed.set(effect.replica.chat_id, effect.replica);
        this._soon();
        break;
      case "send":
        this._socket?.send(effect.frame);
        break;
      case "settled":
        tell({ left: [[effect.entry.client_message_id, effect.sequence]] });
        break;
      case "done":
        this._dropped([effect.entry], effect.sequence);
        break;
      case "replica":
        this._replicaChanged(effect.replica);
        break;
      case "recount":
        this._counting = this._recount(effect.replica);
        break;
      case "mark": {
        const leftAtMs = Date.now();
        const { entries } = effect;
        this._then(async () => {
          await this._keeping.markLeft(
            entries.map((entry) => entry.client_message_id),
            leftAtMs,
          );
          this.apply(this.core.marked(entries, leftAtMs, now()));
        });
        break;
      }
      case "rewritten":
        // Effects come in order, so this is written before the mark that it leaves.
        this._save(effect.entry);
        break;
      case "failed":
        this._failed(effect.entry);
        break;
      case "chat":
        this._happened((position) => ({ kind: "chat", position, update: effect.update }));
        break;
      case "typed":
        tell({ typing: effect.typing });
        break;
      case "status":
        this._statusChanged(effect.status);
        break;
      case "connect":
        this._connect(effect.withNewToken);
        break;
      case "disconnect":
        this._letGo(effect.code);
        break;
      case "restart": {
        const records = effect.replicas.map((replica) => replica.record());
        // Entries that were received before belong to the old generation, and are stored first.
        this._then(() => this._keeping.restart(records, effect.epoch));
        break;
      }
      case "introduced": {
        const { user_id, epoch, features } = effect;
        if (this._socket) this._socket.isBatching = features.includes("batch");
        this._ground.credentials.userId = user_id;
        Object.assign(this._job.meta, { user_id, epoch });
        this._soon();
        tell({ userId: user_id });
        break;
      }
      case "ignored":
        console.warn(`tidewire: a frame was ignored: ${effect.type}`, effect.error ?? "");
    }
  }

  private _failed(entry: OutboxEntry): void {
    const { chat_id, client_message_id, kind, code, reason, body } = entry;
    if (this.core.outbox.get(client_message_id)) this._save(entry);
    else this._dropped([entry]);
    this._happened((position) => ({
      kind: "refused",
      position,
      ...(body.target && { about: [chat_id, body.target] as [string, number] }),
      chat_id,
      client_message_id,
      entry_kind: kind,
      text: body.content ?? "",
      code,
      reason,
    }));
  }

  private _happened(make: Job["happened"][number]): void {
    this._job.happened.push(make);
    this._soon();
  }

  private _statusChanged(status: Status): void {
    if (status.state === "closed") this._letGo(1000);
    this._ground.tell({ status, roundTripMs: this.core.roundTripMs });
  }

  private _replicaChanged(replica: Replica): void {
    this._ground.tell({ chats: [{ ...replica.record(), is_behind: replica.isBehind }] });
    this._changed.set(replica.chat_id, replica);
    this._numbers ??= setTimeout(() => this.flush(), NUMBERS_DELAY_MS);
  }

  /** Count the unread messages in the store, if all of them are held there. */
  private async _recount(replica: Replica): Promise<void> {
    const { tables, credentials, chats } = this._ground;
    const { chat_id, read } = replica;
    await this.flushed();
    const floor = chats.get(chat_id)?.floor ?? replica.start;
    if (this._isOver || replica.isBehind || read < floor) return;
    const [unread, mentions] = await tables.countUnread(chat_id, read, credentials.userId ?? "");
    if (replica.read !== read || replica.isBehind) return;
    replica.unread = unread;
    replica.mentions_unread = mentions;
    this._replicaChanged(replica);
  }

  // The store.

  private _soon(): void {
    if (!this._isSoon) {
      this._isSoon = true;
      queueMicrotask(() => this.flush());
    }
  }

  /** Write everything that waits in one transaction, after those that have begun; what is received
   * meanwhile waits for the next one. */
  flush(): void {
    this._isSoon = false;
    clearTimeout(this._numbers);
    this._numbers = undefined;
    this._then(async () => {
      const job = this._job;
      this._job = emptyJob();
      // How these have ended is in this job: it was put there in the turn in which they did.
      const ended = [...this.core.outbox.unsaved];
      job.chats = [...this._changed.values()].map((replica) => replica.record());
      this._changed.clear();
      const isEmpty = Object.values(job).every((part) => !Object.keys(part).length);
      if (!isEmpty) await this._write(job, ended);
    });
  }

  private async _write(job: Job, ended: readonly OutboxEntry[]): Promise<void> {
    const { happened, chats, erased } = await this._keeping.write(job);
    for (const [chatId, target] of erased) {
      const replica = this.core.replicas.get(chatId);
      if (replica) this._recount(replica);
      this._dropped(this.core.outbox.erase(chatId, target));
    }
    this._ground.tell({
      chats: chats.map((chat) => ({
        ...chat,
        is_behind: this.core.replicas.get(chat.chat_id)?.isBehind,
      })),
      happened,
    });
    this.apply(this.core.saved(ended, now()));
    for (const keep of job.keeps) this.apply(this.core.stored(keep, now()));
  }

  /** Do something with the store after all earlier work on it. */
  private _then(work: () => Promise<void>): void {
    this._last = this._last.then(async () => {
      if (this._isOver) return;
      try {
        await work();
      } catch (error) {
        this._storeFailed(error);
      }
    });
  }

  /** Wait until everything so far is in the store, or the store has failed. */
  async flushed(): Promise<void> {
    this.flush();
    await this._last;
  }

  /** Close the client: it is not known any more what is in the store. */
  private _storeFailed(error: unknown): void {
    if (error instanceof NotLeader) {
      this.end();
      this._ground.onDeposed();
    } else if (!this._isOver && this.status.state !== "closed") {
      console.error("tidewire: the store failed", error);
      this.apply(this.core.stop(now(), "store_failed"));
    }
  }

  // The socket.

  private async _connect(withNewToken: boolean): Promise<void> {
    const { credentials, rest, socketUrl, webSocket } = this._ground;
    const attempt = ++this._connecting;
    // A later try has replaced this one, or the driver has ended.
    const isOld = (): boolean => attempt !== this._connecting || this._isOver;
    let token: string;
    try {
      token = await credentials.token(withNewToken);
    } catch (error) {
      if (isOld()) return;
      const isOut = error instanceof LoginNeeded;
      this.apply(
        isOut ? this.core.stop(now(), "login_needed") : this.core.lost(now(), null, "unreachable"),
      );
      return;
    }
    if (isOld()) return;
    const protocols = [
      "tidewire.v1",
      `bearer.${token}`,
      `device.${credentials.deviceId}`,
      ...FEATURES.map((name) => `with.${name}`),
    ];
    const hearing: Hearing = {
      onOpen: () => this._gated(() => this.apply(this.core.opened(now()))),
      onFrame: (frame: ServerFrame) =>
        this._gated(() => {
          if (this._socket === socket) this.apply(this.core.receive(frame, now()));
        }),
      onEnd: async (code, wasOpen) => {
        if (this._socket !== socket) return;
        this._socket = null;
        // A browser does not tell why there is no connection.
        const refusal = wasOpen ? null : await rest.probe(token);
        if (isOld()) return;
        this._gated(() =>
          this.apply(
            refusal
              ? this.core.refused(refusal, now())
              : this.core.lost(now(), code, wasOpen ? "lost" : "unreachable"),
          ),
        );
      },
    };
    let socket: Socket;
    try {
      socket = new Socket(webSocket, socketUrl, protocols, hearing);
    } catch (error) {
      console.warn("tidewire: no connection can be made", error);
      this.apply(this.core.lost(now(), null, "unreachable"));
      return;
    }
    this._socket = socket;
  }

  private _letGo(code: number): void {
    this._connecting++;
    if (this._socket) {
      this._socket.letGo(code);
      this._leaving = [this._socket];
      this._socket = null;
    }
  }

  // Whether this tab still leads.

  /** Call `act`. If nothing ran in this tab for long, another one may lead by now: then the store
   * is read first, so that a tab that was frozen sends nothing. */
  private _gated(act: () => void): void {
    if (this._isOver) return;
    const { tables } = this._ground;
    const sleptMs = Date.now() - this._aliveAtMs;
    this._aliveAtMs = Date.now();
    if (!this._held.length && (sleptMs < SLEPT_MS || !tables.backend.sharedAs)) {
      act();
      return;
    }
    this._held.push(act);
    if (this._held.length > 1) return;
    this._keeping.isLeading().then(
      (isLeading) => {
        const held = this._held;
        this._held = [];
        this._aliveAtMs = Date.now();
        if (!isLeading) this._storeFailed(new NotLeader());
        else for (const one of held) one();
      },
      (error) => this._storeFailed(error),
    );
  }

  // Time.

  private _setTimer(): void {
    this._isTimerSoon = false;
    if (this._isOver) return;
    const { credentials } = this._ground;
    const atMs = earliest(
      this.core.nextDeadlineMs(),
      credentials.renewAtMs !== null && ["syncing", "ready"].includes(this.status.state)
        ? performance.now() + Math.max(credentials.renewAtMs - Date.now(), 0)
        : null,
    );
    // A timer that is early finds nothing to do and sets the next: cheaper than exact timers.
    if (atMs === null || (this._timer !== undefined && this._timerAtMs <= atMs)) return;
    clearTimeout(this._timer);
    this._timerAtMs = atMs;
    const waitMs = Math.min(Math.max(atMs - performance.now(), 0) + 1, 2 ** 31 - 1);
    this._timer = setTimeout(() => {
      this._timer = undefined;
      this._gated(() => this._tick());
    }, waitMs);
  }

  private _tick(): void {
    const { credentials } = this._ground;
    const isDue = credentials.renewAtMs !== null && credentials.renewAtMs <= Date.now();
    if (isDue && !this._isRenewing && ["syncing", "ready"].includes(this.status.state)) {
      this._isRenewing = true;
      this._renew().finally(() => {
        this._isRenewing = false;
      });
    }
    this.apply(this.core.tick(now()));
  }

  /** Get the next token in time, and change to a connection that uses it (CL-07). */
  private async _renew(): Promise<void> {
    const { credentials } = this._ground;
    try {
      await credentials.token(true);
    } catch (error) {
      // The connection goes on until its token ends; before that, this is tried again.
      console.warn("tidewire: the token could not be renewed", error);
      credentials.renewAtMs = Date.now() + TOKEN_RETRY_MS;
      return;
    }
    this.apply(this.core.renew(now()));
  }
}
