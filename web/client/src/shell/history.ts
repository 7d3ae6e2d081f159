/** Older messages that only the server has, and search in the whole store. Loaded at the first
 * call. */

import { isMessage, merged, type Row, rowOf } from "../core/fold.ts";
import type { HistoryItem } from "../wire/frames.ts";
import type { Range } from "./backend.ts";
import type { Chat } from "./chat.ts";
import { takeNames } from "./learning.ts";
import type { Message } from "./message.ts";
import { ABOVE_ALL, type ChatState, chatRange, type StoredRow, type Tables } from "./tables.ts";

const PAGE_MAX = 100;
const SEARCH_CHUNK = 1000;

type Params = Record<string, string | number>;

/** Messages before and after a sequence, from the server. */
export const fetchAround = async (
  chat: Chat,
  around: number,
  limit: number,
): Promise<Message[]> => {
  const params = { context: Math.max(1, Math.min(limit >> 1, PAGE_MAX / 2)) };
  const path = `/messages/around/${around}`;
  const { messages } = await chat._ask<{ messages: HistoryItem[] }>("GET", path, { params });
  return chat._shown(await folded(chat, messages, null));
};

/** The oldest messages above a sequence, from the server. */
export const fetchAfter = async (chat: Chat, after: number, limit: number): Promise<Message[]> => {
  const items = await pagesOf(chat, { after_sequence: after, direction: "forward" }, limit);
  return chat._shown(await folded(chat, items, null));
};

/** The newest messages below a sequence and below the start of the store, from the server. They
 * are kept if they continue the stored ones. */
export const fetchOlder = async (
  chat: Chat,
  before: number,
  floor: number,
  limit: number,
): Promise<Message[]> => {
  const bound = Math.min(before, floor + 1);
  const params: Params = { direction: "backward" };
  if (bound < ABOVE_ALL) params.before_sequence = bound;
  const items = await pagesOf(chat, params, limit);
  // The page continues the stored messages only if it begins right below them.
  const isKept = !!chat._known && before > floor;
  const end = items.length < limit ? 0 : items.at(-1)!.prev_sequence;
  const rows = await folded(chat, items.reverse(), isKept ? end : null);
  if (isKept) chat._client._tell({ chats: [{ ...chat._known!, floor: Math.min(floor, end) }] });
  return chat._shown(rows);
};

/** One message that this device does not hold. */
export const fetchOne = async (chat: Chat, sequence: number): Promise<Message | null> => {
  const params = { after_sequence: sequence - 1, before_sequence: sequence + 1 };
  const rows = await folded(chat, await pagesOf(chat, params, 1), null);
  return (await chat._shown(rows))[0] ?? null;
};

/** Items of the server's history, at most `limit`. */
export const pagesOf = async (
  chat: Chat,
  params: Params,
  limit: number,
): Promise<HistoryItem[]> => {
  const path = `/chats/${chat.chatId}/messages`;
  const paged = { ...params, limit: Math.min(limit, PAGE_MAX) };
  const items = await chat._client._rest.pages<HistoryItem>(path, paged, limit);
  return items.slice(0, limit);
};

const folded = (chat: Chat, items: HistoryItem[], floor: number | null): Promise<Row[]> => {
  const client = chat._client;
  takeNames(
    client,
    Object.fromEntries(
      items.flatMap(({ sender }) => (sender ? [[sender.user_id, sender.display_name]] : [])),
    ),
  );
  return keepHistory(client._tables, chat.chatId, items, client.userId ?? "", floor);
};

/** Merge a page of the server's history with the stored rows. `floor`: the page continues the
 * stored messages down to there, so it is kept; null: it is only returned. */
export const keepHistory = (
  tables: Tables,
  chatId: string,
  items: readonly HistoryItem[],
  ownId: string,
  floor: number | null,
): Promise<Row[]> =>
  tables.backend.run(floor === null ? "read" : "write", async (tx) => {
    const rows: Row[] = [];
    for (const item of items.filter(isMessage)) {
      const key = [chatId, item.sequence];
      const held = await tx.get<StoredRow>("messages", key);
      const told = rowOf(chatId, item, ownId);
      const known = held ?? (await tx.get<Row>("stubs", key));
      const row: StoredRow = known ? merged(known, told) : told;
      if (held?.position) row.position = held.position;
      if (item.sender_id === ownId) row.own_id = item.client_message_id;
      rows.push(row);
      if (floor !== null) {
        tx.put("messages", row);
        tx.delete("stubs", key);
      }
    }
    const chat = floor === null ? undefined : await tx.get<ChatState>("chats", chatId);
    if (chat && floor! < (chat.floor ?? chat.start)) {
      const last = rows.reduce((a, b) => (b.sequence >= (a?.sequence ?? 0) ? b : a), chat.last!);
      tx.put("chats", { ...chat, floor, last: last ?? null });
    }
    return rows;
  });

/** Messages that the server lost in a restore, and this device still has. */
export const goneOf = (tables: Tables, chatId: string, limit: number): Promise<Row[]> => {
  const range = { from: [chatId], to: [chatId, ABOVE_ALL, []], limit, isDown: true };
  return tables.backend.run("read", (tx) => tx.all<Row>("gone", range));
};

/** Messages that contain a text, in upper or lower case; newest first. */
export const searchIn = async (
  tables: Tables,
  text: string,
  chatId: string | null,
  limit: number,
): Promise<Row[]> => {
  const wanted = text.toLowerCase();
  const found: Row[] = [];
  // One transaction per chunk: a long search must not block writers.
  const look = async (range: Range): Promise<Row[]> => {
    const rows = await tables.backend.run("read", (tx) => tx.all<Row>("messages", range));
    found.push(...rows.filter((row) => row.content.toLowerCase().includes(wanted)));
    return rows;
  };
  if (chatId === null) {
    // Rows are in the order of their chats, so the newest ones may be anywhere.
    const range: Range = { limit: SEARCH_CHUNK };
    let rows: Row[];
    do {
      rows = await look(range);
      const last = rows.at(-1);
      range.from = last && [last.chat_id, last.sequence + 1];
    } while (rows.length === SEARCH_CHUNK);
  } else {
    const [last] = await tables.messages(chatId, ABOVE_ALL, 0, 1, true);
    for (let to = last?.sequence ?? 0; to > 0 && found.length < limit; to -= SEARCH_CHUNK)
      await look(chatRange(chatId, to - SEARCH_CHUNK + 1, to));
  }
  return found.sort((a, b) => (a.created_at < b.created_at ? 1 : -1)).slice(0, limit);
};
