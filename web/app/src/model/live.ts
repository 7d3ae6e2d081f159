// A client as signals: components that show its state render again when that changes.

import type { Chat, Client, ClientEvent, Message, Status } from "@tidewire/client";
import { computed, type ReadonlySignal, type Signal, signal } from "./signals.ts";
import { Timeline } from "./timeline.ts";

type Listener = (event: ClientEvent) => void;

export class Live {
  readonly client: Client;
  readonly status: Signal<Status>;
  /** The chats, the newest activity first. */
  readonly chats: Signal<readonly Chat[]>;
  /** Unread messages of chats that are not muted, plus unread mentions of muted chats. */
  readonly unread: ReadonlySignal<number>;

  /** For each chat a signal that changes when anything of the chat has changed. */
  readonly #moves = new Map<string, Signal<number>>();
  readonly #names = signal(0);
  readonly #listeners = new Set<Listener>();
  #isDue = false;
  readonly #stop: () => void;

  constructor(client: Client) {
    this.client = client;
    this.status = signal(client.status);
    this.chats = signal(client.knownChats());
    this.unread = computed(() =>
      this.chats.value.reduce((sum, chat) => {
        this.look(chat.chatId);
        return sum + (isMuted(chat) ? chat.mentionsUnread : chat.unread);
      }, 0),
    );
    this.#stop = client.on((event) => this.#handle(event));
  }

  end(): void {
    this.#stop();
  }

  /** A chat; the component that is being rendered renders again when the chat has changed. */
  look(chatId: string): Chat {
    void this.#move(chatId).value;
    return this.client.chat(chatId);
  }

  /** The display name of a user; null if it is not known. */
  nameOf(userId: string): string | null {
    void this.#names.value;
    return this.client.nameOf(userId);
  }

  /** Chats were requested from the server: show them. */
  refresh(): void {
    this.#names.value++;
    for (const move of this.#moves.values()) move.value++;
    this.#listChats();
  }

  /** A chat was changed here, and no event announces it. */
  touch(chatId: string): void {
    this.#move(chatId).value++;
    this.#listChats();
  }

  /** Open the timeline of a chat; `close` ends its updates. */
  timeline(chatId: string): { timeline: Timeline; close: () => void } {
    const timeline = new Timeline(this.client.chat(chatId));
    const close = this.listen((event) => {
      if (chatOf(event) === chatId) timeline.handle(event);
    });
    return { timeline, close };
  }

  listen(listener: Listener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #move(chatId: string): Signal<number> {
    let move = this.#moves.get(chatId);
    if (!move) this.#moves.set(chatId, (move = signal(0)));
    return move;
  }

  #handle(event: ClientEvent): void {
    if (event.type === "StatusMoved") this.status.value = event.status;
    else if (event.type === "NamesMoved") this.#names.value++;
    const chatId = chatOf(event);
    if (chatId !== null) {
      this.#move(chatId).value++;
      if (event.type !== "Typing") this.#listChats();
    } else if (event.type === "NamesMoved" || event.type === "StatusMoved") {
      this.#listChats();
    }
    for (const listener of this.#listeners) listener(event);
  }

  /** Sort the list again, later and only once, because a page of messages has many events. */
  #listChats(): void {
    if (this.#isDue) return;
    this.#isDue = true;
    setTimeout(() => {
      this.#isDue = false;
      this.chats.value = this.client.knownChats();
    });
  }
}

export function isMuted(chat: Chat): boolean {
  return chat.mutedUntil !== null && chat.mutedUntil.getTime() > Date.now();
}

/** Whether an event says that this message was deleted, so that it must leave the screen. */
export function isDeletionOf(event: ClientEvent, message: Message | null | undefined): boolean {
  return (
    event.type === "MessageChanged" &&
    event.kind === "delete" &&
    event.chatId === message?.chatId &&
    event.after?.sequence === message.sequence
  );
}

function chatOf(event: ClientEvent): string | null {
  switch (event.type) {
    case "MessageReceived":
    case "MessageStored":
      return event.message.chatId;
    case "StatusMoved":
    case "NamesMoved":
      return null;
    default:
      return event.chatId;
  }
}
