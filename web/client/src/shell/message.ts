/** A message as an application handles it. */

import { folded, names, type Row } from "../core/fold.ts";
import { type Tick, tickOf } from "../core/record.ts";
import type { Reaction, SendOptions } from "../types.ts";
import type { Client } from "./client.ts";
import type { Sent } from "./sent.ts";

/**
 * A message of a chat, as it was when it was looked up; its ticks and names are those of now. Own
 * changes that wait in the outbox are in it already (`isChanging`).
 */
export class Message {
  readonly chatId: string;
  readonly sequence: number;
  readonly messageId: string;
  readonly senderId: string;
  readonly clientMessageId: string;
  /** Empty if it is deleted or damaged. */
  readonly text: string;
  /** When the server stored it. For people: the order is that of `sequence`. */
  readonly createdAt: Date;
  readonly isOwn: boolean;
  /** The server lost it in a restore; only this device still has it. */
  readonly isGone: boolean;
  /** The server's copy is damaged: only chat and sequence are sure. */
  readonly isDamaged: boolean;
  readonly isDeleted: boolean;
  /** The sequence of its latest edit. */
  readonly editedSequence: number | null;
  /** The sequence of the message that it answers; look it up with `chat.message`. */
  readonly replyTo: number | null;
  readonly mentions: readonly string[];
  /** The user is named in it. */
  readonly mentionsMe: boolean;
  readonly reactions: readonly Reaction[];
  /** An own edit, deletion or reaction is on its way. */
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
      // Above everything that there is, in the order of writing.
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
    // A message has at least one byte: only a damaged one is without any.
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

  /** What its author is called; null while that is not known. */
  get senderName(): string | null {
    return this._client.nameOf(this.senderId);
  }

  /** null beside messages of others. */
  get tick(): Tick | null {
    if (!this.isOwn) return null;
    const chat = this._client._view.chats.get(this.chatId);
    return chat ? tickOf(this.sequence, chat) : "sent";
  }

  /** Change the text; its author only. `base`: the `editedSequence` of what its author has seen (0:
   * none); as a rule the last edit that this device knows. If another device was faster, the server
   * refuses with EDIT_CONFLICT. @throws as `send` */
  async edit(text: string, options: { base?: number } = {}): Promise<Sent> {
    const { _client: client, chatId, sequence } = this;
    let { base } = options;
    if (base === undefined) {
      const [row] = await client._tables.messages(chatId, sequence + 1, sequence - 1, 1, true);
      base = row?.edited_sequence ?? this.editedSequence ?? 0;
    }
    // Behind an own edit that is on its way there is nothing to compare with.
    const isBehind = client._changesOf(chatId, sequence).some(({ kind }) => kind === "edit");
    return this._change("edit", { content: text, ...(!isBehind && { base }) });
  }

  /** Delete it for everybody: its author, or an admin of the group. */
  delete(reason?: string): Promise<Sent> {
    return this._change("delete", { ...(reason && { reason }) });
  }

  react(emoji: string): Promise<Sent> {
    return this._change("react", { emoji, is_on: true });
  }

  unreact(emoji: string): Promise<Sent> {
    return this._change("react", { emoji, is_on: false });
  }

  /** Answer it: a message with `replyTo`. */
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
