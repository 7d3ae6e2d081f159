/** Logs in and makes accounts; a device needs it once. */

import type { OpenOptions } from "../types.ts";
import type { LoginResult } from "../wire/types.gen.ts";
import type { Credentials } from "./credentials.ts";
import { LoginNeeded, RefusedByServer, ServerUnreachable, StoreUnusable } from "./errors.ts";
import type { Rest } from "./rest.ts";

/** Use the login of the store, log in, or make the account. Throws RefusedByServer,
 * ServerUnreachable, StoreUnusable. */
export const logIn = async (
  credentials: Credentials,
  rest: Rest,
  wish: OpenOptions,
): Promise<void> => {
  const { username = "", password, register = "if-missing", displayName, invite } = wish;

  const enter = async (path: "login" | "register"): Promise<void> => {
    const body = { username, password, device_id: credentials.deviceId };
    const more = path === "login" ? {} : { display_name: displayName, invite };
    const { user, tokens } = await rest.data<LoginResult>("POST", `/auth/${path}`, {
      body: { ...body, ...more },
      isPublic: true,
    });
    await credentials.entered(user.user_id, username, tokens);
  };

  if (register === "always") {
    await enter("register");
    return;
  }
  if (await isIn(credentials, rest, username)) return;
  try {
    await enter("login");
  } catch (refusal) {
    const isUnknown = (refusal as RefusedByServer).code === "INVALID_CREDENTIALS";
    if (register === "never" || !isUnknown) throw refusal;
    try {
      await enter("register");
    } catch (taken) {
      // The account exists, so the password was wrong.
      throw (taken as RefusedByServer).code === "CONFLICT" ? refusal : taken;
    }
  }
};

/** Whether the login in the store is still valid; if the server cannot be asked: it is. */
const isIn = async (credentials: Credentials, rest: Rest, username: string): Promise<boolean> => {
  const known = credentials.username;
  if (!known || !credentials.isLoggedIn) return false;
  if (known.toLowerCase() !== username.toLowerCase())
    throw new StoreUnusable(`the store belongs to ${known}, not to ${username}; name another one`);
  try {
    await rest.call("GET", "/users/me");
  } catch (error) {
    if (error instanceof LoginNeeded) return false;
    if (error instanceof RefusedByServer) return error.status !== 401;
    if (!(error instanceof ServerUnreachable)) throw error;
  }
  return true;
};
