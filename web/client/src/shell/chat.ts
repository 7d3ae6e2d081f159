/** One chat, as an application handles it. */

import type { Row } from "../core/fold.ts";
import type { ChatType, SendOptions } from "../types.ts";
import type { Envelope } from "../wire/types.gen.ts";
import type { Client } from "./client.ts";
import { lend, rare } from "./lending.ts";
import { Message } from "./message.ts";
import type { ofChat } from "./remote.ts";
import type { Sent } from "./sent.ts";
import { ABOVE_ALL, type ChatState } from "./tables.ts";

const LIMIT = 50;

/** `lend`, below, adds these methods to the class. */
export interface Chat extends RemoteChat {}
type RemoteChat = typeof ofChat;

/** A chat of the user. Cheap to make, and never out of date: it reads the current state. */
// biome-ignore lint/suspicious/noUnsafeDeclarationMerging: `lend` adds the methods
export class Chat {
  /** @internal */
  constructor(
    /** @internal */
    readonly _client: Client,
    readonly chatId: string,
  ) {}

  /** @internal */
  get _known(): ChatState | undefined {
    return this._client._view.chats.get(this.chatId);
  }

  // Its state, as this device knows it.

  /** The kind of chat; null while nothing is known of it. */
  get type(): ChatType | null {
    return this._known?.chat_type ?? null;
  }

  /** The group's name, or the other's name in a direct chat, once it is known. */
  get name(): string | null {
    return this._known?.name ?? null;
  }

  /** The other's id in a direct chat, once it is known. */
  get otherId(): string | null {
    return this._known?.other_id ?? null;
  }

  get isMember(): boolean {
    return this._known?.is_member ?? false;
  }

  /** This direct chat was hidden, here or on another device, and no message came since. */
  get isHidden(): boolean {
    const { hidden_through = null, head = 0 } = this._known ?? {};
    return hidden_through !== null && head <= hidden_through;
  }

  /** Until when the user wants no notifications of it; null: not muted, or not known. */
  get mutedUntil(): Date | null {
    const until = this._known?.muted_until;
    return until ? new Date(until) : null;
  }

  /** This device holds everything that the server is known to have. */
  get isSynced(): boolean {
    const state = this._known;
    return !!state && !(state.is_behind ?? state.cursor < state.head);
  }

  /** Unread messages of others, counted up to 100. */
  get unread(): number {
    return this._known?.unread ?? 0;
  }

  get mentionsUnread(): number {
    return this._known?.mentions_unread ?? 0;
  }

  /** The last entry that is held here without a gap: a message, or a change of one. */
  get lastSequence(): number {
    return this._known?.cursor ?? 0;
  }

  /** The last entry that the user has read, on any device. */
  get lastRead(): number {
    return this._known?.read ?? 0;
  }

  /** All others have received everything up to here: own messages to here have the second tick. */
  get othersDelivered(): number {
    return this._known?.others_delivered ?? 0;
  }

  /** All others have read everything up to here. */
  get othersRead(): number {
    return this._known?.others_read ?? 0;
  }

  /** The last message in its current state; null: there is none, or it is not known. */
  get last(): Message | null {
    const last = this._known?.last;
    return last ? new Message(this._client, last) : null;
  }

  /** User ids of those who type now, without this user. */
  get typists(): readonly string[] {
    return [...(this._client._view.typists.get(this.chatId)?.keys() ?? [])];
  }

  // Sending.

  /**
   * Send a text; resolves when it is in the store, however long it takes to reach the server. It
   * works without a connection.
   *
   * @throws InvalidMessage, MessageTooLarge, OutboxFull, ClientClosed
   */
  send(text: string, options: SendOptions = {}): Promise<Sent> {
    const { replyTo, mentions, clientMessageId, seen } = options;
    return this._client._send(
      this.chatId,
      "message",
      {
        content: text,
        ...(replyTo && { reply_to: sequenceOf(replyTo) }),
        ...(mentions?.length && { mentions: [...mentions] }),
      },
      {
        // In lower case, as it comes back from the server.
        ...(clientMessageId && { client_message_id: clientMessageId.toLowerCase() }),
        seen_sequence: seen ?? this._client._seen.get(this.chatId) ?? this.lastRead,
      },
    );
  }

  /** The entries of the outbox for this chat, failed ones included, oldest first. */
  pending(): Sent[] {
    return this._client._view.entries(this.chatId).map((entry) => this._client._handle(entry));
  }

  /** Tell the others that the user types, or has stopped. Without a connection nothing happens. */
  typing(isTyping = true): void {
    this._client._wish("typing", this.chatId, isTyping);
  }

  /** Mark everything up to here as read; without an argument everything that is held. */
  async read(through?: Message | number): Promise<void> {
    if (through === undefined) {
      // The store may show entries already that this tab has yet to be told of.
      await this._client._command("flushed");
      through = this.lastSequence;
    }
    await this._client._command("read", this.chatId, sequenceOf(through));
  }

  // Reading.

  /** The newest messages of the store (below `before`, if it is given), oldest first. With `after`
   * alone: the oldest above it. The server is asked only for missing names. */
  async messages(
    options: { before?: number; after?: number; limit?: number } = {},
  ): Promise<Message[]> {
    const { before = ABOVE_ALL, after = 0, limit = LIMIT } = options;
    const isNewest = options.before !== undefined || options.after === undefined;
    return this._shown(
      await this._client._tables.messages(this.chatId, before, after, limit, isNewest),
    );
  }

  /** Messages from the store as far as it reaches, and from the server beyond. Give at most one of
   * `before`, `after` and `around`. Fetched messages are kept if they continue the stored ones. */
  async history(
    options: { before?: number; after?: number; around?: number; limit?: number } = {},
  ): Promise<Message[]> {
    const { after, around, before = ABOVE_ALL, limit = LIMIT } = options;
    const state = this._known;
    const floor = state ? (state.floor ?? state.start) : ABOVE_ALL;
    if (around !== undefined) {
      if (around <= floor) return (await rare()).fetchAround(this, around, limit);
      const half = limit >> 1;
      const below = await this.history({ before: around, limit: half });
      return [...below, ...(await this.messages({ after: around - 1, limit: half + 1 }))];
    }
    if (after !== undefined) {
      if (after < floor) return (await rare()).fetchAfter(this, after, limit);
      return this.messages({ after, limit });
    }
    const held = await this.messages({ before, after: floor, limit });
    const missing = limit - held.length;
    if (missing <= 0 || !floor) return held;
    return [...(await (await rare()).fetchOlder(this, before, floor, missing)), ...held];
  }

  /** The message of a sequence, from the store or the server; null: there is none. For quotes. */
  async message(sequence: number): Promise<Message | null> {
    const [held] = await this.messages({ before: sequence + 1, after: sequence - 1, limit: 1 });
    if (held || sequence < 1) return held ?? null;
    return (await rare()).fetchOne(this, sequence);
  }

  /** @internal The messages of these rows, which the application gets. */
  async _shown(rows: Row[]): Promise<Message[]> {
    const client = this._client;
    await client._people.know(this.chatId, rows);
    client._showed(this.chatId, rows.at(-1)?.sequence ?? 0);
    return rows.map((row) => new Message(client, row));
  }

  /** @internal Send the server a request about this chat. */
  async _ask<T>(
    method: string,
    path: string,
    ask?: Parameters<Client["_rest"]["call"]>[2],
  ): Promise<T> {
    const url = `/chats/${this.chatId}${path}`;
    // Some answers are empty, without `data`.
    return (await this._client._rest.call<Envelope<T> | null>(method, url, ask))?.data as T;
  }
}

lend(Chat, ({ ofChat }) => ofChat, {
  reply: 1,
  messageAt: 1,
  lost: 1,
  members: 1,
  add: 1,
  remove: 1,
  setRole: 1,
  leave: 1,
  allowAdding: 1,
  handOver: 1,
  close: 1,
  rename: 1,
  hide: 1,
  unhide: 1,
  mute: 1,
  unmute: 1,
});

const sequenceOf = (message: Message | number): number =>
  typeof message === "number" ? message : message.sequence;
