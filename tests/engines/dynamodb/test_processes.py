"""Several stores on the same tables, as several processes are: one order, whoever writes."""

import asyncio
import re
from collections.abc import AsyncIterator
from random import Random

import pytest

from tests.engines.dynamodb.conftest import Behind, another
from tests.support.dynamodb_proxy import Fate, Proxy
from tests.support.inspectors import verify_engine, violated
from tests.support.outcomes import chained, describe
from tests.support.world import World
from tidewire.domain.chats import CreateGroup
from tidewire.domain.errors import Forbidden, NotAMember, StoreUnavailable
from tidewire.domain.events import ChatCreated, MessageAppended
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.messages import Appended
from tidewire.engines.dynamodb import rows
from tidewire.engines.dynamodb.backoff import PACES, Hindrance
from tidewire.engines.dynamodb.creation import MEMBERS_PER_TRANSACTION_MAX
from tidewire.engines.dynamodb.entries import KEY_LIFE_SECONDS

pytestmark = pytest.mark.slow
"""They race, and wait for each other."""

PATIENT = {"attempt_ms": 20_000, "budget_ms": 50_000}
"""Here nothing is lost: whatever takes long is the machine."""


@pytest.fixture
async def stores(direct: World, proxy: Proxy) -> AsyncIterator[list[Behind]]:
    async with another(proxy, **PATIENT) as one, another(proxy, **PATIENT) as other:
        yield [one, other]


async def write(store: Behind, world: World, chat: ChatId, sender: UserId, rounds: int) -> None:
    random = Random(sender)
    for _ in range(rounds):
        drafts = [world.draft(chat, sender) for _ in range(random.randint(1, 3))]
        outcomes = await store.storage.append(drafts, now_ms=world.now())
        assert all(isinstance(outcome, Appended) for outcome in outcomes), outcomes


async def write_at_once(direct: World, stores: list[Behind]) -> None:
    anna, ben = await direct.people(2)
    chat = await direct.direct(anna, ben)
    await asyncio.gather(
        *(
            write(store, direct, chat, user, 8)
            for store, user in zip(stores, (anna, ben), strict=True)
        )
    )
    stored = await direct.engine.messages(chat)
    assert chained(stored)
    told = [e.message for store in stores for e in store.events if isinstance(e, MessageAppended)]
    assert sorted(told, key=lambda message: message.sequence) == stored
    assert (await direct.chat(anna, chat)).head == stored[-1].sequence


async def test_two_processes_writing_into_one_chat_make_one_chain(
    direct: World, stores: list[Behind]
) -> None:
    await write_at_once(direct, stores)
    assert sum(store.storage.counts.fences_failed for store in stores) > 0
    assert violated(verify_engine(direct.engine)) == []


async def test_chain_turns_red_without_the_fence(
    direct: World, stores: list[Behind], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same with a commit that does not care where the head stands."""

    def unfenced(table: str, key: object, change: str, **more: object) -> rows.Write:
        if table == "chats":
            is_condition = re.compile(r"condition|was_.*").fullmatch
            more = {name: value for name, value in more.items() if not is_condition(name)}
        return update(table, key, change, **more)  # type: ignore[arg-type]

    update = rows.update
    monkeypatch.setattr(rows, "update", unfenced)
    with pytest.raises((AssertionError, StoreUnavailable)):
        await write_at_once(direct, stores)


async def test_nobody_writes_after_his_removal_by_another_process(
    direct: World, stores: list[Behind]
) -> None:
    anna, ben = await direct.people(2)
    chat = await direct.group(anna, ben)

    begun = asyncio.Event()

    async def flood() -> int:
        count = 0
        while True:
            draft = direct.draft(chat, ben)
            [outcome] = await stores[0].storage.append([draft], now_ms=direct.now())
            if isinstance(outcome, NotAMember):
                return count
            count += 1
            begun.set()

    async def throw_out() -> int:
        await begun.wait()
        await stores[1].storage.remove_member(anna, chat, ben, now_ms=direct.now())
        # What is stored when the removal is answered is all there will ever be.
        return len(await direct.engine.messages(chat))

    count, at_removal = await asyncio.gather(flood(), throw_out())
    assert count == at_removal == len(await direct.engine.messages(chat))


async def test_block_by_another_process_stops_the_blocked_one_at_once(
    direct: World, stores: list[Behind]
) -> None:
    anna, ben = await direct.people(2)
    chat = await direct.direct(anna, ben)
    await stores[0].storage.append([direct.draft(chat, ben)], now_ms=direct.now())
    await stores[1].storage.block(anna, ben, now_ms=direct.now())
    draft = direct.draft(chat, ben)
    [outcome] = await stores[0].storage.append([draft], now_ms=direct.now())
    assert isinstance(outcome, Forbidden)


async def test_key_that_has_expired_counts_as_absent(direct: World) -> None:
    """The row is still there: DynamoDB deletes days late."""
    anna, ben = await direct.people(2)
    chat = await direct.direct(anna, ben)
    key = direct.key()
    now_ms = direct.now()
    for later_s, expected in (
        (0, "stored 1 after 0"),
        (KEY_LIFE_SECONDS - 2, "again 1 after 0"),
        (KEY_LIFE_SECONDS + 1, "stored 2 after 1"),
        (KEY_LIFE_SECONDS + 2, "again 2 after 1"),
    ):
        draft = direct.draft(chat, anna, "once", key=key)
        outcomes = await direct.storage.append([draft], now_ms=now_ms + later_s * 1000)
        assert describe(outcomes) == [expected]


async def test_large_group_is_invisible_until_it_is_whole_and_a_retry_finishes_it(
    direct: World, proxy: Proxy
) -> None:
    """M-03: the first process dies between two transactions."""
    owner, *others = await direct.people(MEMBERS_PER_TRANSACTION_MAX + 2)
    command = CreateGroup(chat_id=direct.no_chat(), actor_id=owner, name="all", member_ids=others)
    async with another(proxy, attempt_ms=1_000, budget_ms=4_000) as dying:
        # The list is stored and some members are; the rest never gets through.
        proxy.rule("TransactWriteItems", Fate.PASS, times=2)
        blocked = proxy.rule("TransactWriteItems", Fate.UNAVAILABLE, times=100)
        with pytest.raises(StoreUnavailable):
            await dying.storage.create_group(command, members_max=1000, now_ms=direct.now())
        assert 100 - blocked.times == PACES[Hindrance.LOST].tries + 1
        assert dying.events == []
    for user in (owner, others[0], others[-1]):
        assert (await direct.storage.digest(user, after=None, count_max=5)).entries == []
        assert (await direct.storage.chat_list(user, cursor=None, count_max=5)).items == []
        assert isinstance(await direct.try_send(command.chat_id, user), NotAMember)
        with pytest.raises(NotAMember):
            await direct.storage.access_chat(user, command.chat_id)
    assert await direct.storage.roster(command.chat_id) is None
    assert not await direct.storage.share_group(owner, others[0])
    direct.new_commits()
    created = await direct.storage.create_group(command, members_max=1000, now_ms=direct.now())
    assert created.chat.member_count == len(others) + 1
    assert set(await direct.members(owner, command.chat_id)) == {owner, *others}
    assert [type(event) for event in direct.new_events()] == [ChatCreated]
    again = await direct.storage.create_group(command, members_max=1000, now_ms=direct.now())
    assert not again.created
    assert violated(verify_engine(direct.engine)) == []
