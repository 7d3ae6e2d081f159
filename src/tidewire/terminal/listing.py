"""The list of chats: in which order, and what a line of it looks like. PURE."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tidewire.domain.limits import UNREAD_MAX
from tidewire.terminal.lines import Look, Span
from tidewire.terminal.text import Measure, cut, one_line

UNREAD_MARK = "●"
FAILED_MARK = "✗"
GROUP_MARK = "#"


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A chat as the list shows it."""

    chat_id: str
    name: str
    is_group: bool = False
    unread: int = 0
    has_failed: bool = False
    is_open: bool = False
    active_at_ms: int = 0


def ordered(chats: Iterable[Listed]) -> list[Listed]:
    """The newest activity first; the same instant by name, so that nothing jumps about."""
    return sorted(chats, key=lambda chat: (-chat.active_at_ms, chat.name.casefold(), chat.chat_id))


def activity(order: Sequence[str], known: Mapping[str, int]) -> dict[str, int]:
    """When each chat was last active, as far as it can be told.

    `order` is the server's, newest first; `known` the times of those whose last message is here. A
    chat between two known ones lies between them.
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
    """`● Bob     3`: the mark, the name, the count at the right edge; exactly `width` cells."""
    count = unread_text(chat.unread)
    mark, look = " ", Look.TEXT
    if chat.has_failed:
        mark, look = FAILED_MARK, Look.FAILED
    elif chat.unread:
        mark, look = UNREAD_MARK, Look.UNREAD
    name_look = Look.UNREAD if chat.unread else Look.OPEN if chat.is_open else Look.TEXT
    name = (GROUP_MARK if chat.is_group else "") + one_line(chat.name)
    room = max(1, width - 2 - (len(count) + 1 if count else 0))
    name = cut(name, room, measure)
    gap = " " * max(0, width - 2 - measure(name) - len(count))
    return (Span(f"{mark} ", look), Span(name, name_look), Span(gap), Span(count, Look.UNREAD))
