"""Repairs single bytes of a damaged write-ahead log. PURE.

A frame's checksum is two sums of its words, each word with a weight of its own, modulo 2^32. If one
word is wrong, the two sums are off by that word's two weights times the same difference: for each
word there is at most one difference that explains both. Only a difference within one byte is
believed: the weights are Fibonacci's numbers, so the same difference in several words at equal
distances is explained by the word in their middle, but hardly ever by one byte of it. Where several
words explain it, nothing is guessed (the weights repeat in their lower bits, so the highest byte of
a word may have been that of another). The result is verified like any other.
"""

import struct
from collections.abc import Iterator
from typing import Final

from tidewire.engines.sqlite import wal

MENDS_MAX: Final = 256
"""How many bad frames are tried, a few milliseconds each. More are not damage to single bytes."""

_WORD: Final = 1 << 32
_SUMMED_HEAD_BYTES: Final = 8
"""The part of a frame's header that its checksum covers: the page's number, the commit's size."""
_SUMS: Final = slice(16, wal.FRAME_HEADER_BYTES)
_SALTS: Final = slice(8, 16)


def mended(read: wal.Read, header: wal.LogHeader, frames: int) -> tuple[wal.Read, int]:
    """The log with its first `frames` frames repaired where possible; and how many were."""
    patches: dict[int, bytes] = {}
    sums = header.sums
    tries = 0
    for frame in wal.walk(read, header):
        if frame.number > frames or tries >= MENDS_MAX:
            break
        raw = _frame(read, header, frame.number)
        if not frame.fits and sums is not None:
            tries += 1
            patch = _mend(sums, raw, _frame(read, header, frame.number + 1), header)
            if patch is not None and patch != raw:
                patches[frame.number] = raw = patch
        sums = _stored(raw)

    def patched(offset: int, size: int) -> bytes:
        data = bytearray(read(offset, size))
        for number, patch in patches.items():
            begin = _place(header, number) - offset
            if begin < len(data) and begin + len(patch) > 0:
                skipped = max(0, -begin)
                piece = patch[skipped : len(data) - begin]
                data[begin + skipped : begin + skipped + len(piece)] = piece
        return bytes(data)

    return patched, len(patches)


def _place(header: wal.LogHeader, number: int) -> int:
    return wal.HEADER_BYTES + (number - 1) * header.frame_bytes


def _frame(read: wal.Read, header: wal.LogHeader, number: int) -> bytes:
    return read(_place(header, number), header.frame_bytes)


def _stored(frame: bytes) -> wal.Sums:
    first, second = struct.unpack(">2I", frame[_SUMS])
    return first, second


def _summed(frame: bytes) -> bytes:
    return frame[:_SUMMED_HEAD_BYTES] + frame[wal.FRAME_HEADER_BYTES :]


def _mend(before: wal.Sums, frame: bytes, after: bytes, header: wal.LogHeader) -> bytes | None:
    """A frame as it must have been: with its salts, its checksum or one byte of the rest repaired.
    None if more of it is wrong."""
    found = wal.checksum(before, _summed(frame), header.order)
    if found != _stored(frame) and not _goes_on(found, after, header):
        mended_byte = mend_byte(found, frame, header.order)
        if mended_byte is None:
            return None
        frame, found = mended_byte, _stored(frame)
    return (
        frame[:_SUMMED_HEAD_BYTES]
        + header.salts
        + struct.pack(">2I", *found)
        + frame[wal.FRAME_HEADER_BYTES :]
    )


def _goes_on(sums: wal.Sums, after: bytes, header: wal.LogHeader) -> bool:
    """Whether the next frame continues from these sums: then only the stored sums are bad."""
    return (
        len(after) == header.frame_bytes
        and after[_SALTS] == header.salts
        and wal.checksum(sums, _summed(after), header.order) == _stored(after)
    )


def _is_one_byte(one: int, other: int) -> bool:
    return sum(a != b for a, b in zip(one.to_bytes(4), other.to_bytes(4), strict=True)) == 1


def mend_byte(found: wal.Sums, frame: bytes, order: wal.Order) -> bytes | None:
    """The frame with the one byte repaired that explains why its checksum is `found`, or None."""
    wanted = _stored(frame)
    off = (wanted[0] - found[0]) % _WORD, (wanted[1] - found[1]) % _WORD
    mark = "<" if order == "little" else ">"
    words = list(struct.unpack(f"{mark}{len(_summed(frame)) // 4}I", _summed(frame)))
    mends = [
        (index, word)
        for index, difference in _explanations(off, len(words))
        if _is_one_byte(words[index], word := (words[index] + difference) % _WORD)
    ]
    if len(mends) != 1:
        return None
    [(index, word)] = mends
    words[index] = word
    data = struct.pack(f"{mark}{len(words)}I", *words)
    head = frame[_SUMMED_HEAD_BYTES : wal.FRAME_HEADER_BYTES]
    return data[:_SUMMED_HEAD_BYTES] + head + data[_SUMMED_HEAD_BYTES:]


def _explanations(off: wal.Sums, count: int) -> Iterator[tuple[int, int]]:
    """Which words, and wrong by how much, would make the sums differ by `off`."""
    # The weights of the last two words; each step back carries them through one more round.
    weights = [(1, 1), (0, 1)]
    for index in range(count - 2, -1, -2):
        for side, (first, second) in enumerate(weights):
            # Neighbours among Fibonacci's numbers are never both even, so one has an inverse.
            if first % 2:
                difference = off[0] * pow(first, -1, _WORD) % _WORD
            else:
                difference = off[1] * pow(second, -1, _WORD) % _WORD
            if (first * difference % _WORD, second * difference % _WORD) == off:
                yield index + side, difference
        weights = [
            ((first + second) % _WORD, (first + 2 * second) % _WORD) for first, second in weights
        ]
