/** The interface of a store's backend: IndexedDB, memory, or a file. */

export type Key = number | string | readonly Key[];

/** The tables, with their keys and indexes. */
export const SCHEMA = {
  /** Facts: { name, value }. */
  meta: { key: "name" },
  chats: { key: "chat_id" },
  /** Messages in their current state. `position` is the order in which they were stored, `own_id`
   * the client_message_id of own ones. */
  messages: { key: ["chat_id", "sequence"], indexes: ["position", "own_id"] },
  /** The state of messages that are not held, from entries about them. */
  stubs: { key: ["chat_id", "sequence"] },
  /** Entries of kinds that this version does not know, without their text. */
  held: { key: ["chat_id", "sequence"] },
  /** Messages that the server lost in a restore. */
  gone: { key: ["chat_id", "sequence", "message_id"] },
  /** Events other than messages. `about` is the message that an event is about. */
  happenings: { key: "position", indexes: ["about"] },
  outbox: { key: "client_message_id" },
  people: { key: "user_id" },
} as const satisfies Record<
  string,
  { key: string | readonly string[]; indexes?: readonly string[] }
>;

export type TableName = keyof typeof SCHEMA;
export const TABLES = Object.keys(SCHEMA) as TableName[];

export interface Range {
  index?: string;
  /** Both ends are included. */
  from?: Key;
  to?: Key;
  limit?: number;
  /** `limit` takes the highest records; the result is ascending all the same. */
  isDown?: boolean;
}

/** One transaction: it sees its own writes. */
export interface Tx {
  get<T>(table: TableName, key: Key): Promise<T | undefined>;
  all<T>(table: TableName, range?: Range): Promise<T[]>;
  put(table: TableName, record: object): void;
  delete(table: TableName, key: Key): void;
  /** This transaction removes a text: the backend must also remove its bytes, as far as it can. */
  erase(): void;
}

/** `strict`: the writes are on the disk when the transaction ends, as far as the system knows. */
export type Mode = "read" | "write" | "strict";

export interface Backend {
  /** False: all data is lost when the page or the process ends. */
  readonly isDurable: boolean;
  /** The name under which all tabs of this browser profile share it; null: no other client can. */
  readonly sharedAs: string | null;
  /** Called with the reason when it is closed from outside: `reload_needed` if a newer page wants
   * to change the tables, `logged_out` if another tab deletes it. */
  onTaken: (reason: string) => void;
  run<T>(mode: Mode, body: (tx: Tx) => Promise<T>): Promise<T>;
  close(): Promise<void>;
  /** Close the store and delete it. */
  destroy(): Promise<void>;
}

/** Opens a store by its name. */
export type OpenBackend = (name: string) => Promise<Backend>;
