"""Dead letters carry everything that is needed to look for the cause, and take any bytes."""

import base64
import json

import pytest

from tidewire.wire.dead_letters import (
    ATTEMPTS_MAX,
    DeadLetter,
    DeadLetterMetadata,
    attempts_so_far,
    encode_dead_letter,
    letter_time,
    original_record,
)


def test_letter_carries_every_field() -> None:
    metadata = DeadLetterMetadata(
        original_topic="messages.persisted",
        original_partition=3,
        original_offset=7,
        original_timestamp=letter_time(0),
        consumer_group="fanout-workers",
        consumer_id="fanout-1",
        failure_reason="not JSON",
        failure_timestamp=letter_time(1),
        processing_attempts=1,
    )
    headers = [("traceparent", b"\xff"), ("empty", None)]
    letter = DeadLetter(
        dlq_metadata=metadata, original_record=original_record(b"chat_1", b"\x00\xff", headers)
    )
    assert json.loads(encode_dead_letter(letter)) == {
        "dlq_metadata": {
            "original_topic": "messages.persisted",
            "original_partition": 3,
            "original_offset": 7,
            "original_timestamp": "1970-01-01T00:00:00.000Z",
            "consumer_group": "fanout-workers",
            "consumer_id": "fanout-1",
            "failure_reason": "not JSON",
            "failure_timestamp": "1970-01-01T00:00:00.001Z",
            "processing_attempts": 1,
        },
        "original_record": {
            "key": base64.b64encode(b"chat_1").decode(),
            "value": base64.b64encode(b"\x00\xff").decode(),
            "headers": [["traceparent", "/w=="], ["empty", None]],
        },
    }


def test_record_without_key_and_value_is_kept_as_such() -> None:
    original = original_record(None, None, [])
    assert (original.key, original.value, original.headers) == (None, None, [])


@pytest.mark.parametrize(
    ("content", "attempts"),
    [(b"2", 2), (b"", 0), (b"-1", 0), (b"many", 0), (None, 0), (b"9" * 5000, ATTEMPTS_MAX)],
)
def test_attempts_are_those_of_the_header(content: bytes | None, attempts: int) -> None:
    headers = [("other", b"7"), ("x-processing-attempts", content)]
    assert attempts_so_far(headers) == attempts
    assert attempts_so_far([]) == 0


@pytest.mark.parametrize("time_ms", [-1, 10**18])
def test_time_that_is_none_is_the_beginning(time_ms: int) -> None:
    assert letter_time(time_ms) == "1970-01-01T00:00:00.000Z"
