/** The identity of this device: the owner of the store, the login, the access token. */

import type { RefreshResult, TokensView } from "../wire/types.gen.ts";
import { LoginNeeded, RefusedByServer, StoreUnusable } from "./errors.ts";
import { newId } from "./ground.ts";
import type { Rest } from "./rest.ts";
import type { Tables } from "./tables.ts";

const EARLY_MS_MAX = 5 * 60_000;
/** The issuer of tokens that the server itself gives out. */
const OWN_ISSUER = "tidewire";
const ENDED = ["INVALID_REFRESH_TOKEN", "DEVICE_MISMATCH", "UNAUTHORIZED"];

/** The claims of a JWT. Nothing is verified here: the server does that. A token that is no JWT has
 * no claims, and is used as it is. */
const factsOf = (token: string): { iss?: string; sub?: string; did?: string; exp?: number } => {
  try {
    return JSON.parse(atob(token.split(".")[1]!.replace(/-/g, "+").replace(/_/g, "/")));
  } catch {
    return {};
  }
};

/** Gives access tokens: from the application (`getToken`), or from a login, whose refresh token is
 * in the store and is exchanged before the access token ends. */
export class Credentials {
  deviceId = "";
  userId: string | null = null;
  username: string | null = null;
  /** When a new token is due, on the wall clock; null: never, or not known. */
  renewAtMs: number | null = null;
  private _access: string | null = null;
  private _refresh: string | null = null;
  private _renewing: Promise<string> | null = null;

  constructor(
    private _source: (() => string | Promise<string>) | undefined,
    private _rest: Rest,
    private _tables: Tables,
  ) {
    _rest.token = (isRefused) => this.token(isRefused);
  }

  /** Use the login in the store. Throws StoreUnusable if the store belongs to another server, or to
   * another user, as far as the token tells. */
  async attach(url: string, meta: Partial<Record<string, string>>, isMoved = false): Promise<void> {
    if (meta.server && meta.server !== url && !isMoved)
      throw new StoreUnusable(
        `the store belongs to the server ${meta.server}, not to ${url}; ` +
          "name another one, or say that the server has moved (moved: true)",
      );
    this.userId = meta.user_id ?? null;
    this.username = meta.username ?? null;
    this.deviceId = meta.device_id ?? newId();
    if (this._source) {
      const token = await this._source();
      const { iss, did, sub } = factsOf(token);
      if (did && !meta.device_id) this.deviceId = did.toLowerCase();
      // Other issuers have user ids of their own, so their `sub` cannot be compared.
      if (iss === OWN_ISSUER) this._checkOwner(sub);
      this._take(token);
    } else {
      this._refresh = meta.refresh_token ?? null;
      if (meta.access_token) this._take(meta.access_token);
    }
    this._rest.headers = { "X-Device-ID": this.deviceId };
    // Usually nothing has changed, and a page need not wait for the disk.
    if (meta.server !== url || meta.device_id !== this.deviceId)
      await this._tables.setMeta({ server: url, device_id: this.deviceId });
  }

  private _checkOwner(userId: string | undefined): void {
    if (userId && this.userId && userId !== this.userId)
      throw new StoreUnusable(
        `the store belongs to the user ${this.userId}, not to ${userId}; ` +
          "each user needs a store of their own",
      );
  }

  // Logging in.

  /** Throws LoginNeeded if there is neither `getToken` nor a refresh token. */
  check(): void {
    if (!this._source && !this._refresh)
      throw new LoginNeeded("the store has no login: give a name and a password");
  }

  /** Whether the store has a login. */
  get isLoggedIn(): boolean {
    return this._refresh !== null;
  }

  /** A user has just logged in. Throws StoreUnusable if the store belongs to another user. */
  async entered(userId: string, username: string, tokens: TokensView): Promise<void> {
    this._checkOwner(userId);
    this.userId = userId;
    this.username = username;
    await this._tables.setMeta({ user_id: userId, username });
    await this._loggedIn(tokens);
  }

  // The token.

  /** The access token; a new one if the last was refused or ends soon. Throws LoginNeeded,
   * ServerUnreachable and RefusedByServer. */
  async token(isRefused: boolean): Promise<string> {
    const refused = isRefused ? this._access : null;
    if (this._renewing) await this._renewing.catch(() => {});
    const isDue = this.renewAtMs !== null && this.renewAtMs <= Date.now();
    // Another call may have renewed it while this one waited.
    if (this._access !== null && this._access !== refused && !isDue) return this._access;
    this._renewing ??= this._exclusively(() => this._renewed()).finally(() => {
      this._renewing = null;
    });
    return this._renewing;
  }

  /** One tab at a time: a refresh token is exchanged once. */
  private _exclusively(renew: () => Promise<string>): Promise<string> {
    const shared = this._tables.backend.sharedAs;
    const locks = globalThis.navigator?.locks;
    return shared && locks && !this._source ? locks.request(`${shared} token`, renew) : renew();
  }

  private async _renewed(): Promise<string> {
    if (this._source) {
      const token = await this._source();
      this._take(token);
      return token;
    }
    const meta = (await this._tables.meta()) as Record<string, string>;
    if (meta.access_token && meta.access_token !== this._access) {
      // Another tab has renewed it meanwhile.
      this._refresh = meta.refresh_token ?? null;
      this._take(meta.access_token);
      return meta.access_token;
    }
    if (!this._refresh) throw new LoginNeeded("the store has no login: log in");
    try {
      const { tokens } = await this._rest.data<RefreshResult>("POST", "/auth/refresh", {
        body: { refresh_token: this._refresh, device_id: this.deviceId },
        isPublic: true,
      });
      await this._loggedIn(tokens);
      return tokens.access_token;
    } catch (error) {
      if (error instanceof RefusedByServer && ENDED.includes(error.code))
        throw new LoginNeeded("this login has ended: log in again");
      throw error;
    }
  }

  /** Keep the tokens of a login; they are in the store before they are used. */
  private async _loggedIn(tokens: TokensView): Promise<void> {
    const { access_token, refresh_token } = tokens;
    await this._tables.setMeta({ access_token, refresh_token });
    this._refresh = refresh_token;
    this._take(access_token);
  }

  private _take(token: string): void {
    this._access = token;
    const { exp } = factsOf(token);
    if (!exp) {
      this.renewAtMs = null;
      return;
    }
    const lifeMs = Math.max(exp * 1000 - Date.now(), 0);
    // Before the token ends, but not at once.
    this.renewAtMs =
      Date.now() + Math.max(lifeMs - Math.min(EARLY_MS_MAX, Math.floor(lifeMs / 5)), 1000);
  }
}
