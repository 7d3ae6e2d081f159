"""The frames of clients that are in many chats and look at what they are told. PURE.

`frames.py` is for generators that must not cost anything; these here are for checking.
"""

from typing import Final

import msgspec

from tidewire.ops.load.frames import Closing, Error, Established, Resync

SYNC_LIMIT: Final = 500


class Item(msgspec.Struct, gc=False, frozen=True):
    """A message, wherever it was met."""

    sequence: int
    prev_sequence: int
    sender_id: str
    client_message_id: str


class PushedPart(Item, gc=False, frozen=True, kw_only=True):
    chat_id: str


class Pushed(msgspec.Struct, gc=False, tag="message", tag_field="type"):
    payload: PushedPart


class AckedPart(msgspec.Struct, gc=False):
    chat_id: str
    client_message_id: str
    sequence: int
    prev_sequence: int


class Acked(msgspec.Struct, gc=False, tag="send_message_ack", tag_field="type"):
    payload: AckedPart


class Numbers(msgspec.Struct, gc=False):
    """What a client shows of a chat. None of it ever goes down."""

    chat_id: str
    head: int = 0
    delivered: int = 0
    read: int = 0
    others_delivered: int = 0
    others_read: int = 0


RISING: Final = ("head", "delivered", "read", "others_delivered", "others_read")


class DigestEntry(Numbers, gc=False, kw_only=True):
    joined_sequence: int = 0


class DigestPart(msgspec.Struct):
    page: int
    last: bool
    chats: list[DigestEntry]


class Digest(msgspec.Struct, tag="chat_digest", tag_field="type"):
    payload: DigestPart


class StatusPart(msgspec.Struct, gc=False):
    chat_id: str
    others_delivered: int
    others_read: int
    own_delivered: int = 0
    own_read: int = 0


class Status(msgspec.Struct, gc=False, tag="status_update", tag_field="type"):
    payload: StatusPart


class ChangePart(msgspec.Struct, gc=False):
    chat_id: str
    change: str
    head: int
    user_id: str = ""
    joined_sequence: int = 0


class Change(msgspec.Struct, gc=False, tag="chat_update", tag_field="type"):
    payload: ChangePart


class PagePart(msgspec.Struct):
    chat_id: str
    messages: list[Item]
    synced_through: int
    has_more: bool


class Page(msgspec.Struct, tag="sync_response", tag_field="type"):
    request_id: str
    payload: PagePart


class Typing(msgspec.Struct, gc=False, tag="typing_indicator", tag_field="type"):
    """Somebody types: not looked at."""


class Beat(msgspec.Struct, gc=False, tag="heartbeat_ack", tag_field="type"):
    """The server lives."""


MixedFrame = (
    Pushed
    | Acked
    | Digest
    | Status
    | Change
    | Page
    | Typing
    | Beat
    | Established
    | Error
    | Closing
    | Resync
)
_DECODER: Final[msgspec.json.Decoder[MixedFrame]] = msgspec.json.Decoder(MixedFrame)
decode_mixed: Final = _DECODER.decode
"""Raises msgspec.DecodeError for a frame that is not known here."""

HEARTBEAT: Final = b'{"type":"heartbeat","payload":{}}'


def message_key(sender: int, number: int) -> str:
    """The client_message_id of a sender's message with this number in its chat."""
    return f"{sender:08x}-0000-4000-8000-{number:012x}"


def sender_of(client_message_id: str) -> int:
    return int(client_message_id[:8], 16)


def request(kind: str, request_id: str, **payload: object) -> bytes:
    return msgspec.json.encode({"type": kind, "request_id": request_id, "payload": payload})


def one_way(kind: str, **payload: object) -> bytes:
    return msgspec.json.encode({"type": kind, "payload": payload})
