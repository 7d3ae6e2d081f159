// The login of this page: the app opens with the login in the store, or shows the login form.

import { Client, LoginNeeded, type OpenOptions, type Status } from "@tidewire/client";
import { Live } from "./live.ts";
import { signal } from "./signals.ts";

/** Facts about the server that it tells without a login. */
export interface ServerInfo {
  readonly version: string;
  readonly registration: "open" | "invite" | "closed";
  readonly isWithoutAccounts: boolean;
}

export type Phase =
  | { readonly kind: "opening" }
  | { readonly kind: "welcome"; readonly reason: string | null }
  | { readonly kind: "in"; readonly live: Live }
  | { readonly kind: "ended"; readonly reason: string };

export const phase = signal<Phase>({ kind: "opening" });
/** null: the server has not answered. */
export const server = signal<ServerInfo | null>(null);

const TOKEN = "tidewire-token";
/** Reasons for the end of the client after which the user can log in again. */
const LOGIN_REASONS = new Set(["session_revoked", "login_needed", "logged_out"]);
/** The user is ending the login here: the server closes the connection before it answers. */
let isLeaving = false;

/** Open with the login in this browser's store; without one, show the login form. */
export async function begin(): Promise<void> {
  const token = tokenOfTab();
  try {
    enter(await Client.open(location.origin, token === null ? {} : { getToken: () => token }));
  } catch (error) {
    if (!(error instanceof LoginNeeded)) throw error;
    welcome(null);
  }
}

export async function logIn(options: OpenOptions): Promise<void> {
  enter(await Client.open(location.origin, options));
}

/** Use a token of the operator's own identity provider. It stays in this tab. */
export async function useToken(token: string): Promise<void> {
  enter(await Client.open(location.origin, { getToken: () => token }));
  try {
    sessionStorage.setItem(TOKEN, token);
  } catch {
    // Without storage, the token holds until the page is loaded again.
  }
}

export function logOut(live: Live): Promise<void> {
  return leave(live, null, () => live.client.logout());
}

export function deleteAccount(live: Live, password: string, isErasing: boolean): Promise<void> {
  return leave(live, isErasing ? "account_erased" : "account_deleted", () =>
    live.client.deleteAccount(password, { eraseMessages: isErasing }),
  );
}

/** End the login at the user's request, and show `reason`, not the reason of the closed client. */
async function leave(live: Live, reason: string | null, end: () => Promise<void>): Promise<void> {
  isLeaving = true;
  try {
    await end();
    left(live, reason);
  } finally {
    isLeaving = false;
    // The server may have ended the login although its answer was lost.
    const { state, reason: told } = live.client.status;
    if (state === "closed") left(live, told ?? null);
  }
}

function tokenOfTab(): string | null {
  try {
    return sessionStorage.getItem(TOKEN);
  } catch {
    return null;
  }
}

function enter(client: Client): void {
  const live = new Live(client);
  phase.value = { kind: "in", live };
  // Ask the browser not to evict the store; its answer changes nothing here.
  void navigator.storage?.persist?.();
  // A new device knows no names yet, and may have much to sync before it learns them.
  if (!client.knownChats().length)
    client.chats().then(
      () => live.refresh(),
      () => undefined,
    );
  void client.closed.then((status: Status) => {
    const reason = status.reason ?? "";
    if (isLeaving) return;
    if (LOGIN_REASONS.has(reason)) left(live, reason);
    else if (reason && reason !== "closed") phase.value = { kind: "ended", reason };
  });
}

function left(live: Live, reason: string | null): void {
  if (phase.value.kind !== "in" || phase.value.live !== live) return;
  live.end();
  try {
    sessionStorage.removeItem(TOKEN);
  } catch {
    // There is no storage, so there is nothing in it.
  }
  location.hash = "";
  welcome(reason);
}

function welcome(reason: string | null): void {
  phase.value = { kind: "welcome", reason };
  void askServer();
}

async function askServer(): Promise<void> {
  try {
    const answer = await fetch("/api/v1/", { credentials: "omit" });
    const { data } = await answer.json();
    server.value = {
      version: data.version,
      registration: data.registration,
      isWithoutAccounts: data.is_without_accounts,
    };
  } catch {
    server.value = null;
  }
}
