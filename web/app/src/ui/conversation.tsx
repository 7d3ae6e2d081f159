// One chat: its messages and the composer.

import type { Member } from "@tidewire/client";
import { useEffect, useLayoutEffect, useMemo } from "preact/hooks";
import type { Live } from "../model/live.ts";
import { isSeen } from "../model/notify.ts";
import { chatHref, go, goBack, route, wantedMessage } from "../model/route.ts";
import { type Signal, useSignal } from "../model/signals.ts";
import type { Timeline } from "../model/timeline.ts";
import { words } from "../words/app.ts";
import { useActions } from "./actions.tsx";
import { Composer } from "./composer.tsx";
import * as icons from "./icon-paths.ts";
import { MessageList } from "./message-list.tsx";
import * as menus from "./message-menu.tsx";
import { nameOfChat } from "./names.ts";
import { Face, IconButton, Name } from "./parts.tsx";

const loadMenu = async () => menus;

export function Conversation({ live, chatId }: { live: Live; chatId: string }) {
  const say = words.value;
  const timeline = useTimeline(live, chatId);
  const chat = live.look(chatId);
  const name = nameOfChat(live, chat);
  const members = useMembers(live, chatId);
  const state = useActions(live, timeline, members, loadMenu);
  const { panel } = route.value;
  const toggle = (wanted: "about" | "search") => () =>
    panel === wanted ? goBack(chatHref(chatId)) : go(chatHref(chatId, wanted));

  useEffect(() => {
    const wanted = wantedMessage.value;
    if (wanted?.chatId !== chatId) return;
    wantedMessage.value = null;
    void timeline.jump(wanted.sequence);
  }, [wantedMessage.value]);

  return (
    <main class="conversation">
      <header class="bar">
        <IconButton icon={icons.back} label={say.back} class="narrow" onClick={() => go("#/")} />
        <Face id={chat.otherId ?? chatId} name={name} />
        <div class="titles">
          <h1>
            <button type="button" title={say.about} onClick={toggle("about")}>
              <Name>{name}</Name>
            </button>
          </h1>
          <Subtitle live={live} chatId={chatId} count={members.value.length} />
        </div>
        <IconButton
          icon={icons.search}
          label={say.inThisChat}
          isPressed={panel === "search"}
          onClick={toggle("search")}
        />
        <IconButton
          icon={icons.info}
          label={say.about}
          isPressed={panel === "about"}
          onClick={toggle("about")}
        />
      </header>
      <MessageList
        live={live}
        timeline={timeline}
        label={say.messagesOf(name)}
        isGroup={chat.type === "group"}
        isSeen={() => isSeen(chatId)}
        actions={state.actions}
        onDay={() => go(chatHref(chatId, "search"))}
      />
      {chat.isMember ? (
        <Composer
          live={live}
          timeline={timeline}
          editing={state.editing.value}
          onEdited={() => {
            state.editing.value = null;
          }}
          onEditLast={() => {
            state.editing.value = timeline.lastOwn();
          }}
          members={chat.type === "group" ? members.value : []}
        />
      ) : (
        <p class="notice foot">{say.notMember}</p>
      )}
      {state.view}
    </main>
  );
}

function useTimeline(live: Live, chatId: string): Timeline {
  const opened = useMemo(() => live.timeline(chatId), []);
  // A layout effect runs at once, not after a frame: the user waits for the first messages.
  useLayoutEffect(() => {
    // If a message is wanted, the jump to it loads the messages around it.
    if (wantedMessage.peek()?.chatId !== chatId) void opened.timeline.open();
    return opened.close;
  }, []);
  return opened.timeline;
}

/** The current members of a group. */
function useMembers(live: Live, chatId: string): Signal<readonly Member[]> {
  const members = useSignal<readonly Member[]>([]);
  useEffect(() => {
    const load = () => {
      const chat = live.client.chat(chatId);
      if (chat.type !== "group" || !chat.isMember) return;
      chat.members().then(
        (found) => {
          members.value = found;
        },
        // Offline: members to mention are loaded later.
        () => undefined,
      );
    };
    load();
    return live.listen((event) => {
      const isOurs = event.type === "ChatUpdated" && event.chatId === chatId;
      if (isOurs || (event.type === "StatusMoved" && event.status.state === "ready")) load();
    });
  }, []);
  return members;
}

function Subtitle(props: { live: Live; chatId: string; count: number }) {
  const { live, chatId, count } = props;
  const say = words.value;
  const chat = live.look(chatId);
  const names = chat.typists.map((userId) => live.nameOf(userId) ?? say.unknownPerson);
  let text = "";
  if (names.length) text = chat.type === "group" ? say.typing(names) : say.typingDirect;
  else if (chat.type === "group" && count) text = say.members(count);
  return (
    <span class={names.length ? "subtitle accent" : "subtitle"} role="status">
      {text}
    </span>
  );
}
