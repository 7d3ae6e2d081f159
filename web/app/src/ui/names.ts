// The names of chats and people, as the page shows them.

import type { Chat } from "@tidewire/client";
import type { Live } from "../model/live.ts";
import { words } from "../words/index.ts";

export function nameOfChat(live: Live, chat: Chat): string {
  if (chat.type === "direct" && chat.otherId) {
    return live.nameOf(chat.otherId) ?? chat.name ?? words.value.unknownPerson;
  }
  return chat.name ?? words.value.unnamedChat;
}

export function nameOfPerson(live: Live, userId: string): string {
  if (userId === live.client.userId) return words.value.you;
  return live.nameOf(userId) ?? words.value.unknownPerson;
}
