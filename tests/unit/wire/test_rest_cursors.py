"""Cursors: there and back, and nothing that is not one."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewire.domain.chat_list import ChatListCursor
from tidewire.domain.ids import ChatId, UserId
from tidewire.wire.rest_cursors import (
    BlocksCursor,
    ChatsCursor,
    HistoryCursor,
    StandingsCursor,
    decode_cursor,
    encode_cursor,
)

CHAT = ChatId("chat_01ARZ3NDEKTSV4RRFFQ69G5FAV")
CHATS = ChatsCursor(7, 1_900_000_000_000, CHAT, 5)
HISTORY = HistoryCursor(CHAT, is_forward=True, after=3, before=None)
STANDINGS = StandingsCursor(CHAT)
BLOCKS = BlocksCursor(UserId("user_01ARZ3NDEKTSV4RRFFQ69G5FAV"))


def test_cursor_comes_back_and_is_safe_in_a_url() -> None:
    texts = [encode_cursor(CHATS), encode_cursor(HISTORY)]
    for text in (*texts, encode_cursor(STANDINGS), encode_cursor(BLOCKS)):
        assert text.replace("-", "").replace("_", "").isalnum()
    assert decode_cursor(encode_cursor(CHATS), ChatsCursor) == CHATS
    assert decode_cursor(encode_cursor(HISTORY), HistoryCursor) == HISTORY
    assert decode_cursor(encode_cursor(STANDINGS), StandingsCursor) == STANDINGS
    assert decode_cursor(encode_cursor(BLOCKS), BlocksCursor) == BLOCKS
    assert CHATS.place() == ChatListCursor(7, 1_900_000_000_000, CHAT)


def test_cursor_of_another_list_is_none() -> None:
    assert decode_cursor(encode_cursor(CHATS), HistoryCursor) is None
    assert decode_cursor(encode_cursor(HISTORY), StandingsCursor) is None
    assert decode_cursor(encode_cursor(STANDINGS), BlocksCursor) is None


@pytest.mark.parametrize(
    "decoded",
    [
        b"",
        b"{}",
        b"\xff",
        b'{"v":"messages/1","chat_id":"c","is_forward":true,"after":-1,"before":null}',
        b'{"v":"messages/1","chat_id":"c","is_forward":true,"after":9007199254740992,"before":1}',
        b'{"v":"messages/2","chat_id":"c","is_forward":true,"after":1,"before":null}',
    ],
)
def test_cursor_that_we_did_not_make_is_none(decoded: bytes) -> None:
    assert decode_cursor(base64.urlsafe_b64encode(decoded).decode(), HistoryCursor) is None


@given(st.text())
def test_no_text_raises(text: str) -> None:
    assert decode_cursor(text, HistoryCursor) is None


def test_long_text_is_none() -> None:
    assert decode_cursor("a" * 513, HistoryCursor) is None
