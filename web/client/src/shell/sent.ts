/** Something of our own on its way: what has become of it, and how to wait for more. */

import type { OutboxEntry } from "../core/outbox.ts";
import { type Tick, tickOf } from "../core/record.ts";
import type { EntryKind } from "../types.ts";
import type { Client } from "./client.ts";
import { FateUnknown, MessageFailed } from "./errors.ts";

/** Something of our own that is in the outbox of the store, or further. */
export class Sent {
  readonly clientMessageId: string;
  readonly chatId: string;
  readonly kind: EntryKind;
  readonly emoji: string | null;
  readonly isOn: boolean;
  readonly replyTo: number | null;
  readonly mentions: readonly string[];
  readonly createdAt: Date;
  private _sequence: number | null = null;

  /** @internal */
  constructor(
    private _client: Client,
    private _entry: OutboxEntry,
  ) {
    const { body } = _entry;
    this.clientMessageId = _entry.client_message_id;
    this.chatId = _entry.chat_id;
    this.kind = _entry.kind;
    this.emoji = body.emoji ?? null;
    this.isOn = body.is_on ?? false;
    this.replyTo = body.reply_to ?? null;
    this.mentions = body.mentions ?? [];
    this.createdAt = new Date(_entry.created_at_ms);
  }

  get text(): string {
    return this._entry.body.content ?? "";
  }

  /** What an edit, deletion or reaction is about; null: it is in the outbox itself. */
  get target(): number | null {
    return this._entry.body.target ?? null;
  }

  /** Its place in the chat, once the server has stored it. */
  get sequence(): number | null {
    return this._sequence;
  }

  get tick(): Tick {
    if (this._sequence === null) return this._hasFailed ? "failed" : "sending";
    const chat = this._client._view.chats.get(this.chatId);
    return chat ? tickOf(this._sequence, chat) : "sent";
  }

  /** Why it failed, if it did; null with a `failed` tick: only its user can know its fate. */
  get code(): string | null {
    return this._entry.code;
  }

  get reason(): string | null {
    return this._entry.reason;
  }

  private get _hasFailed(): boolean {
    return this._entry.state === "failed" || this._entry.state === "unknown";
  }

  /** Wait until the server has it for good; its sequence. `chat.messages()` has it then, too.
   * @throws MessageFailed, FateUnknown, ClientClosed */
  async stored(): Promise<number> {
    const client = this._client;
    await client._until(this.clientMessageId, () => this._sequence !== null || this._hasFailed);
    if (this._sequence === null) {
      const { code, reason } = this._entry;
      if (code !== null) throw new MessageFailed(code, reason ?? "");
      throw new FateUnknown("it left days ago and was never answered: retry it, or drop it");
    }
    const sequence = this._sequence;
    await client._until(this.chatId, () => {
      // Where the connection is lost meanwhile, the next one brings it.
      const isLive = ["syncing", "ready"].includes(client.status.state);
      const chat = client._view.chats.get(this.chatId);
      return !isLive || !chat?.is_member || chat.cursor >= sequence;
    });
    return sequence;
  }

  /** Wait until it is on a device of every other member. */
  delivered(): Promise<void> {
    return this._reached(["delivered", "read"]);
  }

  /** Wait until every other member has read it. */
  read(): Promise<void> {
    return this._reached(["read"]);
  }

  private async _reached(ticks: Tick[]): Promise<void> {
    await this.stored();
    await this._client._until(this.chatId, () => ticks.includes(this.tick));
  }

  /** Send a failed one again. False: it is not one. */
  retry(): Promise<boolean> {
    return this._client._command("retry", this.clientMessageId) as Promise<boolean>;
  }

  /** Forget it. False: it is on its way, or was, and may arrive. */
  drop(): Promise<boolean> {
    return this._client._command("drop", this.clientMessageId) as Promise<boolean>;
  }

  /** Change the text of a message. One that has surely not left is changed in place; one that may
   * have gets an edit behind it. @throws as `send` */
  async edit(text: string): Promise<Sent> {
    return this._change("edit", text);
  }

  /** Take a message back: one that has surely not left is dropped, else it is deleted behind itself.
   * The deletion; null: it was dropped. */
  async delete(): Promise<Sent | null> {
    if (await this.drop()) return null;
    return this._change("delete");
  }

  private async _change(kind: "edit" | "delete", content?: string): Promise<Sent> {
    const client = this._client;
    const body = content === undefined ? {} : { content };
    if (this._sequence !== null)
      return client._send(this.chatId, kind, { ...body, target: this._sequence });
    if (content !== undefined) {
      client._check(content);
      if (await client._command("amend", this.clientMessageId, content)) return this;
    }
    if (this._sequence !== null)
      return client._send(this.chatId, kind, { ...body, target: this._sequence });
    return client._send(this.chatId, kind, body, { target_id: this.clientMessageId });
  }

  // For the client.

  /** @internal */
  _became(entry: OutboxEntry): void {
    this._entry = entry;
  }

  /** @internal */
  _left(sequence: number | null): void {
    this._sequence = sequence;
    if (sequence === null)
      this._became({ ...this._entry, state: "failed", code: "DROPPED", reason: "it was dropped" });
  }
}
