/**
 * Who wrote, and what chats are called: whether something is missing. It is asked for in the background
 * (learning.ts), and kept in the store. The socket tells ids alone. A caller waits for a name for a
 * moment at most.
 */

import type { Row } from "../core/fold.ts";
import type { Chat } from "./chat.ts";
import type { Client } from "./client.ts";
import { ClientError } from "./errors.ts";
import { sleep } from "./ground.ts";
import { rare } from "./lending.ts";

const WAIT_MS_MAX = 2000;
/** So many chats without a name are asked for one by one; if there are more, all are listed. */
const ONE_BY_ONE_MAX = 5;

/** What cannot be learned stays unknown. */
export const tolerated = (error: unknown): void => {
  if (!(error instanceof ClientError)) throw error;
};

export class People {
  /** Chats and people that were asked for on this connection: not again and again. */
  private _asked = new Set<string>();
  private _learning: Promise<unknown> | null = null;

  constructor(private _client: Client) {}

  // Chats.

  /** A new connection may know more. */
  connected(): void {
    this._asked.clear();
    this.noticed();
  }

  /** Maybe there is a chat without a name. One tab asks for it. */
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

  /** Wait until the chats have their names, for a moment at most. */
  async settled(): Promise<void> {
    if (this._learning) await Promise.race([this._learning, sleep(WAIT_MS_MAX)]);
  }

  // People.

  /** Learn who wrote these, if the server can be asked, for a moment at most. */
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
