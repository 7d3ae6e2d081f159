"""Small writes that go together, and members that are remembered: as if each were alone."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.support.world import World
from tidewire.domain.errors import StoreUnavailable
from tidewire.engines.dynamodb import database as dynamodb
from tidewire.engines.dynamodb import rows, schema
from tidewire.engines.dynamodb.database import Database, Wanted
from tidewire.engines.dynamodb.errors import ConditionFailed
from tidewire.engines.dynamodb.options import DynamoOptions
from tidewire.engines.dynamodb.rows import Row, Write
from tidewire.engines.dynamodb.storage import DynamoStorage


@pytest.fixture
def database(direct: World) -> Database:
    storage = direct.storage
    assert isinstance(storage, DynamoStorage)
    return storage._database


def place(user: int) -> dict[str, rows.Value]:
    return {"user_id": f"user_{user}", "chat_id": "chat_together"}


def move(user: int, *, before: int | None, after: int) -> Write:
    if before is None:
        return rows.update(
            schema.POSITIONS,
            place(user),
            "SET #n = :n",
            condition="attribute_not_exists(#n)",
            n=after,
        )
    return rows.update(
        schema.POSITIONS, place(user), "SET #n = :n", condition="#n = :old", n=after, old=before
    )


async def wish(database: Database, write: Write) -> None:
    with database.within_budget():
        await database.write_among(write)


async def numbers(database: Database, users: int) -> list[int | None]:
    with database.within_budget():
        found = await database.get_many([(schema.POSITIONS, place(user)) for user in range(users)])
    return [None if row is None else row["n"] for row in found]


async def test_writes_that_wait_share_requests_and_all_are_made(database: Database) -> None:
    before = database.counts.requests
    await asyncio.gather(*(wish(database, move(user, before=None, after=1)) for user in range(26)))
    # The first two by themselves, then twelve and twelve.
    assert database.counts.requests - before == 4
    assert await numbers(database, 26) == [1] * 26


async def test_one_whose_condition_fails_is_told_what_is_there_and_holds_up_nobody(
    database: Database,
) -> None:
    await asyncio.gather(*(wish(database, move(user, before=None, after=5)) for user in range(8)))
    outcomes = await asyncio.gather(
        *(
            wish(database, move(user, before=4 if user in (3, 6) else 5, after=9))
            for user in range(8)
        ),
        return_exceptions=True,
    )
    failed = {user: one for user, one in enumerate(outcomes) if one is not None}
    assert set(failed) == {3, 6}
    for one in failed.values():
        assert isinstance(one, ConditionFailed)
        assert one.row is not None
        assert one.row["n"] == 5
    assert await numbers(database, 8) == [9, 9, 9, 5, 9, 9, 5, 9]


async def test_whoever_waits_too_long_for_a_shared_request_is_told(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stuck(_writes: Sequence[Write]) -> list[None]:
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(database._writes, "_fetch", stuck)
    token = dynamodb._deadline.set(asyncio.get_running_loop().time() + 0.05)
    try:
        with pytest.raises(StoreUnavailable):
            await database.write_among(move(1, before=None, after=1))
    finally:
        dynamodb._deadline.reset(token)


async def test_whoever_has_no_time_left_asks_for_nothing(database: Database) -> None:
    before = database.counts.requests
    token = dynamodb._deadline.set(0.0)
    try:
        with pytest.raises(StoreUnavailable):
            await database.write_among(move(1, before=None, after=1))
        with pytest.raises(StoreUnavailable):
            await database.get_many([(schema.POSITIONS, place(1))])
    finally:
        dynamodb._deadline.reset(token)
    assert database.counts.requests == before


class Restless(Database):
    """A chat whose members change while they are read, so many times."""

    def __init__(self, chat: Row, changes: int) -> None:
        super().__init__(None, DynamoOptions())
        self.chat = chat
        self.changes = changes
        self.version = 1
        self.looks = 0
        self.queries = 0

    async def get_many(self, wanted: Sequence[Wanted]) -> list[Row | None]:
        self.looks += 1
        # As many members as `query` gives.
        shown = {"membership_version": self.version, "member_count": 0}
        return [self.chat | shown for _ in wanted]

    async def query(self, *_: Any, **__: Any) -> list[Row]:
        self.queries += 1
        if self.changes:
            self.changes -= 1
            self.version += 1
        return []

    async def pause(self, *_: Any) -> None:
        pass


async def test_members_are_remembered_only_under_the_version_that_they_belong_to(
    direct: World, database: Database
) -> None:
    anna, ben = await direct.people(2)
    chat_id = await direct.direct(anna, ben)
    with database.within_budget():
        row = await database.get(schema.CHATS, {"chat_id": chat_id})
    assert row is not None
    restless = Restless(row, changes=2)
    storage = DynamoStorage(restless, AsyncExitStack(), epoch="")
    roster = await storage.roster(chat_id)
    assert roster is not None
    assert roster.membership_version == 3
    assert restless.queries == 3
    found = [storage._rosters.find(chat_id, version) for version in (1, 2)]
    assert found == [None, None]
    looks = restless.looks
    assert await storage.roster(chat_id) == roster
    assert (restless.queries, restless.looks) == (3, looks + 1)
