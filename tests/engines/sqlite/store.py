"""Stores with options of the test's choice, the people in them, and looks at their files.

Holds no test.
"""

from pathlib import Path
from typing import Final

import apsw

from tests.support.engines import SqliteHarness
from tests.support.world import World
from tidewire.domain.ids import ChatId, UserId
from tidewire.engines.sqlite import DATABASE_NAME, SqliteOptions, SqliteStorage
from tidewire.ports.storage import Storage

KIB: Final = 1024


class TunedStore(SqliteHarness):
    """A store whose options a test chooses, and whose end it may watch instead of dying of it."""

    def __init__(self, directory: Path, options: SqliteOptions) -> None:
        super().__init__(directory)
        self.doubts: list[str] = []
        """What the fatal handler was told. The real one would have ended the process."""
        self._options = options

    async def _open(self) -> Storage:
        return await SqliteStorage.open(
            self.directory,
            listener=self._listen,
            options=self._options,
            on_fatal=self.doubts.append,
        )

    @property
    def sqlite(self) -> SqliteStorage:
        assert isinstance(self.storage, SqliteStorage)
        return self.storage

    @property
    def path(self) -> Path:
        return self.directory / DATABASE_NAME

    @property
    def wal_path(self) -> Path:
        return self.directory / f"{DATABASE_NAME}-wal"

    def wal_bytes(self) -> int:
        """The size of the log's file."""
        return self.wal_path.stat().st_size


class Stores:
    """Opens stores for a test."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._opened: list[TunedStore] = []

    async def open(
        self, options: SqliteOptions | None = None, *, directory: Path | None = None
    ) -> "World":
        """A world in a new store, or in that of a directory."""
        directory = directory or self._directory / f"store-{len(self._opened)}"
        store = TunedStore(directory, options or SqliteOptions())
        self._opened.append(store)
        await store.open()
        return World(store)

    async def close(self) -> None:
        for store in self._opened:
            await store.close()


def store_of(world: World) -> TunedStore:
    assert isinstance(world.engine, TunedStore)
    return world.engine


async def pair_in(world: World) -> tuple[ChatId, UserId, UserId]:
    """Two people and their direct chat."""
    one, other = await world.people(2)
    return await world.direct(one, other), one, other


def open_beside(path: Path) -> apsw.Connection:
    """A connection of somebody else to a database file."""
    database = apsw.Connection(str(path))
    database.set_busy_timeout(5_000)
    return database
