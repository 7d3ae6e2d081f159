// The messages of one chat that are in memory: a range without gaps. More is loaded at both ends
// when the user scrolls, and the size is bounded, however long the chat is.

import {
  type Chat,
  type ClientEvent,
  type Message,
  type Sent,
  ServerUnreachable,
} from "@tidewire/client";
import { keepRows, type Row, rowsOf } from "./rows.ts";
import { type Signal, signal } from "./signals.ts";

const PAGE = 200;
export const MESSAGES_MAX = 2000;

/** The position to which the list scrolls after its rows have changed. */
export interface Place {
  /** `end`: at the last row; else the row with this key. */
  readonly key: string | "end";
  readonly isMarked: boolean;
}

export class Timeline {
  readonly chat: Chat;
  readonly rows: Signal<readonly Row[]> = signal([]);
  /** Where to scroll with the new rows; the list takes it and sets it to null. */
  readonly place: Signal<Place | null> = signal(null);
  readonly isLoading = signal(true);
  /** Older messages could not be loaded. */
  readonly isStuck = signal(false);
  /** The last message in memory is the last one of the chat. */
  readonly isEnd = signal(false);
  /** Nothing comes before the first message in memory. */
  isStart = false;
  /** The sequence up to which messages were read when the chat was opened; null: nothing is new. */
  newSince: number | null = null;

  #messages: readonly Message[] = [];
  #waiting: readonly Sent[] = [];
  #news: Message[] = [];
  /** New and changed messages, by sequence, oldest first: a page read before may lack them. */
  readonly #lately = new Map<number, readonly [at: number, message: Message]>();
  #moment = 0;
  /** Changes up to this moment are not in `#lately` any more. */
  #forgotten = 0;
  /** Counts jumps: a page that was requested before the last jump is dropped. */
  #round = 0;
  #isOpen = false;
  #isOlder = false;
  #isNewer = false;
  readonly #quotes = new Map<number, Signal<Message | null>>();

  constructor(chat: Chat) {
    this.chat = chat;
  }

  get messages(): readonly Message[] {
    return this.#messages;
  }

  /** Show the newest messages, or the first new one. */
  async open(): Promise<void> {
    this.newSince = this.chat.unread > 0 ? this.chat.lastRead : null;
    this.#waiting = this.chat.pending();
    const [page, since] = await this.#read(() => this.chat.messages({ limit: PAGE }));
    const newSince = this.newSince;
    const isShort = page.length < PAGE;
    if (newSince !== null && !isShort && page[0]!.sequence > newSince) {
      await this.jump(newSince, false);
      return;
    }
    this.#take(page, since, true, false);
    this.#show(newSince === null ? "end" : "new");
    if (isShort) await this.older();
  }

  /** Go to the newest message. */
  async latest(): Promise<void> {
    if (!this.isEnd.value) {
      const round = ++this.#round;
      const [page, since] = await this.#read(() => this.chat.messages({ limit: PAGE }));
      if (round !== this.#round) return;
      this.#take(page, since, true, false);
    }
    this.#show("end");
  }

  /** Go to a message anywhere in the chat. False: there is no such message. */
  async jump(sequence: number, isMarked = true): Promise<boolean> {
    const index = this.#messages.findIndex((one) => one.sequence >= sequence);
    const isHere = index > 0 || this.#messages[index]?.sequence === sequence;
    if (!isHere) {
      const round = ++this.#round;
      this.isLoading.value = true;
      try {
        const around = Math.max(1, sequence);
        const [page, since] = await this.#read(() => this.chat.history({ around, limit: PAGE }));
        if (round !== this.#round || !page.length) return false;
        const isEnd = page.at(-1)!.sequence >= (this.chat.last?.sequence ?? 0);
        this.#take(page, since, isEnd, false);
      } finally {
        this.isLoading.value = false;
      }
    }
    const found = this.#messages.find((one) => one.sequence >= sequence) ?? this.#messages.at(-1);
    if (!found) return false;
    this.#show(isMarked ? keyOf(found) : "new", isMarked);
    return found.sequence === sequence;
  }

  /** Load the messages before the first one in memory. */
  async older(): Promise<void> {
    if (!this.#isOpen || this.isStart || this.#isOlder) return;
    this.#isOlder = true;
    const round = this.#round;
    this.isLoading.value = true;
    try {
      const before = this.#messages[0]?.sequence;
      const [page, since] = await this.#read(() => this.chat.history({ before, limit: PAGE }));
      if (round !== this.#round) return;
      this.isStuck.value = false;
      this.isStart = !page.length || page[0]!.sequence === before;
      // Another load may have brought some of these messages meanwhile.
      const first = this.#messages[0]?.sequence;
      const added = page.filter((one) => first === undefined || one.sequence < first);
      const all = [...added, ...this.#messages];
      const isCut = all.length > MESSAGES_MAX;
      this.#take(
        isCut ? all.slice(0, MESSAGES_MAX) : all,
        since,
        this.isEnd.value && !isCut,
        this.isStart,
      );
    } catch (error) {
      this.#stuck(error);
    } finally {
      this.#isOlder = false;
      this.isLoading.value = false;
    }
  }

  /** Load the messages after the last one in memory. */
  async newer(): Promise<void> {
    if (!this.#isOpen || this.isEnd.value || this.#isNewer) return;
    this.#isNewer = true;
    const round = this.#round;
    try {
      const after = this.#messages.at(-1)?.sequence ?? 0;
      const [page, since] = await this.#read(() => this.chat.history({ after, limit: PAGE }));
      if (round !== this.#round) return;
      const added = page.filter((one) => one.sequence > after);
      const all = [...this.#messages, ...added];
      const isCut = all.length > MESSAGES_MAX;
      const kept = isCut ? all.slice(-MESSAGES_MAX) : all;
      this.#take(kept, since, !added.length, this.isStart && !isCut);
    } catch (error) {
      this.#stuck(error);
    } finally {
      this.#isNewer = false;
    }
  }

  /** Handle an event of this chat. */
  handle(event: ClientEvent): void {
    switch (event.type) {
      case "MessageReceived":
      case "MessageStored":
        this.#append(event.message);
        break;
      case "MessageChanged":
        if (event.after) this.#change(event.after);
        break;
      case "OutboxMoved":
      case "MessageRefused":
        void this.#outboxMoved();
        break;
    }
  }

  /** The message that another one answers, as a signal: looked up once, and kept current. */
  quote(sequence: number): Signal<Message | null | undefined> {
    let found: Signal<Message | null | undefined> | undefined = this.#quotes.get(sequence);
    if (!found) {
      found = signal(this.#messages.find((one) => one.sequence === sequence));
      const asked = found;
      this.#quotes.set(sequence, found as Signal<Message | null>);
      if (found.value === undefined) {
        const since = this.#moment;
        this.chat.message(sequence).then(
          (message) => {
            asked.value = message && this.#now(message, since);
          },
          () => this.#quotes.delete(sequence),
        );
      }
    }
    return found;
  }

  /** The last own message that is not deleted: the one that the "up" key edits. */
  lastOwn(): Message | null {
    return this.#messages.findLast((one) => one.isOwn && !one.isDeleted) ?? null;
  }

  /** Own changes of a message that the server has refused. */
  refusedOf(message: Message): readonly Sent[] {
    return this.#waiting.filter(
      ({ kind, target, tick }) =>
        kind !== "message" && target === message.sequence && tick === "failed",
    );
  }

  /** A load has failed. The messages in memory stay; the list loads again after a reconnect. */
  #stuck(error: unknown): void {
    this.isStuck.value = true;
    // Being offline is no error to report.
    if (!(error instanceof ServerUnreachable)) console.error("tidewire:", error);
  }

  /** Read a page; returns it with the moment since which it may lack changes. If `#lately` does not
   * have all of these any more, it is read again. */
  async #read(ask: () => Promise<readonly Message[]>) {
    for (;;) {
      const since = this.#moment;
      const page = await ask();
      if (this.#forgotten <= since) return [page, since] as const;
    }
  }

  /** The current state of a message that was read at the moment `since`. */
  #now(message: Message, since: number): Message {
    const [at, known] = this.#lately.get(message.sequence) ?? [0, message];
    return at > since ? known : message;
  }

  #note(message: Message): void {
    this.#lately.delete(message.sequence);
    this.#lately.set(message.sequence, [++this.#moment, message]);
    for (const [sequence, [at]] of this.#lately) {
      if (this.#lately.size <= MESSAGES_MAX) return;
      this.#lately.delete(sequence);
      this.#forgotten = at;
    }
  }

  /** Replace the messages. Those that came or changed after `since` are put in. */
  #take(messages: readonly Message[], since: number, isEnd: boolean, isStart: boolean): void {
    const last = messages.at(-1)?.sequence ?? 0;
    const all = messages.map((one) => this.#now(one, since));
    for (const [sequence, [at, message]] of this.#lately) {
      if (isEnd && at > since && sequence > last) all.push(message);
    }
    this.#isOpen = true;
    this.#messages = all.sort((one, other) => one.sequence - other.sequence);
    this.isEnd.value = isEnd;
    this.isStart = isStart;
    this.isLoading.value = false;
    this.#build();
  }

  /** Add a new message. All of one turn of the event loop are added together: a sync may bring
   * thousands. */
  #append(message: Message): void {
    this.#note(message);
    if (!this.#news.length) queueMicrotask(() => this.#takeNews());
    this.#news.push(message);
  }

  #takeNews(): void {
    const last = this.#messages.at(-1)?.sequence ?? 0;
    const news = this.#news.filter(({ sequence }) => sequence > last);
    this.#news = [];
    if (!this.isEnd.value || !news.length) return;
    const all = [...this.#messages, ...news];
    const isCut = all.length > MESSAGES_MAX + PAGE;
    if (isCut) this.isStart = false;
    this.#messages = isCut ? all.slice(-MESSAGES_MAX) : all;
    this.#build();
  }

  #change(message: Message): void {
    this.#note(message);
    const quote = this.#quotes.get(message.sequence);
    if (quote) quote.value = message;
    // The message may have come in this turn, and wait in `#news`.
    this.#news = this.#news.map((one) => this.#now(one, 0));
    const index = this.#messages.findIndex((one) => one.sequence === message.sequence);
    if (index < 0) return;
    this.#messages = this.#messages.with(index, message);
    this.#build();
  }

  /** The outbox has changed. Waiting own messages are rows of their own; the client has applied
   * waiting own changes to their messages, so these are read again. */
  async #outboxMoved(): Promise<void> {
    const before = this.#waiting;
    this.#waiting = this.chat.pending();
    this.#build();
    const targets = new Set<number>();
    for (const { kind, target } of [...before, ...this.#waiting]) {
      if (kind !== "message" && target !== null) targets.add(target);
    }
    for (const target of targets) {
      const since = this.#moment;
      const message = await this.chat.message(target);
      if (message) this.#change(this.#now(message, since));
    }
  }

  #build(): void {
    const waiting = this.isEnd.value ? this.#waiting.filter((one) => one.kind === "message") : [];
    const rows = rowsOf(this.#messages, waiting, this.newSince, this.isStart);
    this.rows.value = keepRows(this.rows.peek(), rows);
  }

  #show(key: string, isMarked = false): void {
    this.place.value = { key, isMarked };
  }
}

export function keyOf(message: Message): string {
  return message.clientMessageId || `#${message.sequence}`;
}
