"""Reads the positions of all users in the store, again and again. Holds no test.

A client shows the highest number it was ever told, so no client shows that a position has fallen.
The rows show it: they are read strongly here, without gateways and proxies.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from tests.cluster.running import Cluster
from tests.support.dynamodb import local_options
from tidewire.domain.delivery import Positions
from tidewire.domain.errors import Unavailable
from tidewire.engines.dynamodb import schema
from tidewire.engines.dynamodb.database import Database
from tidewire.engines.dynamodb.values import positions_of

LOOK_S: Final = 0.25

Place = tuple[str, str]
"""A user in a chat."""
Standings = dict[Place, Positions]


class PositionWatch:
    def __init__(self, database: Database, places: Sequence[Place]) -> None:
        self._database = database
        self._places = places
        self._seen: Standings = {}
        self.falls: list[str] = []

    async def look(self) -> None:
        wanted = [
            (schema.POSITIONS, {"user_id": user_id, "chat_id": chat_id})
            for user_id, chat_id in self._places
        ]
        with self._database.within_budget():
            found = await self._database.get_many(wanted)
        for place, row in zip(self._places, found, strict=True):
            now = positions_of(row)
            before = self._seen.get(place, now)
            if now.delivered < before.delivered or now.read < before.read:
                self.falls.append(f"{place} fell from {before} to {now}")
            self._seen[place] = now

    async def keep_looking(self) -> None:
        while True:
            # Some tests make the store unavailable.
            with suppress(Unavailable):
                await self.look()
            await asyncio.sleep(LOOK_S)

    @property
    def has_seen_everybody(self) -> bool:
        """Whether every user has read something in each chat, so that there was a row to watch."""
        return all(self._seen[place].read > 0 for place in self._places)


@asynccontextmanager
async def watching(cluster: Cluster, places: Sequence[Place]) -> AsyncIterator[PositionWatch]:
    options = local_options(
        cluster.endpoints.dynamodb_port,
        table_prefix=cluster.table_prefix,
        # Short, because the next look comes soon.
        attempt_ms=1_000,
        budget_ms=2_000,
    )
    async with Database.connect(options) as database:
        yield PositionWatch(database, places)
