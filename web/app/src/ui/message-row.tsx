// One message, or one that waits to be sent.

import type { Message, Reaction, Sent } from "@tidewire/client";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { Live } from "../model/live.ts";
import type { Shown } from "../model/rows.ts";
import { isJumbo, lineOf, type Named, partsOf } from "../model/text.ts";
import type { Timeline } from "../model/timeline.ts";
import { fullTimeOf, timeOf, words } from "../words/index.ts";
import * as icons from "./icon-paths.ts";
import { Icon } from "./icons.tsx";
import { nameOfPerson } from "./names.ts";
import { Face } from "./parts.tsx";
import { Tick } from "./tick.tsx";

/** The actions of the user on a message. */
export interface RowActions {
  menu(message: Message, anchor: DOMRect): void;
  reply(message: Message): void;
  edit(message: Message): void;
  remove(message: Message): void;
  toggle(message: Message, reaction: Reaction): void;
}

interface Props {
  row: Shown;
  live: Live;
  timeline: Timeline;
  isGroup: boolean;
  isMarked: boolean;
  actions: RowActions;
}

const LONG_PRESS_MS = 450;
const LONG_PRESS_PX = 10;

export function MessageRow({ row, live, timeline, isGroup, isMarked, actions }: Props) {
  const press = useLongPress(actions);
  const say = words.value;
  const message = row.kind === "message" ? row.message : null;
  const isOwn = message?.isOwn ?? true;
  const author = message ? nameOfPerson(live, message.senderId) : say.you;
  const at = row.kind === "message" ? row.message.createdAt : row.sent.createdAt;
  const classes = ["row", isOwn ? "own" : "theirs"];
  if (row.isFirst) classes.push("first");
  if (row.isLast) classes.push("last");
  if (isMarked) classes.push("marked");
  if (message?.mentionsMe && !isOwn) classes.push("mentions-me");
  return (
    <article
      class={classes.join(" ")}
      data-sequence={message?.sequence}
      aria-label={say.messageBy(author, fullTimeOf(at))}
      tabIndex={-1}
      onKeyDown={(event) => message && key(event, message, actions)}
      onPointerDown={(event) => message && press.down(event, message)}
      onPointerMove={press.moved}
      onPointerUp={press.end}
      onPointerCancel={press.end}
    >
      {isGroup && !isOwn && (
        <span class="beside">
          {row.isLast && message && <Face id={message.senderId} name={author} />}
        </span>
      )}
      <div class="stack">
        {row.kind === "message" ? (
          <Stored
            message={row.message}
            live={live}
            timeline={timeline}
            author={isGroup && !isOwn && row.isFirst ? author : null}
          />
        ) : (
          <Waiting row={row} live={live} timeline={timeline} />
        )}
        {message && <Refusals live={live} timeline={timeline} message={message} />}
        {message && message.reactions.length > 0 && !message.isDeleted && (
          <Reactions message={message} live={live} actions={actions} />
        )}
      </div>
      {message && !message.isDeleted && !message.isDamaged && (
        <div class="row-actions">
          <button
            type="button"
            tabIndex={-1}
            aria-label={say.reply}
            title={say.reply}
            onClick={() => actions.reply(message)}
          >
            <Icon path={icons.reply} />
          </button>
          <button
            type="button"
            tabIndex={-1}
            class="menu-button"
            aria-label={say.actions}
            title={say.actions}
            onClick={(event) => actions.menu(message, event.currentTarget.getBoundingClientRect())}
          >
            <Icon path={icons.smile} />
            <Icon path={icons.down} />
          </button>
        </div>
      )}
    </article>
  );
}

function key(event: KeyboardEvent, message: Message, actions: RowActions): void {
  if (event.target !== event.currentTarget || event.ctrlKey || event.metaKey || event.altKey) {
    return;
  }
  const row = event.currentTarget as HTMLElement;
  const box = (row.querySelector(".bubble") ?? row).getBoundingClientRect();
  const acts: Record<string, () => void> = {
    Enter: () => actions.menu(message, box),
    ContextMenu: () => actions.menu(message, box),
    r: () => actions.reply(message),
    e: () => actions.edit(message),
    Delete: () => actions.remove(message),
  };
  const act = acts[event.key];
  if (!act || message.isDeleted || message.isDamaged) return;
  event.preventDefault();
  act();
}

/** A long press with a finger opens the menu; with a mouse, buttons do. */
function useLongPress(actions: RowActions) {
  const press = useRef({ x: 0, y: 0, timer: 0 }).current;
  const end = (): void => clearTimeout(press.timer);
  useEffect(() => end, []);
  return {
    down(event: PointerEvent, message: Message): void {
      end();
      if (event.pointerType !== "touch" || message.isDeleted || message.isDamaged) return;
      press.x = event.clientX;
      press.y = event.clientY;
      const row = event.currentTarget as HTMLElement;
      press.timer = window.setTimeout(() => {
        // The menu may open under the finger: lifting the finger must not choose an item.
        row.addEventListener("touchend", (end) => end.preventDefault(), { once: true });
        actions.menu(message, row.getBoundingClientRect());
      }, LONG_PRESS_MS);
    },
    moved(event: PointerEvent): void {
      if (Math.hypot(event.clientX - press.x, event.clientY - press.y) > LONG_PRESS_PX) end();
    },
    end,
  };
}

function Stored(props: {
  message: Message;
  live: Live;
  timeline: Timeline;
  author: string | null;
}) {
  const { message, live, timeline, author } = props;
  const say = words.value;
  // Ticks change with the chat, without a new row: render again when the chat changes.
  live.look(message.chatId);
  const isBare = !message.isDeleted && message.replyTo === null && isJumbo(message.text);
  let body: ComponentChildren;
  if (message.isDeleted) body = <span class="text aside">{say.deleted}</span>;
  else if (message.isDamaged) body = <span class="text aside">{say.damaged}</span>;
  else body = <Text text={message.text} named={namedIn(live, message.mentions)} isJumbo={isBare} />;
  return (
    <div class={`bubble${isBare ? " bare" : ""}${message.isChanging ? " changing" : ""}`}>
      {author && (
        <div class="author">
          <bdi>{author}</bdi>
        </div>
      )}
      {message.replyTo !== null && !message.isDeleted && (
        <Quote live={live} timeline={timeline} sequence={message.replyTo} />
      )}
      <div class="body" dir="auto">
        {body}
        <span class="meta">
          {message.isGone && <span title={say.gone}>⚠</span>}
          {message.isEdited && !message.isDeleted && (
            <span title={say.editedHint}>{say.edited}</span>
          )}
          <time dateTime={message.createdAt.toISOString()} title={fullTimeOf(message.createdAt)}>
            {timeOf(message.createdAt)}
          </time>
          {message.tick && !message.isDeleted && <Tick tick={message.tick} />}
        </span>
      </div>
    </div>
  );
}

function Waiting(props: { row: Extract<Shown, { kind: "sent" }>; live: Live; timeline: Timeline }) {
  const { row, live, timeline } = props;
  const { sent } = row;
  const say = words.value;
  live.look(sent.chatId);
  const { tick } = sent;
  return (
    <>
      <div class={`bubble waiting${tick === "failed" ? " failed" : ""}`}>
        {sent.replyTo !== null && <Quote live={live} timeline={timeline} sequence={sent.replyTo} />}
        <div class="body" dir="auto">
          <Text text={sent.text} named={namedIn(live, sent.mentions)} />
          <span class="meta">
            <time dateTime={sent.createdAt.toISOString()}>{timeOf(sent.createdAt)}</time>
            <Tick tick={tick} />
          </span>
        </div>
      </div>
      {tick === "failed" && (
        <Failure sent={sent} title={say.failed} again={say.retry} onAgain={() => sent.retry()} />
      )}
    </>
  );
}

function Refusals(props: { live: Live; timeline: Timeline; message: Message }) {
  const { live, timeline, message } = props;
  live.look(message.chatId);
  return timeline
    .refusedOf(message)
    .map((sent) => <Refused key={sent.clientMessageId} message={message} sent={sent} />);
}

/** An own change that the server has refused. It is not lost, and overwrites no other text. */
function Refused({ message, sent }: { message: Message; sent: Sent }) {
  const say = words.value;
  const isEdit = sent.kind === "edit";
  // The same edit would be refused again; a new one has the current edit as its base.
  const again = async () => {
    if (!isEdit) return sent.retry();
    if (await sent.drop()) await message.edit(sent.text);
  };
  return (
    <Failure
      sent={sent}
      title={isEdit ? say.editFailed : say.changeFailed}
      again={isEdit ? say.saveMine : say.retry}
      onAgain={again}
    >
      {isEdit && (
        <q class="preview" dir="auto">
          {lineOf(sent.text)}
        </q>
      )}
    </Failure>
  );
}

function Failure(props: {
  sent: Sent;
  title: string;
  again: string;
  onAgain: () => Promise<unknown>;
  children?: ComponentChildren;
}) {
  const { sent, title, again, onAgain } = props;
  const say = words.value;
  return (
    <p class="failure" role="alert">
      <span>
        {sent.code === null ? say.fateUnknown : `${title}. ${say.faults[sent.code] ?? ""}`}
      </span>
      {props.children}
      <button type="button" class="link" onClick={() => void onAgain()}>
        {again}
      </button>
      <button type="button" class="link" onClick={() => void sent.drop()}>
        {say.drop}
      </button>
    </p>
  );
}

function namedIn(live: Live, mentions: readonly string[]): Named[] {
  return mentions.flatMap((userId) => {
    const name = userId === "@all" ? words.value.everybody : live.nameOf(userId);
    return name ? [{ userId, name }] : [];
  });
}

/** A text as it was written, with links and mentions marked; it is never treated as HTML. */
function Text(props: { text: string; named: readonly Named[]; isJumbo?: boolean }) {
  return (
    <span class={props.isJumbo ? "text jumbo" : "text"}>
      {partsOf(props.text, props.named).map((part, at) => {
        if (part.kind === "link") {
          return (
            <a key={at} href={part.href} target="_blank" rel="noopener noreferrer nofollow">
              {part.text}
            </a>
          );
        }
        if (part.kind === "mention") {
          return (
            <bdi key={at} class="mention">
              {part.text}
            </bdi>
          );
        }
        return part.text;
      })}
    </span>
  );
}

/** The answered message in one line; a click goes to it. */
function Quote(props: { live: Live; timeline: Timeline; sequence: number }) {
  const { live, timeline, sequence } = props;
  const say = words.value;
  const quoted = timeline.quote(sequence).value;
  if (quoted === undefined) return <div class="quote" aria-busy="true" />;
  if (quoted === null) return <div class="quote aside">{say.quoteMissing}</div>;
  const text = quoted.isDeleted ? say.deleted : quoted.isDamaged ? say.damaged : quoted.text;
  return (
    <button
      type="button"
      class="quote"
      tabIndex={-1}
      title={say.goToQuote}
      onClick={() => void timeline.jump(sequence)}
    >
      <bdi class="author">{nameOfPerson(live, quoted.senderId)}</bdi>
      <span class="preview" dir="auto">
        {lineOf(text)}
      </span>
    </button>
  );
}

function Reactions(props: { message: Message; live: Live; actions: RowActions }) {
  const { message, live, actions } = props;
  const say = words.value;
  return (
    <div class="reactions">
      {message.reactions.map((reaction) => {
        const names = reaction.userIds.map((userId) => nameOfPerson(live, userId));
        const more = reaction.count - names.length;
        if (more > 0) names.push(say.andMore(more));
        return (
          <button
            key={reaction.emoji}
            type="button"
            tabIndex={-1}
            aria-pressed={reaction.isOwn}
            aria-label={say.reactionToggle(reaction.emoji, reaction.count, reaction.isOwn)}
            title={say.reactionBy(reaction.emoji, names.join(", "))}
            onClick={() => actions.toggle(message, reaction)}
          >
            <span>{reaction.emoji}</span>
            <span class="count">{reaction.count}</span>
          </button>
        );
      })}
    </div>
  );
}
