/** All names that the package exports, in browsers and in Node. */

export { Chat } from "./shell/chat.ts";
export { Client } from "./shell/client.ts";
export {
  ClientClosed,
  ClientError,
  FateUnknown,
  InvalidMessage,
  LoginNeeded,
  MessageFailed,
  MessageTooLarge,
  OutboxFull,
  RefusedByServer,
  ServerUnreachable,
  StoreUnusable,
} from "./shell/errors.ts";
export { Message } from "./shell/message.ts";
export { Sent } from "./shell/sent.ts";
export type * from "./types.ts";

/** A text mark for each `tick` of an own message, for programs without icons. */
export const TICK_MARKS = {
  sending: "○",
  sent: "✓",
  delivered: "✓✓",
  read: "✔✔",
  failed: "✗",
} as const;
