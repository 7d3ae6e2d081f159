/** The client's names for the server's types (types.gen.ts, `make types`): one name where the
 * server has several similar types. */

import type {
  ClientFrame as AnyClientFrame,
  DeleteMessageFrame,
  DeleteMessagePayload,
  EditMessageFrame,
  EditMessagePayload,
  MessageNow,
  MessagePayload,
  MessageView,
  PersonView,
  ReactFrame,
  ReactPayload,
  SendMessageFrame,
  SendMessagePayload,
  SyncItem,
} from "./types.gen.ts";

export type {
  ChatDigestPayload,
  ChatType,
  ChatUpdatePayload,
  DigestEntry,
  ErrorPayload,
  SendMessageAckPayload,
  ServerFrame,
  StatusUpdatePayload,
  SyncResponsePayload,
  TypingIndicatorPayload,
} from "./types.gen.ts";

export type PushedEntry = MessagePayload;

/** An entry of a chat's log, from any source: a push, a page, or an own send. */
export type EntryItem = Omit<SyncItem, "content_type">;

/** An entry of a history page. */
export type HistoryItem = Omit<MessageView, "content" | "content_type" | "sender" | "now"> & {
  content?: string;
  sender?: PersonView;
  now?: MessageNow | null;
};

/** The payload in which any entry of the outbox is sent. */
export type SendPayload = Pick<SendMessagePayload, "client_message_id" | "chat_id"> &
  Partial<SendMessagePayload & EditMessagePayload & DeleteMessagePayload & ReactPayload>;

type SendFrame = SendMessageFrame | EditMessageFrame | DeleteMessageFrame | ReactFrame;

export type ClientFrame =
  | Exclude<AnyClientFrame, SendFrame>
  | { type: SendFrame["type"]; request_id: string; payload: SendPayload };
