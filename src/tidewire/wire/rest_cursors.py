"""Cursors: where the next page of a list begins, as a text that only this server reads. PURE.

A cursor says which list and which direction it belongs to, so one from another list is refused
and not misread. It is not signed: its bearer could ask for everything that it leads to anyway.
"""

import base64
import binascii
from typing import Annotated, TypeVar

import msgspec

from tidewire.domain.chat_list import ChatListCursor
from tidewire.domain.ids import ChatId, UserId
from tidewire.wire.fields import Cursor

CURSOR_CHARACTERS_MAX = 512

_Instant = Annotated[int, msgspec.Meta(ge=0, le=(1 << 53) - 1)]


class ChatsCursor(msgspec.Struct, frozen=True, tag="chats/1", tag_field="v"):
    """The list of chats: the order of one instant, and how old a chat may be."""

    snapshot: _Instant
    activity_at_ms: _Instant
    chat_id: ChatId
    active_since_ms: _Instant

    def place(self) -> ChatListCursor:
        return ChatListCursor(self.snapshot, self.activity_at_ms, self.chat_id)


class HistoryCursor(msgspec.Struct, frozen=True, tag="messages/1", tag_field="v"):
    """Messages of one chat, between two sequences that are not part of it."""

    chat_id: ChatId
    is_forward: bool
    after: Cursor
    before: Cursor | None


class StandingsCursor(msgspec.Struct, frozen=True, tag="delivery/1", tag_field="v"):
    """Delivery states by chat id."""

    after: ChatId


class BlocksCursor(msgspec.Struct, frozen=True, tag="blocks/1", tag_field="v"):
    """The users whom a user blocks, by user id."""

    after: UserId


class RefusedGroupsCursor(msgspec.Struct, frozen=True, tag="refused/1", tag_field="v"):
    """The groups that were left for good, by chat id."""

    after: ChatId


RestCursor = TypeVar(
    "RestCursor", ChatsCursor, HistoryCursor, StandingsCursor, BlocksCursor, RefusedGroupsCursor
)


def encode_cursor(
    cursor: ChatsCursor | HistoryCursor | StandingsCursor | BlocksCursor | RefusedGroupsCursor,
) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).rstrip(b"=").decode()


def decode_cursor(text: str, kind: type[RestCursor]) -> RestCursor | None:
    """The cursor of a text, or None if it is not one of this kind."""
    if len(text) > CURSOR_CHARACTERS_MAX or not text.isascii():
        return None
    try:
        decoded = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(decoded, type=kind)
    except (binascii.Error, msgspec.DecodeError, UnicodeDecodeError):
        return None
