"""What a peer sends becomes a frame or a typed refusal, never an exception."""

import json
from typing import Any

import pytest
from hypothesis import given

from tests.unit.wire.strategies import (
    client_frames,
    messages,
    pushes,
    server_frames,
    times_ms,
)
from tests.unit.wire.vectors import (
    BAD_REQUEST_IDS,
    HIGH,
    INVALID_MESSAGE,
    LOW,
    ONE_WAY_FAULTS,
    REQUEST,
    TAKEN,
    delete,
    edit,
    frame,
    react,
    send,
)
from tidewire.domain.errors import ErrorCode
from tidewire.domain.limits import (
    CONTENT_BYTES_MAX,
    FRAME_BYTES_MAX,
)
from tidewire.domain.messages import Message
from tidewire.wire.client_frames import (
    ONE_WAY_TYPES,
    ClientFrame,
    SendMessageFrame,
)
from tidewire.wire.codec import (
    FrameRefusal,
    UnknownFrame,
    decode_client_frame,
    decode_server_frame,
    encode_client_frame,
    encode_message_push,
    encode_server_frame,
    refusal_payload,
)
from tidewire.wire.frame_builders import message_frame
from tidewire.wire.server_frames import EntryFrame, MessageFrame, ServerFrame


def decoded(shape: object) -> ClientFrame | FrameRefusal:
    return decode_client_frame(json.dumps(shape))


def refused(data: bytes | str | memoryview) -> FrameRefusal:
    refusal = decode_client_frame(data)
    assert isinstance(refusal, FrameRefusal), refusal
    return refusal


@pytest.mark.parametrize("vector", TAKEN)
def test_valid_frame_is_taken_with_everything_it_says(vector: str) -> None:
    shape = TAKEN[vector]
    taken = decoded(shape)
    assert not isinstance(taken, FrameRefusal), taken
    assert str(taken.__struct_config__.tag) == shape["type"]
    for field, value in shape["payload"].items():
        said = getattr(taken.payload, field)
        assert (list(said) if isinstance(said, tuple) else said) == value
    if shape["type"] not in ONE_WAY_TYPES:
        assert getattr(taken, "request_id", None) == shape.get("request_id")


@pytest.mark.parametrize("vector", INVALID_MESSAGE)
def test_invalid_frame_is_refused_under_its_request_id(vector: str) -> None:
    refusal = decoded(INVALID_MESSAGE[vector])
    assert isinstance(refusal, FrameRefusal), refusal
    assert refusal.code is ErrorCode.INVALID_MESSAGE
    assert refusal.request_id == REQUEST
    assert refusal.frame_type == INVALID_MESSAGE[vector].get("type")
    assert refusal.message
    assert refusal.counts_against_budget
    assert refusal.is_answered


@pytest.mark.parametrize("vector", BAD_REQUEST_IDS)
def test_request_without_a_valid_request_id_is_refused_without_one(vector: str) -> None:
    refusal = decoded(BAD_REQUEST_IDS[vector])
    assert isinstance(refusal, FrameRefusal), refusal
    assert (refusal.code, refusal.request_id) == (ErrorCode.INVALID_MESSAGE, None)
    assert refusal.frame_type == BAD_REQUEST_IDS[vector]["type"]
    assert refusal.counts_against_budget
    assert refusal.is_answered


@pytest.mark.parametrize("vector", ONE_WAY_FAULTS)
def test_one_way_frame_is_refused_without_its_request_id(vector: str) -> None:
    """one_way_messages_no_response: the error goes out unsolicited (D-14)."""
    refusal = decoded(ONE_WAY_FAULTS[vector])
    assert isinstance(refusal, FrameRefusal), refusal
    assert (refusal.code, refusal.request_id) == (ErrorCode.INVALID_MESSAGE, None)
    assert refusal.counts_against_budget
    assert refusal.is_answered


# ----------------------------------------------------------------------- content and encoding


@pytest.mark.parametrize(
    ("shape", "code", "details"),
    [
        (
            send(content="x" * (CONTENT_BYTES_MAX + 1)),
            ErrorCode.MESSAGE_TOO_LARGE,
            {"max_bytes": 4096, "received_bytes": 4097},
        ),
        (
            send(content="😀" * 1025),
            ErrorCode.MESSAGE_TOO_LARGE,
            {"max_bytes": 4096, "received_bytes": 4100},
        ),
        (send(content="a\x00b"), ErrorCode.INVALID_CONTENT, None),
        (send(content_type="text/html"), ErrorCode.INVALID_CONTENT_TYPE, None),
        (send(content_type=""), ErrorCode.INVALID_CONTENT_TYPE, None),
        (send(content=HIGH), ErrorCode.INVALID_ENCODING, None),
        (send(content=LOW), ErrorCode.INVALID_ENCODING, None),
        (send(content=LOW + HIGH), ErrorCode.INVALID_ENCODING, None),
        (send(content=HIGH + "😀 and a lot more"), ErrorCode.INVALID_ENCODING, None),
        (send(other=HIGH), ErrorCode.INVALID_ENCODING, None),
        (
            edit(content="x" * (CONTENT_BYTES_MAX + 1)),
            ErrorCode.MESSAGE_TOO_LARGE,
            {"max_bytes": 4096, "received_bytes": 4097},
        ),
        (edit(content="a\x00b"), ErrorCode.INVALID_CONTENT, None),
        (edit(content=HIGH), ErrorCode.INVALID_ENCODING, None),
        (delete(reason="a\x00b"), ErrorCode.INVALID_CONTENT, None),
        (react(emoji=LOW), ErrorCode.INVALID_ENCODING, None),
    ],
)
def test_content_that_is_not_taken_is_told_why_and_is_no_offence(
    shape: dict[str, Any], code: ErrorCode, details: dict[str, object] | None
) -> None:
    refusal = decoded(shape)
    assert isinstance(refusal, FrameRefusal), refusal
    assert (refusal.code, refusal.request_id) == (code, REQUEST)
    assert refusal.frame_type == shape["type"]
    assert refusal.details == details
    assert not refusal.counts_against_budget
    assert refusal.is_answered


def test_escaped_backslash_before_a_surrogate_is_text() -> None:
    taken = decoded(send(content="\\ud800"))
    assert isinstance(taken, SendMessageFrame)
    assert taken.payload.content == "\\ud800"
    # A frame that is refused for another reason is not blamed for it either.
    refusal = decoded(send(content="\\ud800", chat_id=7))
    assert isinstance(refusal, FrameRefusal)
    assert refusal.code is ErrorCode.INVALID_MESSAGE


def test_surrogate_pair_in_a_refused_frame_is_not_blamed() -> None:
    refusal = decoded(send(content="😀 \n", chat_id=7))
    assert isinstance(refusal, FrameRefusal)
    assert (refusal.code, refusal.request_id) == (ErrorCode.INVALID_MESSAGE, REQUEST)


@pytest.mark.parametrize(
    "garbage", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\xc0\x80"]
)
@pytest.mark.parametrize("field", ["content", "elsewhere"])
def test_bytes_that_are_not_utf8_are_refused_wherever_they_stand(
    field: str, garbage: bytes
) -> None:
    data = json.dumps(send(**{field: "@"})).encode().replace(b"@", garbage)
    for form in (data, memoryview(data)):
        refusal = refused(form)
        assert (refusal.code, refusal.request_id) == (ErrorCode.INVALID_ENCODING, REQUEST)
        assert not refusal.counts_against_budget


def test_text_with_half_a_pair_is_refused_like_bytes() -> None:
    refusal = refused(json.dumps(send(content=HIGH), ensure_ascii=False))
    assert (refusal.code, refusal.request_id) == (ErrorCode.INVALID_ENCODING, REQUEST)


def test_frame_has_at_most_64_kilobytes_in_every_form() -> None:
    frame_bytes = json.dumps(send(elsewhere="")).encode()
    pad = FRAME_BYTES_MAX - len(frame_bytes)
    fits = frame_bytes.replace(b'"elsewhere": "', b'"elsewhere": "' + b"x" * pad)
    for data in (fits, fits.decode(), memoryview(fits)):
        assert isinstance(decode_client_frame(data), SendMessageFrame)
    for data in (fits + b" ", (fits + b" ").decode(), memoryview(fits + b" ")):
        refusal = refused(data)
        assert (refusal.code, refusal.request_id) == (ErrorCode.MESSAGE_TOO_LARGE, None)
        assert refusal.details == {"max_bytes": FRAME_BYTES_MAX}
        assert refusal.counts_against_budget
    wide = fits.replace(b"xx", "é".encode() + b"x", 1).decode()
    assert len(wide) == FRAME_BYTES_MAX
    assert refused(wide).code is ErrorCode.MESSAGE_TOO_LARGE


# ------------------------------------------------------------------------------ unknown types


def test_unknown_type_is_ignored_and_counted_and_costs_nothing() -> None:
    refusal = decoded(frame("presence", status="away"))
    assert isinstance(refusal, FrameRefusal)
    assert refusal.is_unknown_type
    assert not refusal.is_answered
    assert not refusal.counts_against_budget
    assert refusal.frame_type == "presence"


def test_unknown_type_with_a_request_id_is_answered() -> None:
    refusal = decoded(frame("presence", REQUEST, status="away"))
    assert isinstance(refusal, FrameRefusal)
    assert (refusal.code, refusal.request_id) == (ErrorCode.INVALID_MESSAGE, REQUEST)
    assert refusal.is_answered
    assert not refusal.counts_against_budget


@pytest.mark.parametrize("request_id", [5, "", "a b", None, [], "r" * 65])
def test_unknown_type_with_an_invalid_request_id_is_not_answered(request_id: object) -> None:
    refusal = decoded(frame("presence", request_id))
    assert isinstance(refusal, FrameRefusal)
    assert not refusal.is_answered


def test_frame_of_the_other_direction_is_an_unknown_type() -> None:
    refusal = decoded(frame("message", REQUEST))
    assert isinstance(refusal, FrameRefusal)
    assert refusal.is_unknown_type


def test_type_that_is_no_plain_word_is_not_repeated() -> None:
    refusal = decoded(frame("no\nlog line"))
    assert isinstance(refusal, FrameRefusal)
    assert refusal.is_unknown_type
    assert refusal.frame_type is None


# -------------------------------------------------------------------------------- round trips


@given(client_frames)
def test_client_frame_survives_the_wire(client_frame: ClientFrame) -> None:
    data = encode_client_frame(client_frame)
    for form in (data, memoryview(data), data.decode()):
        assert decode_client_frame(form) == client_frame


@given(server_frames)
def test_server_frame_survives_the_wire(server_frame: ServerFrame) -> None:
    data = encode_server_frame(server_frame)
    for form in (data, memoryview(data), data.decode()):
        assert decode_server_frame(form) == server_frame


@given(pushes)
def test_push_never_carries_a_request_id(push: ServerFrame) -> None:
    assert "request_id" not in json.loads(encode_server_frame(push))


@given(messages, times_ms)
def test_message_push_is_the_message_frame_in_bytes(message: Message, now_ms: int) -> None:
    data = encode_message_push(message, now_ms)
    assert data == encode_server_frame(message_frame(message, now_ms=now_ms))
    is_message = message.amends is None
    assert isinstance(decode_server_frame(data), MessageFrame if is_message else EntryFrame)


def test_frame_that_has_no_utf8_form_is_a_bug_of_the_caller() -> None:
    taken = decoded(send())
    assert isinstance(taken, SendMessageFrame)
    with pytest.raises(UnicodeEncodeError):
        encode_client_frame(
            SendMessageFrame(
                request_id="r",
                payload=type(taken.payload)(
                    client_message_id=taken.payload.client_message_id,
                    chat_id=taken.payload.chat_id,
                    content=HIGH,
                ),
            )
        )


# ------------------------------------------------------------------------- the client's side


def test_unknown_server_frame_is_told_apart() -> None:
    stamp = {"timestamp": "2031-05-04T11:20:07.412Z"}
    assert decode_server_frame(json.dumps(frame("reaction") | stamp)) == UnknownFrame("reaction")
    assert decode_server_frame(json.dumps(frame("a b") | stamp)) == UnknownFrame(None)


def test_server_frame_with_fields_from_the_future_is_taken() -> None:
    data = b'{"type":"resync","timestamp":"t","payload":{"reason":"r","delay_ms":1,"z":[]},"y":{}}'
    assert not isinstance(decode_server_frame(data), FrameRefusal | UnknownFrame)


def test_invalid_server_frame_is_refused_under_its_request_id() -> None:
    refusal = decode_server_frame(json.dumps(frame("send_message_ack", REQUEST)))
    assert isinstance(refusal, FrameRefusal)
    assert (refusal.code, refusal.request_id) == (ErrorCode.INVALID_MESSAGE, REQUEST)
    assert refusal.frame_type == "send_message_ack"


def test_refusal_payload_is_what_the_peer_is_told() -> None:
    refusal = decoded(send(content="x" * 5000))
    assert isinstance(refusal, FrameRefusal)
    payload = refusal_payload(refusal)
    assert payload.code == "MESSAGE_TOO_LARGE"
    assert payload.message == refusal.message
    assert payload.details == {"max_bytes": 4096, "received_bytes": 5000}


@pytest.mark.parametrize(
    ("content", "is_whole"),
    [
        (r"\ud83d\ude00", True),
        (r"\uD83D\uDE00\n\ud83d\ude00", True),
        (r"\\ud83d", True),
        (r"\n", True),
        (r"\ud83d", False),
        (r"\ude00", False),
        (r"\ud83d x \n", False),
        (r"\ud83d x \ude00", False),
        (r"\ud83d\n", False),
        (r"\ud83d\ud83d\ude00", False),
        (r"\ud83d\ude00\ude00", False),
        (r"\\\ud83d", False),
        (r"\ud83d\\\ude00", False),
        (r"\uD83D\uDE00", True),
        (r"\ud7ff\ue000", True),
    ],
)
def test_half_of_a_surrogate_pair_is_told_from_a_whole_one(content: str, is_whole: bool) -> None:
    text = (
        '{"type":"send_message","request_id":"r1","payload":{"chat_id":"chat_1",'
        '"client_message_id":"c0a8f3d2-5b1e-4f77-9a43-2d6e8b90c5f1","content":"%s"}}'
    )
    frame = decode_client_frame((text % content).encode())
    if is_whole:
        assert isinstance(frame, SendMessageFrame)
    else:
        assert isinstance(frame, FrameRefusal)
        assert (frame.code, frame.request_id) == (ErrorCode.INVALID_ENCODING, "r1")
