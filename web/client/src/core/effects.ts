/** What a connection's core wants to be done, as values; the driver does it. PURE. */

import type {
  ChatUpdatePayload,
  ClientFrame,
  EntryItem,
  TypingIndicatorPayload,
} from "../wire/frames.ts";
import type { OutboxEntry } from "./outbox.ts";
import type { Replica } from "./replica.ts";

/** An instant: `ms` of a clock that only goes forward, `wallMs` of the calendar's. */
export interface Now {
  ms: number;
  wallMs: number;
}

export type ConnectionState = "offline" | "connecting" | "syncing" | "ready" | "closed";

/** Where a connection stands; `reason` is why it is offline or closed. */
export interface Status {
  readonly state: ConnectionState;
  readonly reason: string | null;
}

/** Store entries, and that everything up to `through` is held. Told by `stored`. `is_complete`: the
 * server has nothing above `through`; what is held above is from before a restore. */
export interface Keep {
  do: "keep";
  replica: Replica;
  items: readonly EntryItem[];
  through: number;
  generation: number;
  is_complete: boolean;
}

export type Effect =
  /** Open a connection; with a token that is not the last one, if that was refused. */
  | { do: "connect"; withNewToken: boolean }
  | { do: "send"; frame: ClientFrame }
  /** Close the socket, and hear nothing more of it. */
  | { do: "disconnect"; code: number }
  | Keep
  /** The server's store is another one: these replicas begin again. Before any later Keep. */
  | { do: "restart"; replicas: readonly Replica[]; epoch: string | null }
  /** Note on the disk that these are about to leave. Told by `marked`. */
  | { do: "mark"; entries: readonly OutboxEntry[] }
  /** What waits in the outbox for this chat may leave. Routed by the connection itself. */
  | { do: "release"; chat_id: string }
  /** Refused for good, or nothing can tell whether the server has it. */
  | { do: "failed"; entry: OutboxEntry }
  /** Something of ours is in the server's store. */
  | { do: "settled"; entry: OutboxEntry; sequence: number }
  /** Numbers or facts of a chat are other than before: to be stored, and to be shown. */
  | { do: "replica"; replica: Replica }
  /** What is unread is to be counted in the store, if everything is held. */
  | { do: "recount"; replica: Replica }
  | { do: "chat"; update: ChatUpdatePayload }
  | { do: "typed"; typing: TypingIndicatorPayload }
  | { do: "status"; status: Status }
  /** A frame was not understood: it is newer than we are, or broken. To be logged (EH-02). */
  | { do: "ignored"; type: string; error: unknown }
  | { do: "introduced"; user_id: string; epoch: string; features: readonly string[] };

/** Why no connection came about: the answer to the request to upgrade. */
export interface Refusal {
  status: number;
  error: string;
  reason?: string | null;
  retryAfterMs?: number;
}
