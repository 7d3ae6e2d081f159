// The messages of a chat. Only rows in and near the visible range are rendered, and visible rows
// stay where they are, whatever is loaded or changes around them.

import type { Message } from "@tidewire/client";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import type { Live } from "../model/live.ts";
import type { Row } from "../model/rows.ts";
import { useSignal } from "../model/signals.ts";
import { lineOf } from "../model/text.ts";
import type { Timeline } from "../model/timeline.ts";
import { Viewport } from "../model/viewport.ts";
import { dayOf, words } from "../words/index.ts";
import * as icons from "./icon-paths.ts";
import { Icon } from "./icons.tsx";
import { MessageRow, type RowActions } from "./message-row.tsx";
import { nameOfPerson } from "./names.ts";
import { focusBeside } from "./parts.tsx";

/** Within this distance from the end, the list counts as being at the end. */
const END_PX = 48;
/** The next page is requested when the slice is this many rows from an edge. */
const EDGE_ROWS = 120;
const READ_AFTER_MS = 250;

export interface ListProps {
  live: Live;
  timeline: Timeline;
  label: string;
  isGroup: boolean;
  /** Whether the user looks at the list now. */
  isSeen: () => boolean;
  actions: RowActions;
  onDay?: () => void;
}

export function MessageList(props: ListProps) {
  const { live, timeline, label, isGroup, actions } = props;
  const say = words.value;
  const list = useList(props);
  const rows = list.rows;
  const marked = list.marked.value;
  return (
    <div class="messages">
      <div
        ref={list.scroller}
        class="scroller"
        role="log"
        aria-label={label}
        aria-live="off"
        // biome-ignore lint/a11y/noNoninteractiveTabindex: the keyboard must be able to scroll it
        tabIndex={0}
        onScroll={list.scrolled}
        onKeyDown={list.pressed}
      >
        <div ref={list.above} class="space" />
        <div ref={list.block} class="rows">
          {rows.slice(list.viewport.first, list.viewport.end).map((row) => (
            <RowView
              key={row.key}
              row={row}
              live={live}
              timeline={timeline}
              isGroup={isGroup}
              isMarked={row.key === marked}
              actions={actions}
              onDay={props.onDay}
            />
          ))}
        </div>
        <div ref={list.below} class="space" />
      </div>
      <p class="sr" aria-live="polite">
        {list.heard.value}
      </p>
      {timeline.isStuck.value && (
        <p class="stuck" role="status">
          {say.stuck}
        </p>
      )}
      {list.isAway.value && (
        <button
          type="button"
          class="to-latest"
          title={say.toLatest}
          onClick={() => void timeline.latest()}
        >
          <Icon path={icons.down} />
          <span class="sr">{say.toLatest}</span>
          <Unread live={live} chatId={timeline.chat.chatId} />
        </button>
      )}
    </div>
  );
}

function Unread({ live, chatId }: { live: Live; chatId: string }) {
  const { unread } = live.look(chatId);
  return unread ? <span class="badge">{unread > 99 ? "99+" : unread}</span> : null;
}

function RowView(props: {
  row: Row;
  live: Live;
  timeline: Timeline;
  isGroup: boolean;
  isMarked: boolean;
  actions: RowActions;
  onDay?: () => void;
}) {
  const { row } = props;
  switch (row.kind) {
    case "beginning":
      return (
        <div class="line beginning">
          <span>{words.value.beginning}</span>
        </div>
      );
    case "day":
      return (
        <div class="line day">
          {props.onDay ? (
            <button type="button" tabIndex={-1} title={words.value.goToDate} onClick={props.onDay}>
              {dayOf(row.date)}
            </button>
          ) : (
            <span>{dayOf(row.date)}</span>
          )}
        </div>
      );
    case "new":
      return (
        <div class="line new">
          <span>{words.value.newMessages}</span>
        </div>
      );
    default:
      return (
        <MessageRow
          row={row}
          live={props.live}
          timeline={props.timeline}
          isGroup={props.isGroup}
          isMarked={props.isMarked}
          actions={props.actions}
        />
      );
  }
}

/** An estimate of a row's height, until it is measured. */
function guess(row: Row | undefined): number {
  if (row?.kind !== "message" && row?.kind !== "sent") return 44;
  const text = row.kind === "message" ? row.message.text : row.sent.text;
  const lines = Math.ceil(text.length / 60) + text.split("\n").length - 1;
  return 22 + Math.max(1, lines) * 21 + (row.isFirst ? 8 : 2);
}

function useList(props: ListProps) {
  const { live, timeline } = props;
  const rows = timeline.rows.value;
  const place = timeline.place.value;
  const isEnd = timeline.isEnd.value;

  const scroller = useRef<HTMLDivElement>(null);
  const above = useRef<HTMLDivElement>(null);
  const below = useRef<HTMLDivElement>(null);
  const block = useRef<HTMLDivElement>(null);
  const known = useRef<{ rows: readonly Row[]; byKey: Map<string, Row> }>({
    rows: [],
    byKey: new Map(),
  });
  const viewport = useRef<Viewport | null>(null);
  viewport.current ??= new Viewport((key) => guess(known.current.byKey.get(key)));
  const view = viewport.current;
  /** The list is at the end, and scrolls on with new messages. */
  const isStuckToEnd = useRef(true);
  /** The scroll position that `settle` has set for it. */
  const stuckAt = useRef(0);
  const hadFocus = useRef(false);
  const readTimer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const round = useSignal(0);
  const isAway = useSignal(false);
  const marked = useSignal<string | null>(null);
  const heard = useSignal("");
  void round.value;

  if (known.current.rows !== rows) {
    known.current = { rows, byKey: new Map(rows.map((row) => [row.key, row])) };
    view.replace(rows.map((row) => row.key));
  }
  const placeAt = place === null ? -1 : indexOf(rows, place.key);
  if (place !== null && placeAt >= 0) view.show(placeAt, scroller.current?.clientHeight ?? 800);
  hadFocus.current = scroller.current?.contains(focusBeside(scroller.current)) ?? false;

  /** Rows have been laid out: set the spaces and the scroll position. */
  const settle = (): void => {
    const element = scroller.current;
    if (!element || !block.current) return;
    const heights = [...block.current.children].map((row) => row.getBoundingClientRect().height);
    if (heights.length !== view.end - view.first) return;
    // If the user has just scrolled up, the event comes with the next frame: do not scroll back.
    const left = element.scrollHeight - element.scrollTop - element.clientHeight;
    if (element.scrollTop < stuckAt.current - 1 && left >= END_PX) isStuckToEnd.current = false;
    const move = view.settle(heights, element.scrollTop, timeline.isStart);
    above.current!.style.height = `${view.top}px`;
    below.current!.style.height = `${view.bottom}px`;
    if (isStuckToEnd.current && timeline.isEnd.peek()) element.scrollTop = element.scrollHeight;
    else if (move) element.scrollTop += move;
    stuckAt.current = isStuckToEnd.current ? element.scrollTop : 0;
  };

  /** Render the rows for this scroll position, and load messages beyond them. */
  const look = (): void => {
    const element = scroller.current;
    if (!element) return;
    if (view.look(element.scrollTop, element.clientHeight)) round.value++;
    if (view.first < EDGE_ROWS && !timeline.isStart && !timeline.isStuck.peek()) {
      void timeline.older();
    }
    if (view.end > view.keys.length - EDGE_ROWS && !timeline.isEnd.peek()) void timeline.newer();
  };

  const markRead = (): void => {
    clearTimeout(readTimer.current);
    readTimer.current = setTimeout(() => {
      const element = scroller.current;
      if (!element || !props.isSeen()) return;
      const at = view.indexAt(element.scrollTop + element.clientHeight - 8);
      const sequence = sequenceUpTo(known.current.rows, at);
      if (sequence > timeline.chat.lastRead) void timeline.chat.read(sequence);
    }, READ_AFTER_MS);
  };

  const scrolled = (): void => {
    const element = scroller.current!;
    const left = element.scrollHeight - element.scrollTop - element.clientHeight;
    // This holds also if the last row is not rendered yet: the list goes to it once it is.
    const isAtEnd = left < END_PX && timeline.isEnd.peek();
    isStuckToEnd.current = isAtEnd;
    stuckAt.current = isAtEnd ? element.scrollTop : 0;
    isAway.value = !isAtEnd;
    look();
    markRead();
  };

  useLayoutEffect(() => {
    const element = scroller.current!;
    if (place !== null && placeAt >= 0) {
      isStuckToEnd.current = place.key === "end" && isEnd;
      stuckAt.current = 0;
      settle();
      if (!isStuckToEnd.current) {
        const row = block.current!.children[placeAt - view.first] as HTMLElement;
        const space = place.key === "new" ? 96 : (element.clientHeight - row.offsetHeight) / 2.5;
        element.scrollTop = row.offsetTop - Math.max(0, space);
      }
      if (place.isMarked) {
        marked.value = place.key;
        const row = block.current!.children[placeAt - view.first] as HTMLElement;
        row.focus({ preventScroll: true });
      }
      timeline.place.value = null;
    } else {
      settle();
    }
    scrolled();
    if (hadFocus.current && !element.contains(focusBeside(element))) {
      element.focus({ preventScroll: true });
    }
  });

  useEffect(() => {
    const observer = new ResizeObserver(() => {
      settle();
      look();
    });
    observer.observe(scroller.current!);
    observer.observe(block.current!);
    const onSeen = () => markRead();
    addEventListener("focus", onSeen);
    document.addEventListener("visibilitychange", onSeen);
    const stopListening = live.listen((event) => {
      const isOurs = "message" in event && event.message.chatId === timeline.chat.chatId;
      // Messages of a sync are not announced to screen readers, only live ones.
      if (isOurs && event.type === "MessageReceived" && live.status.peek().state === "ready") {
        heard.value = spoken(live, event.message);
      }
      // An edited or deleted text must not be announced any more.
      if (event.type === "MessageChanged" && event.kind !== "react") heard.value = "";
      if (event.type === "StatusMoved" && event.status.state === "ready") {
        timeline.isStuck.value = false;
        look();
      }
    });
    return () => {
      observer.disconnect();
      removeEventListener("focus", onSeen);
      document.removeEventListener("visibilitychange", onSeen);
      stopListening();
      clearTimeout(readTimer.current);
    };
  }, []);

  useEffect(() => {
    if (marked.value === null) return;
    const timer = setTimeout(() => {
      marked.value = null;
    }, 2500);
    return () => clearTimeout(timer);
  }, [marked.value]);

  const pressed = (event: KeyboardEvent): void => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (event.key === "End" && !event.shiftKey) {
      event.preventDefault();
      void timeline.latest();
    }
    if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const messages = [...block.current!.querySelectorAll<HTMLElement>(".row")];
    const here = focusBeside(scroller.current)?.closest<HTMLElement>(".row");
    const bottom = scroller.current!.getBoundingClientRect().bottom;
    const lastSeen = messages.findLast((row) => row.getBoundingClientRect().top < bottom - 8);
    const target = here ? messages[messages.indexOf(here) + step] : lastSeen;
    if (!target) return;
    target.focus({ preventScroll: true });
    target.scrollIntoView({ block: "nearest" });
  };

  return {
    rows,
    viewport: view,
    scroller,
    above,
    below,
    block,
    isAway,
    marked,
    heard,
    scrolled,
    pressed,
  };
}

function indexOf(rows: readonly Row[], key: string): number {
  if (key === "end") return rows.length - 1;
  const found = rows.findIndex((row) => row.key === key);
  return found < 0 ? rows.length - 1 : found;
}

/** The sequence of the last message at or before a row; 0: there is none. */
function sequenceUpTo(rows: readonly Row[], index: number): number {
  for (let at = Math.min(index, rows.length - 1); at >= 0; at--) {
    const row = rows[at]!;
    if (row.kind === "message") return row.message.sequence;
  }
  return 0;
}

function spoken(live: Live, message: Message): string {
  return words.value.received(nameOfPerson(live, message.senderId), lineOf(message.text));
}
