"""Checksums for messages that were stored without: all get one, and broken rows stop nothing."""

import re
from pathlib import Path

import pytest

from tests.engines.sqlite import test_damaged_messages as damaged_messages
from tests.engines.sqlite.inspected import edited
from tests.engines.sqlite.store import Stores, store_of
from tests.engines.sqlite.test_damaged_files import damage, pages_of
from tests.engines.sqlite.test_damaged_messages import COUNT, Damaged, expected, marks
from tidewire.engines.sqlite.migrate import STEPS, migrations

damaged = damaged_messages.damaged

MIGRATIONS = [one for one in migrations() if "ALTER TABLE messages" in one.sql]
"""Those that change the table of messages."""
ADDED = re.findall(r"ALTER TABLE messages ADD COLUMN (\w+)", "".join(one.sql for one in MIGRATIONS))
MADE = re.findall(r"CREATE TABLE (\w+)", "".join(one.sql for one in MIGRATIONS))


def without_checksums(path: Path) -> None:
    """The messages as the version before checksums stored them."""
    with edited(path) as database:
        database.execute("DROP INDEX messages_by_id")
        for column in reversed(ADDED):
            database.execute(f"ALTER TABLE messages DROP COLUMN {column}")
        database.execute("CREATE UNIQUE INDEX messages_by_id ON messages (message_id)")
        for table in MADE:
            database.execute(f"DROP TABLE {table}")


def migrate(path: Path) -> None:
    """These migrations alone. That the tables are as they should be, the store looks when it
    opens."""
    with edited(path) as database, database:
        for migration in MIGRATIONS:
            STEPS[migration.name](database, migration.sql)


def test_every_step_changes_the_messages() -> None:
    assert ADDED == ["checksum", "target", "extra", "deleted_by", "message_before", "is_placed"]
    assert {one.name for one in MIGRATIONS} <= STEPS.keys()


async def test_every_stored_message_gets_its_checksum(damaged: Damaged) -> None:
    without_checksums(damaged.path)
    migrate(damaged.path)
    await damaged.open()
    assert marks(await damaged.synced()) == expected()
    await store_of(damaged.world).close()
    # It is that of what was stored: a change is seen from now on.
    damaged.change(2, "content = 'other'")
    await damaged.open()
    assert marks(await damaged.synced()) == expected(2)


@pytest.mark.parametrize(
    "change",
    ["content = CAST(x'ff' AS TEXT)", "content = NULL", "content = x'37'", "created_at = 'x'"],
)
async def test_row_that_is_broken_already_is_marked(damaged: Damaged, change: str) -> None:
    without_checksums(damaged.path)
    damaged.change(3, change)
    migrate(damaged.path)
    await damaged.open()
    assert marks(await damaged.synced()) == expected(3)
    assert (await damaged.world.send(damaged.chat, damaged.author)).sequence == COUNT + 1


async def test_page_that_cannot_be_read_costs_its_own_rows_only(stores: Stores) -> None:
    world = await stores.open()
    one, other = await world.people(2)
    chat = await world.direct(one, other)
    await world.append(*[world.draft(chat, one, "x" * 500) for _ in range(300)])
    store = store_of(world)
    await store.close()
    without_checksums(store.path)
    damage(store.path, pages_of(store.path, "messages")[5])
    migrate(store.path)
    await store.open()
    assert len(await world.messages(one, chat, after=100)) == 200
    with edited(store.path) as database:
        found = database.execute("SELECT count(checksum) FROM messages WHERE position > 100").get
    assert found == 200
