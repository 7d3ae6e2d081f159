// The composer: writes a new message, an answer, or the new text of a sent message.

import { type Member, type Message, OutboxFull } from "@tidewire/client";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { type Draft, drafts, keepDraft } from "../model/drafts.ts";
import type { Live } from "../model/live.ts";
import { useSignal } from "../model/signals.ts";
import { bytesOf, lineOf, mentionedIn, type Named } from "../model/text.ts";
import type { Timeline } from "../model/timeline.ts";
import { words } from "../words/index.ts";
import * as icons from "./icon-paths.ts";
import { nameOfPerson } from "./names.ts";
import { Face, IconButton, sentenceOf } from "./parts.tsx";

const BYTES_MAX = 4096;
/** How often the others are told that the user types. */
const TYPING_EACH_MS = 3000;
const SUGGESTED_MAX = 6;

export interface ComposerProps {
  live: Live;
  timeline: Timeline;
  /** The message that is being edited. */
  editing: Message | null;
  onEdited: () => void;
  onEditLast: () => void;
  /** The members of a group; empty in a direct chat. */
  members: readonly Member[];
}

export function Composer(props: ComposerProps) {
  const { live, timeline, editing } = props;
  const say = words.value;
  const { chat } = timeline;
  const box = useRef<HTMLTextAreaElement>(null);
  const text = useSignal("");
  const fault = useSignal<string | null>(null);
  const draft: Draft = drafts.value.get(chat.chatId) ?? { text: "", replyTo: null };
  const typing = useTyping(timeline);
  const suggestions = useSuggestions(live, props.members, text, box);

  // The box has the draft, or the text that is edited.
  useLayoutEffect(() => {
    text.value = editing ? editing.text : (drafts.peek().get(chat.chatId)?.text ?? "");
    if (editing) box.current?.focus();
  }, [editing]);
  useLayoutEffect(() => fit(box.current), [text.value]);
  useEffect(() => {
    if (draft.replyTo !== null) box.current?.focus();
  }, [draft.replyTo]);

  const over = bytesOf(text.value.trim()) - BYTES_MAX;
  const isEmpty = !text.value.trim();

  const changed = (value: string): void => {
    text.value = value;
    fault.value = null;
    if (!editing) {
      keepDraft(chat.chatId, { ...draft, text: value });
      typing(value.trim() !== "");
    }
    suggestions.look();
  };

  const submit = async (): Promise<void> => {
    const said = text.value.trim();
    if (!said || over > 0) return;
    try {
      if (editing) {
        if (said !== editing.text) await edit(timeline, editing, said);
        props.onEdited();
      } else {
        // The box is emptied at once; the text comes back if it could not be stored.
        text.value = "";
        keepDraft(chat.chatId, null);
        typing(false);
        const mentions = mentionedIn(said, peopleOf(live, props.members));
        const replyTo = draft.replyTo ?? undefined;
        await chat.send(said, { mentions: mentions.length ? mentions : undefined, replyTo });
        void timeline.latest();
      }
    } catch (error) {
      fault.value = error instanceof OutboxFull ? say.outboxFull : sentenceOf(error);
      if (!editing && !text.peek()) changed(said);
    }
  };

  const cancel = (): void => {
    if (editing) props.onEdited();
    else keepDraft(chat.chatId, { ...draft, replyTo: null });
  };

  const pressed = (event: KeyboardEvent): void => {
    if (event.isComposing || suggestions.pressed(event)) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      void submit();
    } else if (event.key === "Escape" && (editing || draft.replyTo !== null)) {
      event.preventDefault();
      cancel();
    } else if (event.key === "ArrowUp" && !text.value && !editing) {
      event.preventDefault();
      props.onEditLast();
    }
  };

  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        void submit();
      }}
    >
      {suggestions.view}
      {(editing || draft.replyTo !== null) && (
        <div class="composer-head">
          {editing ? (
            <Strip title={say.editing} text={lineOf(editing.text)} />
          ) : (
            <ReplyStrip live={live} timeline={timeline} sequence={draft.replyTo!} />
          )}
          <IconButton icon={icons.close} label={say.cancel} onClick={cancel} />
        </div>
      )}
      <div class="composer-row">
        <textarea
          ref={box}
          rows={1}
          dir="auto"
          value={text.value}
          aria-label={say.write}
          placeholder={say.write}
          {...suggestions.attributes}
          onInput={(event) => changed(event.currentTarget.value)}
          onKeyDown={pressed}
          onKeyUp={() => suggestions.look()}
          onBlur={() => {
            typing(false);
            suggestions.close();
          }}
        />
        <IconButton
          icon={editing ? icons.check : icons.send}
          label={editing ? say.save : say.send}
          type="submit"
          class="primary"
          disabled={isEmpty || over > 0}
        />
      </div>
      {(fault.value || over > 0) && (
        <p class="fault" role="alert">
          {over > 0 ? say.tooLong(over) : fault.value}
        </p>
      )}
    </form>
  );
}

/** Edit a message, unless another device has edited it since. Drops own refused edits of it. */
async function edit(timeline: Timeline, message: Message, text: string): Promise<void> {
  for (const sent of timeline.refusedOf(message)) if (sent.kind === "edit") await sent.drop();
  // While an own change waits, an edit may have no sequence yet: the client chooses the base then.
  await message.edit(text, message.isChanging ? {} : { base: message.editedSequence ?? 0 });
}

function Strip({ title, text }: { title: string; text: string }) {
  return (
    <div class="strip">
      <b>{title}</b>
      <span class="preview" dir="auto">
        {text}
      </span>
    </div>
  );
}

function ReplyStrip(props: { live: Live; timeline: Timeline; sequence: number }) {
  const say = words.value;
  const message = props.timeline.quote(props.sequence).value;
  if (!message) return <div class="strip" />;
  const title = message.isOwn
    ? say.replyToSelf
    : say.replyTo(nameOfPerson(props.live, message.senderId));
  return <Strip title={title} text={lineOf(message.text)} />;
}

/** Make the box as high as its text; the style limits it. */
function fit(box: HTMLTextAreaElement | null): void {
  if (!box) return;
  box.style.height = "auto";
  box.style.height = `${box.scrollHeight}px`;
}

/** Tells the others that the user types, not more often than necessary. */
function useTyping(timeline: Timeline): (isTyping: boolean) => void {
  const told = useRef(0);
  useEffect(() => () => timeline.chat.typing(false), []);
  return (isTyping) => {
    const now = Date.now();
    if (isTyping ? now - told.current < TYPING_EACH_MS : !told.current) return;
    told.current = isTyping ? now : 0;
    timeline.chat.typing(isTyping);
  };
}

function peopleOf(live: Live, members: readonly Member[]): Named[] {
  const me = members.find((one) => one.userId === live.client.userId);
  const people: Named[] = members
    .filter((one) => one !== me)
    .map(({ userId, displayName }) => ({ userId, name: displayName }));
  if (me && me.role !== "member") people.push({ userId: "@all", name: words.value.everybody });
  return people;
}

/** The names that may follow an "@" before the caret. */
function useSuggestions(
  live: Live,
  members: readonly Member[],
  text: { value: string; peek(): string },
  box: { current: HTMLTextAreaElement | null },
) {
  const found = useSignal<readonly Named[]>([]);
  const chosen = useSignal(0);

  const begin = (): number => {
    const before = text.peek().slice(0, box.current?.selectionStart ?? 0);
    const at = before.lastIndexOf("@");
    const isStart = at === 0 || (at > 0 && /\s/u.test(before[at - 1]!));
    return isStart && !before.slice(at).includes("\n") ? at : -1;
  };
  const close = (): void => {
    found.value = [];
  };
  const look = (): void => {
    const at = members.length ? begin() : -1;
    if (at < 0) {
      close();
      return;
    }
    const typed = text.peek().slice(at + 1, box.current?.selectionStart ?? 0);
    const wanted = typed.toLowerCase();
    const people = peopleOf(live, members).filter(
      ({ name }) => name.toLowerCase().startsWith(wanted) && name !== typed,
    );
    found.value = people.slice(0, SUGGESTED_MAX);
    chosen.value = Math.min(chosen.peek(), Math.max(0, people.length - 1));
  };
  const take = (person: Named): void => {
    const at = begin();
    const end = box.current?.selectionStart ?? at;
    const put = `@${person.name} `;
    text.value = text.peek().slice(0, at) + put + text.peek().slice(end);
    close();
    const caret = at + put.length;
    requestAnimationFrame(() => {
      box.current?.focus();
      box.current?.setSelectionRange(caret, caret);
    });
  };
  const pressed = (event: KeyboardEvent): boolean => {
    const count = found.peek().length;
    if (!count) return false;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      chosen.value = (chosen.peek() + (event.key === "ArrowDown" ? 1 : count - 1)) % count;
    } else if (event.key === "Enter" || event.key === "Tab") {
      take(found.peek()[chosen.peek()]!);
    } else if (event.key === "Escape") {
      close();
    } else {
      return false;
    }
    event.preventDefault();
    return true;
  };

  const isOpen = found.value.length > 0;
  const view = isOpen && (
    <div id="mentions" class="suggestions" role="listbox" aria-label={words.value.mentionList}>
      {found.value.map((person, at) => (
        <div
          key={person.userId}
          id={`mention-${at}`}
          role="option"
          tabIndex={-1}
          aria-selected={at === chosen.value}
          // Not onClick, because the box would lose the focus before it.
          onMouseDown={(event) => {
            event.preventDefault();
            take(person);
          }}
        >
          <Face id={person.userId} name={person.name} />
          <bdi>{person.name}</bdi>
        </div>
      ))}
    </div>
  );
  const attributes = members.length
    ? {
        "aria-controls": isOpen ? "mentions" : undefined,
        "aria-autocomplete": "list" as const,
        "aria-activedescendant": isOpen ? `mention-${chosen.value}` : undefined,
      }
    : {};
  return { view, attributes, look, close, pressed };
}
