"""Appending without reading first: what a process knows may be old, and then nothing goes wrong."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.engines.dynamodb.conftest import Behind, another
from tests.engines.dynamodb.looks import TRANSACT, append, row_of, store_of
from tests.support.dynamodb_proxy import Fate, Proxy
from tests.support.inspectors import verify_engine, violated
from tests.support.outcomes import chained, describe
from tests.support.world import World
from tidewire.domain.delivery import Advance, Positions
from tidewire.domain.errors import CounterMissing, Forbidden, NotAMember, StoreUnavailable
from tidewire.domain.events import MessageAppended
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.messages import Appended
from tidewire.engines.dynamodb import authors, schema, tails
from tidewire.engines.dynamodb.numbers import AHEAD_MAX

pytestmark = pytest.mark.slow

PATIENT = {"attempt_ms": 20_000, "budget_ms": 50_000}


@pytest.fixture
async def stores(direct: World, proxy: Proxy) -> AsyncIterator[list[Behind]]:
    async with another(proxy, **PATIENT) as one, another(proxy, **PATIENT) as other:
        yield [one, other]


async def warm(behind: Behind, world: World, chat: ChatId, sender: UserId, count: int = 4) -> None:
    """Let a store write so often that it knows the end of the chat and has numbers left."""
    for _ in range(count):
        [outcome] = await append(behind, world, world.draft(chat, sender))
        assert isinstance(outcome, Appended)


async def a_pair(world: World) -> tuple[ChatId, UserId, UserId]:
    anna, ben = await world.people(2)
    return await world.direct(anna, ben), anna, ben


async def test_append_into_a_chat_whose_end_is_known_is_one_request(
    direct: World, behind: Behind, proxy: Proxy
) -> None:
    chat, anna, _ = await a_pair(direct)
    await warm(behind, direct, chat, anna)
    proxy.operations.clear()
    assert describe(await append(behind, direct, direct.draft(chat, anna))) == ["stored 5 after 4"]
    assert proxy.operations == [TRANSACT]


async def test_counter_is_moved_ahead_seldom_in_a_busy_chat(
    direct: World, behind: Behind, proxy: Proxy
) -> None:
    chat, anna, _ = await a_pair(direct)
    proxy.operations.clear()
    await warm(behind, direct, chat, anna, 60)
    # 1, 10, 20 and 40 numbers.
    assert proxy.operations.count("UpdateItem") == 4
    assert [one.sequence for one in await direct.engine.messages(chat)] == [*range(1, 61)]


# Two writers.


@pytest.mark.parametrize("is_told", [True, False], ids=["told", "not told"])
async def test_two_writers_in_turns_leave_no_number_unused(
    direct: World, stores: list[Behind], is_told: bool
) -> None:
    chat, *people = await a_pair(direct)
    for index in range(40):
        store, other = stores[index % 2], stores[1 - index % 2]
        [outcome] = await append(store, direct, direct.draft(chat, people[index % 2]))
        assert isinstance(outcome, Appended)
        if is_told:
            other.storage.heard_head(chat, outcome.sequence, 1)
    stored = await direct.engine.messages(chat)
    assert [one.sequence for one in stored] == [*range(1, 41)]
    assert chained(stored)
    told = [e.message for store in stores for e in store.events if isinstance(e, MessageAppended)]
    assert sorted(told, key=lambda message: message.sequence) == stored
    assert violated(verify_engine(direct.engine)) == []
    failed = sum(store.storage.counts.fences_failed for store in stores)
    assert failed == 0 if is_told else failed > 0


async def test_writers_at_once_leave_no_number_unused(direct: World, stores: list[Behind]) -> None:
    """A loser's number is not lost: the fence decides who gets it."""
    chat, *people = await a_pair(direct)

    async def write(store: Behind, sender: UserId) -> None:
        for _ in range(15):
            [outcome] = await append(store, direct, direct.draft(chat, sender))
            assert isinstance(outcome, Appended)

    await asyncio.gather(*map(write, stores, people))
    stored = await direct.engine.messages(chat)
    assert chained(stored)
    assert [one.sequence for one in stored] == [*range(1, 31)]
    counts = [store.storage.counts for store in stores]
    assert sum(one.sequences_skipped for one in counts) == 0


# The counter.


async def test_counter_that_is_missing_is_noticed_when_the_numbers_are_used_up(
    direct: World, behind: Behind
) -> None:
    chat, anna, _ = await a_pair(direct)
    await warm(behind, direct, chat, anna, 130)
    await direct.engine.drop_counter(chat)
    written = 0
    while True:
        [outcome] = await append(behind, direct, direct.draft(chat, anna))
        if not isinstance(outcome, Appended):
            break
        written += 1
    assert isinstance(outcome, CounterMissing)
    assert 0 < written <= AHEAD_MAX
    assert chained(await direct.engine.messages(chat))
    assert await direct.engine.counter(chat) is None


async def test_counter_that_is_missing_is_noticed_after_a_while(
    direct: World, behind: Behind, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat, anna, _ = await a_pair(direct)
    await warm(behind, direct, chat, anna)
    await direct.engine.drop_counter(chat)
    assert describe(await append(behind, direct, direct.draft(chat, anna))) == ["stored 5 after 4"]
    monkeypatch.setattr(tails, "SEEN_SECONDS", 0.0)
    assert describe(await append(behind, direct, direct.draft(chat, anna))) == ["CounterMissing"]


async def test_numbers_of_a_process_that_died_before_its_commit_are_used_by_the_next(
    direct: World, proxy: Proxy
) -> None:
    chat, anna, ben = await a_pair(direct)
    async with another(proxy) as dying:
        rule = proxy.rule(TRANSACT, Fate.UNAVAILABLE, times=100)
        with pytest.raises(StoreUnavailable):
            await append(dying, direct, direct.draft(chat, anna))
        rule.times = 0
    assert await direct.engine.counter(chat) == 1
    answer = await direct.send(chat, ben)
    assert (answer.sequence, answer.prev_sequence) == (1, 0)
    assert await direct.engine.counter(chat) == 1


async def test_jump_of_the_counter_is_not_filled_up(direct: World, behind: Behind) -> None:
    """A recovery, or a restore, jumps because numbers below may have been used (P-02)."""
    chat, anna, ben = await a_pair(direct)
    await warm(behind, direct, chat, anna)
    await direct.engine.set_counter(chat, 10_000)
    answer = await direct.send(chat, ben)
    assert (answer.sequence, answer.prev_sequence) == (10_001, 4)
    # This one has numbers left from before; the fence tells it where the chat has gone.
    outcomes = await append(behind, direct, direct.draft(chat, anna))
    assert describe(outcomes) == ["stored 10002 after 10001"]


# What has changed since.


@pytest.mark.parametrize("is_told", [True, False], ids=["told", "not told"])
async def test_key_that_comes_again_through_another_gateway_is_answered(
    direct: World, stores: list[Behind], is_told: bool
) -> None:
    chat, anna, _ = await a_pair(direct)
    one, other = stores
    await warm(other, direct, chat, anna)
    key = direct.key()
    first = describe(await append(one, direct, direct.draft(chat, anna, "once", key=key)))
    assert first == ["stored 5 after 4"]
    if is_told:
        other.storage.heard_head(chat, 5, 1)
    again = describe(await append(other, direct, direct.draft(chat, anna, "once", key=key)))
    assert again == ["again 5 after 4"]
    reused = describe(await append(other, direct, direct.draft(chat, anna, "other", key=key)))
    assert reused == ["KeyReused"]
    assert len(await direct.engine.messages(chat)) == 5


async def test_batch_with_a_key_that_is_stored_keeps_its_other_sends(
    direct: World, behind: Behind
) -> None:
    chat, anna, _ = await a_pair(direct)
    await warm(behind, direct, chat, anna, 6)
    key = direct.key()
    await append(behind, direct, direct.draft(chat, anna, "once", key=key))
    drafts = [direct.draft(chat, anna), direct.draft(chat, anna, "once", key=key)]
    assert describe(await append(behind, direct, *drafts)) == [
        "stored 8 after 7",
        "again 7 after 6",
    ]


async def test_member_who_was_removed_meanwhile_is_refused_by_the_fence(
    direct: World, behind: Behind
) -> None:
    anna, ben = await direct.people(2)
    chat = await direct.group(anna, ben)
    await warm(behind, direct, chat, ben)
    await direct.remove(anna, chat, ben)
    [outcome] = await append(behind, direct, direct.draft(chat, ben))
    assert isinstance(outcome, NotAMember)
    assert behind.storage.counts.fences_failed == 1
    assert len(await direct.engine.messages(chat)) == 4


async def test_only_who_was_overtaken_by_another_writer_is_told_so(
    direct: World, behind: Behind
) -> None:
    anna, ben = await direct.people(2)
    chat = await direct.group(anna, ben)
    # So that numbers are open until the end.
    await warm(behind, direct, chat, anna, 12)
    told: list[ChatId] = []
    behind.storage.on_overtaken = told.append
    # Nobody else writes: a key that comes again, and a member who goes.
    key = direct.key()
    await append(behind, direct, direct.draft(chat, anna, "once", key=key))
    await append(behind, direct, direct.draft(chat, anna, "once", key=key))
    await warm(behind, direct, chat, anna, 1)
    await direct.remove(anna, chat, ben)
    await append(behind, direct, direct.draft(chat, anna))
    assert behind.storage.counts.fences_failed == 2
    assert told == []
    await direct.send(chat, anna)
    await append(behind, direct, direct.draft(chat, anna))
    assert behind.storage.counts.fences_failed == 3
    assert told == [chat]


async def test_block_that_came_meanwhile_holds(direct: World, behind: Behind) -> None:
    chat, anna, ben = await a_pair(direct)
    await warm(behind, direct, chat, ben)
    await direct.storage.block(anna, ben, now_ms=direct.now())
    [outcome] = await append(behind, direct, direct.draft(chat, ben))
    assert isinstance(outcome, Forbidden)


async def test_change_by_this_process_costs_no_commit(direct: World, behind: Behind) -> None:
    anna, ben = await direct.people(2)
    chat = await direct.group(anna, ben)
    await warm(behind, direct, chat, anna)
    await behind.storage.remove_member(anna, chat, ben, now_ms=direct.now())
    assert describe(await append(behind, direct, direct.draft(chat, anna))) == ["stored 5 after 4"]
    assert behind.storage.counts.fences_failed == 0


# Conflicts, faults, lost answers (G7).


async def test_conflict_is_followed_by_a_look_and_not_by_the_same_commit(
    direct: World, behind: Behind, proxy: Proxy
) -> None:
    chat, anna, ben = await a_pair(direct)
    await warm(behind, direct, chat, anna)
    await direct.send(chat, ben)
    proxy.rule(TRANSACT, Fate.CONFLICT)
    proxy.operations.clear()
    assert describe(await append(behind, direct, direct.draft(chat, anna))) == ["stored 6 after 5"]
    assert proxy.operations[:3] == [TRANSACT, "BatchGetItem", TRANSACT]
    assert proxy.operations.count(TRANSACT) == 2
    assert behind.storage.counts.conflicts == 1


async def test_who_meets_the_transaction_of_another_is_told_so(
    direct: World, behind: Behind, proxy: Proxy
) -> None:
    chat, anna, _ = await a_pair(direct)
    await warm(behind, direct, chat, anna)
    told: list[ChatId] = []
    behind.storage.on_overtaken = told.append
    proxy.rule(TRANSACT, Fate.CONFLICT, times=3)
    assert describe(await append(behind, direct, direct.draft(chat, anna))) == ["stored 5 after 4"]
    assert behind.storage.counts.conflicts == 3
    assert told == [chat] * 3


@pytest.mark.parametrize("fate", [Fate.FAIL, Fate.SWALLOW, Fate.UNAVAILABLE])
async def test_commit_without_an_answer_is_asked_for_again_under_the_same_token(
    direct: World, behind: Behind, proxy: Proxy, fate: Fate
) -> None:
    """Under another token the second try would meet the key and the head of the first."""
    chat, anna, _ = await a_pair(direct)
    await warm(behind, direct, chat, anna)
    proxy.rule(TRANSACT, fate)
    proxy.operations.clear()
    assert describe(await append(behind, direct, direct.draft(chat, anna))) == ["stored 5 after 4"]
    assert proxy.operations == [TRANSACT, TRANSACT]
    assert behind.storage.counts.fences_failed == 0
    assert len(await direct.engine.messages(chat)) == 5


async def test_chat_is_read_after_a_commit_whose_end_is_not_known(
    direct: World, proxy: Proxy
) -> None:
    chat, anna, _ = await a_pair(direct)
    async with another(proxy, attempt_ms=1_000, budget_ms=1_900) as behind:
        await warm(behind, direct, chat, anna)
        rule = proxy.rule(TRANSACT, Fate.SWALLOW, times=100)
        with pytest.raises(StoreUnavailable):
            await append(behind, direct, direct.draft(chat, anna))
        rule.times = 0
        outcomes = await append(behind, direct, direct.draft(chat, anna))
        assert describe(outcomes) == ["stored 6 after 5"]
        assert behind.storage.counts.fences_failed == 0


# The author's own positions.


async def stored_positions(world: World, chat: ChatId, user: UserId) -> Positions:
    row = await row_of(world, schema.POSITIONS, {"user_id": user, "chat_id": chat})
    assert row is not None
    return Positions(row["last_acked_sequence"], row["last_read_sequence"])


async def test_own_move_is_written_with_the_next_acknowledgement(
    direct: World, behind: Behind, proxy: Proxy
) -> None:
    chat, anna, ben = await a_pair(direct)
    await warm(behind, direct, chat, anna, 2)
    assert await stored_positions(direct, chat, anna) == Positions(0, 0)
    answer = await direct.send(chat, ben)
    behind.storage.heard_head(chat, answer.sequence, 1)
    proxy.operations.clear()
    wish = Advance(user_id=anna, chat_id=chat, delivered=3)
    await behind.storage.advance([wish], now_ms=direct.now())
    assert proxy.operations == ["UpdateItem"]
    assert await stored_positions(direct, chat, anna) == Positions(3, 2)


async def test_own_move_is_written_when_it_was_acknowledged_itself(
    direct: World, behind: Behind, proxy: Proxy
) -> None:
    chat, anna, _ = await a_pair(direct)
    await warm(behind, direct, chat, anna, 2)
    proxy.operations.clear()
    wish = Advance(user_id=anna, chat_id=chat, delivered=2)
    [outcome] = await behind.storage.advance([wish], now_ms=direct.now())
    assert proxy.operations == ["UpdateItem"]
    assert await stored_positions(direct, chat, anna) == Positions(2, 2)
    assert outcome == await direct.ack(anna, chat, 2)


async def test_own_move_is_kept_where_the_row_has_gone_further_in_part(
    direct: World, behind: Behind
) -> None:
    chat, anna, ben = await a_pair(direct)
    await warm(behind, direct, chat, anna, 2)
    await direct.send(chat, ben)
    await direct.ack(anna, chat, 3)
    assert await stored_positions(direct, chat, anna) == Positions(3, 0)
    await behind.storage.advance(
        [Advance(user_id=anna, chat_id=chat, delivered=2)], now_ms=direct.now()
    )
    assert await stored_positions(direct, chat, anna) == Positions(3, 2)


async def test_own_moves_are_written_after_a_while_and_at_the_end(
    direct: World, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat, anna, ben = await a_pair(direct)
    other = await direct.direct(anna, (await direct.people(1))[0])
    async with another(proxy) as behind:
        monkeypatch.setattr(authors, "WAIT_S", 0.01)
        monkeypatch.setattr("tidewire.engines.dynamodb.own_moves.WAIT_S", 0.01)
        written = proxy.rule("UpdateItem", Fate.PASS, table="delivery_state")
        await warm(behind, direct, chat, anna, 1)
        await asyncio.wait_for(written.seen.wait(), 10)
        monkeypatch.setattr("tidewire.engines.dynamodb.own_moves.WAIT_S", 100.0)
        await warm(behind, direct, other, anna, 1)
    assert await stored_positions(direct, chat, anna) == Positions(1, 1)
    assert await stored_positions(direct, other, anna) == Positions(1, 1)
    assert await stored_positions(direct, chat, ben) == Positions(0, 0)


async def test_own_move_of_a_member_who_was_removed_is_not_written(
    direct: World, proxy: Proxy
) -> None:
    anna, ben = await direct.people(2)
    chat = await direct.group(anna, ben)
    async with another(proxy) as behind:
        await warm(behind, direct, chat, ben, 1)
        await direct.remove(anna, chat, ben)
    assert await stored_positions(direct, chat, ben) == Positions(0, 0)
    assert store_of(direct).counts.author_moves_lost == 0
