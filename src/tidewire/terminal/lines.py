"""What a conversation looks like, line by line. PURE.

    ──────────── Monday 16 November 2026 ────────────
    09:41 Bob   A long message goes on in lines that
                begin below its beginning
    09:42 alice Short                              ✓✓

A line is a row of spans; a span has a look, and the widget knows what a look is in colours.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, tzinfo
from enum import StrEnum
from typing import Final

import msgspec

from tidewire.domain.delivery import TICK_MARKS, Tick
from tidewire.terminal.text import Measure, one_line, padded, visible, wrap

MARKS: Final[dict[Tick, str]] = TICK_MARKS | {Tick.READ: "✔✔"}
"""Read is blue, and without colours still another mark than delivered."""
MARK_WIDTH: Final = 2
TIME_WIDTH: Final = 5
NAME_WIDTH_MAX: Final = 12
TEXT_WIDTH_MIN: Final = 10


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


class Span(msgspec.Struct, frozen=True):
    text: str
    look: Look = Look.TEXT


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
    """What there is to say about it: why it failed."""
    is_found: bool = False


class Line(msgspec.Struct, frozen=True):
    """`key` and `sequence` are those of the row that it belongs to."""

    spans: tuple[Span, ...]
    key: str = ""
    sequence: int = 0

    @property
    def text(self) -> str:
        return "".join(span.text for span in self.spans)


def mark_of(tick: Tick | None) -> Span:
    """What stands at the end of the line of an own message; nothing beside those of others."""
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
    """All lines. Above the first message after `new_after` it says that it is new; `older` is the
    line above everything."""
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
    look = Look.FOUND if row.is_found else Look.TEXT
    indent = Span(" " * (TIME_WIDTH + name_width + 2))
    lines: list[Line] = []
    for number, part in enumerate(wrap(visible(row.text), text_width, measure)):
        begin: tuple[Span, ...] = (indent,)
        end = Span(" " * (MARK_WIDTH + 1))
        if number == 0:
            begin = (
                Span(f"{time} ", Look.QUIET),
                Span(
                    padded(one_line(name), name_width, measure) + " ",
                    Look.OWN_NAME if row.is_own else Look.NAME,
                ),
            )
        spans = (*begin, Span(padded(part, text_width, measure), look))
        ends = (Span(" "), mark_of(row.tick)) if number == 0 else (end,)
        lines.append(Line((*spans, *ends), key=row.key, sequence=row.sequence))
    if row.note is not None:
        for part in wrap(visible(row.note), text_width, measure):
            note = Span(padded(part, text_width + MARK_WIDTH + 1, measure), Look.FAILED)
            lines.append(Line((indent, note), key=row.key, sequence=row.sequence))
    return lines


# Where one is in it.


class Anchor(msgspec.Struct, frozen=True):
    """The line at the top of the screen, by what it belongs to: lines above may come and go."""

    key: str
    offset: int


def anchor_at(lines: Sequence[Line], top: int) -> Anchor | None:
    """What is at the top. Lines that stand alone (a day, the rest of the past) may go away."""
    for index in range(max(0, top), len(lines)):
        if lines[index].sequence or not _stands_alone(lines[index]):
            first = _first(lines, lines[index].key)
            return Anchor(lines[index].key, top - first)
    return None


def top_of(lines: Sequence[Line], anchor: Anchor) -> int | None:
    """Where that line is now; None: what it belonged to is gone."""
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
