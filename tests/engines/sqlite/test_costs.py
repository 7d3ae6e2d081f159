"""What an acknowledgement costs does not depend on how many people are in the chat.

Method: SQLite counts the steps of its virtual machine for every statement; those of one ack are
compared between a chat of ten and a chat of a thousand. Slow because a thousand people have to be
put somewhere.
"""

import asyncio
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import apsw
import pytest
import pytest_asyncio

from tests.engines.sqlite.store import Stores, TunedStore, store_of
from tests.support.world import World
from tidewire.domain.chats import CreateGroup
from tidewire.domain.delivery import Advance, Advanced, DigestPage, Floors
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.limits import GROUP_MEMBERS_MAX
from tidewire.engines.sqlite import positions
from tidewire.engines.sqlite.database import SqliteOptions, connect

FEW: Final = 10
MANY: Final = GROUP_MEMBERS_MAX
RATIO_MAX: Final = 1.5
MESSAGES: Final = 5


Result = TypeVar("Result")
Chats = dict[int, tuple[ChatId, list[UserId]]]


class Crowds:
    """A store with a chat of ten and a chat of a thousand; its connection counts steps."""

    def __init__(self, store: TunedStore, chats: Chats) -> None:
        self.store = store
        self.chats = chats

    def steps(self, act: Callable[[apsw.Connection], Result]) -> tuple[int, Result]:
        """The steps of everything that one act does, on a connection that has run nothing yet."""
        database = connect(self.store.path, SqliteOptions(), cache_kib=4_096)
        counted: list[int] = []

        def count(traced: dict[str, Any]) -> None:
            counted.append(traced["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"])

        database.trace_v2(apsw.SQLITE_TRACE_PROFILE, count)
        result = act(database)
        database.close()
        assert counted
        return sum(counted), result


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def crowded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Chats]:
    """The file is made once, and each test has a copy of it."""
    world = World(TunedStore(tmp_path_factory.mktemp("crowded"), SqliteOptions()))
    await world.engine.open()
    people = list(await asyncio.gather(*(world.person() for _ in range(MANY))))
    chats = {size: await crowd_of(world, people[:size]) for size in (FEW, MANY)}
    await world.engine.close()
    return store_of(world).directory, chats


@pytest.fixture
async def crowds(crowded: tuple[Path, Chats], stores: Stores, tmp_path: Path) -> Crowds:
    directory, chats = crowded
    shutil.copytree(directory, tmp_path / "data")
    return Crowds(store_of(await stores.open(directory=tmp_path / "data")), chats)


async def crowd_of(world: World, people: list[UserId]) -> tuple[ChatId, list[UserId]]:
    """A group with some messages; every second member has got the first of them."""
    now_ms = world.now()
    command = CreateGroup(
        chat_id=world.ids.chat_id(now_ms), actor_id=people[0], name="crowd", member_ids=people[1:]
    )
    await world.storage.create_group(command, members_max=MANY, now_ms=now_ms)
    await world.send_many(command.chat_id, people[0], MESSAGES)
    wishes = [Advance(user_id=user, chat_id=command.chat_id, read=1) for user in people[1::2]]
    await world.storage.advance(wishes, now_ms=world.now())
    return command.chat_id, people


@pytest.mark.slow
async def test_cost_of_an_ack_does_not_grow_with_the_members(crowds: Crowds) -> None:
    def ack(chat: ChatId, user: UserId) -> Callable[[apsw.Connection], Floors]:
        def act(database: apsw.Connection) -> Floors:
            database.execute("BEGIN IMMEDIATE")
            wish = Advance(user_id=user, chat_id=chat, delivered=MESSAGES - 1, read=MESSAGES - 2)
            outcomes, _ = positions.advance(database, [wish], 1)
            database.execute("COMMIT")
            assert [outcome.moved for outcome in outcomes if isinstance(outcome, Advanced)] == [
                True
            ]
            # What the ticks of everybody in the chat are made of.
            [floors] = positions.floors(database, [chat])
            assert floors is not None
            return floors

        return act

    costs = {}
    for size, (chat, people) in crowds.chats.items():
        # Somebody who had nothing, somebody who had something: both move in a crowd of equals.
        for index in (2, 3):
            costs[size, index], floors = crowds.steps(ack(chat, people[index]))
            assert floors.head == MESSAGES
    for index in (2, 3):
        assert costs[MANY, index] <= RATIO_MAX * costs[FEW, index], costs


@pytest.mark.slow
async def test_cost_of_an_ack_through_the_writer_does_not_grow_with_the_members(
    crowds: Crowds,
) -> None:
    storage = crowds.store.sqlite
    steps: dict[str, int] = {}

    def count(traced: dict[str, Any]) -> None:
        steps[traced["sql"]] = traced["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    async def cost(chat: ChatId, user: UserId) -> int:
        steps.clear()
        wish = Advance(user_id=user, chat_id=chat, delivered=MESSAGES)
        [outcome] = await storage.advance([wish], now_ms=2)
        assert isinstance(outcome, Advanced)
        assert outcome.moved
        assert list(steps) == [
            "BEGIN IMMEDIATE",
            "PRAGMA data_version",
            positions.FIND_POSITIONS,
            positions.MOVE_POSITIONS[1],
            "COMMIT",
        ]
        return sum(steps.values())

    # The writer is idle, so its connection may be touched here.
    storage._database.trace_v2(apsw.SQLITE_TRACE_PROFILE, count)
    costs = {size: await cost(chat, people[4]) for size, (chat, people) in crowds.chats.items()}
    assert 0 < costs[MANY] <= RATIO_MAX * costs[FEW], costs


@pytest.mark.slow
async def test_cost_of_a_digest_does_not_grow_with_the_members(crowds: Crowds) -> None:
    costs = {}
    (small, people), (large, _) = crowds.chats.values()
    # One who is in both chats, asked for one chat at a time; by id, the small one comes first.
    assert small < large
    for size, after in ((FEW, None), (MANY, small)):
        costs[size], page = crowds.steps(partial(ask_digest, user=people[5], after=after))
        assert [entry.head for entry in page.entries] == [MESSAGES]
    assert costs[MANY] <= RATIO_MAX * costs[FEW], costs


def ask_digest(database: apsw.Connection, *, user: UserId, after: ChatId | None) -> DigestPage:
    return positions.digest(database, user, after=after, count_max=1)


@pytest.mark.slow
async def test_cost_of_floors_is_what_the_index_promises(crowds: Crowds) -> None:
    # The check can fail: without the index, the same question costs a hundred times as much.
    chat, _ = crowds.chats[MANY]
    cost, with_index = crowds.steps(lambda database: positions.floors(database, [chat]))
    storage = crowds.store.sqlite
    storage._database.execute("DROP INDEX delivered_floor; DROP INDEX read_floor")
    scan_cost, without = crowds.steps(lambda database: positions.floors(database, [chat]))
    assert without == with_index
    assert scan_cost > 10 * cost


async def test_queries_for_floors_use_their_index(stores: Stores) -> None:
    world = await stores.open()
    plan = plan_of(world, positions.FLOORS, ("[]",))
    # What is scanned are the questions, and the two rows that each index gives.
    scanned = [step.split()[1] for step in plan if step.startswith("SCAN")]
    assert [name for name in scanned if not name.startswith("(subquery")] == ["question"]
    for index in ("delivered_floor", "read_floor"):
        assert any(f"INDEX {index} (chat_id=?)" in step for step in plan), index


@pytest.mark.parametrize("query", [positions.DIGEST, positions.STANDING])
async def test_query_for_the_digest_uses_indexes_only(stores: Stores, query: str) -> None:
    world = await stores.open()
    plan = plan_of(world, query, ("user_1", "", 10))
    tables = ("delivery_state", "chat_memberships", "messages", "chats", "other", "member")
    scans = [step for step in plan if step.startswith("SCAN") and step.split()[1] in tables]
    assert scans == []
    # The finished page is sorted, and nothing that depends on how many members there are.
    assert [step for step in plan if "TEMP B-TREE" in step][1:] == []
    for index in ("delivered_floor", "read_floor", "messages_by_sequence"):
        assert any(f"INDEX {index} (" in step for step in plan), index


async def test_query_for_an_ack_uses_primary_keys_only(stores: Stores) -> None:
    world = await stores.open()
    for statement in (positions.MOVE_POSITIONS[1], positions.MOVE_POSITIONS[64]):
        values = ("user_1", "chat_1", 1, 1, 1) * (len(statement.split("?")) // 5)
        # An upsert finds its row by the key that it is in conflict with, and no plan shows that.
        plan = plan_of(world, statement, values)
        assert [step for step in plan if "delivery_state" in step] == []
    found = plan_of(world, positions.FIND_POSITIONS, ("[]",))
    assert [step for step in found if step.startswith("SCAN")] == [
        "SCAN question VIRTUAL TABLE INDEX 1:"
    ]


def plan_of(world: World, query: str, bindings: tuple[str | int, ...]) -> list[str]:
    database = connect(store_of(world).path, SqliteOptions(), cache_kib=1_024)
    rows: list[tuple[Any, ...]] = database.execute(
        f"EXPLAIN QUERY PLAN {query}", bindings
    ).fetchall()
    database.close()
    return [row[3] for row in rows]
