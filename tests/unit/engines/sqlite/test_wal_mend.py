"""Single bytes of frames are put right; what cannot be is left as it is."""

from typing import Literal

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.wal_logs import HEADER_BYTES, MadeLog
from tests.unit.engines.sqlite.test_wal import SIZE_PAGES, hit, made, one_each, reader
from tidewire.engines.sqlite import wal
from tidewire.engines.sqlite.wal import LogHeader, Verdict
from tidewire.engines.sqlite.wal_mend import MENDS_MAX, mended

Order = Literal["little", "big"]


def header_of(log: MadeLog) -> LogHeader:
    header = wal.read_header(bytes(log.data[:HEADER_BYTES]))
    assert header is not None
    return header


@given(
    order=st.sampled_from(["little", "big"]),
    place=st.floats(0, 1, exclude_max=True),
    flip=st.integers(1, 255),
)
def test_one_byte_anywhere_is_put_right(order: Order, place: float, flip: int) -> None:
    log = made(one_each(6), order=order)
    data = bytes(log.data)
    # The commit frame of the last transaction: were its checksum hit, no frame would prove it.
    offset = HEADER_BYTES + int(place * (len(data) - HEADER_BYTES - log.frame_bytes))
    # The highest byte of a word: see the test below.
    assume(offset % 4 != (3 if order == "little" else 0))
    patched, count = mended(reader(hit(data, offset, flip)), header_of(log), 12)
    assert count == 1
    assert patched(0, len(data)) == data
    assert wal.judge(patched, reader(b"")).verdict is Verdict.WHOLE
    # Also read in pieces that begin and end inside of the frame.
    assert patched(offset, 3) == data[offset : offset + 3]
    assert patched(offset - 2, 4) == data[offset - 2 : offset + 2]


@given(places=st.sets(st.integers(0, 10), min_size=2, max_size=5), flip=st.integers(1, 255))
def test_damage_of_several_frames_is_put_right(places: set[int], flip: int) -> None:
    log = made(one_each(6))
    data = bytes(log.data)
    for place in places:
        data = hit(data, HEADER_BYTES + place * log.frame_bytes + 100, flip)
    patched, count = mended(reader(data), header_of(log), 12)
    assert count == len(places)
    assert patched(0, len(data)) == bytes(log.data)


def test_word_whose_highest_byte_is_wrong_may_be_any_of_several() -> None:
    """Or the only one: it is put right, or left as it is, never something else."""
    log = made(one_each(6))
    counts = []
    for place in range(log.ends[1] + 27, log.ends[1] + 536, 4):
        data = hit(log.data, place, 0x80)
        patched, count = mended(reader(data), header_of(log), 12)
        assert patched(0, len(data)) == (bytes(log.data) if count else data)
        counts.append(count)
    assert 0 in counts


def test_frame_with_two_wrong_words_is_left_as_it_is() -> None:
    log = made(one_each(6))
    data = hit(hit(log.data, log.ends[1] + 100), log.ends[1] + 200)
    patched, count = mended(reader(data), header_of(log), 12)
    assert count == 0
    assert patched(0, len(data)) == data


@pytest.mark.parametrize("flip", [0x01, 0x10, 0x80])
def test_frame_with_a_stuck_bit_is_left_as_it_is(flip: int) -> None:
    """The same difference at equal distances: the word in the middle would explain it."""
    log = made([[(2, bytes(512))] * 2, *one_each(5)])
    data = bytes(log.data)
    for place in range(HEADER_BYTES + 100, HEADER_BYTES + 500, 100):
        data = hit(data, place, flip)
    patched, count = mended(reader(data), header_of(log), 12)
    assert (count, patched(0, len(data))) == (0, data)


def test_frames_of_before_the_restart_are_left_as_they_are() -> None:
    old = made(one_each(8), salts=b"oldsalts")
    log = made(one_each(3, 50))
    data = log.over(bytes(old.data))
    patched, count = mended(reader(data), header_of(log), 6)
    assert (count, patched(0, len(data))) == (0, data)


def test_first_frame_is_taken_as_good_if_the_header_is_not() -> None:
    log = made(one_each(3))
    guessed = LogHeader("little", 512, log.salts, None)
    data = hit(hit(log.data, HEADER_BYTES + 100), log.ends[0] + 100)
    patched, count = mended(reader(data), guessed, 6)
    assert count == 1
    assert patched(log.ends[0], 536) == bytes(log.data[log.ends[0] : log.ends[0] + 536])


def test_checksum_of_the_last_frame_may_be_that_of_another_word() -> None:
    """No frame behind it says which is wrong: it is put right in some way, or not at all."""
    log = made(one_each(3))
    data = hit(log.data, len(log.data) - 512 - 8)
    patched, count = mended(reader(data), header_of(log), 6)
    assert count <= 1
    assert patched(0, len(data))[: log.ends[1]] == bytes(log.data[: log.ends[1]])


@pytest.mark.parametrize("extra", [0, 20])
def test_tries_are_bounded(extra: int) -> None:
    log = made(
        [
            [(2, bytes([number % 250]) * 512), (SIZE_PAGES, b"x" * 512)]
            for number in range(MENDS_MAX + 40)
        ]
    )
    data = bytes(log.data)
    for number in range(MENDS_MAX + extra):
        data = hit(data, HEADER_BYTES + number * log.frame_bytes + 100)
    _, count = mended(reader(data), header_of(log), 2 * (MENDS_MAX + 40))
    assert count == MENDS_MAX
