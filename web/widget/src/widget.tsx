// The content of the widget: the name of the chat, its messages and the composer.

import type { Member } from "@tidewire/client";
import { useEffect, useMemo, useRef } from "preact/hooks";
import type { Live } from "../../app/src/model/live.ts";
import { useSignal } from "../../app/src/model/signals.ts";
import { useActions } from "../../app/src/ui/actions.tsx";
import { Composer } from "../../app/src/ui/composer.tsx";
import { MessageList } from "../../app/src/ui/message-list.tsx";
import { nameOfChat } from "../../app/src/ui/names.ts";
import { Name } from "../../app/src/ui/parts.tsx";
import { words } from "../../app/src/words/index.ts";

export type Phase =
  | { readonly kind: "opening" }
  | { readonly kind: "failed"; readonly retry: () => void }
  | { readonly kind: "in"; readonly live: Live; readonly chatId: string };

export function Widget({ phase, isSeen }: { phase: Phase; isSeen: () => boolean }) {
  const say = words.value;
  switch (phase.kind) {
    case "opening":
      return (
        <div class="widget center" aria-busy="true">
          <p class="soft">{say.opening}</p>
        </div>
      );
    case "failed":
      return (
        <div class="widget center">
          <p role="alert">{say.unreachable}</p>
          <button type="button" class="link" onClick={phase.retry}>
            {say.tryNow}
          </button>
        </div>
      );
    case "in":
      return <OneChat key={phase.chatId} {...phase} isSeen={isSeen} />;
  }
}

function OneChat(props: { live: Live; chatId: string; isSeen: () => boolean }) {
  const { live, chatId } = props;
  const say = words.value;
  const opened = useMemo(() => live.timeline(chatId), []);
  const members = useSignal<readonly Member[]>([]);
  const { timeline } = opened;
  const chat = live.look(chatId);
  const place = useRef<HTMLElement>(null);
  const state = useActions(live, timeline, members, async () => {
    const { style, ...menus } = await import("./menu.ts");
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(style);
    (place.current!.getRootNode() as ShadowRoot).adoptedStyleSheets.push(sheet);
    return menus;
  });
  const name = nameOfChat(live, chat);
  const { state: connection } = live.status.value;

  useEffect(() => {
    void timeline.open();
    const load = () =>
      chat.members().then(
        (found) => {
          members.value = found;
        },
        // Offline: members to mention are loaded later.
        () => undefined,
      );
    void load();
    const stop = live.listen((event) => {
      if (event.type === "StatusMoved" && event.status.state === "ready") void load();
    });
    return () => {
      stop();
      opened.close();
    };
  }, []);

  const names = chat.typists.map((userId) => live.nameOf(userId) ?? say.unknownPerson);
  const isAway = connection === "offline" || connection === "connecting";
  return (
    <section ref={place} class="widget" aria-label={name}>
      <header class="widget-head">
        <h2>
          <Name>{name}</Name>
        </h2>
        <p class="subtitle" role="status">
          {names.length ? say.typing(names) : isAway ? say.offline : ""}
        </p>
      </header>
      <MessageList
        live={live}
        timeline={timeline}
        label={say.messagesOf(name)}
        isGroup={chat.type === "group"}
        isSeen={props.isSeen}
        actions={state.actions}
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
        <p class="notice">{say.notMember}</p>
      )}
      {state.view}
    </section>
  );
}
