/** Loads parts of the package on demand. */

import { ServerUnreachable } from "./errors.ts";
import { sleep } from "./ground.ts";

type Rare = typeof import("./rare.ts");

const LOAD_AGAIN_MS = 2000;

/** The part that holds the connection; loading is retried if the network fails. */
export const more = async (): Promise<typeof import("./more.ts")> => {
  for (;;) {
    try {
      return await import("./more.ts");
    } catch (error) {
      console.warn("tidewire: a part of the client could not be loaded", error);
      await sleep(LOAD_AGAIN_MS);
    }
  }
};

/** The part that a device needs once, or few pages need, or only calls to the server need. */
export const rare = async (): Promise<Rare> => {
  try {
    return await import("./rare.ts");
  } catch (error) {
    throw new ServerUnreachable(`a part of the client could not be loaded: ${error}`);
  }
};

/** Adds methods to a class whose code is in `rare`. The type of `names` makes sure that none is
 * missing. */
export const lend = <Methods extends object>(
  borrower: { prototype: object },
  pick: (from: Rare) => Methods,
  names: Record<keyof Methods, 1>,
): void => {
  for (const name in names)
    (borrower.prototype as Record<string, unknown>)[name] = async function (...args: unknown[]) {
      return (pick(await rare())[name] as (...args: unknown[]) => unknown).apply(this, args);
    };
};
