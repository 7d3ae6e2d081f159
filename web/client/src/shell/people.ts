/**
 * Notices which names of people and chats are missing: the socket sends only ids. These names are
 * requested in the background (learning.ts) and kept in the store. A caller waits two seconds at
 * most.
 */

import type { Row } from "../core/fold.ts";
import type { Chat } from "./chat.ts";
import type { Client } from "./client.ts";
import { ClientError } from "./errors.ts";
import { sleep } from "./ground.ts";
import { rare } from "./lending.ts";

const WAIT_MS_MAX = 2000;
/** Up to so many chats without a name are requested one by one; for more, all chats are listed. */
const ONE_BY_ONE_MAX = 5;

/** Ignores errors of the client: a name that cannot be learned stays unknown. */
export const tolerated = (error: unknown): void => {
  if (!(error instanceof ClientError)) throw error;
};

export class People {
  /** Chats and people that were requested on this connection: each is requested only once. */
  private _asked = new Set<string>();
  private _learning: Promise<unknown> | null = null;

  constructor(private _client: Client) {}

  // Chats.

  /** There is a new connection: the server may know more names now. */
  connected(): void {
    this._asked.clear();
    this.noticed();
  }

  /** Look for chats without a name, and request their names. Only the leading tab does. */
  noticed(): void {
    const { _view: view, isLeader } = this._client;
    if (this._learning || !isLeader || view.status.state !== "ready") return;
    const nameless = [...view.chats.values()]
      .filter((chat) => chat.name === null && chat.is_member && !this._asked.has(chat.chat_id))
      .map((chat) => chat.chat_id);
    if (!nameless.length) return;
    for (const id of nameless) this._asked.add(id);
    const learn = async (): Promise<void> => {
      if (nameless.length > ONE_BY_ONE_MAX) await this._client.chats();
      else for (const id of nameless) await (await rare()).learnChat(this._client, id);
    };
    this._learning = learn()
      .catch(tolerated)
      .finally(() => {
        this._learning = null;
        this.noticed();
      });
  }

  /** Wait until the chats have their names, or `WAIT_MS_MAX` is over. */
  async settled(): Promise<void> {
    if (this._learning) await Promise.race([this._learning, sleep(WAIT_MS_MAX)]);
  }

  // People.

  /** Learn the names of the authors of these rows, if there is a connection. Waits as `settled`. */
  async know(chatId: string, rows: readonly Row[]): Promise<void> {
    const { names } = this._client._view;
    const missing = [...new Set(rows.map((row) => row.sender_id))].filter(
      (id) => id && !names.has(id) && !this._asked.has(id),
    );
    if (missing.length && this._client.status.state === "ready")
      await Promise.race([this._learn(chatId, missing), sleep(WAIT_MS_MAX)]);
  }

  private async _learn(chatId: string, userIds: string[]): Promise<void> {
    for (const id of userIds) this._asked.add(id);
    const learn = async () => (await rare()).learnPeople(this._client, chatId, userIds);
    await learn().catch(tolerated);
  }
}

/** The order of a list of chats: the newest activity first. */
export const byActivity = (a: Chat, b: Chat): number => activityOf(b) - activityOf(a);

const activityOf = (chat: Chat): number => {
  const state = chat._known;
  return Date.parse(state?.last?.created_at ?? state?.updated_at ?? "") || 0;
};
