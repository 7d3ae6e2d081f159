// The list of chats, and the search in the messages on this device.

import type { Chat, Message } from "@tidewire/client";
import { drafts } from "../model/drafts.ts";
import { isMuted, type Live } from "../model/live.ts";
import { chatHref, go, route, showMessage } from "../model/route.ts";
import { lineOf } from "../model/text.ts";
import { whenOf, words } from "../words/app.ts";
import * as icons from "./icon-paths.ts";
import { Icon } from "./icons.tsx";
import { nameOfChat } from "./names.ts";
import { Face, IconButton, moveFocus, Name } from "./parts.tsx";
import { useSearch } from "./search.ts";
import { Tick } from "./tick.tsx";

const FOUND_MAX = 50;

export function Sidebar({ live }: { live: Live }) {
  const say = words.value;
  const { query, found, fault } = useSearch(live, { lettersMin: 2, limit: FOUND_MAX });

  const wanted = query.value.trim().toLowerCase();
  const chats = live.chats.value;
  const shown = wanted
    ? chats.filter((chat) => nameOfChat(live, chat).toLowerCase().includes(wanted))
    : chats.filter((chat) => !chat.isHidden);
  const hidden = wanted ? [] : chats.filter((chat) => chat.isHidden);

  return (
    <aside class="sidebar">
      <header class="bar">
        <h1>{say.chats}</h1>
        <IconButton icon={icons.plus} label={say.newChat} onClick={() => go("#/new")} />
        <IconButton icon={icons.gear} label={say.settings} onClick={() => go("#/settings")} />
      </header>
      <search class="search-box">
        <Icon path={icons.search} />
        <input
          id="search"
          type="search"
          placeholder={say.searchPlaceholder}
          aria-label={say.searchPlaceholder}
          value={query.value}
          onInput={(event) => {
            query.value = event.currentTarget.value;
          }}
          onKeyDown={(event) => {
            if (event.key === "Escape") query.value = "";
            if (event.key === "ArrowDown") {
              event.preventDefault();
              document.querySelector<HTMLElement>(".chat-list a")?.focus();
            }
          }}
        />
      </search>
      <nav
        class="chat-list"
        aria-label={say.chats}
        onKeyDown={(event) => moveFocus(event, "a, button.found")}
      >
        {wanted && shown.length > 0 && <h2 class="section">{say.chatsFound}</h2>}
        <ul>
          {shown.map((chat) => (
            <ChatItem key={chat.chatId} live={live} chatId={chat.chatId} />
          ))}
        </ul>
        {found.value && found.value.length > 0 && (
          <>
            <h2 class="section">{say.messagesFound}</h2>
            <ul>
              {found.value.map((message) => (
                <Found
                  key={`${message.chatId} ${message.sequence}`}
                  live={live}
                  message={message}
                  isChatShown
                />
              ))}
            </ul>
          </>
        )}
        {wanted && !shown.length && !found.value?.length && (
          <p class="empty">{fault.value ?? say.noResults}</p>
        )}
        {!wanted && !chats.length && (
          <div class="empty">
            <p>
              <b>{say.noChats}</b>
            </p>
            <p>{say.noChatsText}</p>
            <button type="button" class="button primary" onClick={() => go("#/new")}>
              {say.newChat}
            </button>
          </div>
        )}
        {hidden.length > 0 && (
          <details class="hidden-chats">
            <summary>{say.hiddenChats}</summary>
            <ul>
              {hidden.map((chat) => (
                <ChatItem key={chat.chatId} live={live} chatId={chat.chatId} />
              ))}
            </ul>
          </details>
        )}
      </nav>
    </aside>
  );
}

function ChatItem({ live, chatId }: { live: Live; chatId: string }) {
  const say = words.value;
  const chat = live.look(chatId);
  const name = nameOfChat(live, chat);
  const isHere = route.value.chatId === chatId;
  const { last, unread, mentionsUnread } = chat;
  const count = unread > 99 ? "99+" : String(unread);
  return (
    <li>
      <a href={chatHref(chatId)} class="chat-item" aria-current={isHere ? "page" : undefined}>
        <Face id={chat.otherId ?? chatId} name={name} />
        <span class="chat-top">
          <Name>{name}</Name>
          {isMuted(chat) && (
            <span class="soft" title={say.muted}>
              <Icon path={icons.bellOff} />
              <span class="sr">{say.muted}</span>
            </span>
          )}
          {last && <time dateTime={last.createdAt.toISOString()}>{whenOf(last.createdAt)}</time>}
        </span>
        <span class="chat-bottom">
          <Preview live={live} chat={chat} />
          {mentionsUnread > 0 && (
            <span class="badge" title={say.mentioned}>
              @<span class="sr">{say.mentioned}</span>
            </span>
          )}
          {unread > 0 && (
            <span class={isMuted(chat) ? "badge quiet" : "badge"}>
              <span aria-hidden="true">{count}</span>
              <span class="sr">{unread > 99 ? say.unreadMany : say.unread(unread)}</span>
            </span>
          )}
        </span>
      </a>
    </li>
  );
}

/** One line for a chat: who types, the draft, the last waiting message, or the last message. */
function Preview({ live, chat }: { live: Live; chat: Chat }) {
  const say = words.value;
  const draft = drafts.value.get(chat.chatId);
  if (chat.typists.length) {
    const names = chat.typists.map((userId) => live.nameOf(userId) ?? say.unknownPerson);
    return (
      <span class="preview accent">
        {chat.type === "group" ? say.typing(names) : say.typingDirect}
      </span>
    );
  }
  if (draft?.text.trim() && route.value.chatId !== chat.chatId) {
    return (
      <span class="preview" dir="auto">
        <span class="danger-text">{say.draft}: </span>
        {lineOf(draft.text)}
      </span>
    );
  }
  const waiting = chat.pending().findLast((sent) => sent.kind === "message");
  if (waiting) {
    return (
      <span class="preview" dir="auto">
        <Tick tick={waiting.tick} /> {lineOf(waiting.text)}
      </span>
    );
  }
  const { last } = chat;
  if (!last) return <span class="preview">{say.noMessages}</span>;
  const text = last.isDeleted ? say.deleted : last.isDamaged ? say.damaged : lineOf(last.text);
  const by = chat.type === "group" && !last.isOwn ? (live.nameOf(last.senderId) ?? "") : "";
  return (
    <span class={last.isDeleted ? "preview italic" : "preview"} dir="auto">
      {last.isOwn && last.tick && <Tick tick={last.tick} />} {by && <bdi>{by}: </bdi>}
      {text}
    </span>
  );
}

/** A message that the search has found. */
export function Found(props: { live: Live; message: Message; isChatShown?: boolean }) {
  const { live, message } = props;
  const say = words.value;
  const by = message.isOwn ? say.you : (live.nameOf(message.senderId) ?? say.unknownPerson);
  const chat = live.client.chat(message.chatId);
  return (
    <li>
      <button
        type="button"
        class="found"
        onClick={() => showMessage(message.chatId, message.sequence)}
      >
        <span class="chat-top">
          <Name>{props.isChatShown ? nameOfChat(live, chat) : by}</Name>
          <time dateTime={message.createdAt.toISOString()}>{whenOf(message.createdAt)}</time>
        </span>
        <span class="preview two" dir="auto">
          {props.isChatShown && <bdi>{by}: </bdi>}
          {lineOf(message.text, 160)}
        </span>
      </button>
    </li>
  );
}
