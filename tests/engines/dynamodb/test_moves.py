"""A move of positions: one conditional update of one row, which says itself who is a member.

Each rule of `marks` is taken away here by putting a row into the state that it guards against.
"""

from collections.abc import AsyncIterator

import pytest

from tests.engines.dynamodb.conftest import Behind, another
from tests.support import stack
from tests.support.dynamodb import a_backdoor, local_options
from tests.support.dynamodb_proxy import Fate, Proxy
from tests.support.engines import DynamoHarness
from tests.support.world import World
from tidewire.domain.delivery import Advance, Advanced, AdvanceOutcome, Positions
from tidewire.domain.errors import NotAMember, SequenceAboveHead, StoreUnusable
from tidewire.domain.events import PositionsAdvanced
from tidewire.domain.ids import ChatId, UserId
from tidewire.engines.dynamodb import marks, rows, schema, schema_version, upgrading, values
from tidewire.engines.dynamodb.creation import MEMBERS_PER_TRANSACTION_MAX
from tidewire.engines.dynamodb.inspect import DynamoInspector
from tidewire.engines.dynamodb.storage import DynamoStorage
from tidewire.ops.checks import check_positions
from tidewire_bench.counting import CountingProxy
from tidewire_bench.units import Spent


@pytest.fixture
async def counted(direct: World) -> AsyncIterator[tuple[DynamoStorage, CountingProxy]]:
    """Another process on the same tables, whose requests are counted."""
    async with CountingProxy.running(stack.ensure("dynamodb")) as proxy:
        storage = await DynamoStorage.open(local_options(proxy.port))
        yield storage, proxy
        await storage.close()


async def move(
    storage: DynamoStorage, user_id: UserId, chat_id: ChatId, *, delivered: int = 0, read: int = 0
) -> AdvanceOutcome:
    wish = Advance(user_id=user_id, chat_id=chat_id, delivered=delivered, read=read)
    [outcome] = await storage.advance([wish], now_ms=1_700_000_000_000)
    return outcome


async def reader_of(world: World, messages: int) -> tuple[UserId, ChatId]:
    """A user to whom another one has written so many messages in their direct chat."""
    sender, reader = await world.people(2)
    chat = await world.direct(sender, reader)
    await world.send_many(chat, sender, messages)
    return reader, chat


async def position_row(world: World, chat_id: ChatId, user_id: UserId) -> rows.Row | None:
    assert isinstance(world.engine, DynamoHarness)
    async with a_backdoor(world.engine.tables.options) as database:
        return await database.get(schema.POSITIONS, marks.position_key(chat_id, user_id))


async def write(world: World, *writes: rows.Write) -> None:
    assert isinstance(world.engine, DynamoHarness)
    async with a_backdoor(world.engine.tables.options) as database:
        for one in writes:
            await database.write(one)


# What it costs.


async def test_move_is_one_request_and_one_unit_if_the_head_is_known(
    direct: World, counted: tuple[DynamoStorage, CountingProxy]
) -> None:
    storage, proxy = counted
    ben, chat = await reader_of(direct, 3)
    assert await move(storage, ben, chat, delivered=1) == Advanced(Positions(1, 0), moved=True)
    for wished, after in (
        ({"delivered": 2}, Positions(2, 0)),
        ({"read": 1}, Positions(2, 1)),
        ({"delivered": 3, "read": 2}, Positions(3, 2)),
        ({"read": 3}, Positions(3, 3)),
    ):
        before = proxy.tally.total()
        outcome = await move(storage, ben, chat, **wished)
        assert outcome == Advanced(after, moved=True)
        assert proxy.tally.total() - before == Spent(writes=1, requests=1), wished


async def test_old_news_is_read_and_not_written(
    direct: World, counted: tuple[DynamoStorage, CountingProxy]
) -> None:
    storage, proxy = counted
    ben, chat = await reader_of(direct, 3)
    await move(storage, ben, chat, read=3)
    before = proxy.tally.total()
    assert await move(storage, ben, chat, delivered=3) == Advanced(Positions(3, 3), moved=False)
    assert proxy.tally.total() - before == Spent(reads=1, requests=1)


async def test_digest_teaches_what_is_old_news(
    direct: World, counted: tuple[DynamoStorage, CountingProxy]
) -> None:
    """A device that comes back acknowledges everything again."""
    storage, proxy = counted
    ben, chat = await reader_of(direct, 3)
    await direct.read(ben, chat, 2)
    await storage.digest(ben, after=None, count_max=10)
    before = proxy.tally.total()
    assert await move(storage, ben, chat, read=2) == Advanced(Positions(2, 2), moved=False)
    assert (proxy.tally.total() - before).writes == 0


# What it needs.


async def test_former_member_moves_nothing_though_much_is_remembered(
    direct: World, counted: tuple[DynamoStorage, CountingProxy]
) -> None:
    storage, _ = counted
    anna, ben = await direct.people(2)
    chat = await direct.group(anna, ben)
    await direct.send_many(chat, anna, 5)
    await move(storage, ben, chat, delivered=2)
    await direct.remove(anna, chat, ben)
    assert isinstance(await move(storage, ben, chat, delivered=3), NotAMember)
    assert isinstance(await move(storage, ben, chat, delivered=1), NotAMember)
    assert isinstance(await move(storage, ben, chat, delivered=9), NotAMember)
    row = await position_row(direct, chat, ben)
    assert row is not None
    assert row["last_acked_sequence"] == 2
    await direct.add(anna, chat, ben)
    assert await move(storage, ben, chat, delivered=4) == Advanced(Positions(4, 0), moved=True)


async def test_row_says_who_is_a_member_from_the_first_day(direct: World) -> None:
    anna, ben, cleo = await direct.people(3)
    chat = await direct.group(anna, ben)
    await direct.send_many(chat, anna, 2)
    await direct.add(anna, chat, cleo)
    joined = {}
    for user in (anna, ben, cleo):
        row = await position_row(direct, chat, user)
        assert row is not None
        joined[user] = row[marks.MARK]
    assert joined == {anna: 0, ben: 0, cleo: 2}
    await direct.leave(ben, chat)
    assert not marks.is_marked(await position_row(direct, chat, ben))
    await direct.close_group(anna, chat)
    for user in (anna, cleo):
        assert not marks.is_marked(await position_row(direct, chat, user))


@pytest.mark.parametrize("more", [0, 1])
async def test_group_of_any_size_has_all_marks(direct: World, more: int) -> None:
    """As large as one transaction takes, and larger."""
    owner, *others = await direct.people(MEMBERS_PER_TRANSACTION_MAX + more)
    chat = await direct.group(owner, *others)
    await direct.send(chat, owner)
    for user in (owner, others[0], others[-1]):
        assert marks.is_marked(await position_row(direct, chat, user))
    assert (await direct.read(others[-1], chat, 1)).moved


async def test_wish_above_the_head_is_bounded_by_a_fresh_head(
    direct: World, counted: tuple[DynamoStorage, CountingProxy]
) -> None:
    storage, _ = counted
    anna, ben = await direct.people(2)
    chat = await direct.direct(anna, ben)
    await direct.send(chat, anna)
    assert isinstance(await move(storage, ben, chat, delivered=2), SequenceAboveHead)
    await direct.send(chat, anna)
    assert isinstance(await move(storage, ben, chat, delivered=2), Advanced)


async def test_positions_that_stand_higher_do_not_fall(
    direct: World, counted: tuple[DynamoStorage, CountingProxy]
) -> None:
    """Another process has moved both; this one knows neither."""
    storage, _ = counted
    ben, chat = await reader_of(direct, 9)
    await move(storage, ben, chat, delivered=1)
    await direct.read(ben, chat, 4)
    await direct.ack(ben, chat, 8)
    assert await move(storage, ben, chat, delivered=6) == Advanced(Positions(8, 4), moved=False)
    assert await move(storage, ben, chat, read=6) == Advanced(Positions(8, 6), moved=True)
    assert await direct.positions(ben, chat) == Positions(8, 6)


@pytest.mark.parametrize("fate", [Fate.SWALLOW, Fate.DROP])
async def test_lost_answer_of_a_move_is_told_all_the_same(
    direct: World, proxy: Proxy, behind: Behind, fate: Fate
) -> None:
    ben, chat = await reader_of(direct, 1)
    proxy.rule("UpdateItem", fate, table=schema.POSITIONS)
    outcome = await move(behind.storage, ben, chat, delivered=1)
    assert isinstance(outcome, Advanced)
    assert behind.events == [PositionsAdvanced(chat, ben, Positions(1, 0))]
    assert await direct.positions(ben, chat) == Positions(1, 0)


# Older stores.


@pytest.fixture
async def old(direct: World) -> AsyncIterator[World]:
    """A store that was made before there were marks."""
    await write(direct, rows.delete(schema.STORE, schema_version.KEY))
    storage = direct.storage
    assert isinstance(storage, DynamoStorage)
    storage._version = schema_version.SeenVersion(schema_version.FIRST)
    yield direct
    await write(direct, version_write(), rows.delete(schema.STORE, {"name": upgrading.PROGRESS}))


def version_write(version: int = schema_version.NEWEST) -> rows.Write:
    return rows.put(schema.STORE, schema_version.KEY | {"value": version})


async def forget_marks(world: World, chat: ChatId, *users: UserId) -> None:
    await write(
        world,
        *(rows.delete(schema.POSITIONS, marks.position_key(chat, user)) for user in users),
    )


async def test_old_store_checks_the_membership_itself(old: World) -> None:
    anna, ben, cleo = await old.people(3)
    chat = await old.group(anna, ben, cleo)
    await old.send_many(chat, anna, 3)
    await forget_marks(old, chat, ben, cleo)
    assert (await old.ack(ben, chat, 2)).moved
    assert (await old.read(ben, chat, 1)).positions == Positions(2, 1)
    # An older gateway removes a member, and leaves the mark.
    await old.remove(anna, chat, cleo)
    row: rows.Row = {"last_acked_sequence": 0, "last_read_sequence": 0, marks.MARK: 0}
    await write(old, rows.put(schema.POSITIONS, marks.position_key(chat, cleo) | row))
    assert isinstance(await old.try_ack(cleo, chat, 2), NotAMember)


async def test_upgrade_marks_members_clears_others_and_is_noticed(
    old: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_version, "LOOK_SECONDS", 0.0)
    anna, ben, cleo = await old.people(3)
    chat = await old.group(anna, ben, cleo)
    await old.send_many(chat, anna, 3)
    await old.ack(ben, chat, 2)
    await old.remove(anna, chat, cleo)
    await forget_marks(old, chat, ben)
    stale: rows.Row = {"last_acked_sequence": 1, "last_read_sequence": 1, marks.MARK: 0}
    await write(old, rows.put(schema.POSITIONS, marks.position_key(chat, cleo) | stale))
    assert isinstance(old.engine, DynamoHarness)
    options = old.engine.tables.options
    done = upgrading.mark_members(options)
    assert done.cleared == 1
    assert done.marked >= 1
    assert marks.is_marked(await position_row(old, chat, ben))
    assert not marks.is_marked(await position_row(old, chat, cleo))
    await write(old, version_write())
    assert upgrading.mark_members(options).marked == 0
    assert isinstance(old.storage, DynamoStorage)
    assert (await old.ack(ben, chat, 3)).moved
    assert old.storage._version.has(schema_version.MARKS)


async def test_upgrade_that_broke_off_goes_on_where_it_was(
    old: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = await old.people(6)
    chats = [await old.group(people[0], *people[1:]) for _ in range(2)]
    for chat in chats:
        await forget_marks(old, chat, *people)
    assert isinstance(old.engine, DynamoHarness)
    options = old.engine.tables.options
    scan_request = rows.scan_request
    seen = []

    class BrokenOff(Exception):
        pass

    def short(table: str, **more: object) -> rows.Row:
        seen.append(more.get("start"))
        return scan_request(table, **more) | {"Limit": 4}  # type: ignore[arg-type]

    def break_off(done: int, total: int) -> None:
        if done > 4:
            raise BrokenOff

    monkeypatch.setattr(rows, "scan_request", short)
    with pytest.raises(BrokenOff):
        upgrading.mark_members(options, break_off)
    done = upgrading.mark_members(options)
    # Not from the beginning, and nothing twice.
    assert seen[1] is not None
    assert done.marked == 12 - 8
    for chat in chats:
        for user in people:
            assert marks.is_marked(await position_row(old, chat, user))


async def test_newer_store_is_refused(direct: World, proxy: Proxy) -> None:
    await write(direct, version_write(schema_version.NEWEST + 1))
    try:
        with pytest.raises(StoreUnusable, match="release that upgraded it"):
            async with another(proxy):
                pass
    finally:
        await write(direct, version_write())


async def test_verify_finds_a_mark_that_is_wrong(direct: World) -> None:
    anna, ben = await direct.people(2)
    chat = await direct.group(anna, ben)
    assert isinstance(direct.engine, DynamoHarness)

    def faults() -> list[str]:
        assert isinstance(direct.engine, DynamoHarness)
        inspector = DynamoInspector(direct.engine.tables.options)
        try:
            pages = list(inspector.positions())
        finally:
            inspector.close()
        return [str(fault) for page in pages for fault in check_positions(page)]

    assert faults() == []
    await write(
        direct,
        rows.update(schema.POSITIONS, marks.position_key(chat, ben), f"REMOVE #{marks.MARK}"),
    )
    assert len(faults()) == 1


async def test_own_move_that_waits_is_stored_before_it_is_shown(direct: World) -> None:
    """Shown from memory alone, it went back for whoever asked another process next."""
    author, other = await direct.people(2)
    chat = await direct.direct(author, other)
    storage = direct.storage
    assert isinstance(storage, DynamoStorage)

    async def shown_to_members() -> Positions:
        [standing] = await storage.standings([chat])
        assert standing is not None
        return standing.positions[author]

    async def shown_in_the_list() -> Positions:
        page = await storage.chat_list(author, cursor=None, count_max=10)
        return page.items[0].positions

    for show in (shown_to_members, shown_in_the_list):
        head = await direct.send_many(chat, author, 2)
        assert storage._own_moves.all() == {(chat, author): Positions(head, head)}
        assert await show() == Positions(head, head)
        row = await position_row(direct, chat, author)
        assert row is not None
        assert values.positions_of(row) == Positions(head, head)
        assert len(storage._own_moves) == 0
