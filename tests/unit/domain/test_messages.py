"""What may be sent, and what may not."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewire.domain.errors import (
    InvalidContent,
    InvalidContentType,
    InvalidEncoding,
    InvalidMessage,
    MessageTooLarge,
    Refused,
)
from tidewire.domain.ids import ChatId, ClientMessageId, MessageId, UserId
from tidewire.domain.limits import CONTENT_BYTES_MAX, SEQUENCE_MAX
from tidewire.domain.messages import SendMessage, check_content_bytes, check_send

KEY = ClientMessageId("c0a8f3d2-5b1e-4f77-9a43-2d6e8b90c5f1")
HALF_A_PAIR = chr(0xD83D)


def send(**changes: Any) -> SendMessage:
    fields = {"client_message_id": KEY, "content": "hello", **changes}
    return SendMessage(
        chat_id=ChatId("chat_1"),
        sender_id=UserId("user_1"),
        message_id=MessageId("msg_1"),
        **fields,
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"content": "x" * CONTENT_BYTES_MAX},
        {"content": "é" * (CONTENT_BYTES_MAX // 2)},
        {"content": "😀" * (CONTENT_BYTES_MAX // 4)},
        {"content": "👩‍👩‍👧‍👦"},
        {"content": " \n\t\x01"},
        {"content_type": "text/plain"},
        {"seen_sequence": 0},
        {"seen_sequence": SEQUENCE_MAX},
        {"client_message_id": KEY.upper()},
    ],
)
def test_valid_send_passes(changes: dict[str, object]) -> None:
    check_send(send(**changes))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"content": ""}, InvalidMessage),
        ({"content": "a\x00b"}, InvalidContent),
        ({"content": HALF_A_PAIR}, InvalidEncoding),
        ({"content": "x" * 2000 + HALF_A_PAIR}, InvalidEncoding),
        ({"content": "x" * (CONTENT_BYTES_MAX + 1)}, MessageTooLarge),
        ({"content": "é" * (CONTENT_BYTES_MAX // 2) + "x"}, MessageTooLarge),
        ({"content": "😀" * (CONTENT_BYTES_MAX // 4 + 1)}, MessageTooLarge),
        ({"content_type": "text/html"}, InvalidContentType),
        ({"content_type": ""}, InvalidContentType),
        ({"client_message_id": "key"}, InvalidMessage),
        ({"seen_sequence": -1}, InvalidMessage),
        ({"seen_sequence": SEQUENCE_MAX + 1}, InvalidMessage),
    ],
)
def test_invalid_send_is_refused(changes: dict[str, object], error: type[Refused]) -> None:
    with pytest.raises(error):
        check_send(send(**changes))


def test_size_is_told_in_bytes() -> None:
    with pytest.raises(MessageTooLarge) as caught:
        check_content_bytes("é" * 3000)
    assert (caught.value.size_bytes, caught.value.size_bytes_max) == (6000, CONTENT_BYTES_MAX)


@given(st.text(st.characters()))
def test_content_passes_exactly_if_it_is_utf8_without_nul(content: str) -> None:
    try:
        size_bytes = len(content.encode())
    except UnicodeEncodeError:
        size_bytes = 0
    is_allowed = 1 <= size_bytes <= CONTENT_BYTES_MAX and "\x00" not in content
    try:
        check_send(send(content=content))
    except Refused:
        assert not is_allowed
    else:
        assert is_allowed
