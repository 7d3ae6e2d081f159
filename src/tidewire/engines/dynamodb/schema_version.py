"""The version of a store: which form its rows have, and so what may be written into it.

Processes of a cluster are replaced one by one, and one of an earlier release must never meet rows
that it would misread. So a store has a version. A new store begins with the newest.
One that was made by an earlier release keeps its version, and nothing is written that this version
does not know, until its operator says that every process has been replaced (`cluster upgrade`).

The version only grows. A process that has seen it grow need not ask again.
"""

import time
from typing import Final

from tidewire.domain.errors import StoreUnusable
from tidewire.engines.dynamodb import rows, schema
from tidewire.engines.dynamodb.database import Database
from tidewire.engines.dynamodb.rows import Row, Write

FIRST: Final = 1
"""The version of 0.1.0, which did not store it."""
ENTRIES: Final = 2
"""Edits, deletions and reactions; messages with replies and mentions."""
MARKS: Final = 3
"""Every member's row of positions is marked, and no other row is (`marks`)."""
PLACED: Final = 4
"""Entries whose ids contain their place are not in the index of ids."""
NEWEST: Final = PLACED

LOOK_SECONDS: Final = 10.0
"""How often the version of an older store is read again, for what is cheaper in a newer one."""

KEY: Final = {"name": "schema_version"}
"""The key of its row in the table `store`."""


def version_of(row: Row | None) -> int:
    return FIRST if row is None else int(row["value"])


def newest_row() -> Write:
    """The row for a new store: it has the newest form from the start."""
    return rows.put_new(schema.STORE, KEY | {"value": NEWEST})


async def read_version(database: Database) -> int:
    with database.within_budget():
        return version_of(await database.get(schema.STORE, KEY))


async def raise_version(database: Database) -> list[str]:
    """Allow the newest form from now on; return what was done. Doing it again is safe."""
    before = await read_version(database)
    check_known(before)
    if before == NEWEST:
        return []
    raised = rows.put(
        schema.STORE,
        KEY | {"value": NEWEST},
        condition="attribute_not_exists(#value) OR #value < :newest",
        newest=NEWEST,
    )
    with database.within_budget():
        # If that fails, another call has done it.
        await database.commit([raised])
    return [f"schema version {NEWEST}"]


def check_known(version: int) -> None:
    """Raises StoreUnusable for a store whose rows this release cannot read."""
    if version > NEWEST:
        raise StoreUnusable(
            f"the store has the schema version {version}, this release knows {NEWEST} at most; "
            "install the release that upgraded it, or a later one"
        )


class SeenVersion:
    """The version of a store as a process has last seen it."""

    def __init__(self, version: int) -> None:
        self._version = version
        self._look_at_s = 0.0

    async def look_for(self, version: int, database: Database) -> bool:
        """As `has`, but reads the version again now and then while the answer is False."""
        if not self.has(version) and time.monotonic() >= self._look_at_s:
            self._look_at_s = time.monotonic() + LOOK_SECONDS
            self.see(await database.get(schema.STORE, KEY))
        return self.has(version)

    def has(self, version: int) -> bool:
        """True is for good; False may change when the version is read again."""
        return self._version >= version

    def see(self, row: Row | None) -> None:
        self._version = max(self._version, version_of(row))
