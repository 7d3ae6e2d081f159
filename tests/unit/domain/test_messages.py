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
from tidewire.domain.limits import (
    CONTENT_BYTES_MAX,
    EMOJI_BYTES_MAX,
    MENTIONS_MAX,
    REASON_CHARACTERS_MAX,
    SEQUENCE_MAX,
)
from tidewire.domain.messages import (
    MENTION_ALL,
    Amendment,
    EntryKind,
    Message,
    MessageBody,
    SendMessage,
    check_content_bytes,
    check_send,
    cut_page,
    new_send,
    said_by,
)

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
        {"reply_to": 1},
        {"reply_to": SEQUENCE_MAX, "mentions": ("user_2", MENTION_ALL)},
        {"mentions": tuple(f"user_{number}" for number in range(MENTIONS_MAX))},
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
        ({"reply_to": 0}, InvalidMessage),
        ({"reply_to": SEQUENCE_MAX + 1}, InvalidMessage),
        ({"mentions": tuple(f"user_{one}" for one in range(MENTIONS_MAX + 1))}, InvalidMessage),
        ({"mentions": ("user_2", "user_2")}, InvalidMessage),
        ({"mentions": ("",)}, InvalidMessage),
        ({"mentions": ("@here",)}, InvalidMessage),
        ({"mentions": ("user 2",)}, InvalidMessage),
    ],
)
def test_invalid_send_is_refused(changes: dict[str, object], error: type[Refused]) -> None:
    with pytest.raises(error):
        check_send(send(**changes))


EDIT, DELETE, REACT = EntryKind.EDIT, EntryKind.DELETE, EntryKind.REACT


def amending(kind: EntryKind, changes: dict[str, Any]) -> SendMessage:
    """A send that amends; changes of its own fields, and of those of the amendment."""
    amends: dict[str, Any] = {"kind": kind, "target": 1}
    if kind is REACT:
        amends["emoji"] = "👍"
    fields: dict[str, Any] = {"content": "new" if kind is EDIT else ""}
    for name, value in changes.items():
        (amends if name in Amendment.__struct_fields__ else fields)[name] = value
    return send(amends=Amendment(**amends), **fields)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (EDIT, {}),
        (EDIT, {"base": 0, "target": SEQUENCE_MAX, "seen_sequence": 4}),
        (EDIT, {"content": "x" * CONTENT_BYTES_MAX, "base": SEQUENCE_MAX}),
        (DELETE, {}),
        (DELETE, {"reason": "r" * REASON_CHARACTERS_MAX}),
        (REACT, {}),
        (REACT, {"is_on": False}),
        (REACT, {"emoji": "👩‍👩‍👧‍👦"}),
        (REACT, {"emoji": "x" * EMOJI_BYTES_MAX}),
        (REACT, {"emoji": ":tada:"}),
    ],
)
def test_valid_amendment_passes(kind: EntryKind, changes: dict[str, Any]) -> None:
    check_send(amending(kind, changes))


@pytest.mark.parametrize(
    ("kind", "changes", "error"),
    [
        *((kind, {"target": 0}, InvalidMessage) for kind in (EDIT, DELETE, REACT)),
        *((kind, {"target": SEQUENCE_MAX + 1}, InvalidMessage) for kind in (EDIT, DELETE, REACT)),
        *((kind, {"reply_to": 1}, InvalidMessage) for kind in (EDIT, DELETE, REACT)),
        *((kind, {"mentions": ("user_2",)}, InvalidMessage) for kind in (EDIT, DELETE, REACT)),
        *((kind, {"client_message_id": "x"}, InvalidMessage) for kind in (EDIT, DELETE, REACT)),
        *((kind, {"content": "text"}, InvalidMessage) for kind in (DELETE, REACT)),
        (EDIT, {"content": ""}, InvalidMessage),
        (EDIT, {"content": "x" * (CONTENT_BYTES_MAX + 1)}, MessageTooLarge),
        (EDIT, {"content_type": "text/html"}, InvalidContentType),
        (EDIT, {"base": -1}, InvalidMessage),
        (EDIT, {"emoji": "👍"}, InvalidMessage),
        (EDIT, {"is_on": False}, InvalidMessage),
        (EDIT, {"reason": "why"}, InvalidMessage),
        (DELETE, {"emoji": "👍"}, InvalidMessage),
        (DELETE, {"reason": ""}, InvalidMessage),
        (DELETE, {"reason": "r" * (REASON_CHARACTERS_MAX + 1)}, InvalidMessage),
        (DELETE, {"reason": "a\x00b"}, InvalidContent),
        (DELETE, {"reason": HALF_A_PAIR}, InvalidEncoding),
        (REACT, {"reason": "why"}, InvalidMessage),
        (REACT, {"emoji": None}, InvalidMessage),
        (REACT, {"emoji": ""}, InvalidMessage),
        (REACT, {"emoji": "x" * (EMOJI_BYTES_MAX + 1)}, InvalidMessage),
        (REACT, {"emoji": "a b"}, InvalidMessage),
        (REACT, {"emoji": "a\u2003b"}, InvalidMessage),
        (REACT, {"emoji": "a\x00"}, InvalidMessage),
        (REACT, {"emoji": HALF_A_PAIR}, InvalidEncoding),
    ],
)
def test_invalid_amendment_is_refused(
    kind: EntryKind, changes: dict[str, Any], error: type[Refused]
) -> None:
    with pytest.raises(error):
        check_send(amending(kind, changes))


def test_send_is_plain_if_it_concerns_nothing_else() -> None:
    assert send().is_plain
    assert not send(reply_to=1).is_plain
    assert not send(mentions=("user_2",)).is_plain
    assert not amending(REACT, {}).is_plain


def test_key_has_small_letters() -> None:
    body = MessageBody(content="hello", reply_to=3, mentions=(UserId("user_2"),))
    made = new_send(
        body,
        chat_id=ChatId("chat_1"),
        sender_id=UserId("user_1"),
        client_message_id=ClientMessageId(KEY.upper()),
        message_id=MessageId("msg_1"),
        seen_sequence=None,
    )
    assert made == send(reply_to=3, mentions=("user_2",))
    assert said_by(made) == ("hello", "text/plain", 3, ("user_2",), None)


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


@pytest.mark.parametrize(
    ("count_max", "bytes_max", "count", "is_cut"),
    [(5, 100, 3, False), (3, 6, 3, False), (2, 100, 2, True), (5, 5, 2, True), (5, 1, 1, True)],
)
def test_page_is_cut_by_count_and_by_bytes_but_has_a_message(
    count_max: int, bytes_max: int, count: int, is_cut: bool
) -> None:
    """Three messages of two bytes each, one letter in one of them."""
    messages = [
        Message(
            ChatId("chat_1"),
            sequence,
            sequence - 1,
            MessageId(f"msg_{sequence}"),
            UserId("user_a"),
            ClientMessageId("key"),
            content,
            "text/plain",
            0,
        )
        for sequence, content in enumerate(("ab", "é", "cd"), start=1)
    ]
    page = cut_page(messages, count_max=count_max, bytes_max=bytes_max)
    assert page == (messages[:count], is_cut)
