// The route: which view of the app is open. It is in the address after the #, so that "back" works
// and the server needs to serve only one page.

import { signal } from "./signals.ts";

export type Panel = "about" | "search" | null;

export interface Route {
  readonly chatId: string | null;
  readonly panel: Panel;
  /** The settings are open. */
  readonly settings: boolean;
  readonly isNew: boolean;
}

const NOWHERE: Route = { chatId: null, panel: null, settings: false, isNew: false };

export function readRoute(hash: string): Route {
  const [place, id, panel] = hash.replace(/^#\/?/, "").split("/");
  if (place === "chat" && id) {
    try {
      const chatId = decodeURIComponent(id);
      return { ...NOWHERE, chatId, panel: panel === "about" || panel === "search" ? panel : null };
    } catch {
      // A damaged address names no chat.
    }
  }
  return { ...NOWHERE, settings: place === "settings", isNew: place === "new" };
}

export function chatHref(chatId: string, panel: Panel = null): string {
  return `#/chat/${encodeURIComponent(chatId)}${panel ? `/${panel}` : ""}`;
}

export const route = signal<Route>(readRoute(location.hash));
/** A message to show in the chat that is opened next. */
export const wantedMessage = signal<{ chatId: string; sequence: number } | null>(null);

let depth = 0;

export function watchRoute(): void {
  addEventListener("hashchange", () => {
    route.value = readRoute(location.hash);
  });
}

export function go(hash: string): void {
  if (location.hash === hash) return;
  depth++;
  location.hash = hash;
}

/** Go one step back; to `otherwise` if the page was opened at this route. */
export function goBack(otherwise: string): void {
  if (depth > 0) {
    depth--;
    history.back();
  } else {
    location.replace(otherwise);
  }
}

export function showMessage(chatId: string, sequence: number): void {
  wantedMessage.value = { chatId, sequence };
  go(chatHref(chatId));
}
