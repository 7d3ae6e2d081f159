/**
 * The Tidewire client for Node 20 and later: the names of `@tidewire/client`, with a store in a
 * file, if `store` names one; the default is `:memory:`, which keeps nothing.
 *
 * It connects with `ws`, if that is installed, else with the global WebSocket of Node 22 and later.
 *
 * @module
 */

import { Client } from "./shell/client.ts";
import { ClientError } from "./shell/errors.ts";
import { FileBackend } from "./shell/file.ts";
import { MemoryBackend } from "./shell/memory.ts";

export * from "./names.ts";

Client._platform = {
  store: ":memory:",
  open: async (name) => (name === ":memory:" ? new MemoryBackend() : FileBackend.open(name)),
  webSocket: async () => {
    try {
      return (await import("ws")).WebSocket as unknown as typeof WebSocket;
    } catch (error) {
      if (globalThis.WebSocket) return globalThis.WebSocket;
      throw new ClientError(
        `there is no WebSocket in this Node: npm install ws, or use Node 22 (${error})`,
      );
    }
  },
};
