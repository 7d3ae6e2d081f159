/** The errors that an application may get, as one tree of classes. */

/** The base class of all errors of this client; `message` is a sentence for people. */
export class ClientError extends Error {
  override get name(): string {
    return "ClientError";
  }
}

/** The server refused a request; `code` says why, as in docs/protocol.md. */
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

/** The server did not answer. It may or may not have carried out the request. */
export class ServerUnreachable extends ClientError {}

/** A text or emoji that no server accepts; nothing was sent. */
export class InvalidMessage extends ClientError {
  constructor(
    sentence: string,
    readonly code: string = "INVALID_MESSAGE",
  ) {
    super(sentence);
  }
}

/** The text has more than 4096 bytes in UTF-8; nothing was sent. */
export class MessageTooLarge extends InvalidMessage {}

/** The server refused an own message or change for good; it stays in the outbox as failed. Or the
 * application dropped it (`code` is `DROPPED`). */
export class MessageFailed extends ClientError {
  constructor(
    readonly code: string,
    sentence: string,
  ) {
    super(`it was refused: ${sentence} (${code})`);
  }
}

/** A message left days ago and was never answered, so it is unknown whether the server has it:
 * retry it, or drop it. */
export class FateUnknown extends ClientError {}

/** Too many entries are in the outbox. */
export class OutboxFull extends ClientError {}

/** The store belongs to another user or server, is of a newer version, in use, or damaged. */
export class StoreUnusable extends ClientError {}

/** The client is closed, so the call is not possible; `reason` says why it was closed. */
export class ClientClosed extends ClientError {
  constructor(
    readonly reason: string,
    sentence = `the client is closed: ${reason}`,
  ) {
    super(sentence);
  }
}

/** There is no token that the server accepts: log in again. */
export class LoginNeeded extends ClientClosed {
  constructor(sentence: string, reason = "login_needed") {
    super(reason, sentence);
  }
}

const LOGIN_REASONS = ["login_needed", "session_revoked", "invalid_token", "device_mismatch"];

/** The error for calls to a client that was closed for this reason. */
export const closedFor = (reason: string): ClientClosed =>
  LOGIN_REASONS.includes(reason)
    ? new LoginNeeded(`the client is closed: ${reason}; log in, or give it a token`, reason)
    : new ClientClosed(reason);
