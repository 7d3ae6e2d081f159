/**
 * The Tidewire client for browsers: one person on one device, with a store that outlives the page.
 *
 * In Node import `@tidewire/client/node`: it has the same names, and keeps its store in a file.
 *
 * @example
 * const me = await Client.open("https://chat.example.org", { username: "ann", password: "…" });
 * const chat = await me.direct("ben");
 * const sent = await chat.send("lunch at noon?");
 * await sent.stored();
 *
 * @module
 */

import { Client } from "./shell/client.ts";
import { StoreUnusable } from "./shell/errors.ts";
import { openIdb } from "./shell/idb.ts";
import { rare } from "./shell/lending.ts";

export * from "./names.ts";

Client._platform = {
  store: "tidewire",
  webSocket: async () => WebSocket,
  open: async (name) => {
    if (name === ":memory:") return new (await rare()).MemoryBackend();
    try {
      return await openIdb(name);
    } catch (error) {
      if (error instanceof StoreUnusable) throw error;
      console.warn("tidewire: there is no IndexedDB here; nothing outlives this page", error);
    }
    const { MemoryBackend, openInSession } = await rare();
    // Without `sessionStorage` too, each reload needs a new login.
    return openInSession(name).catch(() => new MemoryBackend());
  },
};
