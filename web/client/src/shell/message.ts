/** A message as an application handles it. */

import { folded, names, type Row } from "../core/fold.ts";
import { type Tick, tickOf } from "../core/record.ts";
import type { Reaction, SendOptions } from "../types.ts";
import type { Client } from "./client.ts";
import type { Sent } from "./sent.ts";

/**
 * A message of a chat, as it was when it was looked up; `tick` and `senderName` are current. Own
 * changes that wait in the outbox are included (`isChanging`).
 */
export class Message {
  readonly chatId: string;
  readonly sequence: number;
  readonly messageId: string;
  readonly senderId: string;
  readonly clientMessageId: string;
  /** As it is after the last edit; empty if it is deleted or damaged. */
  readonly text: string;
  /** When the server stored it. For display only: `sequence` gives the order. */
  readonly createdAt: Date;
  readonly isOwn: boolean;
  /** The server lost it in a restore; only this device still has it. */
  readonly isGone: boolean;
  /** The server's copy is damaged: only chat and sequence are sure. */
  readonly isDamaged: boolean;
  readonly isDeleted: boolean;
  /** The sequence of its latest edit that the server has; null if there is none. */
  readonly editedSequence: number | null;
  /** The sequence of the message that it answers; look it up with `chat.message`. */
  readonly replyTo: number | null;
  readonly mentions: readonly string[];
  /** It mentions the user, by id or by `@all`. */
  readonly mentionsMe: boolean;
  readonly reactions: readonly Reaction[];
  /** An own edit, deletion or reaction of it is in the outbox, and included here. */
  readonly isChanging: boolean;

  /** @internal */
  constructor(
    private _client: Client,
    row: Row,
    isGone = false,
  ) {
    const ownId = _client.userId ?? "";
    const changes = isGone ? [] : _client._changesOf(row.chat_id, row.sequence);
    const known = row.edited_sequence ?? null;
    changes.forEach(({ kind, body }, at) => {
      const { mentions, ...more } = body;
      // Above every stored entry, in the order of writing.
      const sequence = Number.MAX_SAFE_INTEGER - 10_000 + at;
      row = folded(row, { ...row, ...more, kind, sequence, sender_id: ownId } as never);
    });
    this.chatId = row.chat_id;
    this.sequence = row.sequence;
    this.messageId = row.message_id ?? "";
    this.senderId = row.sender_id;
    this.clientMessageId = row.client_message_id;
    this.text = row.content;
    this.createdAt = new Date(row.created_at);
    this.isOwn = row.sender_id === ownId;
    this.isGone = isGone;
    // A message has at least one byte: an empty one that is not deleted is damaged.
    this.isDeleted = !!row.is_deleted;
    this.isDamaged = !this.isDeleted && (!!row.is_damaged || !row.content);
    this.editedSequence = known;
    this.replyTo = row.reply_to ?? null;
    this.mentions = row.mentions ?? [];
    this.mentionsMe = names(row.mentions, ownId);
    this.reactions = Object.entries(row.reactions ?? {})
      .filter(([, { count }]) => count > 0)
      .map(([emoji, { count, users }]) => ({
        emoji,
        count,
        isOwn: !!users[ownId]?.[1],
        userIds: Object.keys(users).filter((user) => users[user]![1]),
      }));
    this.isChanging = changes.length > 0;
  }

  get isEdited(): boolean {
    return this.editedSequence !== null;
  }

  /** The author's display name; null while it is not known. */
  get senderName(): string | null {
    return this._client.nameOf(this.senderId);
  }

  /** The tick of an own message; null for messages of others. */
  get tick(): Tick | null {
    if (!this.isOwn) return null;
    const chat = this._client._view.chats.get(this.chatId);
    return chat ? tickOf(this.sequence, chat) : "sent";
  }

  /** Give it another text; only its author can. `base`: the `editedSequence` that the author saw
   * (0: none); by default the last edit that this device knows. If another device has edited it
   * since, the server refuses with EDIT_CONFLICT. Throws as `chat.send` does. */
  async edit(text: string, options: { base?: number } = {}): Promise<Sent> {
    const { _client: client, chatId, sequence } = this;
    let { base } = options;
    if (base === undefined) {
      const [row] = await client._tables.messages(chatId, sequence + 1, sequence - 1, 1, true);
      base = row?.edited_sequence ?? this.editedSequence ?? 0;
    }
    // No base if an own edit is in the outbox: its sequence, the next base, is not known yet.
    const isBehind = client._changesOf(chatId, sequence).some(({ kind }) => kind === "edit");
    return this._change("edit", { content: text, ...(!isBehind && { base }) });
  }

  /** Delete it for all; its author can, and owners and admins of a group. */
  delete(reason?: string): Promise<Sent> {
    return this._change("delete", { ...(reason && { reason }) });
  }

  react(emoji: string): Promise<Sent> {
    return this._change("react", { emoji, is_on: true });
  }

  unreact(emoji: string): Promise<Sent> {
    return this._change("react", { emoji, is_on: false });
  }

  /** Send a message to the same chat that answers this one (`replyTo`). */
  reply(text: string, options?: SendOptions): Promise<Sent> {
    return this._client.chat(this.chatId).send(text, { ...options, replyTo: this });
  }

  private _change(
    kind: "edit" | "delete" | "react",
    body: { content?: string; base?: number; reason?: string; emoji?: string; is_on?: boolean },
  ): Promise<Sent> {
    return this._client._send(this.chatId, kind, { ...body, target: this.sequence });
  }
}
