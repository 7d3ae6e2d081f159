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

/** `lend`, below, gives it these methods. */
export interface Chat extends RemoteChat {}
type RemoteChat = typeof ofChat;

/** A chat of the user's. Cheap to make, and never out of date: it looks at what is known now. */
// biome-ignore lint/suspicious/noUnsafeDeclarationMerging: its methods are given to it
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

  // What is known of it.

  /** null: nothing is known of this chat yet. */
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

  /** This direct chat was hidden, and no message came since. */
  get isHidden(): boolean {
    const { hidden_through = null, head = 0 } = this._known ?? {};
    return hidden_through !== null && head <= hidden_through;
  }

  /** Until when this user wants no notifications of it; null: not muted, or not known. */
  get mutedUntil(): Date | null {
    const until = this._known?.muted_until;
    return until ? new Date(until) : null;
  }

  /** Everything that the server is known to have is held. */
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

  /** The end of what is held here without a hole. */
  get lastSequence(): number {
    return this._known?.cursor ?? 0;
  }

  /** The last entry that the user has read, on any device. */
  get lastRead(): number {
    return this._known?.read ?? 0;
  }

  /** How far all others have it: what the second tick of own messages follows. */
  get othersDelivered(): number {
    return this._known?.others_delivered ?? 0;
  }

  /** How far all others have read it. */
  get othersRead(): number {
    return this._known?.others_read ?? 0;
  }

  /** The last message, as it is now; null: there is none, or it is not known. */
  get last(): Message | null {
    const last = this._known?.last;
    return last ? new Message(this._client, last) : null;
  }

  /** Who types now, others only. */
  get typists(): readonly string[] {
    return [...(this._client._view.typists.get(this.chatId)?.keys() ?? [])];
  }

  // Sending.

  /**
   * Send a text; resolves when it is in the store, however long it takes to reach the server.
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

  /** What waits in the outbox for this chat, failed ones included, oldest first. */
  pending(): Sent[] {
    return this._client._view.entries(this.chatId).map((entry) => this._client._handle(entry));
  }

  /** Let the others know. Without a connection nothing happens. */
  typing(isTyping = true): void {
    this._client._wish("typing", this.chatId, isTyping);
  }

  /** The user has seen everything up to here; without an argument: all that is held. */
  async read(through?: Message | number): Promise<void> {
    const sequence = through === undefined ? this.lastSequence : sequenceOf(through);
    await this._client._command("read", this.chatId, sequence);
  }

  // Reading.

  /** Messages of the store: the newest (below `before`), or with `after` alone the oldest above it;
   * oldest first. The server is asked for missing names only. */
  async messages(
    options: { before?: number; after?: number; limit?: number } = {},
  ): Promise<Message[]> {
    const { before = ABOVE_ALL, after = 0, limit = LIMIT } = options;
    const isNewest = options.before !== undefined || options.after === undefined;
    return this._shown(
      await this._client._tables.messages(this.chatId, before, after, limit, isNewest),
    );
  }

  /** The same, and on at the server where the store ends: one of `before`, `after`, `around`. What
   * is fetched is kept in the store, if it continues what is there. */
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

  /** One message, from the store or the server; null: there is none. For quotes. */
  async message(sequence: number): Promise<Message | null> {
    const [held] = await this.messages({ before: sequence + 1, after: sequence - 1, limit: 1 });
    if (held || sequence < 1) return held ?? null;
    return (await rare()).fetchOne(this, sequence);
  }

  /** @internal What is handed to the application. */
  async _shown(rows: Row[]): Promise<Message[]> {
    const client = this._client;
    await client._people.know(this.chatId, rows);
    client._showed(this.chatId, rows.at(-1)?.sequence ?? 0);
    return rows.map((row) => new Message(client, row));
  }

  /** @internal Ask the server something about this chat. */
  async _ask<T>(
    method: string,
    path: string,
    ask?: Parameters<Client["_rest"]["call"]>[2],
  ): Promise<T> {
    const url = `/chats/${this.chatId}${path}`;
    // What is done without a word has no data.
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
