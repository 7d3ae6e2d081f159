// Searches the messages on this device, while the user types.

import type { Chat, Message } from "@tidewire/client";
import { useEffect } from "preact/hooks";
import { isDeletionOf, type Live } from "../model/live.ts";
import { type Signal, useSignal, useSignalEffect } from "../model/signals.ts";
import { sentenceOf } from "./parts.tsx";

const SEARCH_AFTER_MS = 150;

export interface Search {
  readonly query: Signal<string>;
  /** null: no search was made. */
  readonly found: Signal<readonly Message[] | null>;
  readonly fault: Signal<string | null>;
}

/** Search in one chat or in all, when the text has at least `lettersMin` letters. */
export function useSearch(
  live: Live,
  wish: { chat?: Chat; lettersMin: number; limit: number },
): Search {
  const { chat, lettersMin, limit } = wish;
  const query = useSignal("");
  const found = useSignal<readonly Message[] | null>(null);
  const fault = useSignal<string | null>(null);
  useSignalEffect(() => {
    const text = query.value.trim();
    fault.value = null;
    if (text.length < lettersMin) {
      found.value = null;
      return;
    }
    const timer = setTimeout(async () => {
      try {
        const messages = await live.client.search(text, { chat, limit });
        if (query.peek().trim() === text) found.value = messages;
      } catch (error) {
        // For example, the part of the client that searches is not loaded, and there is no network.
        fault.value = sentenceOf(error);
      }
    }, SEARCH_AFTER_MS);
    return () => clearTimeout(timer);
  });
  useEffect(
    () =>
      live.listen((event) => {
        const left = found.peek()?.filter((message) => !isDeletionOf(event, message));
        if (left && left.length < found.peek()!.length) found.value = left;
      }),
    [],
  );
  return { query, found, fault };
}
