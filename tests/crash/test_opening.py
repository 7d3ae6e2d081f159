"""A cut at every single operation of an opening: of the very first one, and of one that migrates.

Both run in one thread, so every operation can be hit, one after the other, without chance.
"""

import asyncio
import os
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from random import Random

import apsw
import pytest

from tests.crash.power import Machine, write_files
from tests.support.crash_cast import Cast, establish, make_cast
from tests.support.crash_snapshot import page_faults, state_faults
from tidewire.domain.errors import TidewireError
from tidewire.engines.sqlite import SqliteStorage
from tidewire.engines.sqlite.database import (
    DATABASE_NAME,
    SqliteOptions,
    check_data_dir,
    connect,
    schema_version,
    single,
)
from tidewire.engines.sqlite.migrate import Migration, migrate, migrations

SEEDS = 2
"""How many cuts at each operation; in each of them other writes survive."""

CAST: Cast = make_cast(4)
NEXT = Migration(
    len(migrations()) + 1,
    "9999_test.sql",
    "CREATE TABLE notes (note TEXT NOT NULL) STRICT;"
    "INSERT INTO notes SELECT user_id FROM users;"
    "ALTER TABLE users ADD COLUMN nickname TEXT;"
    "UPDATE users SET display_name = upper(display_name);",
)


def machines(directory: Path, files: dict[str, bytes]) -> Iterator[Machine]:
    """For each operation a machine that is cut there, until there is no such operation."""
    for number in count(1):
        home = directory / f"operation-{number}"
        write_files(home, files)
        machine = Machine(home)
        machine.cut_at(number)
        yield machine
        machine.stop()
        machine.close()
        if machine.hit is None:
            assert number > 10, "there is more to an opening than that"
            return


def cuts(machine: Machine, directory: Path) -> Iterator[Path]:
    """Directories as the cut may have left them."""
    machine.stop()
    for seed in range(SEEDS):
        home = directory / f"{machine.directory.name}-left-{seed}"
        write_files(home, machine.left_by_cut(Random(seed)))
        yield home


async def opened_and_closed(directory: Path, vfs: str | None = None) -> None:
    options = SqliteOptions(vfs=vfs, readers=1)
    storage = await SqliteStorage.open(directory, options=options, on_fatal=lambda why: None)
    try:
        if vfs is None:
            await establish(storage, CAST)
    finally:
        await storage.close()


def test_new_data_directory_is_synced_into_its_parents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine makes it itself, not through the VFS: a cut must not take the directory away."""
    synced: list[Path] = []

    def note(handle: int) -> None:
        synced.append(Path(f"/proc/self/fd/{handle}").readlink())

    monkeypatch.setattr(os, "fsync", note)
    check_data_dir(tmp_path / "new" / "data")
    assert sorted(synced) == [tmp_path, tmp_path / "new"]
    check_data_dir(tmp_path / "new" / "data")
    assert len(synced) == 2, "it was there already"


# Slow: some hundred openings.
@pytest.mark.slow
@pytest.mark.timeout(480)
def test_first_opening_survives_a_cut_at_each_of_its_operations(tmp_path: Path) -> None:
    for machine in machines(tmp_path, {}):
        with suppress(TidewireError, apsw.IOError):
            asyncio.run(opened_and_closed(machine.directory, machine.vfs))
        for left in cuts(machine, tmp_path):
            asyncio.run(opened_and_closed(left))
            assert page_faults(left) + state_faults(left) == []


# Slow: some hundred migrations.
@pytest.mark.slow
@pytest.mark.timeout(480)
def test_migration_happens_or_not_whatever_operation_is_cut(tmp_path: Path) -> None:
    before = tmp_path / "before"
    asyncio.run(opened_and_closed(before))
    files = {DATABASE_NAME: (before / DATABASE_NAME).read_bytes()}
    known = [*migrations(), NEXT]
    versions = set()
    for machine in machines(tmp_path, files):
        is_done = False
        with suppress(TidewireError, apsw.IOError):
            migrated(machine.directory, known, machine.vfs)
            is_done = True
        for left in cuts(machine, tmp_path):
            assert page_faults(left) == []
            version = version_of(left)
            versions.add(version)
            assert version in (NEXT.number - 1, NEXT.number)
            assert version == NEXT.number or not is_done, "a migration was lost"
            assert migrated(left, known) == len(CAST.users) + 1
    assert versions == {NEXT.number - 1, NEXT.number}


def migrated(directory: Path, known: list[Migration], vfs: str | None = None) -> int:
    """Migrate a database; return how many notes the migration has made."""
    options = SqliteOptions(vfs=vfs)
    with closing(connect(directory / DATABASE_NAME, options, cache_kib=1024)) as database:
        migrate(database, directory, known)
        return int(single(database, "SELECT count(*) FROM notes"))


def version_of(directory: Path) -> int:
    with closing(apsw.Connection(str(directory / DATABASE_NAME))) as database:
        return schema_version(database)
