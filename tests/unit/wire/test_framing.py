"""Framing: the lengths at which a header grows, and that the payload comes out again."""

import pytest

from tidewire.wire.framing import frame_text


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
