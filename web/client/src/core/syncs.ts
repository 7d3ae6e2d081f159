/** Which chats need a page of entries, from when on, and how many are requested at once. PURE. */

import { backoffMs, type Options, type Random } from "./options.ts";
import type { Replica } from "./replica.ts";

export class Syncs {
  /** Chats that need a page, and from what time on; requested in this order. */
  private _wanted = new Map<string, [Replica, number]>();
  private _asked = new Set<string>();
  private _failures = new Map<string, number>();

  constructor(
    private _options: Options,
    private _random: Random,
  ) {}

  clear(): void {
    this._wanted.clear();
    this._asked.clear();
    this._failures.clear();
  }

  /** Request a page of this chat, at this time at the earliest; only one at a time. The wait after a
   * failure stands: a push does not say that the server can answer by now. */
  want(replica: Replica, fromMs: number): void {
    const id = replica.chat_id;
    const known = this._wanted.get(id);
    if (this._asked.has(id)) return;
    if (!known || (fromMs < known[1] && !this._failures.has(id))) this._put(replica, fromMs);
  }

  forget(chatId: string): void {
    this._wanted.delete(chatId);
    this._failures.delete(chatId);
  }

  /** Chats whose page is to be requested now, as far as the bound allows. They count as requested
   * until `answered`. */
  take(nowMs: number): Replica[] {
    const due: Replica[] = [];
    for (const [id, [replica, fromMs]] of this._wanted) {
      if (this._asked.size >= this._options.syncsMax) break;
      if (fromMs > nowMs) continue;
      this._wanted.delete(id);
      // What was missing may have come meanwhile.
      if (replica.isBehind) {
        this._asked.add(id);
        due.push(replica);
      }
    }
    return due;
  }

  answered(chatId: string): void {
    this._asked.delete(chatId);
  }

  succeeded(chatId: string): void {
    this._failures.delete(chatId);
  }

  /** Ask again after a wait, even if an earlier time was planned before. */
  failed(replica: Replica, nowMs: number, retryAfterMs: number): void {
    const failures = (this._failures.get(replica.chat_id) ?? 0) + 1;
    this._failures.set(replica.chat_id, failures);
    const waitMs = backoffMs(failures, this._random, this._options);
    this._put(replica, nowMs + Math.max(waitMs, retryAfterMs));
  }

  /** When `take` may have a chat; null if none waits or the bound is reached. */
  nextDeadlineMs(): number | null {
    if (!this._wanted.size || this._asked.size >= this._options.syncsMax) return null;
    return Math.min(...[...this._wanted.values()].map(([, fromMs]) => fromMs));
  }

  private _put(replica: Replica, fromMs: number): void {
    this._wanted.delete(replica.chat_id);
    this._wanted.set(replica.chat_id, [replica, fromMs]);
  }
}
