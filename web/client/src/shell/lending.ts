/** Parts of the package that come on demand. */

import { ServerUnreachable } from "./errors.ts";
import { sleep } from "./ground.ts";

type Rare = typeof import("./rare.ts");

const LOAD_AGAIN_MS = 2000;

/** What holds the connection; asked for again where the network fails at it. */
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

/** What is wanted once a device, by few, or of the server alone. */
export const rare = async (): Promise<Rare> => {
  try {
    return await import("./rare.ts");
  } catch (error) {
    throw new ServerUnreachable(`a part of the client could not be loaded: ${error}`);
  }
};

/** Gives a class methods whose bodies are rare. They are named, so that none is forgotten. */
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
