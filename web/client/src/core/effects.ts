/** Effects: what a connection's core wants done, as values; the driver carries them out. PURE. */

import type {
  ChatUpdatePayload,
  ClientFrame,
  EntryItem,
  TypingIndicatorPayload,
} from "../wire/frames.ts";
import type { OutboxEntry } from "./outbox.ts";
import type { Replica } from "./replica.ts";

/** An instant: `ms` on a monotonic clock, `wallMs` on the wall clock. */
export interface Now {
  ms: number;
  wallMs: number;
}

export type ConnectionState = "offline" | "connecting" | "syncing" | "ready" | "closed";

/** The state of a connection; `reason` is why it is offline or closed. */
export interface Status {
  readonly state: ConnectionState;
  readonly reason: string | null;
}

/** Store entries, and that everything up to `through` is held. Then `stored` is called.
 * `is_complete`: the server has nothing above `through`; what is held above is from before a
 * restore. */
export interface Keep {
  do: "keep";
  replica: Replica;
  items: readonly EntryItem[];
  through: number;
  generation: number;
  is_complete: boolean;
}

export type Effect =
  /** Open a connection; `withNewToken`: get another token first, the last one is not valid. */
  | { do: "connect"; withNewToken: boolean }
  | { do: "send"; frame: ClientFrame }
  /** Close the socket. `lost` is not called for it: the core has forgotten it already. */
  | { do: "disconnect"; code: number }
  | Keep
  /** The server's store is another one: these replicas begin again. Stored before later Keeps. */
  | { do: "restart"; replicas: readonly Replica[]; epoch: string | null }
  /** Note on the disk that these are about to leave. Then `marked` is called. */
  | { do: "mark"; entries: readonly OutboxEntry[] }
  /** Entries of this chat in the outbox may leave. The connection itself handles this effect. */
  | { do: "release"; chat_id: string }
  /** An entry of the outbox has changed, and must be on the disk before it leaves. */
  | { do: "rewritten"; entry: OutboxEntry }
  /** An entry was refused for good, or it cannot be known whether the server has it. It
   * is stored as such, or removed if it is not in the outbox any more; then `saved` is called. */
  | { do: "failed"; entry: OutboxEntry }
  /** The server has stored an entry of ours. */
  | { do: "settled"; entry: OutboxEntry; sequence: number }
  /** The same, but another entry has done it: ours never comes back. */
  | { do: "done"; entry: OutboxEntry; sequence: number }
  /** Numbers or facts of a chat have changed: store and show them. */
  | { do: "replica"; replica: Replica }
  /** Count the unread messages in the store, if all of them are held. */
  | { do: "recount"; replica: Replica }
  | { do: "chat"; update: ChatUpdatePayload }
  | { do: "typed"; typing: TypingIndicatorPayload }
  | { do: "status"; status: Status }
  /** A frame is not known, because it is newer than we are, or it is broken: log it (EH-02). */
  | { do: "ignored"; type: string; error: unknown }
  | { do: "introduced"; user_id: string; epoch: string; features: readonly string[] };

/** Why there is no connection: the server's answer to the request to upgrade. */
export interface Refusal {
  status: number;
  error: string;
  reason?: string | null;
  retryAfterMs?: number;
}
