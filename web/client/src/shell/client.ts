/** The client: one person on one device, with a store that outlives the page. */

import type { Status } from "../core/effects.ts";
import { DEFAULTS, type Options } from "../core/options.ts";
import type { Body, EntryKind, OutboxEntry } from "../core/outbox.ts";
import type { ClientEvent, OpenOptions, Person } from "../types.ts";
import type { OpenBackend } from "./backend.ts";
import { Chat } from "./chat.ts";
import { Credentials } from "./credentials.ts";
import type { Driver } from "./driver.ts";
import {
  ClientError,
  closedFor,
  InvalidMessage,
  LoginNeeded,
  MessageTooLarge,
  RefusedByServer,
} from "./errors.ts";
import { eventOf, type Listener } from "./events.ts";
import { newId, Waits } from "./ground.ts";
import { lend, more, rare } from "./lending.ts";
import type { News } from "./news.ts";
import { byActivity, People } from "./people.ts";
import type { ofClient } from "./remote.ts";
import { Rest } from "./rest.ts";
import { hasFailed, Sent } from "./sent.ts";
import { mergeChat, type StoredRow, Tables } from "./tables.ts";
import { listen, Tabs } from "./tabs.ts";
import { View } from "./view.ts";

const SOCKET_PATH = "/v1/ws";
const CONTENT_BYTES_MAX = 4096;
const EMOJI_BYTES_MAX = 32;
const TYPING_MS = 6000;
const PULSE_MS = 1000;
const SLEPT_MS = 4000;

/** What differs between browsers and Node. */
export interface Platform {
  open: OpenBackend;
  webSocket: () => Promise<typeof WebSocket>;
  store: string;
}

/** `lend`, below, adds these methods to the class. */
export interface Client extends RemoteClient {}
type RemoteClient = typeof ofClient;

/**
 * A user on a device, made by `Client.open`. It connects and reconnects by itself, and all tabs of
 * a browser share one connection.
 */
// biome-ignore lint/suspicious/noUnsafeDeclarationMerging: `lend` adds the methods
export class Client {
  /** @internal */
  static _platform: Platform;

  /** Resolves when the client is closed, with its last status; `reason` says why. Never rejects. */
  readonly closed: Promise<Status>;
  /** @internal */
  readonly _view = new View();
  /** @internal */
  readonly _rest: Rest;
  /** @internal By chat: the last message that `events()` gave out; a send says it has seen that. */
  readonly _seen = new Map<string, number>();
  /** @internal */
  readonly _people = new People(this);
  private _options: Options;
  private _credentials: Credentials;
  private _driver: Driver | null = null;
  private _tabs: Tabs | null = null;
  private _waits = new Waits();
  private _listeners = new Set<Listener>();
  private _handles = new Map<string, Sent>();
  private _entering: [OutboxEntry, (sent: Sent) => void, (error: unknown) => void][] = [];
  /** @internal */
  readonly _found = new Map<string, Person>();
  private _ended!: (status: Status) => void;
  private _isClosing = false;
  private _confirmed = 0;
  private _pulse: ReturnType<typeof setInterval> | undefined;
  private _aliveAtMs = Date.now();

  private constructor(
    /** The server's address, without a slash at its end. */
    readonly url: string,
    /** @internal */
    readonly _tables: Tables,
    private _socket: typeof WebSocket,
    wish: OpenOptions,
  ) {
    this._options = { ...DEFAULTS, ...wish.options };
    this._rest = new Rest(url);
    this._credentials = new Credentials(wish.getToken, this._rest, _tables);
    this.closed = new Promise((resolve) => {
      this._ended = resolve;
    });
  }

  /**
   * Open the client of a user, each time the page or program starts. A login in the store is used,
   * also while the server cannot be reached. Without one, `username` and `password` log this device
   * in. With `getToken`, its tokens are used.
   *
   * @throws LoginNeeded, RefusedByServer, ServerUnreachable, StoreUnusable; ClientError: a bad URL
   */
  static async open(url: string, wish: OpenOptions = {}): Promise<Client> {
    const { protocol, host, pathname } = new URL(url);
    const address = `${protocol}//${host}${pathname.replace(/\/+$/, "")}`;
    if (!/^https?:$/.test(protocol))
      throw new ClientError(`${url} is no address of a server: it begins with http or https`);
    const { open, webSocket, store } = Client._platform;
    const backend = await open(wish.store ?? store);
    try {
      const socket = wish.webSocket ?? (await webSocket());
      const client = new Client(address, new Tables(backend), socket, wish);
      await client._begin(wish);
      return client;
    } catch (error) {
      await backend.close();
      throw error;
    }
  }

  private async _begin(wish: OpenOptions): Promise<void> {
    const { backend } = this._tables;
    const ear = backend.sharedAs ? listen(backend.sharedAs) : null;
    try {
      await this._load(wish);
    } catch (error) {
      ear?.channel.close();
      throw error;
    }
    backend.onTaken = (reason) => this._end({ state: "closed", reason });
    if (ear) {
      this._tabs = new Tabs(ear.channel, {
        onLead: () => this._lead(),
        onDeposed: () => this._deposed(),
        onLeader: () => this._settle(),
        onNews: (news) => this._take(news),
        onCommand: (name, args) => this._driver!.do(name, args),
      });
      // A status that was heard may be old, so it is dropped, and the leader is asked.
      for (const news of ear.heard) this._take({ ...news, status: undefined });
      this._wish("state");
    } else {
      await this._lead();
    }
    globalThis.addEventListener?.("online", this._hurry);
    globalThis.document?.addEventListener("visibilitychange", this._looked);
    this._pulse = setInterval(() => this._beat(), PULSE_MS);
    // This timer alone does not keep a program in Node running.
    (this._pulse as { unref?: () => void }).unref?.();
  }

  /** Load the store, and find out who the user is. */
  private async _load(wish: OpenOptions): Promise<void> {
    const { _tables: tables, _view: view } = this;
    let held = await tables.load();
    await this._credentials.attach(this.url, held.meta as Record<string, string>, wish.moved);
    if (wish.password !== undefined && !wish.getToken) {
      // Loaded on demand, because a device usually logs in only once.
      const { logIn } = await rare();
      await logIn(this._credentials, this._rest, wish);
    }
    this._credentials.check();
    // Another tab may have written while the server was asked.
    if (wish.password !== undefined || wish.getToken) held = await tables.load();
    for (const chat of held.chats) view.chats.set(chat.chat_id, chat);
    for (const entry of held.entries) view.outbox.set(entry.client_message_id, entry);
    view.names = new Map(held.people);
    this._confirmed = Number(held.meta.confirmed ?? 0);
  }

  /** Take over the connection. Its code is loaded now, because other tabs do not need it. */
  private async _lead(): Promise<number> {
    const { Driver } = await more();
    if (this.status.state === "closed") return 0;
    const driver = new Driver({
      tables: this._tables,
      credentials: this._credentials,
      rest: this._rest,
      options: this._options,
      socketUrl: this.url.replace("http", "ws") + SOCKET_PATH,
      webSocket: this._socket,
      tell: (news) => this._tell(news),
      chats: this._view.chats,
      onDeposed: () => this._tabs?.deposed(),
    });
    this._driver = driver;
    try {
      await driver.start();
    } catch (error) {
      console.error("tidewire: the store failed", error);
      this._end({ state: "closed", reason: "store_failed" });
    }
    return driver.leader;
  }

  private _deposed(): void {
    this._driver?.end();
    this._driver = null;
  }

  /** Find entries that have left the outbox: a leader may store that, and end before it tells. */
  private async _settle(): Promise<void> {
    try {
      const left = await this._tables.left([...this._view.outbox.keys()]);
      if (left.length) this._take({ left });
    } catch (error) {
      if (this.status.state !== "closed") console.warn("tidewire: what has left?", error);
    }
  }

  // Identity and state.

  get deviceId(): string {
    return this._credentials.deviceId;
  }

  /** False: there is no IndexedDB here (private mode, a full disk), or the store is `:memory:`: the
   * data is lost when the page or program ends. Only what was shown is acknowledged then. */
  get isDurable(): boolean {
    return this._tables.backend.isDurable;
  }

  /** Whether this tab holds the connection. Applications need not know it. */
  get isLeader(): boolean {
    return this._driver !== null;
  }

  get status(): Status {
    return this._view.status;
  }

  /** Our own user id; null until the server has sent it for the first time. */
  get userId(): string | null {
    return this._credentials.userId;
  }

  get username(): string | null {
    return this._credentials.username;
  }

  /** How many ms the last heartbeat's answer took; null while that is not known. */
  get roundTripMs(): number | null {
    return this._driver?.core?.roundTripMs ?? this._view.roundTripMs;
  }

  /** Wait until this device holds everything that the server has. Waits for names of chats too, but
   * not for long. @throws ClientClosed */
  async ready(): Promise<void> {
    await this._until("", () => this.status.state === "ready");
    // The last entries are in the store, too.
    await this._command("flushed");
    await this._people.settled();
  }

  /** Wait until the outbox has nothing left to send; failed entries do not count. After it, sent
   * messages are in `chat.messages()`. @throws ClientClosed */
  async flush(): Promise<void> {
    const { outbox } = this._view;
    // A change of a message that has failed waits for the user, as the message does.
    const waiting = (): boolean =>
      this._entering.length > 0 ||
      [...outbox.values()].some(
        (entry) => !hasFailed(entry) && !hasFailed(outbox.get(entry.target_id ?? "")),
      );
    await this._until("", () => !waiting());
    await this._command("flushed");
  }

  /** Connect now, if the client is offline and waits for the next try. */
  reconnect(): void {
    this._wish("start");
  }

  /** Close the client. Waits up to `lingerMs` for the outbox; the rest stays in the store. */
  async close(lingerMs = 0): Promise<void> {
    if (this._isClosing) return;
    this._isClosing = true;
    if (this.status.state !== "closed" && this._driver?.core) await this._driver.close(lingerMs);
    this._end({ state: "closed", reason: "closed" });
    await this._tables.backend.close();
  }

  /** Close for good: callers that wait are told, and timers and listeners end. */
  private _end(status: Status): void {
    if (this.status.state !== "closed") this._take({ status });
    this._driver?.end();
    this._driver = null;
    this._tabs?.close();
    this._tabs = null;
    clearInterval(this._pulse);
    globalThis.removeEventListener?.("online", this._hurry);
    globalThis.document?.removeEventListener("visibilitychange", this._looked);
    this._ended(this.status);
  }

  // Signs that the user looks at the page, or that the network is back.

  private _hurry = (): void => this._wish("hurry");

  private _looked = (): void => {
    if (document.visibilityState === "visible") this._hurry();
  };

  /** Called once a second, if the browser does not slow down timers: has the machine slept? */
  private _beat(): void {
    const sleptMs = Date.now() - this._aliveAtMs;
    this._aliveAtMs = Date.now();
    const isHidden = globalThis.document?.visibilityState === "hidden";
    if (sleptMs > SLEPT_MS && !isHidden) this._hurry();
  }

  // The account.

  /** End this login, on the server and here: the store is deleted, with unsent messages.
   * `isForced`: here even if the server cannot be reached. @throws ServerUnreachable */
  async logout(isForced = false): Promise<void> {
    try {
      await this._rest.call("POST", "/auth/logout", { body: {} });
    } catch (error) {
      const hasEnded = error instanceof LoginNeeded || error instanceof RefusedByServer;
      if (!hasEnded && !isForced) throw error;
    }
    await this._forget();
  }

  /** @internal */
  async _forget(): Promise<void> {
    // The deletion of the store closes the clients of the other tabs (`onTaken`).
    this._end({ state: "closed", reason: "logged_out" });
    await this._tables.backend.destroy();
  }

  // Chats.

  /** A chat by its id. Does not ask the server. */
  chat(chatId: string): Chat {
    return new Chat(this, chatId);
  }

  /** The chats that this device knows the user to be in, the newest activity first. */
  knownChats(): Chat[] {
    return [...this._view.chats.values()]
      .filter((chat) => chat.is_member)
      .map((chat) => this.chat(chat.chat_id))
      .sort(byActivity);
  }

  /** The display name of a user; null if it is not known here. Does not ask the server. */
  nameOf(userId: string): string | null {
    return this._view.names.get(userId) ?? null;
  }

  // Events, search, the outbox.

  /** Call `listener` with every event from now on, in all tabs. Returns a function to stop it. */
  on(listener: Listener): () => void {
    this._listeners.add(listener);
    return () => {
      this._listeners.delete(listener);
    };
  }

  /**
   * All events in stored order, from the first unconfirmed one on: `for await (… of me.events())`.
   * Going on to the next event confirms the last one. An unconfirmed event comes again in the next
   * run, marked `redelivered`. Only one consumer per store, so it is for bots; pages use `on`.
   */
  async *events(): AsyncIterableIterator<ClientEvent> {
    const { Events } = await rare();
    yield* new Events(this, this._confirmed);
  }

  /** Confirm this event and all before it. A loop over `events` does it; after `break`, call it. */
  confirm(event: ClientEvent): void {
    if (event.position <= this._confirmed) return;
    this._confirmed = event.position;
    this._tables.confirm(event.position).catch((error) => {
      // The event comes again in the next run.
      if (this.status.state !== "closed") console.warn("tidewire: not confirmed", error);
    });
  }

  /** The entries of the outbox in all chats, failed ones included, oldest first. */
  outbox(): Sent[] {
    return this._view.entries().map((entry) => this._handle(entry));
  }

  // For the parts of the client.

  /** @internal Wait until `isSo` is true; it is called again when the key's object has changed. */
  _until(key: string, isSo: () => boolean): Promise<void> {
    return this._waits.until(key, isSo, () => this._checkOpen());
  }

  private _checkOpen(): void {
    const { state, reason } = this.status;
    if (state === "closed") throw closedFor(reason ?? "closed");
  }

  /** @internal Send a command to the leader, this tab or another. */
  async _command(name: string, ...args: unknown[]): Promise<unknown> {
    this._checkOpen();
    return this._tabs ? this._tabs.command(name, args) : this._driver?.do(name, args);
  }

  /** @internal The same, for commands that may fail without harm. */
  _wish(name: string, ...args: unknown[]): void {
    this._command(name, ...args).catch(() => {
      // The client was closed meanwhile: the command is not needed any more.
    });
  }

  /** @internal Tell all tabs, this one first. */
  _tell(news: News): void {
    // Other tabs need not know that this one ends.
    if (!(this._isClosing && news.status)) this._tabs?.tell(news);
    this._take(news);
  }

  private _take(news: News): void {
    const { _view: view } = this;
    if (news.userId) this._credentials.userId = news.userId;
    if (news.roundTripMs !== undefined) view.roundTripMs = news.roundTripMs;
    for (const chat of news.chats ?? []) {
      const { chat_id } = chat;
      view.chats.set(chat_id, mergeChat(view.chats.get(chat_id), chat));
      this._emit({ type: "TicksMoved", chatId: chat_id, ...FLEETING });
      this._waits.changed(chat_id);
    }
    for (const [userId, name] of Object.entries(news.names ?? {})) view.names.set(userId, name);
    if (news.names)
      this._emit({ type: "NamesMoved", userIds: Object.keys(news.names), ...FLEETING });
    for (const entry of news.outbox ?? []) {
      view.outbox.set(entry.client_message_id, entry);
      this._handles.get(entry.client_message_id)?._became(entry);
      this._outboxMoved(entry);
    }
    for (const [id, sequence] of news.left ?? []) this._leftOutbox(id, sequence);
    for (const happening of news.happened ?? []) {
      const event = eventOf(this, happening);
      if (event) this._emit(event);
    }
    if (news.typing) this._typed(news.typing.chat_id, news.typing.user_id, news.typing.is_typing);
    if (news.chats && this._driver) this._people.noticed();
    if (news.status) this._statusMoved(news.status);
    this._waits.changed("");
  }

  private _statusMoved(status: Status): void {
    const { state } = this.status;
    this._view.status = status;
    this._emit({ type: "StatusMoved", status, ...FLEETING });
    if (status.state === "ready" && state !== "ready" && this._driver) this._people.connected();
    // Callers look again, because some do not wait any longer without a connection.
    this._waits.allChanged();
    if (status.state === "closed" && !this._isClosing) this._end(status);
  }

  private _outboxMoved(entry: OutboxEntry): void {
    this._emit({ type: "OutboxMoved", chatId: entry.chat_id, ...FLEETING });
    this._waits.changed(entry.client_message_id);
  }

  private _leftOutbox(id: string, sequence: number | null): void {
    const { outbox } = this._view;
    const entry = outbox.get(id);
    outbox.delete(id);
    this._handles.get(id)?._left(sequence);
    this._handles.delete(id);
    // The core has set it in its own entries; if another tab leads, these are copies.
    for (const one of outbox.values())
      if (one.target_id === id && sequence) one.body.target = sequence;
    if (entry) this._outboxMoved(entry);
  }

  private _typed(chatId: string, userId: string, isTyping: boolean): void {
    const typists = this._view.typists.get(chatId) ?? new Map();
    this._view.typists.set(chatId, typists);
    clearTimeout(typists.get(userId));
    typists.delete(userId);
    // A user who typed, and has sent no "stopped", counts as stopped after a while.
    if (isTyping)
      typists.set(
        userId,
        setTimeout(() => this._typed(chatId, userId, false), TYPING_MS),
      );
    this._emit({ type: "Typing", chatId, userId, isTyping, ...FLEETING });
  }

  private _emit(event: ClientEvent): void {
    for (const listener of this._listeners) {
      try {
        listener(event);
      } catch (error) {
        // One listener's error must not keep the event from the next one.
        console.error("tidewire: a listener failed", error);
      }
    }
    if (this._listeners.size && "message" in event)
      this._showed(event.message.chatId, event.message.sequence);
  }

  /** @internal The application got this message. If the store is not durable, acknowledge it. */
  _showed(chatId: string, sequence: number): void {
    if (sequence && !this.isDurable) this._wish("shown", chatId, sequence);
  }

  // Sending.

  /** @internal Own changes of a message that are in the outbox, in the order of writing. */
  _changesOf(chatId: string, target: number): OutboxEntry[] {
    const { outbox } = this._view;
    if (!outbox.size) return [];
    return this._view
      .entries(chatId)
      .filter(({ body, state }) => body.target === target && state !== "failed");
  }

  /** @internal Throws if no server would accept this text. */
  _check(text: string): void {
    const bytes = new TextEncoder().encode(text).length;
    if (!bytes) throw new InvalidMessage("a message has at least one byte");
    if (bytes > CONTENT_BYTES_MAX)
      throw new MessageTooLarge(
        `the text has ${bytes} bytes, at most ${CONTENT_BYTES_MAX} are possible`,
        "MESSAGE_TOO_LARGE",
      );
    if (text.includes("\0"))
      throw new InvalidMessage("a NUL character is not allowed", "INVALID_CONTENT");
    if (/\p{Surrogate}/u.test(text))
      throw new InvalidMessage("half of a character is no text", "INVALID_ENCODING");
  }

  /** @internal Put an entry into the outbox; resolves when it is in the store. */
  async _send(
    chat_id: string,
    kind: EntryKind,
    body: Body,
    more: Partial<OutboxEntry> = {},
  ): Promise<Sent> {
    this._checkOpen();
    if (body.content !== undefined) this._check(body.content);
    if (body.emoji !== undefined) {
      this._check(body.emoji);
      if (new TextEncoder().encode(body.emoji).length > EMOJI_BYTES_MAX)
        throw new InvalidMessage(`an emoji has at most ${EMOJI_BYTES_MAX} bytes`);
    }
    const client_message_id = more.client_message_id ?? newId();
    const known = this._view.outbox.get(client_message_id);
    if (known) return this._handle(known);
    const wallMs = Date.now();
    const entry: OutboxEntry = {
      client_message_id,
      chat_id,
      kind,
      body,
      seen_sequence: 0,
      created_at_ms: wallMs,
      number: 0,
      // If it leaves as soon as it is written, the mark that it leaves needs no second write.
      left_at_ms: this._driver && this.status.state === "ready" ? wallMs : null,
      state: "queued",
      is_doubtful: false,
      is_first: false,
      tries: 0,
      code: null,
      reason: null,
      ...more,
    };
    return new Promise((resolve, reject) => {
      if (!this._entering.length) queueMicrotask(() => this._enter());
      this._entering.push([entry, resolve, reject]);
    });
  }

  /** Entries of one turn of the event loop go into the store in one transaction. */
  private async _enter(): Promise<void> {
    const entering = this._entering;
    this._entering = [];
    let known: Map<string, StoredRow>;
    try {
      known = await this._tables.enter(
        entering.map(([entry]) => entry),
        this._options.outboxMax,
      );
    } catch (error) {
      for (const [, , reject] of entering) reject(error);
      return;
    }
    for (const [entry, resolve] of entering) {
      const row = known.get(entry.client_message_id);
      const sent = this._handle(entry);
      if (row) {
        // The server has stored a message with this id before.
        this._handles.delete(entry.client_message_id);
        sent._left(row.sequence);
      } else {
        this._tell({ outbox: [entry] });
        this._wish("submit", entry);
      }
      resolve(sent);
    }
  }

  /** @internal */
  _handle(entry: OutboxEntry): Sent {
    const known = this._handles.get(entry.client_message_id);
    if (known) return known;
    const sent = new Sent(this, entry);
    this._handles.set(entry.client_message_id, sent);
    return sent;
  }
}

lend(Client, ({ ofClient }) => ofClient, {
  me: 1,
  setDisplayName: 1,
  changePassword: 1,
  sessions: 1,
  endSession: 1,
  endOtherSessions: 1,
  deleteAccount: 1,
  chats: 1,
  direct: 1,
  group: 1,
  users: 1,
  find: 1,
  user: 1,
  block: 1,
  unblock: 1,
  blocked: 1,
  search: 1,
});

const FLEETING = { position: 0, redelivered: false } as const;
