/**
 * The state of the socket: when to connect, when to reconnect, when to give up, when to end. PURE.
 *
 * It knows nothing of messages. Its methods return effects; its owner forgets what belonged to
 * a socket when that socket is gone.
 */

import type { ConnectionState, Effect, Now, Refusal, Status } from "./effects.ts";
import { backoffMs, earliest, type Options, type Random, varied } from "./options.ts";

const NORMAL_CLOSE = 1000;
/** For a connection that is given up. Not 1001 ("going away"): a page may not send that code. */
const GIVEN_UP = 4001;
const HEARTBEAT_MS_MIN = 100;
/** Reasons for a close after which a client does not reconnect. */
const FINAL = ["duplicate_connection", "session_revoked"];

export class Link {
  status: Status = { state: "offline", reason: null };
  /** There is a new token, and a connection with it is about to replace this one. */
  isRenewing = false;
  /** Why the server is about to close, and after how many ms to come back. */
  closing: [reason: string, delayMs: number] | null = null;
  needsNewToken = false;
  roundTripMs: number | null = null;
  private _effects: Effect[] = [];
  private _failures = 0;
  private _hadNewToken = false;
  /** When the next try is due, the server's introduction is overdue, or the renewal is due. */
  private _deadlineMs: number | null = null;
  /** The server has said when to come back: `hurry` does not connect before that time. */
  private _isTold = false;
  private _triedAtMs = Number.NEGATIVE_INFINITY;
  private _intervalMs = 30_000;
  private _heartbeatAtMs: number | null = null;
  private _asked: [id: string, atMs: number] | null = null;
  private _heardAtMs = 0;
  /** When a connection that may be dead is given up, unless it shows a sign of life before. */
  private _probedByMs: number | null = null;

  constructor(
    private _options: Options,
    private _random: Random,
  ) {}

  /** The server has introduced itself. */
  get isEstablished(): boolean {
    return this.status.state === "syncing" || this.status.state === "ready";
  }

  /** A socket is open, or is being opened. */
  get hasSocket(): boolean {
    return this.isEstablished || this.status.state === "connecting";
  }

  get maySend(): boolean {
    return this.isEstablished && !this.closing && !this.isRenewing;
  }

  // What happens to it.

  /** Connect now, if the next try is still to come. */
  start(now: Now): Effect[] {
    if (this.status.state === "offline") this._connect(now);
    return this._done();
  }

  /** The network may be back, or a person sends: reconnect without waiting for the next try, but
   * not within `pauseMs` of the last try. With a `pauseMs` above 0, a connection that stands is not
   * doubted; otherwise true is returned: send a heartbeat, to ask for a sign of life. */
  hurry(now: Now, pauseMs: number): [Effect[], boolean] {
    const isLate = now.ms - this._triedAtMs >= pauseMs;
    const { state } = this.status;
    if (state === "offline" && isLate && !this._isTold) {
      this._connect(now);
    } else if (
      state === "connecting" &&
      isLate &&
      now.ms - this._triedAtMs >= this._options.probeMs
    ) {
      // This try may have begun in a network that is gone.
      this._effects.push({ do: "disconnect", code: GIVEN_UP });
      this._connect(now);
    }
    const isAsked = !pauseMs && this.isEstablished && !this.closing && this._probedByMs === null;
    if (isAsked) this._probedByMs = now.ms + this._options.probeMs;
    return [this._done(), isAsked];
  }

  /** The server did not upgrade the request. */
  refused(refusal: Refusal, now: Now): Effect[] {
    const { status, error, reason } = refusal;
    if (this.status.state !== "connecting") {
      // It is too late: this socket is not being opened any more.
    } else if (status === 401) {
      if (error === "token_revoked") this._set("closed", "session_revoked");
      else if (reason === "device_mismatch") this._set("closed", reason);
      else if (this._hadNewToken) this._set("closed", "invalid_token");
      else {
        this.needsNewToken = true;
        this._connect(now);
      }
    } else if (status === 408 || status === 425 || status === 429 || status >= 500) {
      this._wait(now, error, 0, refusal.retryAfterMs);
    } else {
      this._set("closed", error || `http_${status}`);
    }
    return this._done();
  }

  /** The socket is gone, or could not be opened. A second call does nothing. */
  lost(now: Now, code: number | null, reason: string): Effect[] {
    if (!this.hasSocket) return this._done();
    const { closing } = this;
    if (closing) reason = closing[0];
    if (closing && FINAL.includes(reason)) {
      this._set("closed", reason);
    } else if (!closing && code !== null && code >= 4500 && code < 5000) {
      this._set("closed", `code_${code}`);
    } else if (this.isRenewing) {
      this._set("offline", "token_expired");
      this._connect(now);
    } else {
      this.needsNewToken ||= reason === "token_expired";
      this._wait(now, reason, closing ? closing[1] : 0);
    }
    return this._done();
  }

  established(intervalMs: number, now: Now): Effect[] {
    this._deadlineMs = null;
    this._hadNewToken = false;
    this._intervalMs = Math.max(intervalMs, HEARTBEAT_MS_MIN);
    this._scheduleHeartbeat(now);
    this._set("syncing");
    return this._done();
  }

  /** This device holds everything. Only this resets the count of failures. */
  ready(): Effect[] {
    this._failures = 0;
    this._set("ready");
    return this._done();
  }

  /** There is a new token; `finishRenewal` changes to a connection with it later. */
  renew(now: Now): void {
    if (this.isEstablished && !this.isRenewing) {
      this.isRenewing = true;
      this._deadlineMs = now.ms + this._options.renewGraceMs;
    }
  }

  finishRenewal(now: Now): Effect[] {
    this._effects.push({ do: "disconnect", code: NORMAL_CLOSE });
    this._set("offline", "token_expired");
    this._connect(now);
    return this._done();
  }

  /** Drop a connection that does not work, without waiting for its end. */
  giveUp(now: Now, reason: string): Effect[] {
    this._effects.push({ do: "disconnect", code: GIVEN_UP });
    // The server said why it closes, and died before it did: its reason counts all the same.
    if (this.closing) return this.lost(now, null, reason);
    if (this._probedByMs !== null && this.isEstablished) {
      this._set("offline", reason);
      this._connect(now);
    } else {
      this._wait(now, reason, 0);
    }
    return this._done();
  }

  /** Close for good. */
  stop(reason: string): Effect[] {
    if (this.hasSocket) this._effects.push({ do: "disconnect", code: NORMAL_CLOSE });
    if (this.status.state !== "closed") this._set("closed", reason);
    return this._done();
  }

  // Signs of life, and time.

  heard(now: Now): void {
    this._heardAtMs = now.ms;
    this._probedByMs = null;
  }

  heartbeatSent(requestId: string, now: Now): void {
    this._asked = [requestId, now.ms];
    this._scheduleHeartbeat(now);
  }

  /** False: it is not the answer to the last one. */
  heartbeatAnswered(requestId: string | null | undefined, now: Now): boolean {
    if (!this._asked || requestId !== this._asked[0]) return false;
    this.roundTripMs = now.ms - this._asked[1];
    this._asked = null;
    return true;
  }

  /** The next try is due, the server's introduction is overdue, or the renewal is due. */
  isDue(now: Now): boolean {
    return this._deadlineMs !== null && this._deadlineMs <= now.ms;
  }

  isHeartbeatDue(now: Now): boolean {
    return !this.closing && this._heartbeatAtMs !== null && this._heartbeatAtMs <= now.ms;
  }

  isSilent(now: Now): boolean {
    return now.ms >= Math.min(this._silentAtMs, this._probedByMs ?? this._silentAtMs);
  }

  nextDeadlineMs(): number | null {
    if (!this.isEstablished) return this._deadlineMs;
    return earliest(
      this._deadlineMs,
      this._silentAtMs,
      this._probedByMs,
      this.closing ? null : this._heartbeatAtMs,
    );
  }

  private get _silentAtMs(): number {
    return this._heardAtMs + 2 * this._intervalMs;
  }

  private _scheduleHeartbeat(now: Now): void {
    this._heartbeatAtMs = now.ms + varied(this._intervalMs, this._random, 0.1);
  }

  // States.

  private _connect(now: Now): void {
    this._hadNewToken = this.needsNewToken;
    this.needsNewToken = false;
    this._isTold = false;
    this._triedAtMs = now.ms;
    this._set("connecting");
    this._deadlineMs = now.ms + this._options.handshakeMsMax;
    this._effects.push({ do: "connect", withNewToken: this._hadNewToken });
  }

  /** Reconnect later: when the server said, or after a wait that grows with each failure. */
  private _wait(now: Now, reason: string, toldMs: number, atLeastMs = 0): void {
    this._failures++;
    this._isTold = toldMs + atLeastMs > 0;
    const waitMs = toldMs
      ? // Up to a quarter later than the server said: never earlier, and not all clients at once.
        toldMs + Math.round((toldMs / 4) * this._random())
      : backoffMs(this._failures, this._random, this._options);
    this._set("offline", reason);
    this._deadlineMs = now.ms + Math.max(waitMs, atLeastMs);
  }

  private _set(state: ConnectionState, reason: string | null = null): void {
    if (state === "offline" || state === "closed") {
      this.isRenewing = false;
      this.closing = this._asked = this._deadlineMs = null;
      this._heartbeatAtMs = this._probedByMs = null;
    }
    if (state !== this.status.state || reason !== this.status.reason) {
      this.status = { state, reason };
      this._effects.push({ do: "status", status: this.status });
    }
  }

  private _done(): Effect[] {
    const effects = this._effects;
    this._effects = [];
    return effects;
  }
}
