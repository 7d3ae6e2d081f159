"""Arrays of frames: each element as if it had come alone, and bounds for the whole."""

import json
from time import thread_time

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.unit.wire.strategies import client_frames, json_values, server_frames
from tests.unit.wire.vectors import INVALID_MESSAGE, ONE_WAY_FAULTS, TAKEN
from tidewire.domain.errors import ErrorCode
from tidewire.domain.limits import BATCH_FRAMES_MAX, FRAME_BYTES_MAX
from tidewire.wire.client_frames import ClientFrame, HeartbeatFrame, SendMessageFrame
from tidewire.wire.codec import (
    FrameRefusal,
    UnknownFrame,
    decode_client_frame,
    decode_client_frames,
    decode_server_frame,
    decode_server_frames,
    encode_client_frame,
    encode_server_frame,
)
from tidewire.wire.server_frames import ServerFrame

HEARTBEAT = b'{"type":"heartbeat","payload":{}}'


def array(*elements: bytes) -> bytes:
    return b"[" + b",".join(elements) + b"]"


def decoded(data: bytes) -> list[ClientFrame | FrameRefusal]:
    return list(decode_client_frames(data))


def the_refusal(data: bytes) -> FrameRefusal:
    """The whole array is one invalid frame."""
    [refusal] = decoded(data)
    assert isinstance(refusal, FrameRefusal), refusal
    assert refusal.request_id is None
    assert refusal.counts_against_budget
    return refusal


@given(st.lists(client_frames, min_size=1, max_size=5))
def test_frames_of_an_array_are_those_that_came_alone(frames: list[ClientFrame]) -> None:
    alone = [encode_client_frame(frame) for frame in frames]
    assert decoded(array(*alone)) == frames
    assert decoded(b" \n[ " + b" ,\t".join(alone) + b" ]\r") == frames
    assert decoded(alone[0]) == frames[:1]


@given(
    st.lists(
        client_frames.map(encode_client_frame)
        | json_values.map(lambda one: json.dumps(one).encode())
    )
)
def test_each_element_is_answered_as_if_it_had_come_alone(elements: list[bytes]) -> None:
    if not elements or any(element.startswith(b"[") for element in elements):
        the_refusal(array(*elements))
    elif len(array(*elements)) <= FRAME_BYTES_MAX:
        assert decoded(array(*elements)) == [decode_client_frame(one) for one in elements]


@pytest.mark.parametrize("vector", [*INVALID_MESSAGE, *ONE_WAY_FAULTS])
def test_bad_element_is_refused_alone(vector: str) -> None:
    bad = json.dumps((INVALID_MESSAGE | ONE_WAY_FAULTS)[vector]).encode()
    good = json.dumps(TAKEN["minimal send without content_type"]).encode()
    before, refusal, after = decoded(array(good, bad, HEARTBEAT))
    assert isinstance(before, SendMessageFrame)
    assert isinstance(refusal, FrameRefusal)
    assert refusal == decode_client_frame(bad)
    assert isinstance(after, HeartbeatFrame)


def test_half_a_surrogate_pair_spoils_its_own_element_only() -> None:
    """A browser writes half an emoji as an escape that no decoder of ours takes."""
    bad = b'{"type":"send_message","request_id":"r7","payload":{"content":"\\ud83d"}}'
    pair = HEARTBEAT.replace(b"{}", b'{"x":"\\ud83d\\ude00 \\\\ud83d"}')
    first, refusal, last = decoded(b"[" + pair + b" , " + bad + b" ,\n" + HEARTBEAT + b"]")
    assert isinstance(first, HeartbeatFrame)
    assert isinstance(last, HeartbeatFrame)
    assert refusal == decode_client_frame(bad)
    assert isinstance(refusal, FrameRefusal)
    assert (refusal.code, refusal.request_id) == (ErrorCode.INVALID_ENCODING, "r7")


@pytest.mark.parametrize("good", [HEARTBEAT, b'{"type":"of next year"}'])
def test_array_has_at_most_so_many_frames(good: bytes) -> None:
    assert len(decoded(array(*[good] * BATCH_FRAMES_MAX))) == BATCH_FRAMES_MAX
    assert "1 to 256 frames" in the_refusal(array(*[good] * (BATCH_FRAMES_MAX + 1))).message


@pytest.mark.parametrize("beyond", [0, 1])
def test_array_has_at_most_the_bytes_of_a_frame(beyond: int) -> None:
    padded = array(HEARTBEAT, HEARTBEAT).ljust(FRAME_BYTES_MAX + beyond)
    if beyond:
        assert the_refusal(padded).code is ErrorCode.MESSAGE_TOO_LARGE
    else:
        assert len(decoded(padded)) == 2


BROKEN = {
    "empty": b"[]",
    "empty with space": b" [ ] ",
    "nested": array(HEARTBEAT, array(HEARTBEAT)),
    "nested and empty": b"[[]]",
    "not ended": b"[" + HEARTBEAT,
    "not ended, with half a surrogate pair": rb'[{"type":"x","a":"\ud800"}',
    "a comma too many": b"[" + HEARTBEAT + b",]",
    "more behind it": array(HEARTBEAT) + b"x",
    "deep": b"[" * 60_000,
    "deep inside": b'[{"type":"heartbeat","payload":{"x":' + b"[" * 9_000 + b"]" * 9_000 + b"}}]",
    "deep objects": b'[{"type":"heartbeat","x":' + b'{"a":' * 9_000 + b"1" + b"}" * 9_001 + b"]",
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_array_is_one_invalid_frame(kind: str) -> None:
    assert the_refusal(BROKEN[kind]).code is ErrorCode.INVALID_MESSAGE


def test_array_that_is_not_text_is_refused_and_not_mended() -> None:
    data = array(b'{"type":"heartbeat","payload":{},"x":"\xff"}', HEARTBEAT)
    [refusal] = decoded(data)
    assert isinstance(refusal, FrameRefusal)
    assert refusal.code is ErrorCode.INVALID_ENCODING
    bare = b'{"type":"heartbeat","payload":{},"x":"\xff"}'
    assert decoded(bare) == [decode_client_frame(bare)]


@given(st.binary() | json_values.map(lambda one: json.dumps(one).encode()))
def test_whatever_comes_is_a_frame_or_a_refusal(data: bytes) -> None:
    for said in (decoded(data), decoded(memoryview(data)), decoded(b"[" + data + b"]")):  # type: ignore[arg-type]
        assert said
        assert all(hasattr(one, "payload") or isinstance(one, FrameRefusal) for one in said)


def test_elements_are_looked_at_when_their_turn_has_come() -> None:
    """A connection that is closed over the tenth bad element pays for no more of them."""
    said = iter(decode_client_frames(array(*[b"0"] * BATCH_FRAMES_MAX)))
    assert isinstance(next(said), FrameRefusal)
    assert not isinstance(said, (list, tuple))


@pytest.mark.parametrize(
    "data",
    [
        array(*[b"0"] * 32_767),
        array(*[HEARTBEAT] * 1_900),
        array(*[b'"' + b"\\ud800" * 40 + b'"'] * BATCH_FRAMES_MAX),
        array(*[b'{"type":"' + b"x" * 240 + b'"}'] * BATCH_FRAMES_MAX),
        array(b'"' + b"\\u0041" * 10_900 + b'"', b"0"),
        array(*[b'{"type":"heartbeat"' + b" " * 220 + b"}"] * BATCH_FRAMES_MAX),
    ],
    ids=["numbers", "too many", "half pairs", "unknown types", "escapes", "no payload"],
)
def test_longest_array_of_anything_is_read_in_little_time(data: bytes) -> None:
    assert len(data) <= FRAME_BYTES_MAX
    took_s = []
    for _ in range(5):
        began_s = thread_time()
        decoded(data)
        took_s.append(thread_time() - began_s)
    assert min(took_s) < 0.05


@given(st.lists(server_frames, min_size=1, max_size=4))
def test_client_reads_both_forms(frames: list[ServerFrame]) -> None:
    alone = [encode_server_frame(frame) for frame in frames]
    assert list(decode_server_frames(array(*alone))) == frames
    assert list(decode_server_frames(memoryview(alone[0]))) == frames[:1]


def test_client_goes_on_behind_an_element_that_it_does_not_know() -> None:
    known = b'{"type":"heartbeat_ack","timestamp":"t","payload":{"server_time":"t"}}'
    unknown, broken = b'{"type":"of_next_year","payload":{}}', b'{"type":"message","payload":5}'
    said = list(decode_server_frames(array(unknown, known, broken, known)))
    assert said[0] == UnknownFrame("of_next_year")
    assert said[1] == said[3] == decode_server_frame(known)
    assert isinstance(said[2], FrameRefusal)
    assert list(decode_server_frames(b"[" + known)) == [decode_server_frame(b"[" + known)]
