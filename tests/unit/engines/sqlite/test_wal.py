"""Logs made by hand: whole, torn, restarted and damaged ones, and what is made of each.

Page numbers begin at 2, so that page 1 of the databases can be left to say its page size.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.wal_logs import (
    HEADER_BYTES,
    OLD_SALTS,
    MadeLog,
    Transaction,
    database_of,
    sums_of,
)
from tidewire.engines.sqlite import wal
from tidewire.engines.sqlite.wal import Judgement, Overlay, Overlays, Read, Verdict, judge

SIZE_PAGES = 9

contents = st.binary(min_size=4, max_size=4).map(lambda few: few * 128)
pages = st.tuples(st.integers(2, SIZE_PAGES), contents)
transactions = st.lists(pages, min_size=1, max_size=4)
stories = st.lists(transactions, min_size=1, max_size=8).map(
    # No two transactions are equal: those that are count once.
    lambda story: [
        [(page, bytes([number]) + content[1:]) for page, content in one]
        for number, one in enumerate(story)
    ]
)
orders = st.sampled_from(["little", "big"])


def reader(data: bytes) -> Read:
    return lambda offset, size: data[offset : offset + size]


def judged(log: bytes, database: bytes = b"") -> Judgement:
    return judge(reader(log), reader(database))


def made(story: list[list[tuple[int, bytes]]], **how: object) -> MadeLog:
    log = MadeLog(**how)  # type: ignore[arg-type]
    for transaction in story:
        log.commit(transaction, SIZE_PAGES)
    return log


def one_each(count: int, start: int = 0) -> list[list[tuple[int, bytes]]]:
    """Transactions of two frames each, with contents of their own."""
    return [
        [(2 + number % 3, bytes([number]) * 512), (5 + number % 3, bytes([number + 100]) * 512)]
        for number in range(start, start + count)
    ]


def state_of(story: list[list[tuple[int, bytes]]]) -> dict[int, bytes]:
    return {page: content for transaction in story for page, content in transaction}


def hit(data: bytes | bytearray, place: int, flip: int = 0xFF) -> bytes:
    damaged = bytearray(data)
    damaged[place] ^= flip
    return bytes(damaged)


def overlays_of(data: bytes) -> Overlays:
    header = wal.read_header(data[:HEADER_BYTES])
    assert header is not None
    return wal.overlays(wal.walk(reader(data), header))


def contents_of(overlay: Overlay, data: bytes, page_bytes: int = 512) -> dict[int, bytes]:
    header = wal.read_header(data[:HEADER_BYTES]) or wal.LogHeader("little", page_bytes, b"", None)
    return {page: wal.page_of(reader(data), header, frame) for page, frame in overlay.pages.items()}


# Whole logs.


@given(story=stories, order=orders, page_bytes=st.sampled_from([512, 1024, 4096]))
def test_log_that_is_whole_is_taken_as_a_whole(
    story: list[list[tuple[int, bytes]]], order: str, page_bytes: int
) -> None:
    story = [[(page, few * (page_bytes // 512)) for page, few in one] for one in story]
    log = made(story, order=order, page_bytes=page_bytes)
    frames = sum(map(len, story))
    assert judged(bytes(log.data)) == Judgement(Verdict.WHOLE, frames, frames, len(story))
    for overlay in overlays_of(bytes(log.data)):
        assert contents_of(overlay, bytes(log.data)) == state_of(story)
        assert (overlay.size_pages, overlay.transactions) == (SIZE_PAGES, len(story))


@given(new=stories, old=stories)
def test_log_that_was_restarted_is_whole_whatever_lies_behind_it(
    new: list[list[tuple[int, bytes]]], old: list[list[tuple[int, bytes]]]
) -> None:
    data = made(new).over(bytes(made(old, salts=OLD_SALTS).data))
    frames = sum(map(len, new))
    assert judged(data) == Judgement(Verdict.WHOLE, frames, frames, len(new))


def test_log_that_was_restarted_and_has_no_frame_yet_is_whole() -> None:
    data = MadeLog().over(bytes(made(one_each(5), salts=OLD_SALTS).data))
    assert judged(data) == Judgement(Verdict.WHOLE)


@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 55, 567])
def test_log_that_ends_before_its_first_frame_is_whole(size: int) -> None:
    assert judged(bytes(made(one_each(1)).data[:size])) == Judgement(Verdict.WHOLE)
    assert judged(bytes(size), database_of({})) == Judgement(Verdict.WHOLE)


def test_log_of_many_chunks_is_checked_over_their_borders() -> None:
    story = one_each(100) * 12
    data = bytes(made(story).data)
    assert judged(data) == Judgement(Verdict.WHOLE, 2400, 2400, 1200)
    for frame in (1023, 1024, 1025, 2047):
        found = judged(hit(data, HEADER_BYTES + (frame - 1) * 536 + 300))
        assert (found.verdict, found.first_bad) == (Verdict.BROKEN, frame)


@given(story=stories, order=orders)
def test_frames_fit_as_the_description_of_the_format_says(
    story: list[list[tuple[int, bytes]]], order: str
) -> None:
    data = bytes(made(story, order=order).data)
    header = wal.read_header(data)
    assert header is not None
    assert all(frame.fits and frame.is_ours for frame in wal.walk(reader(data), header))
    mark = "<" if order == "little" else ">"
    assert wal.checksum((0, 0), data[:24], header.order) == sums_of(0, 0, data[:24], mark)


# Torn ends.


@given(story=stories, last=transactions, old=stories, keep=st.data())
def test_torn_end_is_never_taken_for_damage(
    story: list[list[tuple[int, bytes]]],
    last: list[tuple[int, bytes]],
    old: list[list[tuple[int, bytes]]],
    keep: st.DataObject,
) -> None:
    """Any sectors of the last transaction may be missing, whatever the file held before there."""
    before = made(story).over(bytes(made(old * 3, salts=OLD_SALTS).data))
    log = made([*story, last])
    begin, end = log.ends[-2], log.ends[-1]
    left = bytearray(before.ljust(end, b"\0"))
    for sector in range(begin // 512, end // 512 + 1):
        if keep.draw(st.booleans()):
            piece = slice(max(begin, sector * 512), min(end, (sector + 1) * 512))
            left[piece] = log.data[piece]
    assert not judged(bytes(left)).verdict.is_damage


def test_torn_end_leaves_what_was_committed_before_it() -> None:
    log = made(one_each(4))
    data = hit(log.data, log.ends[2] + 30)
    assert judged(data) == Judgement(Verdict.TORN, 8, 6, 3)
    assert {overlay.transactions for overlay in overlays_of(data)} == {3}


def test_frames_that_were_never_committed_are_a_torn_end() -> None:
    log = made(one_each(2))
    log.write((3, b"x" * 512), 0)
    assert judged(bytes(log.data)) == Judgement(Verdict.TORN, 5, 4, 2)


def test_commit_frame_that_fills_a_sector_counts_once() -> None:
    log = made(one_each(3), pads=3)
    assert judged(bytes(log.data)) == Judgement(Verdict.WHOLE, 15, 15, 3)
    # Only the first frame of the last transaction is bad: its commit, four times, is one.
    torn = hit(log.data, log.ends[1] + 30)
    assert judged(torn).verdict is Verdict.TORN
    broken = hit(log.data, log.ends[0] + 30)
    assert judged(broken).beyond_transactions == 2


def test_equal_frames_with_other_frames_between_are_two_commits() -> None:
    same = [(3, b"x" * 512)]
    log = made([*one_each(1), same, [(4, b"y" * 512)], same, same])
    found = judged(hit(log.data, 40))
    assert found.beyond_transactions == 4


def test_tail_of_an_older_torn_transaction_proves_nothing() -> None:
    """A foreign reader kept the log from being restarted after a power cut, and the power went
    again: behind the first bad frame are two commit frames, but they do not join."""
    long = [(page, bytes([page]) * 512) for page in range(2, 10)]
    older = made([*one_each(2), long])
    torn_once = hit(older.data, older.ends[1] + 30)
    newer = made([*one_each(2), *one_each(1, 50), [(2, b"a" * 512), (3, b"b" * 512)]])
    left = bytearray(newer.over(torn_once))
    left[newer.ends[2] + 30] ^= 1
    assert judged(bytes(left)).verdict is Verdict.TORN


# Damage.


@given(
    story=st.lists(transactions, min_size=4, max_size=9),
    old=stories,
    place=st.floats(0, 1, exclude_max=True),
    flip=st.integers(1, 255),
)
def test_one_byte_with_three_commits_behind_it_is_noticed(
    story: list[list[tuple[int, bytes]]],
    old: list[list[tuple[int, bytes]]],
    place: float,
    flip: int,
) -> None:
    story = [[*one, (2, bytes([number]) * 512)] for number, one in enumerate(story)]
    log = made(story)
    data = log.over(bytes(made(old * 4, salts=OLD_SALTS).data))
    offset = HEADER_BYTES + int(place * (log.ends[-4] - HEADER_BYTES))
    found = judged(hit(data, offset, flip))
    assert found.verdict is Verdict.BROKEN
    assert found.first_bad == (offset - HEADER_BYTES) // 536 + 1
    assert found.frames == sum(map(len, story))
    assert 2 <= found.beyond_transactions <= len(story)
    assert found.beyond_pages >= 1


@pytest.mark.parametrize("place", range(HEADER_BYTES))
def test_header_with_one_damaged_byte_is_noticed_if_the_database_lacks_something(
    place: int,
) -> None:
    story = one_each(4)
    log = made(story)
    state = state_of(story)
    damaged = hit(log.data, place)
    found = judged(damaged, database_of(state | {5: b"older" * 100 + b"12345678" + b"old!"}))
    assert found == Judgement(
        Verdict.HEADERLESS, 8, beyond_transactions=4, beyond_pages=6, differing_pages=1
    )
    # The same after a power cut while the log restarts: then everything is in the database.
    found = judged(damaged, database_of(state))
    assert (found.verdict, found.differing_pages) == (Verdict.CUT, 0)


def test_header_that_was_cut_says_nothing_of_pages_behind_the_databases_end() -> None:
    log = MadeLog()
    log.commit([(8, b"x" * 512), (2, b"y" * 512)], 9)
    log.commit([(3, b"z" * 512)], 4)
    database = database_of({2: b"y" * 512, 3: b"z" * 512})
    assert judged(hit(log.data, 0), database).verdict is Verdict.CUT
    assert judged(hit(log.data, 0), database[: 2 * 512]).verdict is Verdict.HEADERLESS


@given(story=stories, page_bytes=st.sampled_from([512, 4096, 65_536]))
def test_big_endian_log_is_read_without_its_header(
    story: list[list[tuple[int, bytes]]], page_bytes: int
) -> None:
    story = [[(page, few * (page_bytes // 512)) for page, few in one] for one in story]
    log = made([*story, *story], order="big", page_bytes=page_bytes)
    found = judged(hit(log.data, 1), database_of(state_of(story), page_bytes))
    assert (found.verdict, found.frames) == (Verdict.CUT, 2 * sum(map(len, story)))


@pytest.mark.parametrize("content", [bytes(512), b"\xaa" * 512])
def test_first_sector_with_header_and_frame_is_lost(content: bytes) -> None:
    """It is noticed by the frames behind it, if the database lacks something of theirs."""
    story = one_each(6)
    log = made(story)
    data = content + bytes(log.data[512:])
    found = judged(data, database_of(state_of(story) | {6: bytes(512)}))
    assert (found.verdict, found.differing_pages) == (Verdict.HEADERLESS, 1)
    assert judged(data, database_of(state_of(story))).verdict is Verdict.CUT


def test_header_that_was_cut_after_a_restart_of_one_frame() -> None:
    """Frame 1 is all that there was in the last log, and has overtaken a page of the one before."""
    old = made(one_each(4), salts=OLD_SALTS)
    new = made([[(5, b"new!" * 128)]])
    data = hit(new.over(bytes(old.data)), 20)
    state = state_of(one_each(4)) | {5: b"new!" * 128}
    found = judged(data, database_of(state))
    assert (found.verdict, found.differing_pages) == (Verdict.CUT, 0)


def test_header_that_was_cut_after_a_restart_whose_first_commit_was_torn() -> None:
    """Frame 1 is of the log before, frames 2 and 3 of a commit that was never acknowledged."""
    old = made(one_each(4), salts=OLD_SALTS)
    new = made([[(5, b"1" * 512), (6, b"2" * 512), (7, b"3" * 512)]])
    data = bytearray(hit(new.over(bytes(old.data)), 20))
    data[HEADER_BYTES : HEADER_BYTES + 536] = old.data[HEADER_BYTES : HEADER_BYTES + 536]
    found = judged(bytes(data), database_of(state_of(one_each(4))))
    assert found.verdict is Verdict.CUT


def test_header_and_a_frame_are_damaged_together() -> None:
    story = one_each(6)
    log = made(story)
    damaged = hit(hit(log.data, 0), log.ends[1] + 30)
    found = judged(damaged, database_of(state_of(story)))
    assert found.verdict is Verdict.CUT
    found = judged(damaged, database_of(state_of(story) | {6: bytes(512)}))
    assert (found.verdict, found.beyond_transactions) == (Verdict.HEADERLESS, 6)


def test_page_size_that_the_database_does_not_tell_is_the_usual_one() -> None:
    log = MadeLog(page_bytes=4096)
    log.commit([(2, b"x" * 4096)], 2)
    header = wal.guess_header(reader(hit(log.data, 0)), reader(b""))
    assert header == wal.LogHeader("little", 4096, log.salts, None)


@given(data=st.binary(max_size=3000), database=st.binary(max_size=200))
def test_any_bytes_are_judged(data: bytes, database: bytes) -> None:
    judged(data, database)
    header = bytes(MadeLog().data)
    assert not judged(header + data, database).verdict.is_damage


# What can be made of a damaged log.


def test_overlays_of_a_broken_log() -> None:
    """Frame 3, the first of the second transaction, is bad."""
    story: list[Transaction] = [
        [(2, b"a" * 512), (3, b"a" * 512)],
        [(4, b"b" * 512), (5, b"b" * 512)],
        [(2, b"c" * 512)],
        [(6, b"d" * 512)],
    ]
    log = MadeLog()
    for transaction in story:
        log.commit(transaction, SIZE_PAGES)
    data = hit(log.data, log.ends[0] + 100)
    found = overlays_of(data)
    assert found.prefix == Overlay({2: 1, 3: 2}, SIZE_PAGES, 1)
    assert found.whole == Overlay({2: 5, 3: 2, 6: 6}, SIZE_PAGES, 3)
    assert found.fitting == found.copied == Overlay({2: 5, 3: 2, 5: 4, 6: 6}, SIZE_PAGES, 4)


def test_overlays_leave_a_page_to_the_database_if_its_last_version_is_bad() -> None:
    """Frame 3 was the last version of page 2, which a checkpoint may have copied; page 3 is written
    again behind it; the torn end, with page 3 as well, proves nothing."""
    log = MadeLog()
    for transaction in (
        [(2, b"a" * 512), (3, b"a" * 512)],
        [(2, b"b" * 512), (4, b"b" * 512)],
        [(3, b"c" * 512)],
        [(6, b"d" * 512)],
        [(3, b"e" * 512), (6, b"e" * 512)],
    ):
        log.commit(transaction, SIZE_PAGES)
    data = hit(hit(log.data, log.ends[0] + 100), log.ends[3] + 100)
    found = overlays_of(data)
    assert found.fitting == Overlay({2: 1, 3: 5, 4: 4, 6: 6}, SIZE_PAGES, 4)
    assert found.copied == Overlay({3: 5, 4: 4, 6: 6}, SIZE_PAGES, 4)


def test_overlays_keep_a_transaction_behind_a_bad_commit_frame() -> None:
    log = made(one_each(5))
    data = hit(log.data, log.ends[1] - 100)
    found = overlays_of(data)
    assert [overlay.transactions for overlay in found] == [1, 4, 4, 4]
    assert found.whole.pages.keys() <= found.fitting.pages.keys()


def test_overlays_leave_a_torn_end_behind_damage_alone() -> None:
    log = made(one_each(6))
    data = hit(hit(log.data, log.ends[0] + 30), log.ends[4] + 30)
    found = overlays_of(data)
    assert (found.whole.transactions, found.fitting.transactions) == (4, 5)
    assert 12 not in found.fitting.pages.values()


@given(story=st.lists(transactions, min_size=5, max_size=9), bad=st.floats(0, 1, exclude_max=True))
def test_overlays_are_the_state_if_the_bad_page_is_written_again(
    story: list[list[tuple[int, bytes]]], bad: float
) -> None:
    """What one bad frame held is in a later one: nothing is missing but its transaction's mark."""
    last = [(page, bytes([page]) * 512) for page in range(2, SIZE_PAGES + 1)]
    log = made([*story, last, last[:1], last[:2], last[:3]])
    place = HEADER_BYTES + int(bad * (log.ends[len(story) - 1] - HEADER_BYTES))
    data = hit(log.data, place)
    found = overlays_of(data)
    assert contents_of(found.fitting, data) == contents_of(found.copied, data) == dict(last)


def test_verdicts_that_are_damage() -> None:
    assert [one for one in Verdict if one.is_damage] == [Verdict.BROKEN, Verdict.HEADERLESS]
