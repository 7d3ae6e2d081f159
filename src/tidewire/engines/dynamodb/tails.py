"""The ends of chats as this process saw them last: enough to append without reading first. PURE.

An end may be out of date at any time: then the fence fails, nothing is written, and everything is
read. News of other processes' commits update it, so in a chat with writers at several gateways it
is usually right.
"""

from typing import Final

import msgspec

from tidewire.domain.ids import ChatId
from tidewire.engines.dynamodb.known import Recent
from tidewire.engines.dynamodb.numbers import SEEN_SECONDS, Counter

TAILS_MAX: Final = 100_000


class Tail(msgspec.Struct, frozen=True):
    head: int
    membership_version: int
    counter: Counter
    seen_at_s: float
    """When the counter was seen."""


class Tails:
    """A bounded cache of the chats that this process has written to."""

    def __init__(self, count_max: int = TAILS_MAX) -> None:
        self._tails: Recent[ChatId, Tail] = Recent(count_max)

    def __len__(self) -> int:
        return len(self._tails)

    def find(self, chat_id: ChatId, count: int, now_s: float) -> Tail | None:
        """The known end, if it has numbers for `count` messages; None: the rows must be read."""
        tail = self._tails.find(chat_id)
        if tail is None or not tail.counter.has(count, tail.head):
            return None
        return tail if now_s - tail.seen_at_s < SEEN_SECONDS else None

    def committed(self, chat_id: ChatId, tail: Tail) -> None:
        """Note the end after a commit of ours; news of a later commit may have come already."""
        before = self._tails.find(chat_id)
        if (
            before is not None
            and before.membership_version == tail.membership_version
            and before.head > tail.head
        ):
            tail = msgspec.structs.replace(tail, head=before.head)
        self._tails.note(chat_id, tail)

    def heard(self, chat_id: ChatId, head: int, membership_version: int) -> None:
        """Note news of a commit: the chat's head and membership version after it."""
        tail = self._tails.find(chat_id)
        if tail is None or membership_version < tail.membership_version:
            return
        if membership_version > tail.membership_version:
            # The members have changed, and must be read anyway.
            self._tails.forget(chat_id)
        elif head > tail.head:
            self._tails.note(chat_id, msgspec.structs.replace(tail, head=head))

    def forget(self, chat_id: ChatId) -> None:
        self._tails.forget(chat_id)
