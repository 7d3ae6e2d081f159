"""What a conversation and the list of chats look like, line by line. PURE.

    ──────────── Monday 16 November 2026 ────────────
    09:41 Bob   A long message goes on in lines that
                begin below its beginning
                👍 2  [🎉 1]
    09:42 alice ↪ Bob: A long message goes on in l…
                Short (edited)                     ✓✓

A line is a row of spans; a span has a look, and the widget knows the colours of a look.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, tzinfo
from enum import StrEnum
from typing import Final

import msgspec

from tidewire.domain.delivery import TICK_MARKS, Tick
from tidewire.domain.limits import UNREAD_MAX
from tidewire.terminal.text import Measure, cut, one_line, padded, visible, wrap


class Look(StrEnum):
    TEXT = "text"
    OWN_NAME = "own-name"
    NAME = "name"
    QUIET = "quiet"
    RULE = "rule"
    NEW = "new"
    FOUND = "found"
    SENDING = "sending"
    SENT = "sent"
    DELIVERED = "delivered"
    READ = "read"
    FAILED = "failed"
    UNREAD = "unread"
    OPEN = "open"
    MENTION = "mention"
    OWN_REACTION = "own-reaction"
    CHOSEN = "chosen"


class Span(msgspec.Struct, frozen=True):
    text: str
    look: Look = Look.TEXT


class Mark(msgspec.Struct, frozen=True):
    """A reaction: the emoji, how many users have set it, and whether this user is among them."""

    emoji: str
    count: str
    is_own: bool = False


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A message as it is to be shown. `sequence` is 0 while the server has not stored it."""

    key: str
    sequence: int = 0
    name: str
    is_own: bool
    text: str
    at_ms: int | None
    tick: Tick | None = None
    note: str | None = None
    """Shown below the message: why it failed."""
    is_found: bool = False
    is_gone: bool = False
    """The message has no text: what stands in its place is ours."""
    is_edited: bool = False
    quote: str | None = None
    """The author and the text of the message that it answers."""
    reactions: tuple[Mark, ...] = ()
    mentions: tuple[str, ...] = ()
    """Names of those whom it mentions, as they may stand in the text."""
    is_mention: bool = False
    """It mentions the user."""
    is_chosen: bool = False
    """The keys that act on a message act on this one."""


class Line(msgspec.Struct, frozen=True):
    """`key` and `sequence` are those of the row that it belongs to."""

    spans: tuple[Span, ...]
    key: str = ""
    sequence: int = 0

    @property
    def text(self) -> str:
        return "".join(span.text for span in self.spans)


MARKS: Final[dict[Tick, str]] = TICK_MARKS | {Tick.READ: "✔✔"}
"""Read is blue; its mark differs from that of delivered, also without colours."""
MARK_WIDTH: Final = 2
TIME_WIDTH: Final = 5
MENTIONED: Final = "@"
CHOSEN: Final = "▸"
REPLY: Final = "↪ "
EDITED: Final = "(edited)"


def mark_of(tick: Tick | None, *, is_mention: bool = False) -> Span:
    """The mark at the end of a line: the tick of an own message; for a message of others whether it
    mentions the user."""
    if tick is None and is_mention:
        return Span(MENTIONED.rjust(MARK_WIDTH), Look.MENTION)
    if tick is None:
        return Span(" " * MARK_WIDTH)
    return Span(MARKS[tick].rjust(MARK_WIDTH), Look(tick.value))


def conversation(
    rows: Sequence[Row],
    *,
    width: int,
    measure: Measure,
    zone: tzinfo | None,
    new_after: int | None = None,
    older: str | None = None,
) -> list[Line]:
    """All lines of the conversation. A rule above the first message after `new_after` says that it
    is new; `older` is the line above everything."""
    lines: list[Line] = []
    name_width = _name_width(rows, width, measure)
    day = ""
    name_before: str | None = None
    is_new_told = new_after is None
    if older is not None:
        lines.append(Line((Span(padded(older, width, measure), Look.QUIET),), key="older"))
    for row in rows:
        at = None if row.at_ms is None else datetime.fromtimestamp(row.at_ms / 1000, zone)
        on_day = day if at is None else f"{at:%A} {at.day} {at:%B %Y}"
        if on_day != day:
            day, name_before = on_day, None
            lines.append(_rule(day, width, measure, Look.RULE, f"day {row.key}"))
        if (
            not is_new_told
            and new_after is not None
            and row.sequence > new_after
            and not row.is_own
        ):
            is_new_told, name_before = True, None
            lines.append(_rule("new", width, measure, Look.NEW, NEW_KEY))
        time = " " * TIME_WIDTH if at is None else f"{at:%H:%M}"
        shown = "" if row.name == name_before else row.name
        name_before = row.name
        lines += _message(row, time, shown, width=width, name_width=name_width, measure=measure)
    return lines


NEW_KEY: Final = "new"
NAME_WIDTH_MAX: Final = 12
TEXT_WIDTH_MIN: Final = 10


def _name_width(rows: Sequence[Row], width: int, measure: Measure) -> int:
    longest = max((measure(one_line(row.name)) for row in rows), default=1)
    room = width - TIME_WIDTH - MARK_WIDTH - 3 - TEXT_WIDTH_MIN
    return max(1, min(longest, NAME_WIDTH_MAX, room))


def _rule(text: str, width: int, measure: Measure, look: Look, key: str) -> Line:
    free = max(0, width - measure(text) - 2)
    line = f"{'─' * (free // 2)} {text} {'─' * (free - free // 2)}"
    return Line((Span(padded(line, width, measure), look),), key=key)


def _message(
    row: Row, time: str, name: str, *, width: int, name_width: int, measure: Measure
) -> list[Line]:
    text_width = max(2, width - TIME_WIDTH - name_width - MARK_WIDTH - 3)
    above = [] if row.quote is None else [_quote(row.quote, text_width, measure)]
    parts = [*above, *_text(row, text_width, measure), *_reactions(row, text_width, measure)]
    look = Look.CHOSEN if row.is_chosen else Look.OWN_NAME if row.is_own else Look.NAME
    begin = (
        Span(time + (CHOSEN if row.is_chosen else " "), Look.QUIET),
        Span(padded(one_line(name), name_width, measure) + " ", look),
    )
    indent = (Span(" " * (TIME_WIDTH + name_width + 2)),)
    lines: list[Line] = []
    for number, spans in enumerate(parts):
        gap = text_width - measure("".join(span.text for span in spans)) + 1
        # The mark stands beside the first line of the text, below a quote.
        is_marked = number == len(above)
        mark = mark_of(row.tick, is_mention=row.is_mention) if is_marked else Span(" " * MARK_WIDTH)
        line = (*(indent if number else begin), *spans, Span(" " * max(0, gap)), mark)
        lines.append(Line(line, key=row.key, sequence=row.sequence))
    if row.note is not None:
        for part in wrap(visible(row.note), text_width, measure):
            note = Span(padded(part, text_width + MARK_WIDTH + 1, measure), Look.FAILED)
            lines.append(Line((*indent, note), key=row.key, sequence=row.sequence))
    return lines


def _quote(quote: str, width: int, measure: Measure) -> tuple[Span, ...]:
    return (Span(cut(REPLY + one_line(quote), width, measure), Look.QUIET),)


def _text(row: Row, width: int, measure: Measure) -> list[tuple[Span, ...]]:
    look = Look.FOUND if row.is_found else Look.QUIET if row.is_gone else Look.TEXT
    parts = [
        _highlighted(part, row.mentions, look) for part in wrap(visible(row.text), width, measure)
    ]
    if row.is_edited:
        last = "".join(span.text for span in parts[-1])
        if measure(f"{last} {EDITED}") <= width:
            parts[-1] = (*parts[-1], Span(f" {EDITED}", Look.QUIET))
        else:
            parts.append((Span(cut(EDITED, width, measure), Look.QUIET),))
    return parts


def _highlighted(part: str, names: Sequence[str], look: Look) -> tuple[Span, ...]:
    """A line of a text in which the names of mentioned users are highlighted."""
    spans: list[Span] = []
    rest = part
    while rest:
        folded = rest.casefold() if len(rest.casefold()) == len(rest) else rest
        found = [
            (at, -len(name)) for name in names if (at := folded.find(f"@{name.casefold()}")) >= 0
        ]
        if not found:
            break
        at, length = min(found)
        end = at + 1 - length
        spans += [Span(rest[:at], look), Span(rest[at:end], Look.MENTION)]
        rest = rest[end:]
    return (*(span for span in spans if span.text), Span(rest, look))


def _reactions(row: Row, width: int, measure: Measure) -> list[tuple[Span, ...]]:
    """All marks, as many on a line as fit."""
    lines: list[list[Span]] = []
    used = 0
    for mark in row.reactions:
        # The user's own reactions have brackets, because colours may be missing.
        text = f"{one_line(mark.emoji)} {mark.count}"
        text = cut(f"[{text}]" if mark.is_own else text, width, measure)
        look = Look.OWN_REACTION if mark.is_own else Look.QUIET
        if not lines or used + 2 + measure(text) > width:
            lines.append([Span(text, look)])
            used = measure(text)
        else:
            lines[-1] += [Span("  "), Span(text, look)]
            used += 2 + measure(text)
    return [tuple(line) for line in lines]


# The position in the conversation.


class Anchor(msgspec.Struct, frozen=True):
    """The line at the top of the screen, by its row and its place in the row: lines above may come
    and go."""

    key: str
    offset: int


def anchor_at(lines: Sequence[Line], top: int) -> Anchor | None:
    """The anchor of the top. It skips lines that belong to no message (a day, the line above
    everything), because they may go away."""
    for index in range(max(0, top), len(lines)):
        if lines[index].sequence or not _stands_alone(lines[index]):
            first = _first(lines, lines[index].key)
            return Anchor(lines[index].key, top - first)
    return None


def top_of(lines: Sequence[Line], anchor: Anchor) -> int | None:
    """Where that line is now; None if its row is gone."""
    first = _first(lines, anchor.key)
    return None if first < 0 else max(0, first + anchor.offset)


def _stands_alone(line: Line) -> bool:
    return line.key == "older" or line.key.startswith("day ") or line.key == NEW_KEY


def _first(lines: Sequence[Line], key: str) -> int:
    return next((index for index, line in enumerate(lines) if line.key == key), -1)


def last_seen(lines: Sequence[Line], top: int, height: int) -> int:
    """The newest stored message of which the last line is on the screen; 0 if there is none."""
    bottom = min(len(lines), top + height)
    for index in range(bottom - 1, max(0, top) - 1, -1):
        sequence = lines[index].sequence
        is_cut = index + 1 < len(lines) and lines[index + 1].key == lines[index].key
        if sequence and not (is_cut and index == bottom - 1):
            return sequence
    return 0


def count_below(lines: Sequence[Line], bottom: int, is_counted: Callable[[Line], bool]) -> int:
    """How many messages begin below the screen."""
    keys = {line.key for line in lines[:bottom]}
    below = {line.key for line in lines[bottom:] if line.sequence and is_counted(line)}
    return len(below - keys)


# The list of chats.


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A chat as the list shows it."""

    chat_id: str
    name: str
    is_group: bool = False
    unread: int = 0
    mentions: int = 0
    """How many of the unread ones mention the user."""
    has_failed: bool = False
    is_open: bool = False
    active_at_ms: int = 0


def ordered(chats: Iterable[Listed]) -> list[Listed]:
    """The newest activity first; the same instant by name, so that the order is stable."""
    return sorted(chats, key=lambda chat: (-chat.active_at_ms, chat.name.casefold(), chat.chat_id))


def activity(order: Sequence[str], known: Mapping[str, int]) -> dict[str, int]:
    """When each chat was last active, as far as it is known.

    `order` is the server's, newest first; `known` has the times of chats whose last message is
    here. A chat between two known ones gets a time between theirs.
    """
    times: dict[str, int] = {}
    following = 0
    for chat_id in reversed(order):
        following = max(following + 1, known.get(chat_id, 0))
        times[chat_id] = known.get(chat_id, following)
    return {**known, **times}


def unread_text(count: int) -> str:
    if count <= 0:
        return ""
    return f"{UNREAD_MAX - 1}+" if count >= UNREAD_MAX else str(count)


def listed_line(chat: Listed, width: int, measure: Measure) -> tuple[Span, ...]:
    """`● Bob     3`: the mark, the name, the count at the right edge; exactly `width` cells. The
    mark is `@` if the user is mentioned."""
    count = unread_text(chat.unread)
    mark, look = " ", Look.TEXT
    if chat.has_failed:
        mark, look = "✗", Look.FAILED
    elif chat.mentions:
        mark, look = MENTIONED, Look.MENTION
    elif chat.unread:
        mark, look = "●", Look.UNREAD
    name_look = Look.UNREAD if chat.unread else Look.OPEN if chat.is_open else Look.TEXT
    name = ("#" if chat.is_group else "") + one_line(chat.name)
    room = max(1, width - 2 - (len(count) + 1 if count else 0))
    name = cut(name, room, measure)
    gap = " " * max(0, width - 2 - measure(name) - len(count))
    return (Span(f"{mark} ", look), Span(name, name_look), Span(gap), Span(count, Look.UNREAD))
