"""Framing: the lengths at which a header grows, and which frames go together in one array."""

import json

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.unit.gateway.fakes import unframed
from tidewire.domain.limits import BATCH_BYTES_MAX, BATCH_FRAMES_MAX
from tidewire.wire.framing import SEAM, frame_text, frame_together, messages_of


@pytest.mark.parametrize(
    ("size", "header"),
    [
        (0, b"\x81\x00"),
        (125, b"\x81\x7d"),
        (126, b"\x81\x7e\x00\x7e"),
        (65_535, b"\x81\x7e\xff\xff"),
        (65_536, b"\x81\x7f\x00\x00\x00\x00\x00\x01\x00\x00"),
    ],
)
def test_frame_has_the_header_of_its_length(size: int, header: bytes) -> None:
    payload = b"x" * size
    assert frame_text(payload) == header + payload


def frames(*sizes: int) -> list[bytes]:
    """JSON texts of these sizes, no two alike."""
    return [b'"%s"' % (b"%d." % at).ljust(size - 2, b"x") for at, size in enumerate(sizes)]


def together(*payloads: bytes) -> list[bytes]:
    framed = [frame_text(payload) if payload else SEAM for payload in payloads]
    return unframed(frame_together(framed))


def test_one_frame_goes_bare_and_more_go_as_an_array() -> None:
    one, two, three = frames(20, 200, 30)
    assert together(one) == [one]
    assert together(one, two, three) == [b"[" + b",".join((one, two, three)) + b"]"]


@pytest.mark.parametrize("beyond", [0, 1])
def test_array_has_at_most_its_bytes(beyond: int) -> None:
    # Two brackets and a comma.
    one, two = frames(100, BATCH_BYTES_MAX - 103 + beyond)
    messages = together(one, two)
    assert len(messages) == 1 + beyond
    assert len(messages[0]) == (100 if beyond else BATCH_BYTES_MAX)
    assert messages_of([one, two]) == messages


@pytest.mark.parametrize("beyond", [0, 1])
def test_array_of_a_client_has_at_most_its_frames(beyond: int) -> None:
    every = frames(*[20] * (BATCH_FRAMES_MAX + beyond))
    messages = messages_of(every)
    assert messages[0] == b"[" + b",".join(every[:BATCH_FRAMES_MAX]) + b"]"
    assert messages[1:] == every[BATCH_FRAMES_MAX:]
    assert len(together(*every)) == 1, "the server's have no such bound"


def test_larger_frame_goes_alone_and_keeps_its_place() -> None:
    one, two, large, three, four = frames(20, 20, BATCH_BYTES_MAX + 5, 20, 20)
    assert together(one, two, large, three, four) == [
        b"[" + one + b"," + two + b"]",
        large,
        b"[" + three + b"," + four + b"]",
    ]


def test_nothing_goes_together_over_a_seam() -> None:
    one, two, three, four = frames(20, 20, 200, 30)
    assert together(one, two, b"", three, b"", four) == [
        b"[" + one + b"," + two + b"]",
        three,
        four,
    ]
    assert together(b"", one, b"", b"") == [one]


@given(
    st.lists(
        st.one_of(st.just(0), st.integers(8, 300), st.integers(20_000, BATCH_BYTES_MAX + 9)),
        min_size=1,
        max_size=12,
    )
)
def test_all_frames_arrive_in_order_whatever_their_sizes(sizes: list[int]) -> None:
    payloads = [
        payload if size else b"" for size, payload in zip(sizes, frames(*sizes), strict=True)
    ]
    arrived: list[str] = []
    for message in together(*payloads):
        is_array = message.startswith(b"[")
        assert not is_array or len(message) <= BATCH_BYTES_MAX
        arrived += json.loads(message) if is_array else [json.loads(message)]
    assert arrived == [json.loads(payload) for payload in payloads if payload]
