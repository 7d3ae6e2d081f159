/** Methods of `Client` and `Chat` that need the server, or that few programs use. Loaded at the
 * first call. */

import type { Row } from "../core/fold.ts";
import { firstRecord, type ReplicaRecord } from "../core/record.ts";
import type { Account, Member, Person, SendOptions, Session } from "../types.ts";
import type { HistoryItem } from "../wire/frames.ts";
import type {
  ChatListEntry,
  ChatView,
  CreatedChatView,
  DeleteMe,
  LookupResult,
  MuteView,
  RevokedCount,
} from "../wire/types.gen.ts";
import type { Chat } from "./chat.ts";
import type { Client } from "./client.ts";
import { RefusedByServer } from "./errors.ts";
import { shownAs } from "./forms.ts";
import { uuid } from "./ground.ts";
import { goneOf, pagesOf, searchIn } from "./history.ts";
import { saveExtras, takeChat, takeExtras, takeNames } from "./learning.ts";
import { Message } from "./message.ts";
import type { Sent } from "./sent.ts";
import type { Extras } from "./tables.ts";

const LIST_MAX = 100;
const LOOKUP_MAX = 100;
const FOUND_MAX = 50;
const LOST_MAX = 50;

export const ofClient = {
  // The account.

  async me(this: Client): Promise<Account> {
    return shownAs(await this._rest.data("GET", "/users/me"));
  },

  async setDisplayName(this: Client, display_name: string): Promise<Account> {
    return shownAs(await this._rest.data("PATCH", "/users/me", { body: { display_name } }));
  },

  /** Change the password and end all other logins; returns how many. This login stays.
   * @throws RefusedByServer (INVALID_CREDENTIALS) */
  async changePassword(this: Client, current: string, next: string): Promise<number> {
    const body = { current_password: current, new_password: next };
    return (await this._rest.data<RevokedCount>("POST", "/auth/password", { body })).revoked_count;
  },

  /** The logins of this user on all devices, the oldest first. */
  async sessions(this: Client): Promise<Session[]> {
    return shownAs(await this._rest.data("GET", "/sessions"));
  },

  async endSession(this: Client, sessionId: string): Promise<void> {
    await this._rest.call("DELETE", `/sessions/${sessionId}`);
  },

  /** End all logins but this one and those of bots; returns how many. */
  async endOtherSessions(this: Client): Promise<number> {
    return (await this._rest.data<RevokedCount>("DELETE", "/sessions")).revoked_count;
  },

  /**
   * Delete this account for good, and the store. Its messages stay, as those of a deleted account;
   * with `eraseMessages` the server deletes them in all chats soon after.
   *
   * @throws RefusedByServer (INVALID_CREDENTIALS, RATE_LIMITED)
   */
  async deleteAccount(
    this: Client,
    password: string,
    options: { eraseMessages?: boolean } = {},
  ): Promise<void> {
    const body: DeleteMe = { password, erase_messages: options.eraseMessages ?? false };
    await this._rest.call("POST", "/users/me/deletion", { body });
    await this._forget();
  },

  // Chats.

  /** Get all chats from the server, with names and last messages, then return `knownChats`. */
  async chats(this: Client): Promise<Chat[]> {
    const listed = await this._rest.pages<ChatListEntry>("/chats", { limit: LIST_MAX });
    const extras = new Map<string, Extras>();
    for (const chat of listed) {
      const { chat_id, other_member: other, last_message: told, updated_at } = chat;
      if (other) takeNames(this, { [other.user_id]: other.display_name });
      chat.name ??= other?.display_name ?? null;
      const last: Row | null = told && {
        ...told,
        chat_id,
        client_message_id: "",
        content: told.content_preview,
      };
      extras.set(chat_id, {
        muted_until: chat.my_membership.muted_until,
        other_id: other?.user_id ?? null,
        updated_at,
        ...(last && { last }),
      });
    }
    await adopt(this, listed);
    this._tell({ chats: await saveExtras(this._tables, extras) });
    return this.knownChats();
  },

  /** The direct chat with a user, by user name; made if there is none. @throws RefusedByServer */
  async direct(this: Client, username: string): Promise<Chat> {
    const key = `direct:${username.toLowerCase()}`;
    const known = (await this._tables.meta())[key];
    if (typeof known === "string") return this.chat(known);
    const user = await this.find(username);
    const chat = await create(this, { type: "direct", member_ids: [user.userId] });
    await this._tables.setMeta({ [key]: chat.chatId });
    return chat;
  },

  /** Make a group with these users, by user name. @throws RefusedByServer */
  async group(this: Client, name: string, ...usernames: string[]): Promise<Chat> {
    const found = await findAll(this, usernames);
    return create(this, { type: "group", name, member_ids: found.map((user) => user.userId) });
  },

  // People.

  /** The users with these user names; a name without a user is left out. */
  async users(this: Client, ...usernames: string[]): Promise<Person[]> {
    const { users } = await this._rest.data<LookupResult>("POST", "/users/lookup", {
      body: { usernames },
    });
    return shownAs(users);
  },

  /** A user by user name. @throws RefusedByServer (USER_NOT_FOUND) */
  async find(this: Client, username: string): Promise<Person> {
    return (await findAll(this, [username]))[0]!;
  },

  /** The public profile of a user, by user id. */
  async user(this: Client, userId: string): Promise<Person> {
    const person: Person = shownAs(await this._rest.data("GET", `/users/${userId}`));
    takeNames(this, { [userId]: person.displayName });
    return person;
  },

  /** Block a user, by user name or user id. */
  async block(this: Client, who: string): Promise<void> {
    await this._rest.call("PUT", `/users/${await idOf(this, who)}/block`);
  },

  async unblock(this: Client, who: string): Promise<void> {
    await this._rest.call("DELETE", `/users/${await idOf(this, who)}/block`);
  },

  async blocked(this: Client): Promise<Person[]> {
    return shownAs(await this._rest.pages("/users/me/blocks", { limit: LIST_MAX }));
  },

  // The store.

  /** Messages in the store that contain a text, newest first. Does not ask the server. */
  async search(
    this: Client,
    text: string,
    options: { chat?: Chat; limit?: number } = {},
  ): Promise<Message[]> {
    const { chat, limit = FOUND_MAX } = options;
    const rows = await searchIn(this._tables, text, chat?.chatId ?? null, limit);
    return rows.map((row) => new Message(this, row));
  },
};

export const ofChat = {
  /** Reply to a message once: a second reply with the same `part`, in any run, is not sent. For
   * bots; `message.reply` sends a reply at each call. */
  async reply(
    this: Chat,
    message: Message,
    text: string,
    options: SendOptions & { part?: number } = {},
  ): Promise<Sent> {
    const { part = 0, ...more } = options;
    const { userId } = this._client;
    const clientMessageId = await idFor(
      `tidewire-reply\n${userId ?? ""}\n${message.chatId}\n${message.messageId}\n${part}`,
    );
    return this.send(text, { clientMessageId, replyTo: message, seen: message.sequence, ...more });
  },

  /** The first message at or after a time, found on the server; null: there is none. */
  async messageAt(this: Chat, date: Date): Promise<Message | null> {
    let found: HistoryItem | undefined;
    let low = 0;
    let high = this._known?.head ?? 0;
    while (low < high) {
      const middle = Math.floor((low + high) / 2);
      const params = { after_sequence: middle, direction: "forward" };
      const [item] = await pagesOf(this, params, 1);
      if (item && new Date(item.created_at) < date) {
        low = item.sequence;
      } else {
        found = item ?? found;
        high = middle;
      }
    }
    return found
      ? ((await this.history({ after: found.sequence - 1, limit: 1 }))[0] ?? null)
      : null;
  },

  /** Messages that the server lost in a restore, and this device still has. */
  async lost(this: Chat, limit = LOST_MAX): Promise<Message[]> {
    const rows = await goneOf(this._client._tables, this.chatId, limit);
    return rows.map((row) => new Message(this._client, row, true));
  },

  // Members.

  async members(this: Chat): Promise<Member[]> {
    const view = await this._ask<ChatView>("GET", "");
    takeChat(this._client, view);
    return shownAs(view.members);
  },

  /** Add a person to a group, by user name or user id. A member just stays in. */
  async add(this: Chat, who: string): Promise<void> {
    try {
      const user_id = await idOf(this._client, who);
      await this._ask("POST", "/members", { body: { user_id }, isOnce: true });
    } catch (error) {
      if ((error as RefusedByServer).code !== "ALREADY_A_MEMBER") throw error;
    }
  },

  /** Take a person out of a group, by user name or user id. */
  async remove(this: Chat, who: string): Promise<void> {
    await this._ask("DELETE", `/members/${await idOf(this._client, who)}`);
  },

  async setRole(this: Chat, who: string, role: "admin" | "member"): Promise<void> {
    await this._ask("PATCH", `/members/${await idOf(this._client, who)}`, { body: { role } });
  },

  /** Leave this group; with `doNotAddAgain` others cannot add this user to it again, until
   * `allowAdding` takes that back. */
  async leave(this: Chat, options: { doNotAddAgain?: boolean } = {}): Promise<void> {
    const body = { do_not_add_again: options.doNotAddAgain ?? false };
    await this._ask("POST", "/leave", { body });
  },

  /** Let others add this user again to a group that was left for good. */
  async allowAdding(this: Chat): Promise<void> {
    await this._client._rest.call("DELETE", `/users/me/refused-groups/${this.chatId}`);
  },

  /** Make another member the owner, by user id. The owner stays as an admin. */
  async handOver(this: Chat, userId: string): Promise<void> {
    await this._ask("POST", "/transfer", { body: { user_id: userId } });
  },

  /** Close this group for good: all members are removed, the owner included. */
  async close(this: Chat): Promise<void> {
    await this._ask("POST", "/close");
  },

  async rename(this: Chat, name: string): Promise<void> {
    await this._ask("PATCH", "", { body: { name } });
  },

  /** Hide this direct chat until there is another message in it, or it is opened again. */
  async hide(this: Chat): Promise<void> {
    await this._ask("POST", "/hide");
    await this._client._command("hidden", this.chatId, true);
  },

  async unhide(this: Chat): Promise<void> {
    await this._ask("POST", "/unhide");
    await this._client._command("hidden", this.chatId, false);
  },

  /** Mute notifications of this chat for so many hours, or until `unmute`. */
  async mute(this: Chat, hours?: number): Promise<void> {
    const body = { duration_hours: hours ?? null };
    const { muted_until } = await this._ask<MuteView>("POST", "/mute", { body });
    await takeExtras(this._client, this.chatId, { muted_until });
  },

  async unmute(this: Chat): Promise<void> {
    await this._ask("POST", "/unmute");
    await takeExtras(this._client, this.chatId, { muted_until: null });
  },
};

const create = async (client: Client, body: object): Promise<Chat> => {
  const { chat_id } = await client._rest.data<CreatedChatView>("POST", "/chats", {
    body,
    isOnce: true,
  });
  const view = await client._rest.data<ChatView>("GET", `/chats/${chat_id}`);
  await adopt(client, [view]);
  takeChat(client, view);
  return client.chat(chat_id);
};

const adopt = async (client: Client, views: (ChatView | ChatListEntry)[]): Promise<void> => {
  const records = views.map((view): ReplicaRecord => {
    const { last_acked_sequence: acked, joined_sequence: joined } = view.my_membership;
    const { name, membership_version, current_sequence: head } = view;
    const more = { name, membership_version };
    return firstRecord(view.chat_id, view.type, Math.max(acked, joined), head, more);
  });
  await client._command("adopt", records);
};

/** Find users, in this order. A user who was found is remembered, because servers limit lookups. */
const findAll = async (client: Client, usernames: string[]): Promise<Person[]> => {
  const missing = usernames.filter((name) => !client._found.has(name.toLowerCase()));
  for (let at = 0; at < missing.length; at += LOOKUP_MAX)
    for (const user of await client.users(...missing.slice(at, at + LOOKUP_MAX)))
      client._found.set(user.username!.toLowerCase(), user);
  return usernames.map((name) => {
    const found = client._found.get(name.toLowerCase());
    if (!found) throw new RefusedByServer("USER_NOT_FOUND", `there is no user ${name}`, 404);
    return found;
  });
};

/** The user id for a user name or a user id. */
const idOf = async (client: Client, who: string): Promise<string> => {
  return who.startsWith("user_") ? who : (await client.find(who)).userId;
};

/** The same UUID for the same text, in the form of a UUIDv4. */
const idFor = async (text: string): Promise<string> =>
  uuid(new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text))));
