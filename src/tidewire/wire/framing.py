"""From frames to messages: WebSocket framing towards clients, unmasked, so that all recipients get
the same bytes; and arrays, which join the frames of one turn of the loop. PURE."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tidewire.domain.limits import BATCH_BYTES_MAX, BATCH_FRAMES_MAX

SEAM: Final = b""
"""A mark among frames: frames before it and frames after it are never in the same array."""

_TEXT: Final = 0x81
_SHORT_MAX: Final = 125
_MEDIUM_MAX: Final = 0xFFFF


def frame_text(payload: bytes) -> bytes:
    """A whole text message as one WebSocket frame (RFC 6455, 5.2)."""
    size = len(payload)
    if size <= _SHORT_MAX:
        return bytes((_TEXT, size)) + payload
    if size <= _MEDIUM_MAX:
        return bytes((_TEXT, 126, size >> 8, size & 0xFF)) + payload
    return bytes((_TEXT, 127)) + size.to_bytes(8, "big") + payload


def payload_of(framed: bytes) -> bytes:
    """The payload that `frame_text` has framed."""
    return framed[len(framed) - _payload_bytes(framed) :]


def frame_together(framed: Sequence[bytes]) -> bytes:
    """Join frames that are framed one by one into few messages, in the same order: arrays of at
    most BATCH_BYTES_MAX. A frame that is larger or has no neighbour stays as it is."""
    if SEAM not in framed:
        # The usual case.
        array = _array_of_framed(framed)
        if len(array) <= BATCH_BYTES_MAX and len(framed) > 1:
            return frame_text(array)
    runs = _runs(framed, _payload_bytes, len(framed))
    return b"".join(
        [run[0] if len(run) == 1 else frame_text(_array_of_framed(run)) for run in runs]
    )


def messages_of(frames: Sequence[bytes]) -> list[bytes]:
    """Join frames of a client, not framed yet, into few messages within the bounds of an array."""
    runs = _runs(frames, len, BATCH_FRAMES_MAX)
    return [run[0] if len(run) == 1 else _array(run) for run in runs]


def _runs(
    frames: Sequence[bytes], payload_bytes: Callable[[bytes], int], frames_max: int
) -> Iterator[Sequence[bytes]]:
    """Runs of neighbours that fit into one array; a run may be a single frame."""
    start = 0
    # Two brackets, minus one: each frame counts a comma, but the first one has none.
    size = 1
    for at, frame in enumerate(frames):
        size += 1 + payload_bytes(frame)
        if not frame or size > BATCH_BYTES_MAX or at - start == frames_max:
            if start < at:
                yield frames[start:at]
            start = at if frame else at + 1
            size = 2 + payload_bytes(frame) if frame else 1
    if start < len(frames):
        yield frames[start:]


def _array_of_framed(framed: Sequence[bytes]) -> bytes:
    # A frame that fits into an array has a header of 2 or 4 bytes.
    return _array([one[2 if len(one) <= 2 + _SHORT_MAX else 4 :] for one in framed])


def _array(frames: Sequence[bytes]) -> bytes:
    return b"[" + b",".join(frames) + b"]"


def _payload_bytes(framed: bytes) -> int:
    size = len(framed)
    if size <= 2 + _SHORT_MAX:
        return size - 2
    return size - 4 if size <= 4 + _MEDIUM_MAX else size - 10
