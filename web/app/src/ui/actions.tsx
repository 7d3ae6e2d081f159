// The actions on messages, and their menus and dialogs. These are loaded when the first one is
// opened.

import type { Member, Message } from "@tidewire/client";
import { useEffect, useMemo } from "preact/hooks";
import { drafts, keepDraft } from "../model/drafts.ts";
import { isDeletionOf, type Live } from "../model/live.ts";
import { type Signal, useSignal } from "../model/signals.ts";
import type { Timeline } from "../model/timeline.ts";
import type { RowActions } from "./message-row.tsx";

type Menus = typeof import("./message-menu.tsx");
export type LoadMenu = () => Promise<Menus>;

interface MenuTarget {
  readonly message: Message;
  readonly anchor: DOMRect;
}

export function useActions(
  live: Live,
  timeline: Timeline,
  members: Signal<readonly Member[]>,
  load: LoadMenu,
) {
  const target = useSignal<MenuTarget | null>(null);
  const editing = useSignal<Message | null>(null);
  const removing = useSignal<Message | null>(null);
  const menus = useSignal<Menus | null>(null);
  const { chatId } = timeline.chat;

  const mayDelete = (message: Message): boolean => {
    const me = members.peek().find((one) => one.userId === live.client.userId);
    return message.isOwn || (me !== undefined && me.role !== "member");
  };
  const whenLoaded = async (show: () => void): Promise<void> => {
    menus.value ??= await load();
    show();
  };
  const actions = useMemo<RowActions>(
    () => ({
      menu: (message, anchor) => {
        void whenLoaded(() => {
          target.value = { message, anchor };
        });
      },
      reply: (message) => {
        editing.value = null;
        const text = drafts.peek().get(chatId)?.text ?? "";
        keepDraft(chatId, { text, replyTo: message.sequence });
      },
      edit: (message) => {
        if (message.isOwn) editing.value = message;
      },
      remove: (message) => {
        if (!mayDelete(message)) return;
        void whenLoaded(() => {
          removing.value = message;
        });
      },
      toggle: (message, { emoji, isOwn }) => {
        void (isOwn ? message.unreact(emoji) : message.react(emoji));
      },
    }),
    [],
  );
  useEffect(
    () =>
      live.listen((event) => {
        for (const chosen of [editing, removing])
          if (isDeletionOf(event, chosen.peek())) chosen.value = null;
        if (isDeletionOf(event, target.peek()?.message)) target.value = null;
      }),
    [],
  );
  const open = target.value;
  const { MessageMenu, DeleteMessage } = menus.value ?? {};
  const view = (
    <>
      {open && MessageMenu && (
        <MessageMenu
          message={open.message}
          anchor={open.anchor}
          mayDelete={mayDelete(open.message)}
          onReply={() => actions.reply(open.message)}
          onEdit={() => actions.edit(open.message)}
          onDelete={() => actions.remove(open.message)}
          onClose={() => {
            target.value = null;
          }}
        />
      )}
      {removing.value && DeleteMessage && (
        <DeleteMessage
          message={removing.value}
          onDone={() => {
            removing.value = null;
          }}
        />
      )}
    </>
  );
  return { actions, editing, view };
}
