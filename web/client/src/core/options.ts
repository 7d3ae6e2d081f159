/** The options of a client, and the waits computed from them. PURE. */

/** Returns a number from 0 up to 1, 1 excluded. */
export type Random = () => number;

export interface Options {
  /** How long to wait after the first failure; it doubles with each further one. */
  backoffMs: number;
  backoffMsMax: number;
  /** How long connecting may take, until the server has introduced itself. */
  handshakeMsMax: number;
  /** How long an answer may take; after that the connection is given up. */
  answerMsMax: number;
  /** How long a connection whose token ends soon waits for its answers before it is replaced. */
  renewGraceMs: number;
  /** How long to wait for a sign of life from a connection that may be dead. */
  probeMs: number;
  pageMessages: number;
  /** How many chats are synced at the same time. */
  syncsMax: number;
  /** How many entries of a chat may wait for one that is missing before them; more are dropped. */
  waitingMax: number;
  /** How many entries may be on their way to the disk; beyond it no page is requested. */
  unstoredMax: number;
  /** How long to wait before a gap is synced, while the answer to an own message may fill it. */
  gapGraceMs: number;
  /** After so many stored entries a chat is acknowledged, however recent the last one was. */
  ackMessages: number;
  /** The least time between two acknowledgements of a direct chat with fewer messages. */
  ackDirectMs: number;
  /** The same in a group, where many acknowledge each message. */
  ackMs: number;
  /** The least time after a full bundle of acknowledgements; it is shorter after a smaller one. */
  ackIntervalMs: number;
  ackFramesMax: number;
  outboxMax: number;
  /** How many messages of a chat are on their way at once. */
  window: number;
  /** How many messages of all chats together are on their way at once. */
  sendsMax: number;
  /** How often a message is sent again after an error of the server itself. */
  triesMax: number;
  /** A message that left longer ago and whose fate is unknown is not sent again automatically. */
  fateMsMax: number;
}

export const DEFAULTS: Options = {
  backoffMs: 1000,
  backoffMsMax: 30_000,
  handshakeMsMax: 20_000,
  answerMsMax: 20_000,
  renewGraceMs: 5000,
  probeMs: 800,
  pageMessages: 500,
  syncsMax: 5,
  waitingMax: 1000,
  unstoredMax: 4000,
  gapGraceMs: 200,
  ackMessages: 10,
  ackDirectMs: 250,
  ackMs: 5000,
  ackIntervalMs: 50,
  ackFramesMax: 20,
  outboxMax: 10_000,
  window: 1,
  sendsMax: 64,
  triesMax: 3,
  fateMsMax: 6 * 24 * 3_600_000,
};

/** The wait, a random part longer or shorter: clients must not all come back at once (CL-06). */
export const varied = (waitMs: number, random: Random, variation = 0.25): number =>
  Math.round(waitMs * (1 - variation + 2 * variation * random()));

/** The wait after so many failures in a row, the first being 1: doubling, bounded, varied. */
export const backoffMs = (failures: number, random: Random, options: Options): number =>
  varied(
    Math.min(options.backoffMs * 2 ** Math.min(failures - 1, 30), options.backoffMsMax),
    random,
  );

/** The earliest of some instants; null: there is none. */
export const earliest = (...instants: (number | null)[]): number | null => {
  const known = instants.filter((at) => at !== null);
  return known.length ? Math.min(...known) : null;
};
