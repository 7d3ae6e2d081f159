/** What the shell stands on: clocks, chance, waiting. */

import type { Now } from "../core/effects.ts";

export const now = (): Now => ({ ms: performance.now(), wallMs: Date.now() });

export const sleep = (ms: number): Promise<void> =>
  new Promise((resolve) => {
    setTimeout(resolve, ms);
  });

/** Random bytes, or a hash, in the form of a UUIDv4. */
export const uuid = (bytes: Uint8Array): string => {
  bytes[6] = (bytes[6]! & 0x0f) | 0x40;
  bytes[8] = (bytes[8]! & 0x3f) | 0x80;
  const hex = Array.from(bytes.subarray(0, 16), (byte) => byte.toString(16).padStart(2, "0"));
  return hex.join("").replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
};

/** A UUIDv4; also where a page has no `randomUUID`, because it came without TLS. */
export const newId = (): string => uuid(crypto.getRandomValues(new Uint8Array(16)));

/** Conditions that are waited for. Each is looked at when what it depends on changes, which its key
 * names: a chat's id, a message's, or "". */
export class Waits {
  private _waiters = new Map<string, Set<() => void>>();

  /** Wait until it is so; `check` throws when there is nothing more to wait for. */
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
