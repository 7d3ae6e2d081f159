"""A model of a disk: it knows what is durable, and makes what a power cut may leave.

Goal: to be exactly as nasty as POSIX allows, and no nastier, so that a fault found is a fault of
ours. Method: each file keeps its durable bytes and the list of changes since its last sync.

What is modelled:
- A synced change is there after the cut. Nothing that was synced is ever lost.
- Of the changes since the last sync of a file any subset is there, in any order: a page cache may
  write back in any order. A truncate is such a change too.
- A write may be torn: some of its 512-byte sectors, or bytes up to any point, and the sector that
  was being written may hold garbage. Bytes outside of the written range are unharmed: SQLite relies
  on that ("powersafe overwrite", its default), and drives of the last decades keep it.
- Where a file grew and the write into the new room is lost, there are zeros, or the file is short.
- A name is durable only after its directory was synced, even if the file itself was synced. Of the
  creates and deletes of one name since then the first few have happened; different names are
  independent of each other.

What is not modelled: a drive that lies about a sync, or loses synced sectors. Tests that need such
a drive make one (`Lie`).
"""

from dataclasses import dataclass, field
from random import Random
from typing import Final

SECTOR_BYTES: Final = 512


@dataclass(frozen=True, slots=True)
class Write:
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    size_bytes: int


Change = Write | Truncate


@dataclass(slots=True, eq=False)
class Inode:
    """One file, whatever its name is or was."""

    durable: bytearray = field(default_factory=bytearray)
    pending: list[Change] = field(default_factory=list)
    """What was done since the last sync, in order."""
    changes: int = 0
    """How often the file was changed in total."""

    def change(self, change: Change) -> None:
        self.pending.append(change)
        self.changes += 1

    def sync(self, changes: int) -> None:
        """Make the first `changes` changes durable; another sync may have made some so already."""
        count = max(0, len(self.pending) - (self.changes - changes))
        for change in self.pending[:count]:
            _apply(self.durable, change)
        del self.pending[:count]

    def forget_pending(self) -> None:
        """As the kernel after a failed sync: it marks the pages clean and never writes them.

        Readers still see them in memory; on the disk they are not.
        """
        self.pending.clear()

    def content(self) -> bytes:
        """What a reader sees as long as the power is on (and no sync has failed)."""
        image = bytearray(self.durable)
        for change in self.pending:
            _apply(image, change)
        return bytes(image)

    def after_cut(self, random: Random) -> bytes:
        """What is on the disk when the power is back."""
        image = bytearray(self.durable)
        changes = list(self.pending)
        # In order, as if the cut came in the middle of a write-back in order; or in any order.
        if random.random() < 0.5:
            random.shuffle(changes)
        survival = random.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        tearing = random.choice((0.0, 0.2, 0.5))
        for change in changes:
            if random.random() >= survival:
                continue
            if isinstance(change, Write) and random.random() < tearing:
                for part in _torn(change, random):
                    _apply(image, part)
            else:
                _apply(image, change)
        return bytes(image)


class Disk:
    """Files under names, in one directory."""

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        """The given files are durable: they were on the disk when the power came on."""
        self._names: dict[str, Inode] = {
            name: Inode(bytearray(content)) for name, content in (files or {}).items()
        }
        self._durable_names = dict(self._names)
        self._pending_names: list[tuple[str, Inode | None]] = []

    def file(self, name: str) -> Inode | None:
        return self._names.get(name)

    def create(self, name: str) -> Inode:
        assert name not in self._names
        inode = self._names[name] = Inode()
        self._pending_names.append((name, inode))
        return inode

    def delete(self, name: str) -> None:
        del self._names[name]
        self._pending_names.append((name, None))

    def sync_names(self) -> None:
        self._durable_names = dict(self._names)
        self._pending_names.clear()

    def contents(self) -> dict[str, bytes]:
        """What a reader sees as long as the power is on."""
        return {name: inode.content() for name, inode in self._names.items()}

    def after_cut(self, random: Random) -> dict[str, bytes]:
        """The files as they are when the power is back."""
        fates: dict[str, list[Inode | None]] = {
            name: [inode] for name, inode in self._durable_names.items()
        }
        for name, inode in self._pending_names:
            fates.setdefault(name, [None]).append(inode)
        left = {name: random.choice(fate) for name, fate in fates.items()}
        return {name: inode.after_cut(random) for name, inode in left.items() if inode is not None}


def _apply(image: bytearray, change: Change) -> None:
    if isinstance(change, Truncate):
        if change.size_bytes <= len(image):
            del image[change.size_bytes :]
        else:
            image.extend(bytes(change.size_bytes - len(image)))
        return
    if change.offset > len(image):
        image.extend(bytes(change.offset - len(image)))
    image[change.offset : change.offset + len(change.data)] = change.data


def _torn(write: Write, random: Random) -> list[Write]:
    """Parts of a write that the cut broke off; never anything outside of its range."""
    if random.random() < 0.4:
        length = random.randrange(len(write.data))
        return [Write(write.offset, write.data[:length])]
    sectors = _sectors(write)
    if random.random() < 0.5:
        sectors = sectors[: random.randrange(len(sectors))]
    else:
        sectors = [sector for sector in sectors if random.random() < 0.5]
    if sectors and random.random() < 0.3:
        victim = random.randrange(len(sectors))
        hit = sectors[victim]
        sectors[victim] = Write(hit.offset, random.randbytes(len(hit.data)))
    return sectors


def _sectors(write: Write) -> list[Write]:
    """The write cut at the sector boundaries of the disk."""
    end = write.offset + len(write.data)
    first = SECTOR_BYTES - write.offset % SECTOR_BYTES
    starts = [write.offset, *range(write.offset + first, end, SECTOR_BYTES)]
    return [
        Write(start, write.data[start - write.offset : stop - write.offset])
        for start, stop in zip(starts, [*starts[1:], end], strict=True)
    ]
