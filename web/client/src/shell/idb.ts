/** A store in IndexedDB. A strict transaction is on the disk when it is done. */

import {
  type Backend,
  type Key,
  type Mode,
  type Range,
  SCHEMA,
  TABLES,
  type Tx,
} from "./backend.ts";
import { StoreUnusable } from "./errors.ts";

const VERSION = 1;
/** The most records that are read from the end by a cursor; for more, all are read and cut. */
const CURSOR_MAX = 1000;

const done = <T>(request: IDBRequest<T>): Promise<T> =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

const rangeOf = ({ from, to }: Range): IDBKeyRange | undefined => {
  if (from !== undefined && to !== undefined) return IDBKeyRange.bound(from, to);
  if (from !== undefined) return IDBKeyRange.lowerBound(from);
  return to === undefined ? undefined : IDBKeyRange.upperBound(to);
};

class IdbTx implements Tx {
  constructor(private _tx: IDBTransaction) {}

  get<T>(table: string, key: Key): Promise<T | undefined> {
    return done<T | undefined>(this._tx.objectStore(table).get(key as IDBValidKey));
  }

  async all<T>(table: string, range: Range = {}): Promise<T[]> {
    const store = this._tx.objectStore(table);
    const source = range.index ? store.index(range.index) : store;
    const { limit, isDown } = range;
    let keys = rangeOf(range);
    if (!isDown) return done<T[]>(source.getAll(keys, limit));
    if (!limit || limit > CURSOR_MAX) {
      const all = await done<T[]>(source.getAll(keys));
      return limit ? all.slice(-limit) : all;
    }
    const request = source.openKeyCursor(keys, "prev");
    let cursor = await done(request);
    if (cursor && limit > 1) {
      // To the first record that is wanted in one step, however many there are.
      cursor.advance(limit - 1);
      cursor = await done(request);
    }
    if (cursor) keys = rangeOf({ from: cursor.key as Key, to: range.to });
    return done<T[]>(source.getAll(keys));
  }

  put(table: string, record: object): void {
    this._tx.objectStore(table).put(record);
  }

  delete(table: string, key: Key): void {
    this._tx.objectStore(table).delete(key as IDBValidKey);
  }

  // A page cannot decide when the browser removes deleted bytes from its files.
  erase(): void {}
}

class IdbBackend implements Backend {
  readonly isDurable = true;
  onTaken = (_reason: string): void => {};

  constructor(
    private _db: IDBDatabase,
    readonly sharedAs: string,
  ) {
    _db.onversionchange = ({ newVersion }) => {
      // This tab must not block the upgrade or the deletion.
      _db.close();
      this.onTaken(newVersion === null ? "logged_out" : "reload_needed");
    };
  }

  run<T>(mode: Mode, body: (tx: Tx) => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const tx = this._db.transaction(TABLES, mode === "read" ? "readonly" : "readwrite", {
        durability: mode === "strict" ? "strict" : "default",
      });
      let result: T;
      let fault: unknown;
      tx.oncomplete = () => resolve(result);
      tx.onabort = () => reject(fault ?? tx.error ?? new StoreUnusable("the store was closed"));
      body(new IdbTx(tx)).then(
        (value) => {
          result = value;
        },
        (error) => {
          fault = error;
          // It may have aborted already, for the same reason: then `abort` throws.
          try {
            tx.abort();
          } catch {
            reject(error);
          }
        },
      );
    });
  }

  async close(): Promise<void> {
    this._db.close();
  }

  async destroy(): Promise<void> {
    this._db.close();
    await done(indexedDB.deleteDatabase(this.sharedAs));
  }
}

/** Open a store. Throws IndexedDB's error if there is no IndexedDB: the caller then uses memory. */
export const openIdb = async (name: string): Promise<Backend> => {
  const request = indexedDB.open(name, VERSION);
  request.onupgradeneeded = () => {
    for (const table of TABLES) {
      const { key, indexes = [] } = SCHEMA[table] as { key: string; indexes?: string[] };
      const store = request.result.createObjectStore(table, { keyPath: key });
      for (const index of indexes) store.createIndex(index, index);
    }
  };
  let db: IDBDatabase;
  try {
    db = await done(request);
  } catch (error) {
    if ((error as Error).name === "VersionError")
      throw new StoreUnusable("this page is older than the store: reload it");
    throw error;
  }
  const backend = new IdbBackend(db, name);
  // On a full disk this write fails before anything depends on the store. Its record is not used.
  await backend.run("write", async (tx) => tx.put("meta", { name: "opened", value: Date.now() }));
  return backend;
};
