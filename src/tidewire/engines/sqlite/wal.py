"""Reading SQLite's write-ahead log by its format, to tell a damaged log from one with a torn end.

SQLite ends its recovery at the first frame that does not fit and ignores the frames behind it: that
is right after a power cut, but after damage it loses what was acknowledged. PURE; file format:
https://sqlite.org/fileformat2.html#walformat

With a sync after each commit, a power cut can harm the frames of the last transaction only. A
frame's checksum continues the one stored in the frame before it, so frames behind a bad one can
still be checked. Two commit frames behind it, joined by frames that all fit, prove damage: the
second one was begun when the first one, and everything before it, had been synced.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final, Literal, NamedTuple

HEADER_BYTES: Final = 32
FRAME_HEADER_BYTES: Final = 24
PAGE_BYTES_USUAL: Final = 4096
_MAGIC: Final = 0x377F0682
"""The last bit is the byte order of the checksums' words: 0 little-endian, 1 big-endian."""
_VERSION: Final = 3_007_000
_HEADER: Final = struct.Struct(">4I8s2I")
_FRAME: Final = struct.Struct(">2I8s2I")
_CHUNK_FRAMES: Final = 1024
"""How many checksums are computed side by side: the fastest number, as measured."""
_GUESS_FRAMES: Final = 8
"""If the header is bad: in how many frames to look for one whose checksum the next continues."""
_STEPS_UNMASKED: Final = 16
"""A step multiplies a sum by 2.62 at most: after 16 it is still within its 64 bits."""

Read = Callable[[int, int], bytes]
"""Reads a file: takes an offset and a number of bytes; returns fewer at the end of the file."""
Order = Literal["little", "big"]
Sums = tuple[int, int]


class Verdict(StrEnum):
    """What a log is. SQLite may open the database for all but the last two."""

    WHOLE = "whole"
    TORN = "torn end"
    """The last transaction is not whole: it was never acknowledged."""
    CUT = "cut restart"
    """The header does not fit, and everything behind it is in the database already."""
    BROKEN = "broken in the middle"
    HEADERLESS = "damaged header"
    """The header does not fit, and the database lacks something of what is behind it."""

    @property
    def is_damage(self) -> bool:
        return self in (Verdict.BROKEN, Verdict.HEADERLESS)


@dataclass(frozen=True, slots=True)
class LogHeader:
    """What the frames of a log have to match."""

    order: Order
    page_bytes: int
    salts: bytes
    sums: Sums | None
    """The sums that the first frame's checksum continues; None: not known."""
    first: int = 1
    """If `sums` is None: the frame that is taken as good, because the next one continues it."""

    @property
    def frame_bytes(self) -> int:
        return FRAME_HEADER_BYTES + self.page_bytes


class Frame(NamedTuple):
    """One frame. `number` counts from 1, as SQLite does."""

    number: int
    page: int
    size_pages: int
    """The size of the database after the commit; 0 if this frame commits nothing."""
    is_ours: bool
    """It has the salts of the header: it is not left over from before the log's last restart."""
    fits: bool
    """It is ours, and its checksum continues the one stored before it."""
    is_repeat: bool
    """It repeats the commit frame before it, which SQLite does to fill a sector."""

    @property
    def commits(self) -> bool:
        return self.fits and self.size_pages > 0 and not self.is_repeat


@dataclass(frozen=True, slots=True)
class Judgement:
    """What was found in a log."""

    verdict: Verdict
    frames: int = 0
    """Frames that belong to the log, bad ones included; not those of before its last restart."""
    committed: int = 0
    """The last frame that SQLite would take: the last commit before the first bad frame."""
    transactions: int = 0
    """Commits up to there."""
    first_bad: int = 0
    """The first frame that does not fit, 0 if there is none."""
    beyond_transactions: int = 0
    """Commit frames behind the first bad frame that fit."""
    beyond_pages: int = 0
    """Pages of the database that have a frame that fits behind the first bad frame."""
    differing_pages: int = 0
    """With a bad header: how many pages differ between the log and the database."""


@dataclass(frozen=True, slots=True)
class Overlay:
    """A state of the database: its file, with the pages of these frames laid over it."""

    pages: dict[int, int]
    """By the number of a page: the number of the frame with its last version."""
    size_pages: int
    transactions: int


def read_header(data: bytes) -> LogHeader | None:
    """The header of a log, or None if SQLite would take no frame of it."""
    if len(data) < HEADER_BYTES:
        return None
    magic, version, page_bytes, _, salts, *stored = _HEADER.unpack(data[:HEADER_BYTES])
    if magic & ~1 != _MAGIC or version != _VERSION or not is_page_size(page_bytes):
        return None
    order: Order = "big" if magic & 1 else "little"
    if checksum((0, 0), data[: HEADER_BYTES - 8], order) != tuple(stored):
        return None
    return LogHeader(order, page_bytes, salts, (stored[0], stored[1]))


def is_page_size(size_bytes: int) -> bool:
    return 512 <= size_bytes <= 65_536 and size_bytes & (size_bytes - 1) == 0


def checksum(sums: Sums, data: bytes, order: Order) -> Sums:
    """SQLite's checksum over some bytes, a multiple of eight, continued from other sums."""
    first, second = sums
    words = struct.unpack(f"{'<' if order == 'little' else '>'}{len(data) // 4}I", data)
    for index in range(0, len(words), 2):
        first = (first + words[index] + second) & 0xFFFF_FFFF
        second = (second + words[index + 1] + first) & 0xFFFF_FFFF
    return first, second


def walk(read: Read, header: LogHeader) -> Iterator[Frame]:
    """All frames of a log, whole ones only, in the order of the file."""
    frame_bytes = header.frame_bytes
    sums = header.sums
    number = 0
    last = b""
    while True:
        chunk = read(HEADER_BYTES + number * frame_bytes, _CHUNK_FRAMES * frame_bytes)
        places = range(0, len(chunk) - frame_bytes + 1, frame_bytes)
        if not places:
            return
        heads = [_FrameHead(*_FRAME.unpack_from(chunk, place)) for place in places]
        fitting = _fitting(memoryview(chunk)[: len(heads) * frame_bytes], heads, sums, header)
        if number == 0 and header.sums is None:
            fitting[: header.first] = [False] * (header.first - 1) + [
                heads[header.first - 1].page > 0
            ]
        for place, head, fits in zip(places, heads, fitting, strict=True):
            whole = chunk[place : place + frame_bytes] if fits and head.size_pages else b""
            is_repeat = bool(whole) and _is_equal(last, whole)
            last = whole
            number += 1
            is_ours = head.salts == header.salts
            yield Frame(number, head.page, head.size_pages, is_ours, fits, is_repeat)
        sums = heads[-1].sums


class _FrameHead(NamedTuple):
    page: int
    size_pages: int
    salts: bytes
    first: int
    second: int

    @property
    def sums(self) -> Sums:
        return self.first, self.second


def _fitting(
    view: memoryview, heads: list[_FrameHead], sums: Sums | None, header: LogHeader
) -> list[bool]:
    """Which frames have the header's salts, a page number, and a checksum that continues."""
    ours = [head.salts == header.salts and head.page > 0 for head in heads]
    if not any(ours):
        # The rest of the file, from before the restart of the log: most often the greater part.
        return ours
    stored = [head.sums for head in heads]
    found = _checksums(view, [sums or (0, 0), *stored[:-1]], header)
    return [
        is_ours and one == other for is_ours, one, other in zip(ours, found, stored, strict=True)
    ]


def _is_equal(one: bytes, other: bytes) -> bool:
    """Whether two frames hold the same, except for their checksums, which continue."""
    return one[:16] == other[:16] and one[FRAME_HEADER_BYTES:] == other[FRAME_HEADER_BYTES:]


def _checksums(view: memoryview, before: list[Sums], header: LogHeader) -> list[Sums]:
    """The checksums of some frames, each continued from the sums before it.

    All are computed side by side: one long integer has 64 bits for each frame, and takes a step for
    all of them at once. That is a dozen times as fast as a word at a time.
    """
    count, order = len(before), header.order
    layout = f"{'<' if order == 'little' else '>'}{count}Q"
    low = int.from_bytes(b"\xff\xff\xff\xff\0\0\0\0" * count, "little")
    columns, step = view.cast("Q"), header.frame_bytes // 8
    first, second = (
        int.from_bytes(struct.pack(layout, *side), order) for side in zip(*before, strict=True)
    )
    # The page's number and the commit's size, and, behind salts and checksum, the page.
    for turn, column in enumerate((0, *range(FRAME_HEADER_BYTES // 8, step)), start=1):
        words = int.from_bytes(columns[column::step].tobytes(), order)
        one, other = words & low, (words >> 32) & low
        if order == "big":
            one, other = other, one
        first += one + second
        second += other + first
        if turn % _STEPS_UNMASKED == 0:
            first &= low
            second &= low
    sides = ((side & low).to_bytes(8 * count, order) for side in (first, second))
    return list(zip(*(struct.unpack(layout, side) for side in sides), strict=True))


def judge(log: Read, database: Read) -> Judgement:
    """Judge a log. The database is only read if the log's header does not fit."""
    header = read_header(log(0, HEADER_BYTES))
    if header is not None:
        return _judge_frames(walk(log, header))
    header = guess_header(log, database)
    if header is None:
        return Judgement(Verdict.WHOLE)
    found = _judge_frames(walk(log, header))
    overlay = overlays(walk(log, header)).fitting
    differing = {
        page
        for page, frame in overlay.pages.items()
        if page_of(log, header, frame) != _database_page(database, header, page)
    }
    if header.first > 1:
        # Perhaps the first frame is all that the log got after its last restart.
        page = int.from_bytes(log(HEADER_BYTES, 4), "big")
        if page_of(log, header, 1) == _database_page(database, header, page):
            differing.discard(page)
    return Judgement(
        Verdict.HEADERLESS if differing else Verdict.CUT,
        frames=found.frames,
        beyond_transactions=overlay.transactions,
        beyond_pages=len(overlay.pages),
        differing_pages=len(differing),
    )


def _database_page(database: Read, header: LogHeader, page: int) -> bytes:
    return database((page - 1) * header.page_bytes, header.page_bytes) if page > 0 else b""


def _judge_frames(frames: Iterator[Frame]) -> Judgement:
    last_ours = committed = transactions = first_bad = beyond = 0
    is_joined = is_damage = False
    pages: set[int] = set()
    for frame in frames:
        last_ours = frame.number if frame.is_ours else last_ours
        if not frame.fits:
            first_bad = first_bad or frame.number
            is_joined = False
        elif first_bad == 0:
            transactions += frame.commits
            committed = frame.number if frame.size_pages else committed
        else:
            pages.add(frame.page)
            if frame.commits:
                beyond += 1
                is_damage = is_damage or is_joined
                is_joined = True
    if not is_damage:
        verdict = Verdict.TORN if last_ours > committed else Verdict.WHOLE
        return Judgement(verdict, last_ours, committed, transactions)
    return Judgement(
        Verdict.BROKEN, last_ours, committed, transactions, first_bad, beyond, len(pages)
    )


def guess_header(log: Read, database: Read) -> LogHeader | None:
    """What the header must have been, by the first frame that the next one continues (frame 1 may
    be bad, too: it shares the header's sector); None if there is no frame behind the header."""
    page_bytes = int.from_bytes(database(16, 2), "big")
    page_bytes = 65_536 if page_bytes == 1 else page_bytes
    if not is_page_size(page_bytes):
        page_bytes = PAGE_BYTES_USUAL
    frame_bytes = FRAME_HEADER_BYTES + page_bytes
    start = log(HEADER_BYTES, _GUESS_FRAMES * frame_bytes)
    frames = [start[at : at + frame_bytes] for at in range(0, len(start), frame_bytes)]
    frames = [frame for frame in frames if len(frame) == frame_bytes]
    if not frames:
        return None
    heads = [_FrameHead(*_FRAME.unpack_from(frame)) for frame in frames]
    orders: tuple[Order, Order] = ("little", "big")
    for number, (head, after) in enumerate(pairwise(heads), start=1):
        data = frames[number][:8] + frames[number][FRAME_HEADER_BYTES:]
        for order in orders:
            if head.salts == after.salts and checksum(head.sums, data, order) == after.sums:
                return LogHeader(order, page_bytes, head.salts, None, number)
    return LogHeader("little", page_bytes, heads[0].salts, None)


def page_of(log: Read, header: LogHeader, frame: int) -> bytes:
    """The page that a frame holds."""
    offset = HEADER_BYTES + (frame - 1) * header.frame_bytes + FRAME_HEADER_BYTES
    return log(offset, header.page_bytes)


class _Layer:
    """An overlay in the making: frames count when a commit has proved that they were synced."""

    def __init__(self) -> None:
        self._pages: dict[int, int] = {}
        self._pending: dict[int, int] = {}
        self._forgotten: set[int] = set()
        self._pending_commits = 0
        self._size_pages = 0
        self._transactions = 0

    def take(self, frame: Frame) -> None:
        self._pending[frame.page] = frame.number

    def forget(self, page: int) -> None:
        """Leave a page as the database has it, unless a later frame has it too."""
        self._pending.pop(page, None)
        self._forgotten.add(page)

    def commit(self, frame: Frame, *, is_proved: bool) -> None:
        self._pending_commits += frame.commits
        if is_proved:
            for page in self._forgotten:
                self._pages.pop(page, None)
            self._forgotten = set()
            self._pages |= self._pending
            self._transactions += self._pending_commits
            self._size_pages = frame.size_pages
            self._pending, self._pending_commits = {}, 0

    def done(self) -> Overlay:
        size = self._size_pages
        pages = {page: frame for page, frame in self._pages.items() if page <= size}
        return Overlay(pages, size, self._transactions)


class Overlays(NamedTuple):
    """What can be made of a log."""

    prefix: Overlay
    """The transactions before the first bad frame."""
    whole: Overlay
    """All whole transactions."""
    copied: Overlay
    """All frames that fit, but no older version of a page that a bad frame held: a checkpoint may
    have copied the bad frame's page into the database while it was good."""
    fitting: Overlay
    """All frames that fit: a later frame may hold the page of a bad one, too."""


def overlays(frames: Iterator[Frame]) -> Overlays:
    """The states that a log may stand for. Behind a bad frame a commit counts only if it is joined
    to another commit: the frames of a single one may be those of a torn end."""
    prefix, whole, copied, fitting = _Layer(), _Layer(), _Layer(), _Layer()
    is_broken = is_joined = is_partial = False
    of_transaction: list[Frame] = []
    for frame in frames:
        if not frame.fits:
            is_broken, is_joined = True, False
            # A bad frame that has the marks of a commit was the last one of its transaction.
            is_partial = not (frame.is_ours and frame.size_pages)
            of_transaction.clear()
            copied.forget(frame.page)
            continue
        of_transaction.append(frame)
        copied.take(frame)
        fitting.take(frame)
        if not is_broken:
            prefix.take(frame)
        if not frame.size_pages:
            continue
        is_proved = not is_broken or is_joined
        copied.commit(frame, is_proved=is_proved)
        fitting.commit(frame, is_proved=is_proved)
        if not is_broken:
            prefix.commit(frame, is_proved=True)
        if not is_partial:
            for one in of_transaction:
                whole.take(one)
            whole.commit(frame, is_proved=is_proved)
        of_transaction.clear()
        is_partial, is_joined = False, is_broken
    return Overlays(prefix.done(), whole.done(), copied.done(), fitting.done())
