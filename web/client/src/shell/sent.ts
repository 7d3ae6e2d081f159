/** The handle of an own message or change: its state, and methods to wait for more. */

import type { OutboxEntry } from "../core/outbox.ts";
import { type Tick, tickOf } from "../core/record.ts";
import type { EntryKind } from "../types.ts";
import type { Client } from "./client.ts";
import { FateUnknown, MessageFailed } from "./errors.ts";

/** Whether only the user can decide what becomes of it. */
export const hasFailed = (entry?: OutboxEntry): boolean =>
  entry?.state === "failed" || entry?.state === "unknown";

/** An own message, edit, deletion or reaction. It is in the outbox, or the server has stored it. */
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

  /** The sequence of the message that an edit, deletion or reaction is about; null: that message
   * is still in the outbox, or this is a message itself. */
  get target(): number | null {
    return this._entry.body.target ?? null;
  }

  /** Its place in the chat; null until the server has stored it. */
  get sequence(): number | null {
    return this._sequence;
  }

  get tick(): Tick {
    if (this._sequence === null) return this._hasFailed ? "failed" : "sending";
    const chat = this._client._view.chats.get(this.chatId);
    return chat ? tickOf(this._sequence, chat) : "sent";
  }

  /** Why it failed, as in docs/protocol.md. If `tick` is `failed` and this is null, it is unknown
   * whether the server has it (`FateUnknown`). */
  get code(): string | null {
    return this._entry.code;
  }

  get reason(): string | null {
    return this._entry.reason;
  }

  private get _hasFailed(): boolean {
    return hasFailed(this._entry);
  }

  /** Wait until the server has stored it; returns its sequence. If the connection holds,
   * `chat.messages()` has it then, too. @throws MessageFailed, FateUnknown, ClientClosed */
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
      // If the connection is lost meanwhile, the next one brings the message.
      const isLive = ["syncing", "ready"].includes(client.status.state);
      const chat = client._view.chats.get(this.chatId);
      return !isLive || !chat?.is_member || chat.cursor >= sequence;
    });
    return sequence;
  }

  /** Wait until a device of every other member has it. Throws as `stored` does. */
  delivered(): Promise<void> {
    return this._reached(["delivered", "read"]);
  }

  /** Wait until every other member has read it. Throws as `stored` does. */
  read(): Promise<void> {
    return this._reached(["read"]);
  }

  private async _reached(ticks: Tick[]): Promise<void> {
    await this.stored();
    await this._client._until(this.chatId, () => ticks.includes(this.tick));
  }

  /** Send it again. False: it has not failed, or the message that it is about must go first. */
  retry(): Promise<boolean> {
    return this._client._command("retry", this.clientMessageId) as Promise<boolean>;
  }

  /** Remove it from the outbox. False: it is on its way or may have left, or it is not there. */
  drop(): Promise<boolean> {
    return this._client._command("drop", this.clientMessageId) as Promise<boolean>;
  }

  /** Change the text of a message. If it has surely not left, it is changed in place; otherwise an
   * edit is sent behind it. Throws as `send` does. */
  async edit(text: string): Promise<Sent> {
    return this._change("edit", text);
  }

  /** Take a message back: if `drop` can remove it, null is returned; otherwise a deletion is sent
   * behind it and returned. */
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
    // What was refused, or has lost its message, keeps the code that says so.
    if (sequence === null && !this.code)
      this._became({ ...this._entry, state: "failed", code: "DROPPED", reason: "it was dropped" });
  }
}
