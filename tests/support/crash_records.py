"""What a load reports while it runs, one line each: what it asks for, and what it was told.

A line is written before the act and after its answer, so whatever happens to the process, the
reader of the lines knows what was promised and what was still open. Short enough for a pipe to take
each of them whole (PIPE_BUF).
"""

from typing import Final

import msgspec

from tidewire.domain.ids import ChatId, ClientMessageId, MessageId, UserId


class Sent(msgspec.Struct, frozen=True, array_like=True, tag="sent"):
    """A message is about to be submitted; the same key again is a retry.

    `line` is the connection it is sent on, None for one that keeps no order.
    """

    key: ClientMessageId
    chat_id: ChatId
    sender_id: UserId
    size: int
    line: str | None = None


class Answered(msgspec.Struct, frozen=True, array_like=True, tag="acked"):
    """The sender was told that his message is stored."""

    key: ClientMessageId
    message_id: MessageId
    sequence: int
    prev_sequence: int
    created_at_ms: int
    deduplicated: bool


class RefusedSend(msgspec.Struct, frozen=True, array_like=True, tag="refused"):
    """The sender was told that his message is not stored and why."""

    key: ClientMessageId
    code: str


class Seen(msgspec.Struct, frozen=True, array_like=True, tag="seen"):
    """A reader was shown this message."""

    key: ClientMessageId
    message_id: MessageId
    sequence: int
    prev_sequence: int
    created_at_ms: int


class Moving(msgspec.Struct, frozen=True, array_like=True, tag="moving"):
    """A device is about to acknowledge or read up to here."""

    user_id: UserId
    chat_id: ChatId
    delivered: int
    read: int


class Moved(msgspec.Struct, frozen=True, array_like=True, tag="moved"):
    """Somebody was shown that this user has got so far."""

    user_id: UserId
    chat_id: ChatId
    delivered: int
    read: int


class Changing(msgspec.Struct, frozen=True, array_like=True, tag="changing"):
    """A member is about to be added to a group or taken out of it."""

    chat_id: ChatId
    user_id: UserId
    joins: bool


class Changed(msgspec.Struct, frozen=True, array_like=True, tag="changed"):
    """That has been confirmed."""

    chat_id: ChatId
    user_id: UserId
    joins: bool


class Ready(msgspec.Struct, frozen=True, array_like=True, tag="ready"):
    """The store is open, its people and chats are there, the load begins."""


class Restarted(msgspec.Struct, frozen=True, array_like=True, tag="restarted"):
    """The write-ahead log has been restarted so many times in this life."""

    restarts: int


class Fault(msgspec.Struct, frozen=True, array_like=True, tag="fault"):
    """The load itself saw something that must not be."""

    sentence: str


Record = (
    Sent
    | Answered
    | RefusedSend
    | Seen
    | Moving
    | Moved
    | Changing
    | Changed
    | Ready
    | Restarted
    | Fault
)

LINE_BYTES_MAX: Final = 4096
"""What POSIX promises a pipe to take in one piece on Linux."""

_encoder: Final = msgspec.json.Encoder()
_decoder: Final[msgspec.json.Decoder[Record]] = msgspec.json.Decoder(Record)


def encode_line(record: Record) -> bytes:
    line = _encoder.encode(record) + b"\n"
    assert len(line) <= LINE_BYTES_MAX
    return line


def decode_line(line: bytes) -> Record:
    return _decoder.decode(line)


def content_of(sent: Sent) -> str:
    """The text of a message, which follows from its key: a mixed-up or torn one does not fit."""
    text = f"{sent.key} é{sent.size} "
    return (text * (sent.size // len(text) + 1))[: sent.size]
