/** The types of options, values and events of the client; `index.ts` exports them. */

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
  /** How many people have set it, waiting own reactions included. */
  readonly count: number;
  readonly isOwn: boolean;
  /** Users who have set it, as far as this device knows; there may be more (`count`). */
  readonly userIds: readonly string[];
}

export interface ClientOptions {
  /** The wait before the next try after a failure; it doubles up to `backoffMsMax`, ± a quarter. */
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
  /** How many messages of a chat may be sent before the first is answered; by default 1. */
  window?: number;
}

export interface OpenOptions {
  /** The user to log in, with `password`, if the store has no login yet. A store that belongs to
   * another user is then refused. */
  username?: string;
  password?: string;
  /** `if-missing` (the default) logs in, and makes the account if there is none; `never` only logs
   * in; `always` only registers. */
  register?: "if-missing" | "never" | "always";
  displayName?: string;
  invite?: string;
  /** Returns an access token of your own identity provider; called again before it expires. */
  getToken?: () => string | Promise<string>;
  /** The IndexedDB database, by default `tidewire`, which all tabs share; in Node a file, by
   * default `:memory:`, which keeps nothing. One store is for one user on one server. */
  store?: string;
  /** The server has a new address: use the store, although it names another one. */
  moved?: boolean;
  options?: ClientOptions;
  /** The WebSocket class to connect with, instead of the default one. */
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

/** A login of this user, on this device or another. */
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
  /** The message of the same chat that this one answers, or its sequence. */
  replyTo?: Message | number;
  /** User ids of members to mention, or `@all`, which is for owners and admins of a group. */
  mentions?: readonly string[];
  /** A UUIDv4; by default a new one. If it was used before, the earlier message is returned. */
  clientMessageId?: string;
  /** Up to where the author had read; by default what `events()` gave out last, or `lastRead`. */
  seen?: number;
}

// Events. Those with a position are stored, and `events()` repeats them until they are confirmed.

interface Stored {
  /** Its number in the store; 0 if it is not stored, and so never comes again. */
  readonly position: number;
  /** The application may have got it in an earlier run, but did not confirm it. */
  readonly redelivered: boolean;
}

/** A message of another user. */
export interface MessageReceived extends Stored {
  readonly type: "MessageReceived";
  readonly message: Message;
}

/** A message of our own, written here or on another device: the server has it. */
export interface MessageStored extends Stored {
  readonly type: "MessageStored";
  readonly message: Message;
}

/** A message was edited or deleted, or got a reaction, here or elsewhere. */
export interface MessageChanged extends Stored {
  readonly type: "MessageChanged";
  readonly chatId: string;
  readonly kind: Exclude<EntryKind, "message">;
  /** The sequence of the change itself; `senderId` made the change. */
  readonly sequence: number;
  readonly senderId: string;
  /** The message before the change; null: it is not held here. Before a deletion: without text. */
  readonly before: Message | null;
  /** The message after the change; null: it is not held here. */
  readonly after: Message | null;
}

/** A message of ours, or a change of one, was refused for good, or (`code` null) it is unknown
 * whether the server has it. */
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
 * `role_changed`, or a name that a newer server uses. */
export interface ChatUpdated extends Stored {
  readonly type: "ChatUpdated";
  readonly chatId: string;
  readonly change: string;
  readonly name: string | null;
  readonly userId: string | null;
  readonly changedBy: string;
}

/** Not stored: ticks, counts or name of a chat have changed. Read them from the chat. */
export interface TicksMoved extends Stored {
  readonly type: "TicksMoved";
  readonly chatId: string;
}

/** Not stored: the outbox of a chat has changed. Read `chat.pending()`. */
export interface OutboxMoved extends Stored {
  readonly type: "OutboxMoved";
  readonly chatId: string;
}

/** Not stored: display names of users have become known. Read `nameOf`. */
export interface NamesMoved extends Stored {
  readonly type: "NamesMoved";
  readonly userIds: readonly string[];
}

/** Not stored: a user types, or has stopped. */
export interface Typing extends Stored {
  readonly type: "Typing";
  readonly chatId: string;
  readonly userId: string;
  readonly isTyping: boolean;
}

/** Not stored: the connection is in another state. */
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
