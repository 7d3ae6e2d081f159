/** Requests names of people and chats from the server, tells them to all tabs and keeps them in the
 * store. Loaded when a name is missing. */

import type { ChatView } from "../wire/types.gen.ts";
import type { Client } from "./client.ts";
import { tolerated } from "./people.ts";
import type { ChatState, Extras, Tables } from "./tables.ts";

const USERS_MAX = 20;

/** Take in names that the server has just sent. */
export const takeNames = (client: Client, names: Record<string, string>): void => {
  const known = client._view.names;
  const news = Object.entries(names).filter(([id, name]) => known.get(id) !== name);
  if (!news.length) return;
  const learned = Object.fromEntries(news);
  client._tell({ names: learned });
  savePeople(client._tables, learned).catch(() => {
    // They are requested again in the next run.
  });
};

/** Take in a chat as the server has just sent it. */
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

/** Store facts of a chat, and tell them to all tabs. */
export const takeExtras = async (client: Client, chatId: string, extras: Extras): Promise<void> => {
  const chats = await saveExtras(client._tables, new Map([[chatId, extras]]));
  client._tell({ chats });
};

export const learnChat = async (client: Client, chatId: string): Promise<void> =>
  takeChat(client, await client._rest.data<ChatView>("GET", `/chats/${chatId}`));

/** Learn the names of users who have written in a chat. */
export const learnPeople = async (
  client: Client,
  chatId: string,
  userIds: readonly string[],
): Promise<void> => {
  await learnChat(client, chatId).catch(tolerated);
  const { names } = client._view;
  // These are not members any more: the chat does not list their names.
  const gone = userIds.filter((id) => !names.has(id)).slice(0, USERS_MAX);
  for (const id of gone) await client.user(id).catch(tolerated);
};

const savePeople = (tables: Tables, people: Record<string, string>): Promise<void> =>
  tables.backend.run("write", async (tx) => {
    for (const [user_id, name] of Object.entries(people)) tx.put("people", { user_id, name });
  });

/** Store facts of chats that are not the core's numbers; any tab may do it. Returns the chats. */
export const saveExtras = (tables: Tables, extras: Map<string, Extras>): Promise<ChatState[]> =>
  tables.backend.run("write", async (tx) => {
    const saved: ChatState[] = [];
    for (const [chatId, more] of extras) {
      const chat = await tx.get<ChatState>("chats", chatId);
      if (!chat) continue;
      const next = { ...chat, ...more };
      // The stored last message has more than the preview in a list of chats.
      if (more.last && more.last.sequence <= (chat.last?.sequence ?? 0)) next.last = chat.last!;
      tx.put("chats", next);
      saved.push(next);
    }
    return saved;
  });
