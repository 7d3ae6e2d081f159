"""Messages that change in a long mixed run: what a device may change, and what it has to see. PURE.

A device changes one of the last few messages that it knows, so that changes of many devices meet.
Answers of REST are checked in two ways: a message whose deletion was acknowledged before the
request shows no text; and an earlier page with the later entries folded in is the current page.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidewire.domain.fold import MessageNow, fold
from tidewire.domain.ids import ChatId, ClientMessageId, MessageId, UserId
from tidewire.domain.messages import Amendment, EntryKind, Message
from tidewire_bench.frames import CONTENT

if TYPE_CHECKING:
    from random import Random

KNOWN_MAX: Final = 8
"""How many messages of a chat a device may change."""
DELETED_MAX: Final = 200
"""How many deletions of a chat are remembered: those on the newest page and some more."""
WEIGHTS: Final = {"react": 5, "edit_message": 3, "send_message": 1, "delete_message": 1}
EDITED: Final = "Edited! " * 8
EMOJIS: Final = ("👍", "🎉")
OVERTAKEN: Final = frozenset({"MESSAGE_DELETED", "TOO_MANY_EDITS"})
"""Error codes with which a change may be refused although its target exists."""

Wish = tuple[str, dict[str, object]]
"""A kind of frame, and its fields besides chat and key."""
Page = Sequence[Mapping[str, Any]]
"""Items of a history page, as REST has them."""
View = dict[int, tuple[str, MessageNow]]
"""The text and the current state of each message, by its sequence."""


class Changes:
    """What one device can change."""

    def __init__(self) -> None:
        self._own: dict[str, deque[int]] = {}
        self._met: dict[str, deque[int]] = {}

    def met(self, chat_id: str, sequence: int, *, is_own: bool) -> None:
        """The device has got this message."""
        for known in (self._met, self._own) if is_own else (self._met,):
            known.setdefault(chat_id, deque(maxlen=KNOWN_MAX)).append(sequence)

    def forget(self, chat_id: str) -> None:
        self._own.pop(chat_id, None)
        self._met.pop(chat_id, None)

    def wish(self, chat_id: str, chance: "Random") -> Wish | None:
        """A random change of a message; None if no suitable message is known."""
        [kind] = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
        is_for_authors = kind in {"edit_message", "delete_message"}
        known = (self._own if is_for_authors else self._met).get(chat_id)
        if not known:
            return None
        target = chance.choice(known)
        match kind:
            case "edit_message":
                return kind, {"target": target, "content": EDITED}
            case "delete_message":
                known.remove(target)
                return kind, {"target": target}
            case "react":
                is_on = chance.random() < 0.7
                return kind, {"target": target, "emoji": chance.choice(EMOJIS), "is_on": is_on}
            case _:
                return kind, {"content": CONTENT, "reply_to": target}


class Deletions:
    """The last messages of each chat whose deletion was acknowledged."""

    def __init__(self) -> None:
        self._by_chat: dict[str, deque[int]] = {}

    def add(self, chat_id: str, sequence: int) -> None:
        self._by_chat.setdefault(chat_id, deque(maxlen=DELETED_MAX)).append(sequence)

    def of(self, chat_id: str) -> frozenset[int]:
        """The deletions up to this moment. To be called before a read."""
        return frozenset(self._by_chat.get(chat_id, ()))


def texts_in(page: Page) -> dict[int, str]:
    """The texts that a page shows, by the message that each belongs to."""
    texts: dict[int, str] = {}
    for item in page:
        kind = item.get("kind")
        if kind in {None, EntryKind.EDIT}:
            subject = item["sequence"] if kind is None else item["target"]
            now = (item.get("now") or {}).get("content")
            texts[subject] = texts.get(subject) or item.get("content") or now or ""
    return texts


def readable(page: Page, deleted: Iterable[int]) -> list[int]:
    """The messages of which a page shows a text although they were deleted before it was read."""
    texts = texts_in(page)
    return sorted(sequence for sequence in deleted if texts.get(sequence))


def view_in(page: Page) -> View:
    """What a page shows of its messages."""
    view: View = {}
    for item in page:
        if item.get("kind") is None:
            now = msgspec.convert(item.get("now") or {}, MessageNow)
            view[item["sequence"]] = _shown(item.get("content", ""), now)
    return view


def folded(stale: View, entries: Page, reader: str) -> View:
    """An earlier view with the entries since then applied to the messages that it has."""
    view = dict(stale)
    for item in entries:
        target = item.get("target")
        if target in view:
            text, now = view[target]
            view[target] = _shown(text, fold(now, _entry(item), UserId(reader)))
    return view


def differences(one: View, other: View) -> list[int]:
    """The messages that both views show differently. Who reacted is named for some only."""
    return sorted(
        at for at in one.keys() & other.keys() if _counted(one[at]) != _counted(other[at])
    )


def _shown(text: str, now: MessageNow) -> tuple[str, MessageNow]:
    return "" if now.is_deleted else now.content or text, now


def _counted(shown: tuple[str, MessageNow]) -> tuple[object, ...]:
    text, now = shown
    counts = {one.emoji: (one.count, one.sequence) for one in now.shown_reactions}
    return text, now.deleted_sequence, 0 if now.is_deleted else now.edited_sequence, counts


def _entry(item: Mapping[str, Any]) -> Message:
    amends = Amendment(
        kind=EntryKind(item["kind"]),
        target=item["target"],
        emoji=item.get("emoji"),
        is_on=item.get("is_on") is not False,
    )
    return Message(
        ChatId(""),
        item["sequence"],
        item["prev_sequence"],
        MessageId(""),
        UserId(item["sender_id"]),
        ClientMessageId(""),
        item.get("content", ""),
        "",
        0,
        amends=amends,
        count=item.get("count") or 0,
    )
