/** All that the package gives out, wherever it runs. */

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

/** What stands beside an own message, in letters. */
export const TICK_MARKS = {
  sending: "○",
  sent: "✓",
  delivered: "✓✓",
  read: "✔✔",
  failed: "✗",
} as const;
