"""Bytes from somebody who means harm, or whose program is broken: refused, never raised."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.wire.strategies import client_frames, json_values, server_frames, texts
from tests.unit.wire.vectors import CHAT, INVALID_MESSAGE, KEY, TAKEN
from tidewire.domain.errors import ErrorCode
from tidewire.wire.client_frames import CLIENT_FRAME_TYPES
from tidewire.wire.codec import (
    FrameRefusal,
    UnknownFrame,
    decode_client_frame,
    decode_server_frame,
    encode_client_frame,
    encode_server_frame,
)


def refused(data: bytes | str | memoryview) -> FrameRefusal:
    refusal = decode_client_frame(data)
    assert isinstance(refusal, FrameRefusal), refusal
    return refusal


HOSTILE = {
    "nothing": b"",
    "white space": b" \n",
    "a byte order mark": b"\xef\xbb\xbf{}",
    "not JSON": b"GET / HTTP/1.1",
    "an array": b"[]",
    "null": b"null",
    "a text": b'"send_message"',
    "an unfinished object": b'{"type":"ack"',
    "an unfinished text": b'{"type":"ack',
    "an unfinished escape": b'{"type":"\\u00',
    "an unfinished surrogate": b'{"type":"\\ud8',
    "a backslash at the end": b'{"type":"\\',
    "two frames": b'{"type":"heartbeat","payload":{}}{"type":"heartbeat","payload":{}}',
    "NaN": b'{"type":"ack","payload":{"chat_id":"c","last_acked_sequence":NaN}}',
    "infinity": b'{"type":"ack","payload":{"chat_id":"c","last_acked_sequence":1e999}}',
    "a huge number": b'{"type":"ack","payload":{"chat_id":"c","last_acked_sequence":'
    + b"9" * 50_000
    + b"}}",
    "a huge exponent": b'{"type":"ack","payload":{"chat_id":"c","last_acked_sequence":1e'
    + b"9" * 50_000
    + b"}}",
    "a raw control character": b'{"type":"ack","payload":{"chat_id":"c\x01"}}',
    "a type that is a number": b'{"type":5,"payload":{}}',
    "a type that is an object": b'{"type":{"type":"ack"},"payload":{}}',
    "two types": b'{"type":"heartbeat","type":"ack","payload":{}}',
    "deep arrays": b'{"type":"heartbeat","payload":{"x":' + b"[" * 60_000,
    "deep closed arrays": b'{"type":"heartbeat","payload":{"x":'
    + b"[" * 9000
    + b"]" * 9000
    + b"}}",
    "deep objects": b'{"a":' * 10_000,
    "a deep type": b'{"type":' + b"[" * 9000 + b"]" * 9000 + b"}",
    "a deep request_id": b'{"type":"send_message","request_id":' + b"[" * 9000 + b"]" * 9000 + b"}",
    "backslashes only": b"\\" * 60_000,
    "many halves of pairs": b'{"type":"ack","x":"' + b"\\ud800" * 10_000 + b'"}',
}


@pytest.mark.parametrize("vector", HOSTILE)
def test_hostile_bytes_are_refused_in_every_form(vector: str) -> None:
    data = HOSTILE[vector]
    refusal = refused(data)
    assert refused(memoryview(data)) == refusal
    assert refused(data.decode()) == refusal
    assert refusal.code in (ErrorCode.INVALID_MESSAGE, ErrorCode.INVALID_ENCODING)
    assert refusal.request_id is None
    assert 0 < len(refusal.message) <= 200
    assert isinstance(decode_server_frame(data), FrameRefusal | UnknownFrame)


def test_of_two_equal_keys_the_last_counts() -> None:
    data = b'{"type":"ack","payload":{"chat_id":"a","chat_id":"b","last_acked_sequence":1}}'
    taken = decode_client_frame(data)
    assert not isinstance(taken, FrameRefusal)
    assert getattr(taken.payload, "chat_id", None) == "b"


def test_refusal_quotes_little_of_what_it_refuses() -> None:
    data = b'{"type":"heartbeat","type":"' + b"x" * 60_000 + b'","payload":{}}'
    assert len(refused(data).message) <= 200


# Hypothesis also tries the constants of our own files, among which there are frames.
no_frames = (st.binary() | texts.map(str.encode)).filter(lambda data: b'"type"' not in data)


@given(no_frames)
def test_no_bytes_raise(data: bytes) -> None:
    # A search may come upon the bytes of a valid frame: nothing is said about the answer.
    decode_client_frame(data)
    decode_server_frame(data)


@given(st.text(st.characters()))
def test_no_text_raises(text: str) -> None:
    decode_client_frame(text)
    decode_server_frame(text)


@given(client_frames.map(encode_client_frame) | server_frames.map(encode_server_frame), st.data())
def test_no_damage_to_a_valid_frame_raises(valid: bytes, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(valid)))
    end = data.draw(st.integers(start, len(valid)))
    damaged = valid[:start] + data.draw(st.binary(max_size=8)) + valid[end:]
    decode_client_frame(damaged)
    decode_server_frame(damaged)


@given(st.sampled_from([*TAKEN.values(), *INVALID_MESSAGE.values()]), st.data())
def test_no_other_value_in_a_field_raises(shape: dict[str, Any], data: st.DataObject) -> None:
    field = data.draw(st.sampled_from(["type", "request_id", "timestamp", "payload", "content"]))
    value = data.draw(json_values)
    mutant = {**shape, field: value}
    if field == "content":
        mutant = {**shape, "payload": {"chat_id": CHAT, "client_message_id": KEY, field: value}}
    decoding = decode_client_frame(json.dumps(mutant))
    if isinstance(decoding, FrameRefusal):
        assert decoding.is_unknown_type == (
            isinstance(mutant.get("type"), str) and mutant["type"] not in CLIENT_FRAME_TYPES
        )
