/** What people and chats are called, as the server tells it: told to all tabs, kept in the store. Loaded
 * when a name is missing. */

import type { ChatView } from "../wire/types.gen.ts";
import type { Client } from "./client.ts";
import { tolerated } from "./people.ts";
import type { ChatState, Extras, Tables } from "./tables.ts";

const USERS_MAX = 20;

/** Names that were just told. */
export const takeNames = (client: Client, names: Record<string, string>): void => {
  const known = client._view.names;
  const news = Object.entries(names).filter(([id, name]) => known.get(id) !== name);
  if (!news.length) return;
  const learned = Object.fromEntries(news);
  client._tell({ names: learned });
  savePeople(client._tables, learned).catch(() => {
    // They are asked for again in the next life.
  });
};

/** A chat as the server has just told it. */
export const takeChat = (client: Client, view: ChatView): void => {
  const { chat_id, type, members, my_membership } = view;
  takeNames(client, Object.fromEntries(members.map((one) => [one.user_id, one.display_name])));
  const isDirect = type === "direct";
  const other = isDirect ? members.find((one) => one.user_id !== client.userId) : undefined;
  const name = isDirect ? other?.display_name : view.name;
  if (name) client._wish("name", chat_id, name);
  const { muted_until } = my_membership;
  const extras = { muted_until, other_id: other?.user_id ?? null };
  takeExtras(client, chat_id, extras).catch(tolerated);
};

/** What is known of a chat beside its numbers. */
export const takeExtras = async (client: Client, chatId: string, extras: Extras): Promise<void> => {
  const chats = await saveExtras(client._tables, new Map([[chatId, extras]]));
  client._tell({ chats });
};

export const learnChat = async (client: Client, chatId: string): Promise<void> =>
  takeChat(client, await client._rest.data<ChatView>("GET", `/chats/${chatId}`));

/** Who wrote something in a chat. */
export const learnPeople = async (
  client: Client,
  chatId: string,
  userIds: readonly string[],
): Promise<void> => {
  await learnChat(client, chatId).catch(tolerated);
  const { names } = client._view;
  // They are not in the chat any more.
  const gone = userIds.filter((id) => !names.has(id)).slice(0, USERS_MAX);
  for (const id of gone) await client.user(id).catch(tolerated);
};

const savePeople = (tables: Tables, people: Record<string, string>): Promise<void> =>
  tables.backend.run("write", async (tx) => {
    for (const [user_id, name] of Object.entries(people)) tx.put("people", { user_id, name });
  });

/** What is known of chats beside the core's numbers. Any tab may tell. */
export const saveExtras = (tables: Tables, extras: Map<string, Extras>): Promise<ChatState[]> =>
  tables.backend.run("write", async (tx) => {
    const saved: ChatState[] = [];
    for (const [chatId, more] of extras) {
      const chat = await tx.get<ChatState>("chats", chatId);
      if (!chat) continue;
      const next = { ...chat, ...more };
      // What is held of the last message is more than what a list tells of it.
      if (more.last && more.last.sequence <= (chat.last?.sequence ?? 0)) next.last = chat.last!;
      tx.put("chats", next);
      saved.push(next);
    }
    return saved;
  });
