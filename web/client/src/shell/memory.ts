/** A store in memory: it is lost with the page, unless a subclass keeps a journal of changes. */

import {
  type Backend,
  type Key,
  type Mode,
  type Range,
  SCHEMA,
  TABLES,
  type TableName,
  type Tx,
} from "./backend.ts";

// biome-ignore lint/suspicious/noExplicitAny: each table has its own type of records
type Rec = any;

/** Compares keys as IndexedDB does, for the kinds of keys used here: arrays part by part. */
const compare = (a: Key, b: Key): number => {
  if (Array.isArray(a) && Array.isArray(b)) {
    for (let at = 0; at < a.length && at < b.length; at++) {
      const part = compare(a[at], b[at]);
      if (part) return part;
    }
    return a.length - b.length;
  }
  // An array is above every other key, as in IndexedDB.
  if (Array.isArray(a) || Array.isArray(b)) return Array.isArray(a) ? 1 : -1;
  return a < b ? -1 : a > b ? 1 : 0;
};

const keyOf = (record: Rec, path: string | readonly string[]): Key | undefined =>
  typeof path === "string" ? record[path] : path.map((part) => record[part]);

/** Records in the order of a key. */
class Sorted {
  private _keys: Key[] = [];
  private _records: Rec[] = [];

  constructor(readonly path: string | readonly string[]) {}

  /** The first place whose key is not below this one; with `isAbove`: whose key is above it. */
  private _place(key: Key, isAbove: boolean): number {
    let low = 0;
    let high = this._keys.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      const order = compare(this._keys[middle]!, key);
      if (order < 0 || (isAbove && order === 0)) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  add(record: Rec): void {
    const key = keyOf(record, this.path);
    if (key === undefined) return;
    const place = this._place(key, true);
    this._keys.splice(place, 0, key);
    this._records.splice(place, 0, record);
  }

  remove(record: Rec): void {
    const key = keyOf(record, this.path);
    if (key === undefined) return;
    let place = this._place(key, false);
    while (this._records[place] !== record) place++;
    this._keys.splice(place, 1);
    this._records.splice(place, 1);
  }

  get(key: Key): Rec | undefined {
    const place = this._place(key, false);
    return place < this._keys.length && compare(this._keys[place]!, key) === 0
      ? this._records[place]
      : undefined;
  }

  all({ from, to, limit, isDown }: Range): Rec[] {
    const begin = from === undefined ? 0 : this._place(from, false);
    const end = to === undefined ? this._keys.length : this._place(to, true);
    const count = Math.min(limit || end - begin, Math.max(end - begin, 0));
    return isDown
      ? this._records.slice(end - count, end)
      : this._records.slice(begin, begin + count);
  }
}

/** A change that a transaction has made: a record that was put, or a key that was deleted. */
export type Change = [TableName, record: Rec] | [TableName, null, key: Key];

export class MemoryBackend implements Backend {
  readonly isDurable: boolean = false;
  readonly sharedAs = null;
  onTaken = (_reason: string): void => {};
  protected tables = new Map(
    TABLES.map((name) => {
      const { key, indexes = [] } = SCHEMA[name] as { key: string; indexes?: string[] };
      return [name, [key, ...indexes].map((path) => new Sorted(path))] as const;
    }),
  );
  private _last: Promise<unknown> = Promise.resolve();

  /** Runs one transaction after another; the journal of one is written while the next runs. */
  async run<T>(mode: Mode, body: (tx: Tx) => Promise<T>): Promise<T> {
    const next = this._last.then(() => this._run(body));
    this._last = next.catch(() => {});
    const [result, changes, isErasing] = await next;
    if (changes.length) await this.changed(changes, mode, isErasing);
    return result;
  }

  private async _run<T>(body: (tx: Tx) => Promise<T>): Promise<[T, Change[], boolean]> {
    let isErasing = false;
    const changes: Change[] = [];
    const undo: Change[] = [];
    const change = (one: Change): void => {
      changes.push(one);
      undo.unshift(this.change(one));
    };
    try {
      const result = await body({
        get: async <R>(name: TableName, key: Key) => this.table(name).get(key) as R | undefined,
        all: async <R>(name: TableName, range: Range = {}) =>
          this.table(name, range.index).all(range) as R[],
        // A copy, because the caller may change its record later.
        put: (name, record) => change([name, structuredClone(record)]),
        delete: (name, key) => change([name, null, key]),
        erase: () => {
          isErasing = true;
        },
      });
      return [result, changes, isErasing];
    } catch (error) {
      for (const one of undo) this.change(one);
      throw error;
    }
  }

  /** Called with the changes of each transaction, in order, before the transaction is done. */
  protected async changed(_changes: Change[], _mode: Mode, _isErasing: boolean): Promise<void> {}

  protected table(name: TableName, index?: string): Sorted {
    const sorted = this.tables.get(name)!;
    return (index && sorted.find((one) => one.path === index)) || sorted[0]!;
  }

  /** Apply a change; returns the change that undoes it. */
  protected change([name, record, gone]: Change): Change {
    const key = record === null ? gone! : keyOf(record, this.table(name).path)!;
    const before = this.table(name).get(key);
    for (const sorted of this.tables.get(name)!) {
      if (before) sorted.remove(before);
      if (record) sorted.add(record);
    }
    return before ? [name, before] : [name, null, key];
  }

  async close(): Promise<void> {
    await this._last;
  }

  async destroy(): Promise<void> {
    await this._last;
  }
}

/** Memory for a page without IndexedDB, with the login in `sessionStorage`. Otherwise each reload
 * would need a new login, and be another session of the user. */
export const openInSession = async (name: string): Promise<Backend> => {
  const backend = new (class extends MemoryBackend {
    protected override async changed(changes: Change[]): Promise<void> {
      if (changes.some(([table]) => table === "meta"))
        sessionStorage.setItem(name, JSON.stringify(this.table("meta").all({})));
    }
    override async destroy(): Promise<void> {
      sessionStorage.removeItem(name);
    }
  })();
  const kept = JSON.parse(sessionStorage.getItem(name) ?? "[]") as Rec[];
  // Only the login and the server: positions are lost together with the messages.
  const lasting = ["server", "device_id", "user_id", "username", "access_token", "refresh_token"];
  await backend.run("write", async (tx) => {
    for (const fact of kept) if (lasting.includes(fact.name)) tx.put("meta", fact);
  });
  return backend;
};
