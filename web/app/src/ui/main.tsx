// The app itself: the list of chats, the conversation, and the panels and dialogs.

import { useEffect } from "preact/hooks";
import type { Live } from "../model/live.ts";
import { notify } from "../model/notify.ts";
import { go, goBack, route } from "../model/route.ts";
import { useSignal } from "../model/signals.ts";
import { words } from "../words/app.ts";
import { Conversation } from "./conversation.tsx";
import * as icons from "./icon-paths.ts";
import { Icon } from "./icons.tsx";
import { lazy } from "./lazy.tsx";
import { Sidebar } from "./sidebar.tsx";
import { Logo } from "./welcome.tsx";

const extras = () => import("./extras.ts");
const About = lazy(async () => (await extras()).About);
const ChatSearch = lazy(async () => (await extras()).ChatSearch);
const NewChat = lazy(async () => (await extras()).NewChat);
const Settings = lazy(async () => (await extras()).Settings);

/** How long a connection may be away before the page says so. */
const PATIENCE_MS = 1200;

export function Main({ live }: { live: Live }) {
  const { chatId, panel, settings, isNew } = route.value;
  useEffect(() => notify(live), [live]);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        document.querySelector<HTMLInputElement>("#search")?.focus();
      }
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);

  const layout = `layout${chatId ? " has-chat" : ""}${panel ? " has-panel" : ""}`;
  return (
    <div class={layout}>
      <Sidebar live={live} />
      {chatId ? <Conversation key={chatId} live={live} chatId={chatId} /> : <Nothing />}
      {chatId && panel === "about" && <About key={`about ${chatId}`} live={live} chatId={chatId} />}
      {chatId && panel === "search" && (
        <ChatSearch key={`search ${chatId}`} live={live} chatId={chatId} />
      )}
      {settings && <Settings live={live} onClose={() => goBack("#/")} />}
      {isNew && <NewChat live={live} onClose={() => goBack("#/")} />}
      <Connection live={live} />
    </div>
  );
}

function Nothing() {
  return (
    <main class="nothing">
      <Logo />
      <p class="soft">{words.value.pickChat}</p>
      <button type="button" class="button" onClick={() => go("#/new")}>
        {words.value.newChat}
      </button>
    </main>
  );
}

/** Shows that the connection is away, if it has been for `PATIENCE_MS`, or that nothing is kept. */
function Connection({ live }: { live: Live }) {
  const say = words.value;
  const { state } = live.status.value;
  const isLong = useSignal(false);
  const isAway = state === "offline" || state === "connecting" || state === "syncing";
  useEffect(() => {
    isLong.value = false;
    if (!isAway) return;
    const timer = setTimeout(() => {
      isLong.value = true;
    }, PATIENCE_MS);
    return () => clearTimeout(timer);
  }, [isAway]);

  let text = "";
  if (isAway && isLong.value) {
    text =
      state === "offline" ? say.offline : state === "connecting" ? say.connecting : say.syncing;
  } else if (!live.client.isDurable) {
    text = say.notDurable;
  }
  return (
    <div class={text ? "connection" : "connection empty"} role="status">
      {text && (
        <>
          <Icon path={isAway ? icons.cloudOff : icons.alert} />
          <span>{text}</span>
          {state === "offline" && (
            <button type="button" class="link" onClick={() => live.client.reconnect()}>
              {say.tryNow}
            </button>
          )}
        </>
      )}
    </div>
  );
}
