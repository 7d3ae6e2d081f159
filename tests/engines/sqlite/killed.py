"""What a killed process leaves: a database and its log. Holds no test."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import apsw

from tests.engines.sqlite.store import Stores, open_beside, pair_in, store_of
from tests.support.world import World
from tidewire.domain.ids import ChatId, UserId
from tidewire.engines.sqlite import DATABASE_NAME, SqliteOptions

FRAME_BYTES: Final = 24 + 4096
HEADER_BYTES: Final = 32


@dataclass(slots=True)
class Killed:
    """A data directory as a kill leaves it, and the world that it was of."""

    directory: Path
    world: World
    chat: ChatId
    one: UserId
    other: UserId

    @property
    def path(self) -> Path:
        return self.directory / DATABASE_NAME

    @property
    def wal(self) -> Path:
        return self.directory / f"{DATABASE_NAME}-wal"

    def files(self) -> dict[str, bytes]:
        """Everything in the directory but the lock, byte for byte."""
        return {
            path.name: path.read_bytes()
            for path in self.directory.iterdir()
            if path.is_file() and path.suffix != ".lock"
        }

    def hit(self, place: int, flip: int = 0x10) -> None:
        """Damage one byte of the log."""
        data = bytearray(self.wal.read_bytes())
        data[place] ^= flip
        self.wal.write_bytes(data)

    def hit_frame(self, number: int, place: int = 1000) -> None:
        self.hit(HEADER_BYTES + (number - 1) * FRAME_BYTES + place)

    @property
    def frames(self) -> int:
        return (self.wal.stat().st_size - HEADER_BYTES) // FRAME_BYTES

    def tear(self) -> None:
        """Let the last transaction be one that a power cut has hit."""
        self.hit_frame(self.frames, 0)


def copied(source: Path, target: Path) -> None:
    """Copy a database with its log; not what is in memory only, nor the lock."""
    target.mkdir()
    for ending in ("", "-wal"):
        file = source / f"{DATABASE_NAME}{ending}"
        if file.exists():
            shutil.copyfile(file, target / file.name)


async def kill(
    stores: Stores,
    directory: Path,
    *,
    messages: int = 20,
    options: SqliteOptions | None = None,
    is_copied: bool = False,
    messages_after: int = 0,
) -> Killed:
    """Two people have written so many messages, each a commit, when the process is killed;
    `is_copied`: the log was copied into the database before the last `messages_after`, with which
    it begins anew."""
    world = await stores.open(options)
    chat, one, other = await pair_in(world)
    for _ in range(messages):
        await world.send(chat, one)
    if is_copied:
        shell = open_beside(store_of(world).path)
        # A connection that never read does not know of the log and would copy nothing.
        shell.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        shell.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
        shell.close()
    for _ in range(messages_after):
        await world.send(chat, one)
    copied(store_of(world).directory, directory)
    return Killed(directory, world, chat, one, other)
