/** Requests to the server's REST interface, with `fetch`. */

import type { Refusal } from "../core/effects.ts";
import type { Envelope, ErrorBody, ErrorDetail, Page } from "../wire/types.gen.ts";
import { RefusedByServer, ServerUnreachable } from "./errors.ts";
import { newId, sleep } from "./ground.ts";

const TIMEOUT_MS = 15_000;
const TRIES_MAX = 3;
const WAIT_MS = 300;
const WAIT_MS_MAX = 5000;

export interface Ask {
  body?: object;
  params?: Record<string, string | number>;
  /** The request needs no token. */
  isPublic?: boolean;
  /** Send an idempotency key: the server carries the request out once, however often it is sent. */
  isOnce?: boolean;
}

export class Rest {
  headers: Record<string, string> = {};
  /** Returns the access token; a new one if `isRefused` says that the last one was refused. */
  token: (isRefused: boolean) => Promise<string> = async () => "";

  constructor(private _url: string) {}

  /** Send a request; returns the `data` of the answer. */
  async data<T>(method: string, path: string, ask?: Ask): Promise<T> {
    return (await this.call<Envelope<T>>(method, path, ask)).data;
  }

  /** Get the pages of a list, until there are `limit` items or no more pages. */
  async pages<T>(path: string, params: Ask["params"], limit = Number.POSITIVE_INFINITY) {
    const found: T[] = [];
    let page: Page<T> | undefined;
    do {
      const cursor = page?.pagination.next_cursor;
      page = await this.call<Page<T>>("GET", path, {
        params: cursor ? { cursor, limit: params!.limit! } : params,
      } as Ask);
      found.push(...page.data);
    } while (page.pagination.next_cursor && found.length < limit);
    return found;
  }

  /** Send a request and decode the answer. A request that is safe to repeat is retried a few times.
   * Throws RefusedByServer and ServerUnreachable. */
  async call<T>(method: string, path: string, ask: Ask = {}): Promise<T> {
    const { isPublic, isOnce } = ask;
    const headers: Record<string, string> = { ...this.headers };
    if (isOnce) headers["Idempotency-Key"] = newId();
    const isRepeatable = isOnce || method !== "POST";
    let hasNewToken = false;
    for (let tries = 1; ; tries++) {
      if (!isPublic) headers.Authorization = `Bearer ${await this.token(hasNewToken)}`;
      try {
        return await this._ask<T>(method, path, ask, headers);
      } catch (error) {
        let waitMs = WAIT_MS * tries;
        if (error instanceof RefusedByServer) {
          // A wrong password in a request with a good token is 401 too; a new token does not help.
          const isOfToken = error.status === 401 && error.code !== "INVALID_CREDENTIALS";
          if (isOfToken && !isPublic && !hasNewToken) {
            hasNewToken = true;
            continue;
          }
          waitMs = retryAfterMs(error) || waitMs;
          if (![429, 503].includes(error.status) || waitMs > WAIT_MS_MAX) throw error;
        }
        if (tries >= TRIES_MAX || !isRepeatable) throw error;
        await sleep(waitMs);
      }
    }
  }

  /** Find out why the server did not upgrade a request with this token: browsers do not tell. Null:
   * as far as can be seen, the token is good and the server is not overloaded. */
  async probe(token: string): Promise<Refusal | null> {
    const headers = { ...this.headers, Authorization: `Bearer ${token}` };
    try {
      await this._ask("GET", "/users/me", {}, headers);
    } catch (error) {
      if (error instanceof RefusedByServer && [401, 429, 503].includes(error.status)) {
        const reason = String(error.details.reason);
        return {
          status: error.status,
          error: reason === "token_revoked" ? reason : error.code.toLowerCase(),
          reason,
          retryAfterMs: retryAfterMs(error),
        };
      }
    }
    return null;
  }

  private async _ask<T>(
    method: string,
    path: string,
    { body, params }: Ask,
    headers: Record<string, string>,
  ): Promise<T> {
    const query = params ? `?${new URLSearchParams(params as Record<string, string>)}` : "";
    let status: number;
    let text: string;
    try {
      const response = await fetch(`${this._url}/api/v1${path}${query}`, {
        method,
        headers: body ? { ...headers, "Content-Type": "application/json" } : headers,
        ...(body && { body: JSON.stringify(body) }),
        signal: AbortSignal.timeout(TIMEOUT_MS),
        cache: "no-store",
        credentials: "omit",
      });
      status = response.status;
      text = await response.text();
    } catch (error) {
      throw new ServerUnreachable(`the server did not answer: ${error}`);
    }
    let answer: Partial<ErrorBody> | null;
    try {
      answer = JSON.parse(text || "null");
    } catch {
      throw new ServerUnreachable(`the server's answer cannot be read (HTTP ${status})`);
    }
    if (status < 300) return answer as T;
    const {
      code = `HTTP_${status}`,
      message = "the server refused",
      details,
    }: Partial<ErrorDetail> = answer?.error ?? {};
    throw new RefusedByServer(code, message, status, details ?? {});
  }
}

const retryAfterMs = (refusal: RefusedByServer): number =>
  Number(refusal.details.retry_after_seconds ?? 0) * 1000;
