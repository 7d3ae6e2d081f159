/** Basic functions of the shell: clocks, random ids, waiting. */

import type { Now } from "../core/effects.ts";

export const now = (): Now => ({ ms: performance.now(), wallMs: Date.now() });

export const sleep = (ms: number): Promise<void> =>
  new Promise((resolve) => {
    setTimeout(resolve, ms);
  });

/** Formats random bytes, or a hash, as a UUIDv4. */
export const uuid = (bytes: Uint8Array): string => {
  bytes[6] = (bytes[6]! & 0x0f) | 0x40;
  bytes[8] = (bytes[8]! & 0x3f) | 0x80;
  const hex = Array.from(bytes.subarray(0, 16), (byte) => byte.toString(16).padStart(2, "0"));
  return hex.join("").replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
};

/** A new UUIDv4; works also in a page without TLS, which has no `randomUUID`. */
export const newId = (): string => uuid(crypto.getRandomValues(new Uint8Array(16)));

/** Callers that wait for conditions. Each is checked again when the object that its key names has
 * changed: a chat by its id, a message by its client_message_id, or "" for all else. */
export class Waits {
  private _waiters = new Map<string, Set<() => void>>();

  /** Wait until `isSo` is true; `check` throws when waiting makes no sense any more. */
  async until(key: string, isSo: () => boolean, check: () => void): Promise<void> {
    while (!isSo()) {
      check();
      await new Promise<void>((resolve) => {
        const waiters = this._waiters.get(key) ?? new Set();
        this._waiters.set(key, waiters.add(resolve));
      });
    }
  }

  changed(...keys: string[]): void {
    for (const key of keys) {
      const waiters = this._waiters.get(key);
      this._waiters.delete(key);
      for (const resolve of waiters ?? []) resolve();
    }
  }

  allChanged(): void {
    this.changed(...this._waiters.keys());
  }
}
