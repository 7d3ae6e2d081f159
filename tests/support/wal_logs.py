"""Write-ahead logs made by hand, from SQLite's description of the format and not from our code."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

Page = tuple[int, bytes]
"""The number of a page, and what it holds."""
Transaction = Sequence[Page]

HEADER_BYTES: Final = 32
SALTS: Final = b"saltsalt"
OLD_SALTS: Final = b"oldsalts"


def sums_of(first: int, second: int, data: bytes, mark: str) -> tuple[int, int]:
    for one, other in struct.iter_unpack(f"{mark}2I", data):
        first = (first + one + second) % 2**32
        second = (second + other + first) % 2**32
    return first, second


@dataclass(slots=True)
class MadeLog:
    """A log that is being built."""

    page_bytes: int = 512
    salts: bytes = SALTS
    order: Literal["little", "big"] = "little"
    pads: int = 0
    """How often each commit frame is written again."""
    data: bytearray = field(default_factory=bytearray)
    ends: list[int] = field(default_factory=list)
    """Where in the file each transaction ends."""
    _sums: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        magic = 0x377F0682 + (self.order == "big")
        head = struct.pack(">4I8s", magic, 3_007_000, self.page_bytes, 1, self.salts)
        self._sums = sums_of(0, 0, head, self._mark)
        self.data += head + struct.pack(">2I", *self._sums)

    @property
    def frame_bytes(self) -> int:
        return 24 + self.page_bytes

    @property
    def _mark(self) -> str:
        return "<" if self.order == "little" else ">"

    def commit(self, transaction: Transaction, size_pages: int) -> None:
        """Append the frames of a transaction; its last one commits."""
        *others, last = transaction
        for page in others:
            self.write(page, 0)
        for _ in range(self.pads + 1):
            self.write(last, size_pages)
        self.ends.append(len(self.data))

    def write(self, page: Page, size_pages: int) -> None:
        """Append one frame."""
        number, content = page
        head = struct.pack(">2I", number, size_pages)
        self._sums = sums_of(*self._sums, head + content, self._mark)
        self.data += head + self.salts + struct.pack(">2I", *self._sums) + content

    def over(self, old: bytes) -> bytes:
        """The file of this log if it was written over `old` bytes."""
        return bytes(self.data) + old[len(self.data) :]


def database_of(pages: dict[int, bytes], page_bytes: int = 512) -> bytes:
    """A database file with these pages; the first one tells the page size."""
    file = bytearray(max(pages, default=1) * page_bytes)
    for number, content in pages.items():
        file[(number - 1) * page_bytes : number * page_bytes] = content
    file[16:18] = (1 if page_bytes == 65_536 else page_bytes).to_bytes(2, "big")
    return bytes(file)
