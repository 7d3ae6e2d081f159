/** What an application is shown, and what it may say: the names that `index.ts` gives out. */

import type { Status } from "./core/effects.ts";
import type { EntryKind } from "./core/outbox.ts";
import type { Message } from "./shell/message.ts";
import type { Role } from "./wire/types.gen.ts";

export type { ConnectionState, Status } from "./core/effects.ts";
export type { EntryKind } from "./core/outbox.ts";
export type { Tick } from "./core/record.ts";
export type { ChatType, Role } from "./wire/types.gen.ts";

export interface Reaction {
  readonly emoji: string;
  /** How many people; derived from the entries, never counted up and down. */
  readonly count: number;
  readonly isOwn: boolean;
  /** Who, as far as it is known here: at least those whose reaction this device has seen. */
  readonly userIds: readonly string[];
}

export interface ClientOptions {
  /** The first wait after a failure; it doubles up to `backoffMsMax`, ± a quarter. */
  backoffMs?: number;
  backoffMsMax?: number;
  handshakeMsMax?: number;
  answerMsMax?: number;
  pageMessages?: number;
  ackMessages?: number;
  ackDirectMs?: number;
  ackMs?: number;
  ackIntervalMs?: number;
  gapGraceMs?: number;
  outboxMax?: number;
  /** How many messages of a chat may be on their way at once. */
  window?: number;
}

export interface OpenOptions {
  /** Who, if the store has no login yet, or to make sure that it is this user's. */
  username?: string;
  password?: string;
  /** `if-missing` (the default) makes the account if there is none, `never` only logs in, `always`
   * only registers. */
  register?: "if-missing" | "never" | "always";
  displayName?: string;
  invite?: string;
  /** Gives an access token of the operator's own identity provider; asked again before it ends. */
  getToken?: () => string | Promise<string>;
  /** The name of this device's database for this server; `:memory:` keeps nothing. In Node: a
   * file. One store is one person on one device; all tabs of a browser share it. */
  store?: string;
  /** The server has a new address, and the store is to follow it. */
  moved?: boolean;
  options?: ClientOptions;
  /** What connects, where there is no global `WebSocket` or another one is wanted. */
  webSocket?: typeof WebSocket;
}

export interface Account {
  readonly userId: string;
  readonly username: string;
  readonly displayName: string;
}

export interface Person {
  readonly userId: string;
  readonly displayName: string;
  readonly username?: string;
  readonly isDeleted?: boolean;
}

export interface Member {
  readonly userId: string;
  readonly role: Role;
  readonly displayName: string;
  readonly joinedAt: Date;
}

/** Where this person is logged in. */
export interface Session {
  readonly sessionId: string;
  readonly deviceId: string | null;
  readonly kind: string;
  readonly label: string | null;
  readonly address: string | null;
  readonly client: string | null;
  readonly createdAt: Date;
  readonly lastActiveAt: Date;
  readonly expiresAt: Date;
  readonly isCurrent: boolean;
}

export interface SendOptions {
  /** A message of the same chat that this one answers. */
  replyTo?: Message | number;
  /** Ids of people who are named in it; `@all` for admins of a group. */
  mentions?: readonly string[];
  /** With one that was used before nothing is sent: what became of that message is returned. */
  clientMessageId?: string;
  /** How far its author had read when writing; what was shown, unless told. */
  seen?: number;
}

// Events. Those with a position are stored, and come again until they are confirmed.

interface Stored {
  /** Its number in the store; 0 if it is not stored, and so never comes again. */
  readonly position: number;
  /** An earlier life may have handed it out already, without its being confirmed. */
  readonly redelivered: boolean;
}

/** A message of another user. */
export interface MessageReceived extends Stored {
  readonly type: "MessageReceived";
  readonly message: Message;
}

/** A message of our own, written here or elsewhere: the server has it. */
export interface MessageStored extends Stored {
  readonly type: "MessageStored";
  readonly message: Message;
}

/** A message was edited, deleted or reacted to. `before` of a deletion has no text. */
export interface MessageChanged extends Stored {
  readonly type: "MessageChanged";
  readonly chatId: string;
  readonly kind: Exclude<EntryKind, "message">;
  /** The entry's own sequence, and who made it. */
  readonly sequence: number;
  readonly senderId: string;
  readonly before: Message | null;
  /** null: the message itself is not held here. */
  readonly after: Message | null;
}

/** Something of ours was refused for good, or (`code` null) its fate is unknown. */
export interface MessageRefused extends Stored {
  readonly type: "MessageRefused";
  readonly chatId: string;
  readonly clientMessageId: string;
  readonly kind: EntryKind;
  readonly text: string;
  readonly code: string | null;
  readonly reason: string | null;
}

/** Something happened to a chat: `created`, `renamed`, `member_added`, `member_removed`,
 * `role_changed`, or what a newer server calls it. */
export interface ChatUpdated extends Stored {
  readonly type: "ChatUpdated";
  readonly chatId: string;
  readonly change: string;
  readonly name: string | null;
  readonly userId: string | null;
  readonly changedBy: string;
}

/** Fleeting: numbers of a chat moved, or its name is known. Look at the chat. */
export interface TicksMoved extends Stored {
  readonly type: "TicksMoved";
  readonly chatId: string;
}

/** Fleeting: what waits to be sent to a chat is other than before. Look at `chat.pending()`. */
export interface OutboxMoved extends Stored {
  readonly type: "OutboxMoved";
  readonly chatId: string;
}

/** Fleeting: names of people were learned. */
export interface NamesMoved extends Stored {
  readonly type: "NamesMoved";
  readonly userIds: readonly string[];
}

/** Fleeting. */
export interface Typing extends Stored {
  readonly type: "Typing";
  readonly chatId: string;
  readonly userId: string;
  readonly isTyping: boolean;
}

/** Fleeting: the connection is in another state. */
export interface StatusMoved extends Stored {
  readonly type: "StatusMoved";
  readonly status: Status;
}

export type ClientEvent =
  | MessageReceived
  | MessageStored
  | MessageChanged
  | MessageRefused
  | ChatUpdated
  | TicksMoved
  | OutboxMoved
  | NamesMoved
  | Typing
  | StatusMoved;
