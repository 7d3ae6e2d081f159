/** Makes the events that an application gets. */

import type { ClientEvent, EntryKind } from "../types.ts";
import type { Client } from "./client.ts";
import { Message } from "./message.ts";
import type { Happening } from "./tables.ts";

export type Listener = (event: ClientEvent) => void;

/** Make the event of a happening. */
export const eventOf = (
  client: Client,
  happening: Happening,
  redelivered = false,
): ClientEvent | null => {
  const { position } = happening;
  switch (happening.kind) {
    case "message": {
      const message = new Message(client, happening.row);
      const type = message.isOwn ? "MessageStored" : "MessageReceived";
      return { type, message, position, redelivered };
    }
    case "changed": {
      const { chat_id: chatId, entry_kind, sequence, sender_id: senderId } = happening;
      const [before, after] = [happening.before, happening.after].map((row) =>
        row ? new Message(client, row) : null,
      ) as [Message | null, Message | null];
      const kind = entry_kind as Exclude<EntryKind, "message">;
      const type = "MessageChanged";
      return { type, chatId, kind, sequence, senderId, before, after, position, redelivered };
    }
    case "refused": {
      const { chat_id: chatId, client_message_id: clientMessageId, text, code, reason } = happening;
      const kind = happening.entry_kind as EntryKind;
      const type = "MessageRefused";
      return { type, chatId, clientMessageId, kind, text, code, reason, position, redelivered };
    }
    default: {
      const { chat_id: chatId, change, changed_by: changedBy, ...update } = happening.update;
      const name = update.name ?? null;
      const userId = update.user_id ?? null;
      return {
        type: "ChatUpdated",
        ...{ chatId, change, name, userId, changedBy, position, redelivered },
      };
    }
  }
};
