/** Where a store keeps its records: what IndexedDB, the memory and a file have in common. */

export type Key = number | string | readonly Key[];

/** The tables, the key of each, and by what else their records are found. */
export const SCHEMA = {
  /** Facts: { name, value }. */
  meta: { key: "name" },
  chats: { key: "chat_id" },
  /** Messages as they are now. `position` is the order in which they were stored, `own_id` the
   * client_message_id of own ones. */
  messages: { key: ["chat_id", "sequence"], indexes: ["position", "own_id"] },
  /** What was said about messages that are not held. */
  stubs: { key: ["chat_id", "sequence"] },
  /** Entries of kinds that this version does not know, for one that does. */
  held: { key: ["chat_id", "sequence"] },
  /** Messages that the server lost in a restore. */
  gone: { key: ["chat_id", "sequence", "message_id"] },
  /** Events that are no messages. `about` is the message that one concerns. */
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
  /** Both ends are meant, too. */
  from?: Key;
  to?: Key;
  limit?: number;
  /** From the highest on; what is found is ascending all the same. */
  isDown?: boolean;
}

/** One transaction: it sees what it wrote. */
export interface Tx {
  get<T>(table: TableName, key: Key): Promise<T | undefined>;
  all<T>(table: TableName, range?: Range): Promise<T[]>;
  put(table: TableName, record: object): void;
  delete(table: TableName, key: Key): void;
  /** What this transaction replaces is a text that has to be gone, as far as the backend can. */
  erase(): void;
}

/** `strict`: it is on the disk when the transaction is done, as far as the system can tell. */
export type Mode = "read" | "write" | "strict";

export interface Backend {
  /** False: all is forgotten with the page or the process. */
  readonly isDurable: boolean;
  /** The name by which all tabs of this profile know it; null: it is this client's alone. */
  readonly sharedAs: string | null;
  /** Is called with why it is closed: `reload_needed` if a newer page wants to change the tables,
   * `logged_out` if another tab deletes it. */
  onTaken: (reason: string) => void;
  run<T>(mode: Mode, body: (tx: Tx) => Promise<T>): Promise<T>;
  close(): Promise<void>;
  /** Close it, and delete all of it. */
  destroy(): Promise<void>;
}

/** Opens a store by its name. */
export type OpenBackend = (name: string) => Promise<Backend>;
