/** What can go wrong for an application, in one tree. */

/** The root of what this client throws: a sentence for people. */
export class ClientError extends Error {
  override get name(): string {
    return "ClientError";
  }
}

/** The server said no; `code` says why, as in docs/protocol.md. */
export class RefusedByServer extends ClientError {
  constructor(
    readonly code: string,
    sentence: string,
    readonly status: number = 0,
    readonly details: Readonly<Record<string, unknown>> = {},
  ) {
    super(`${sentence} (${code})`);
  }
}

/** No answer. What was asked may or may not have happened. */
export class ServerUnreachable extends ClientError {}

/** A text that no server takes; nothing was sent. */
export class InvalidMessage extends ClientError {
  constructor(
    sentence: string,
    readonly code: string = "INVALID_MESSAGE",
  ) {
    super(sentence);
  }
}

/** It has more than 4096 bytes. */
export class MessageTooLarge extends InvalidMessage {}

/** It was refused for good; it stays in the outbox as failed. */
export class MessageFailed extends ClientError {
  constructor(
    readonly code: string,
    sentence: string,
  ) {
    super(`it was refused: ${sentence} (${code})`);
  }
}

/** It left days ago without an answer: retry it, or drop it. */
export class FateUnknown extends ClientError {}

/** Too much waits to be sent. */
export class OutboxFull extends ClientError {}

/** The store is another user's, another server's, or of a newer version. */
export class StoreUnusable extends ClientError {}

/** Nothing more can be done with this client. */
export class ClientClosed extends ClientError {
  constructor(
    readonly reason: string,
    sentence = `the client is closed: ${reason}`,
  ) {
    super(sentence);
  }
}

/** There is no token that the server takes: log in again. */
export class LoginNeeded extends ClientClosed {
  constructor(sentence: string, reason = "login_needed") {
    super(reason, sentence);
  }
}

const LOGIN_REASONS = ["login_needed", "session_revoked", "invalid_token", "device_mismatch"];

/** Why nothing more can be done with a client that is closed. */
export const closedFor = (reason: string): ClientClosed =>
  LOGIN_REASONS.includes(reason)
    ? new LoginNeeded(`the client is closed: ${reason}; log in, or give it a token`, reason)
    : new ClientClosed(reason);
