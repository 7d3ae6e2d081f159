// Starts the web chat.

import { render } from "preact";
import { watchRoute } from "./model/route.ts";
import { begin } from "./model/session.ts";
import { applySettings } from "./model/settings.ts";
import { App } from "./ui/app.tsx";

interface TrustedTypes {
  createPolicy(
    name: string,
    rules: { createScriptURL: (url: string) => string },
  ): { createScriptURL(url: string): string };
}

watchRoute();
void applySettings().then(() => render(<App />, document.getElementById("app")!));
void begin();
keepPage();

/** Register the service worker, so that the page opens without the server from now on. */
function keepPage(): void {
  if (!("serviceWorker" in navigator)) return;
  const { trustedTypes } = globalThis as { trustedTypes?: TrustedTypes };
  // The only script that this page starts by a URL; the policy allows no other.
  const url =
    trustedTypes?.createPolicy("tidewire-worker", { createScriptURL: () => "/sw.js" }) ?? null;
  addEventListener("load", () => {
    navigator.serviceWorker.register(url ? url.createScriptURL("/sw.js") : "/sw.js").catch(() => {
      // Without the worker the page needs the server to open; nothing else changes.
    });
  });
}
