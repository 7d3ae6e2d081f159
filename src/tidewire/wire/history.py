"""How much of a page of history goes into one answer. PURE."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from tidewire.domain.fold import MessageNow
from tidewire.domain.messages import Message

ESCAPED_BYTES_MAX: Final = 6
"""The most bytes that one byte of a text takes in JSON (`\\u0001`)."""

Changed = Mapping[int, MessageNow]
"""The current states of messages, by sequence."""

_encode: Final = msgspec.json.Encoder().encode


def fitting(messages: Sequence[Message], changed: Changed, *, bytes_max: int) -> Sequence[Message]:
    """The first of these messages that fit into `bytes_max` of JSON with their current states, but
    at least one. The page was already cut by its texts; edits and reactions come on top."""
    if not changed:
        return messages
    size = 0
    for index, message in enumerate(messages):
        now = changed.get(message.sequence)
        size += ESCAPED_BYTES_MAX * len(message.content.encode())
        size += 0 if now is None else len(_encode(now))
        if index and size > bytes_max:
            return messages[:index]
    return messages
