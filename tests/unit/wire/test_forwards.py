import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidewire.domain.errors import (
    CounterMissing,
    DeadlinePassed,
    ErrorCode,
    InvalidContentType,
    KeyReused,
    NotAMember,
    Refused,
    StoreUnavailable,
    TidewireError,
)
from tidewire.domain.ids import ChatId, ClientMessageId, ConnectionId, MessageId, UserId
from tidewire.domain.messages import Appended, SendMessage
from tidewire.wire.forwards import (
    Answered,
    Forwarded,
    Told,
    decode_between,
    encode_between,
    outcome_of,
    outcomes_of,
    told_of,
)

STORED = Appended(MessageId("msg_1"), 7, 5, 1_700_000_000_000, deduplicated=False)


def a_send(content: str = "hello", seen: int | None = None, line: str | None = None) -> SendMessage:
    return SendMessage(
        content=content,
        content_type="text/plain",
        chat_id=ChatId("chat_1"),
        sender_id=UserId("user_1"),
        client_message_id=ClientMessageId("key"),
        message_id=MessageId("msg_1"),
        seen_sequence=seen,
        origin_connection_id=None if line is None else ConnectionId(line),
        reply_to=seen,
        mentions=(UserId("user_2"),),
    )


@given(st.text(max_size=20), st.none() | st.integers(0, 9), st.none() | st.just("conn_1"))
def test_sends_arrive_as_they_were(content: str, seen: int | None, line: str | None) -> None:
    forwarded = Forwarded(3, "gateway_1", 4_000, [a_send(content, seen, line)])
    assert decode_between(encode_between(forwarded)) == forwarded


def test_answers_arrive_as_they_were() -> None:
    answered = Answered(3, [told_of(STORED), told_of(NotAMember()), Told()])
    assert decode_between(encode_between(answered)) == answered


@given(st.binary(max_size=50))
@example(b"\x82\xa4type\xa8answered\xa6number\xa1\x80")  # A text that is none.
@example(b"\x81\xa4type" + b"\x91" * 100_000)
def test_bytes_that_are_neither_are_none(body: bytes) -> None:
    assert decode_between(body) is None or body


def test_forward_whose_unknown_fields_cannot_be_read_is_none() -> None:
    body = encode_between(
        {"type": "forwarded", "number": 1, "origin": "g", "time_ms": 1, "sends": [], "more": "?"}
    )
    assert decode_between(body) == Forwarded(1, "g", 1, [])
    assert decode_between(body.replace(b"?", b"\x80")) is None


def test_kind_of_a_newer_server_is_none_and_its_fields_are_ignored() -> None:
    assert decode_between(encode_between({"type": "other", "number": 1})) is None
    newer = encode_between({"type": "answered", "number": 1, "told": [], "more": 1})
    assert decode_between(newer) == Answered(1, [])


def test_sends_of_a_newer_server_are_left_out() -> None:
    """What this one does not know of them would not be stored."""
    forwarded = Forwarded(3, "gateway_1", 4_000, [a_send(), a_send()])
    newer = msgspec.to_builtins(forwarded)
    newer["later"] = 1
    assert decode_between(encode_between(newer)) == forwarded
    newer["sends"][1]["style"] = "bold"
    assert decode_between(encode_between(newer)) == Forwarded(3, "gateway_1", 4_000, [])


@pytest.mark.parametrize(
    "refusal", [NotAMember(), KeyReused(STORED), KeyReused(), InvalidContentType("x/y")]
)
def test_refusal_says_the_same_elsewhere(refusal: Refused) -> None:
    body = encode_between(Answered(1, [told_of(refusal)]))
    answered = decode_between(body)
    assert isinstance(answered, Answered)
    told = outcome_of(answered.told[0])
    assert isinstance(told, Refused)
    assert (told.code, str(told), told.retry) == (refusal.code, str(refusal), refusal.retry)
    assert dict(told.details) == dict(refusal.details)
    assert Refused.code is ErrorCode.INTERNAL_ERROR


@pytest.mark.parametrize(
    "fault", [StoreUnavailable("away"), DeadlinePassed(), CounterMissing("chat_1")]
)
def test_fault_is_no_verdict(fault: TidewireError) -> None:
    assert told_of(fault) == Told()
    assert outcome_of(Told()) is None


def test_answer_has_one_outcome_a_send() -> None:
    assert outcomes_of([Told(STORED), Told()], 2) == [STORED, None]
    # Nothing was taken in, or it is the answer to something else.
    assert outcomes_of([], 2) == [None, None]
    assert outcomes_of([Told(STORED)] * 3, 2) == [None, None]
