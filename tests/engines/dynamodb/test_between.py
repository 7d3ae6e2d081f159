"""What another process does between a read and the write, or between two reads, of one act.

The proxy holds one request of the act; meanwhile the other process acts; then it is let through.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import pytest

from tests.engines.dynamodb.conftest import Behind, another
from tests.support.dynamodb_proxy import Fate, Proxy
from tests.support.inspectors import verify_engine, violated
from tests.support.world import PLENTY, World
from tidewire.domain.access import cannot_add
from tidewire.domain.chats import CreateGroup, Role
from tidewire.domain.errors import Forbidden, NotAMember, StoreUnavailable
from tidewire.domain.events import ChatClosed
from tidewire.domain.ids import ChatId, MessageId, UserId
from tidewire.domain.messages import Appended
from tidewire.engines.dynamodb import schema
from tidewire.engines.dynamodb.creation import MEMBERS_PER_TRANSACTION_MAX
from tidewire.engines.dynamodb.database import Wanted
from tidewire.engines.dynamodb.rows import Row
from tidewire.ports.storage import Storage

pytestmark = pytest.mark.slow
"""Each waits for several requests."""

Result = TypeVar("Result")


async def between(
    proxy: Proxy,
    operation: str,
    table: str,
    act: Coroutine[Any, Any, Result],
    meanwhile: Callable[[], Awaitable[object]],
) -> Result:
    """Carry out an act, and something else while one request of it is held."""
    hold = asyncio.Event()
    rule = proxy.rule(operation, Fate.PASS, table=table, hold=hold)
    task = asyncio.create_task(act)
    async with asyncio.timeout(20):
        await rule.seen.wait()
        await meanwhile()
        hold.set()
        return await task


# Reading: membership is looked at after what is shown was read (E7).

Look = Callable[[Storage, UserId, ChatId, MessageId], Coroutine[Any, Any, object]]

LOOKS: dict[str, tuple[str, str, Look]] = {
    "sync": (
        "Query",
        "_messages",
        lambda store, reader, chat, _: store.messages_after(
            reader, chat, 0, count_max=9, bytes_max=PLENTY
        ),
    ),
    "history": (
        "Query",
        "_messages",
        lambda store, reader, chat, _: store.messages_before(
            reader, chat, None, count_max=9, bytes_max=PLENTY
        ),
    ),
    "a message": (
        "GetItem",
        "_messages",
        lambda store, reader, chat, message: store.message(reader, chat, message),
    ),
    "members": (
        "Query",
        "_chat_memberships",
        lambda store, reader, chat, _: store.members(reader, chat, after=None, count_max=9),
    ),
    "delivery": (
        "GetItem",
        "_messages",
        lambda store, reader, chat, _: store.delivery_status(reader, chat, None),
    ),
}


@pytest.mark.parametrize(("operation", "table", "look"), LOOKS.values(), ids=LOOKS)
async def test_member_removed_while_a_page_is_read_is_shown_nothing(
    direct: World, behind: Behind, proxy: Proxy, operation: str, table: str, look: Look
) -> None:
    anna, ben = await direct.people(2)
    chat = await direct.group(anna, ben)
    message = (await direct.send(chat, anna)).message_id

    async def remove() -> None:
        await direct.remove(anna, chat, ben)
        # What is written after the removal must not be on the page either.
        await direct.send(chat, anna, "about Ben")

    with pytest.raises(NotAMember):
        await between(proxy, operation, table, look(behind.storage, ben, chat, message), remove)


# Adding: fenced by the head (E8).


async def test_joiner_owes_nothing_that_was_sent_while_being_added(
    direct: World, behind: Behind, proxy: Proxy
) -> None:
    anna, ben = await direct.people(2)
    chat = await direct.group(anna)
    await direct.send(chat, anna)
    member = await between(
        proxy,
        "TransactWriteItems",
        "_chat_memberships",
        behind.storage.add_member(anna, chat, ben, Role.MEMBER, members_max=5, now_ms=direct.now()),
        lambda: direct.send_many(chat, anna, 3),
    )
    assert member.joined_sequence == 4
    assert (await direct.members(anna, chat))[ben].joined_sequence == 4
    assert (await direct.entry(ben, chat)).unread == 0


# Ticks: bounded by the head that was read first (E9).


async def test_boundary_is_never_above_the_head_that_it_is_told_with(
    direct: World, behind: Behind, proxy: Proxy
) -> None:
    anna, ben = await direct.people(2)
    chat = await direct.direct(anna, ben)
    await direct.send(chat, anna)

    async def go_on() -> None:
        await direct.send(chat, anna)
        for user_id in (anna, ben):
            await direct.read(user_id, chat, 2)

    [floors] = await between(
        proxy, "BatchGetItem", "_delivery_state", behind.storage.floors([chat]), go_on
    )
    assert floors is not None
    assert floors.head == 1
    for lowest in (floors.delivered, floors.read):
        for viewer in (anna, ben):
            assert lowest.boundary(viewer, floors.head) == 1


# A block that comes between (A12).


async def test_block_while_being_added_keeps_out(
    direct: World, behind: Behind, proxy: Proxy
) -> None:
    anna, ben = await direct.people(2)
    chat = await direct.group(anna)
    with pytest.raises(Forbidden, match=str(cannot_add())):
        await between(
            proxy,
            "TransactWriteItems",
            "_chat_memberships",
            behind.storage.add_member(
                anna, chat, ben, Role.MEMBER, members_max=5, now_ms=direct.now()
            ),
            lambda: direct.storage.block(ben, anna, now_ms=direct.now()),
        )
    assert list(await direct.members(anna, chat)) == [anna]


@pytest.mark.parametrize("count", [3, MEMBERS_PER_TRANSACTION_MAX + 5])
async def test_block_while_a_group_is_made_ends_it_unseen(
    direct: World, behind: Behind, proxy: Proxy, count: int
) -> None:
    anna, *others = await direct.people(count)
    command = CreateGroup(
        chat_id=direct.no_chat(), actor_id=anna, name="team", member_ids=tuple(others)
    )
    with pytest.raises(Forbidden, match=str(cannot_add())):
        await between(
            proxy,
            "TransactWriteItems",
            "_chat_memberships",
            behind.storage.create_group(command, members_max=200, now_ms=direct.now()),
            lambda: direct.storage.block(others[0], anna, now_ms=direct.now()),
        )
    assert behind.events == []
    assert await direct.storage.roster(command.chat_id) is None
    for user_id in (anna, *others):
        digest = await direct.storage.digest(user_id, after=None, count_max=9)
        assert list(digest.entries) == []
    assert violated(verify_engine(direct.engine)) == []


# A close that breaks off (B6).


async def test_close_that_broke_off_has_closed_and_is_finished_by_the_next(
    direct: World, proxy: Proxy
) -> None:
    anna, ben = await direct.people(2)
    chat = await direct.group(anna, ben)
    await direct.send(chat, anna)
    async with another(proxy, attempt_ms=600, budget_ms=1_600) as hasty:
        rule = proxy.rule("TransactWriteItems", Fate.DROP, times=99, table="_user_chats")
        with pytest.raises(StoreUnavailable):
            await hasty.storage.close_group(anna, chat, now_ms=direct.now())
        rule.times = 0
        assert isinstance(hasty.events[-1], ChatClosed)
    assert await direct.storage.roster(chat) is None
    for user_id in (anna, ben):
        with pytest.raises(NotAMember):
            await direct.messages(user_id, chat)
    assert violated(verify_engine(direct.engine)) == []
    with pytest.raises(NotAMember):
        await direct.close_group(ben, chat)
    direct.new_events()
    await direct.close_group(anna, chat)
    assert direct.new_events() == [], "it was told when it happened"
    with pytest.raises(NotAMember):
        await direct.close_group(anna, chat)


# Appending: rows that are read together are not of one instant.


async def test_counter_that_was_read_before_the_head_is_not_taken_for_a_lost_one(
    direct: World, behind: Behind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the two another process moved it ahead and committed: it is below the head only as
    it was seen."""
    anna, ben = await direct.people(2)
    chat = await direct.direct(anna, ben)
    database = behind.storage._database
    get_many = database.get_many
    is_overtaken = False

    async def get_in_parts(wanted: Sequence[Wanted]) -> list[Row | None]:
        nonlocal is_overtaken
        if is_overtaken or not any(table == schema.COUNTERS for table, _ in wanted):
            return await get_many(wanted)
        first = [one for one in wanted if one[0] == schema.COUNTERS]
        found = await get_many(first)
        is_overtaken = True
        for _ in range(3):
            await direct.send(chat, ben)
        rest = iter(await get_many([one for one in wanted if one not in first]))
        early = iter(found)
        return [next(early) if one in first else next(rest) for one in wanted]

    monkeypatch.setattr(database, "get_many", get_in_parts)
    [outcome] = await behind.storage.append([direct.draft(chat, anna)], now_ms=direct.now())
    assert isinstance(outcome, Appended), outcome
    assert (outcome.sequence, is_overtaken) == (4, True)
