// Tells a user who does not look at the page: by notifications, the title and the app's badge.

import type { Message } from "@tidewire/client";
import { words } from "../words/app.ts";
import { isDeletionOf, isMuted, type Live } from "./live.ts";
import { chatHref, go, route } from "./route.ts";
import { isNotifying } from "./settings.ts";
import { effect } from "./signals.ts";
import { lineOf } from "./text.ts";

const TITLE = "Tidewire";
const NEWS_MS = 10 * 60_000;

/** Start; returns a function that stops it. */
export function notify(live: Live): () => void {
  const stopTitle = effect(() => {
    const count = live.unread.value;
    document.title = count ? `(${count > 99 ? "99+" : count}) ${TITLE}` : TITLE;
    const badge = navigator as Navigator & {
      setAppBadge?: (count: number) => Promise<void>;
    };
    badge.setAppBadge?.(count).catch(() => undefined);
  });
  /** By chat: the last notification, and its message. */
  const told = new Map<string, [Message, Notification]>();
  const stopMessages = live.listen((event) => {
    if (event.type === "MessageChanged") {
      const [message, shown] = told.get(event.chatId) ?? [];
      if (isDeletionOf(event, message)) shown?.close();
      return;
    }
    if (event.type !== "MessageReceived" || event.redelivered) return;
    const { message } = event;
    // A new device may sync years of messages: notify only of recent ones.
    if (Date.now() - message.createdAt.getTime() > NEWS_MS) return;
    const chat = live.client.chat(message.chatId);
    if (isSeen(message.chatId) || !isNotifying.peek() || !canNotify()) return;
    // Only one tab of a browser notifies.
    if (!live.client.isLeader || (isMuted(chat) && !message.mentionsMe)) return;
    const sender = message.senderName ?? words.value.unknownPerson;
    const title = chat.type === "group" ? `${sender} · ${chat.name ?? ""}` : sender;
    const shown = new Notification(title, { body: lineOf(message.text, 120), tag: message.chatId });
    told.set(message.chatId, [message, shown]);
    shown.onclick = () => {
      focus();
      go(chatHref(message.chatId));
      shown.close();
    };
  });
  return () => {
    stopTitle();
    stopMessages();
    document.title = TITLE;
  };
}

/** Whether the user looks at this chat now. */
export function isSeen(chatId: string): boolean {
  return (
    document.visibilityState === "visible" && document.hasFocus() && route.peek().chatId === chatId
  );
}

export function canNotify(): boolean {
  return "Notification" in globalThis && Notification.permission === "granted";
}

/** Ask the user for permission; returns whether notifications may be shown. */
export async function askToNotify(): Promise<boolean> {
  if (!("Notification" in globalThis)) return false;
  return (await Notification.requestPermission()) === "granted";
}
