"""What a real DynamoDB does and DynamoDB Local does not: a proxy does it (tests/support).

Every unknown outcome must end in the stored answer, and never in a second message.
"""

import asyncio

import pytest

from tests.engines.dynamodb.conftest import Behind, another
from tests.support.dynamodb_proxy import Fate, Proxy
from tests.support.outcomes import chained, describe
from tests.support.world import World, taken
from tidewire.domain.chats import Role
from tidewire.domain.delivery import Advance, Advanced, Positions
from tidewire.domain.errors import NotAMember, StoreUnavailable
from tidewire.domain.events import MessageAppended
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.messages import SendMessage
from tidewire.engines.dynamodb.backoff import PACES, Hindrance
from tidewire.engines.dynamodb.storage import DynamoStorage

TRANSACT = "TransactWriteItems"
pytestmark = pytest.mark.slow
"""Answers are waited for until they are given up."""


async def a_pair(world: World) -> tuple[ChatId, UserId, UserId]:
    anna, ben = await world.people(2)
    return await world.direct(anna, ben), anna, ben


async def append(behind: Behind, world: World, *drafts: SendMessage) -> list[str]:
    return describe(await behind.storage.append(drafts, now_ms=world.now()))


@pytest.mark.parametrize(
    ("fate", "kind"),
    [(Fate.THROTTLE, Hindrance.THROTTLED), (Fate.CONFLICT, Hindrance.CONFLICT)],
)
async def test_append_goes_through_after_a_few_refusals(
    direct: World, behind: Behind, proxy: Proxy, fate: Fate, kind: Hindrance
) -> None:
    chat, anna, _ = await a_pair(direct)
    proxy.rule(TRANSACT, fate, times=2)
    assert await append(behind, direct, direct.draft(chat, anna)) == ["stored 1 after 0"]
    counts = behind.storage.counts
    assert (counts.throttled, counts.conflicts) == (
        (2, 0) if kind is Hindrance.THROTTLED else (0, 2)
    )


@pytest.mark.parametrize(
    ("fate", "kind"),
    [(Fate.THROTTLE, Hindrance.THROTTLED), (Fate.CONFLICT, Hindrance.CONFLICT)],
)
async def test_append_gives_up_at_the_bound_and_has_written_nothing(
    direct: World, behind: Behind, proxy: Proxy, fate: Fate, kind: Hindrance
) -> None:
    chat, anna, _ = await a_pair(direct)
    rule = proxy.rule(TRANSACT, fate, times=100)
    with pytest.raises(StoreUnavailable):
        await append(behind, direct, direct.draft(chat, anna))
    assert 100 - rule.times == PACES[kind].tries + 1
    rule.times = 0
    assert await direct.engine.messages(chat) == []
    # The number that was taken is the chat's, not the process's.
    assert await append(behind, direct, direct.draft(chat, anna)) == ["stored 1 after 0"]


async def test_append_gives_up_when_the_service_stays_unavailable(
    direct: World, behind: Behind, proxy: Proxy
) -> None:
    chat, anna, _ = await a_pair(direct)
    rule = proxy.rule(TRANSACT, Fate.UNAVAILABLE, times=100)
    with pytest.raises(StoreUnavailable, match="ServiceUnavailable"):
        await append(behind, direct, direct.draft(chat, anna))
    assert 100 - rule.times == PACES[Hindrance.LOST].tries + 1


async def test_append_whose_answer_is_lost_learns_that_it_was_stored(
    direct: World, behind: Behind, proxy: Proxy
) -> None:
    chat, anna, _ = await a_pair(direct)
    proxy.rule(TRANSACT, Fate.SWALLOW)
    assert await append(behind, direct, direct.draft(chat, anna)) == ["stored 1 after 0"]
    assert len(await direct.engine.messages(chat)) == 1
    assert [type(event) for event in behind.events] == [MessageAppended]
    assert behind.storage.counts.answers_lost >= 1


async def test_append_whose_answers_are_all_lost_is_answered_from_the_store_on_a_retry(
    direct: World, behind: Behind, proxy: Proxy
) -> None:
    chat, anna, _ = await a_pair(direct)
    key = direct.key()
    rule = proxy.rule(TRANSACT, Fate.SWALLOW, times=100)
    with pytest.raises(StoreUnavailable):
        await append(behind, direct, direct.draft(chat, anna, "once", key=key))
    rule.times = 0
    again = direct.draft(chat, anna, "once", key=key)
    assert await append(behind, direct, again) == ["again 1 after 0"]
    assert len(await direct.engine.messages(chat)) == 1


@pytest.mark.parametrize("is_removed", [False, True])
async def test_append_that_was_told_wrongly_that_it_failed_finds_its_own_commit(
    direct: World, behind: Behind, proxy: Proxy, is_removed: bool
) -> None:
    """The head stands inside our own range: answered from the keys, told once (decision 0015)."""
    anna, ben = await direct.people(2)
    chat = await direct.group(anna, ben)
    proxy.rule(TRANSACT, Fate.DENY)
    # The two reads before the commit pass; the one after it waits, so that he can be removed.
    proxy.rule("BatchGetItem", Fate.PASS, times=2)
    go = asyncio.Event()
    reading_again = proxy.rule("BatchGetItem", Fate.PASS, hold=go)
    drafts = [direct.draft(chat, ben) for _ in range(2)]
    appending = asyncio.ensure_future(append(behind, direct, *drafts))
    await reading_again.seen.wait()
    if is_removed:
        await direct.remove(anna, chat, ben)
    go.set()
    assert await appending == ["stored 1 after 0", "stored 2 after 1"]
    assert len(await direct.engine.messages(chat)) == 2
    told = [event for event in behind.events if isinstance(event, MessageAppended)]
    assert [event.message for event in told] == await direct.engine.messages(chat)


async def test_append_uses_the_numbers_of_a_counter_whose_answer_was_lost(
    direct: World, behind: Behind, proxy: Proxy
) -> None:
    chat, anna, _ = await a_pair(direct)
    proxy.rule("UpdateItem", Fate.SWALLOW, table="chat_counters")
    drafts = [direct.draft(chat, anna) for _ in range(2)]
    assert await append(behind, direct, *drafts) == ["stored 1 after 0", "stored 2 after 1"]
    assert await direct.engine.counter(chat) == 2
    assert chained(await direct.engine.messages(chat))


async def test_append_is_answered_when_only_the_authors_own_move_gets_lost(
    direct: World, behind: Behind, proxy: Proxy
) -> None:
    chat, anna, ben = await a_pair(direct)
    await direct.send(chat, ben)
    await direct.ack(anna, chat, 1)
    proxy.rule("UpdateItem", Fate.DROP, table="delivery_state", times=100)
    proxy.rule("GetItem", Fate.DROP, table="delivery_state", times=100)
    assert await append(behind, direct, direct.draft(chat, anna)) == ["stored 2 after 1"]
    assert behind.storage.counts.author_moves_lost == 1


async def test_author_moves_once_when_the_answer_is_lost(
    direct: World, behind: Behind, proxy: Proxy
) -> None:
    chat, anna, ben = await a_pair(direct)
    await direct.send(chat, ben)
    await direct.ack(anna, chat, 1)
    proxy.rule("UpdateItem", Fate.SWALLOW, table="delivery_state")
    assert await append(behind, direct, direct.draft(chat, anna)) == ["stored 2 after 1"]
    assert await direct.positions(anna, chat) == Positions(2, 2)


async def test_advance_whose_answer_is_lost_has_moved(
    direct: World, behind: Behind, proxy: Proxy
) -> None:
    chat, anna, ben = await a_pair(direct)
    await direct.send_many(chat, anna, 3)
    proxy.rule(TRANSACT, Fate.SWALLOW)
    advance = Advance(user_id=ben, chat_id=chat, delivered=3)
    [outcome] = await behind.storage.advance([advance], now_ms=direct.now())
    assert outcome == Advanced(Positions(3, 0), moved=True)


async def test_member_is_added_once_when_the_answer_is_lost(
    direct: World, behind: Behind, proxy: Proxy
) -> None:
    """The second try is told that the first one got through, and not that he is a member."""
    anna, ben = await direct.people(2)
    chat = await direct.group(anna)
    proxy.rule(TRANSACT, Fate.SWALLOW)
    member = await behind.storage.add_member(
        anna, chat, ben, Role.MEMBER, members_max=5, now_ms=direct.now()
    )
    assert member.user_id == ben
    assert (await direct.chat(anna, chat)).membership_version == 2


async def test_removal_between_the_check_and_the_commit_keeps_the_message_out(
    direct: World, behind: Behind, proxy: Proxy
) -> None:
    """M-05: the membership that was read in phase 0 is true at the commit, or nothing is stored."""
    anna, ben = await direct.people(2)
    chat = await direct.group(anna, ben)
    go = asyncio.Event()
    rule = proxy.rule(TRANSACT, Fate.PASS, hold=go)
    sending = asyncio.ensure_future(
        behind.storage.append([direct.draft(chat, ben)], now_ms=direct.now())
    )
    await rule.seen.wait()
    await direct.remove(anna, chat, ben)
    go.set()
    [outcome] = await sending
    assert isinstance(outcome, NotAMember)
    assert await direct.engine.messages(chat) == []
    assert behind.storage.counts.fences_failed == 1


async def test_append_that_was_overtaken_goes_behind(
    direct: World, behind: Behind, proxy: Proxy
) -> None:
    """Another process commits meanwhile, under the number that was taken here: none is lost."""
    chat, anna, ben = await a_pair(direct)
    go = asyncio.Event()
    rule = proxy.rule(TRANSACT, Fate.PASS, hold=go)
    sending = asyncio.ensure_future(
        behind.storage.append([direct.draft(chat, ben)], now_ms=direct.now())
    )
    await rule.seen.wait()
    overtaking = await direct.send(chat, anna)
    assert (overtaking.sequence, overtaking.prev_sequence) == (1, 0)
    go.set()
    [outcome] = await sending
    answer = taken(outcome)
    assert (answer.sequence, answer.prev_sequence) == (2, 1)
    assert chained(await direct.engine.messages(chat))
    # Behind a jump of the counter, the one that commits counts the numbers that stay unused.
    await direct.engine.set_counter(chat, 10)
    await direct.send(chat, anna)
    assert isinstance(direct.storage, DynamoStorage)
    assert direct.storage.counts.sequences_skipped == 8
    assert behind.storage.counts.sequences_skipped == 0


async def test_append_keeps_its_range_when_it_was_overtaken_from_below(
    direct: World, behind: Behind, proxy: Proxy
) -> None:
    """The one that took lower numbers commits first: same range, another predecessor."""
    chat, anna, ben = await a_pair(direct)
    go, go_below = asyncio.Event(), asyncio.Event()
    below = proxy.rule(TRANSACT, Fate.PASS, hold=go_below)
    first = asyncio.ensure_future(
        behind.storage.append([direct.draft(chat, anna, "below")], now_ms=direct.now())
    )
    await below.seen.wait()
    async with another(proxy) as other:
        above = proxy.rule(TRANSACT, Fate.PASS, hold=go)
        second = asyncio.ensure_future(
            other.storage.append([direct.draft(chat, ben, "above")], now_ms=direct.now())
        )
        await above.seen.wait()
        go_below.set()
        assert describe(await first) == ["stored 1 after 0"]
        go.set()
        assert describe(await second) == ["stored 2 after 1"]
        assert other.storage.counts.sequences_skipped == 0


async def test_store_that_does_not_answer_is_unavailable_within_its_budget(
    direct: World, proxy: Proxy
) -> None:
    chat, anna, _ = await a_pair(direct)
    async with another(proxy, attempt_ms=600, budget_ms=1_600) as store:
        rule = proxy.rule("BatchGetItem", Fate.DROP, times=100)
        with pytest.raises(StoreUnavailable):
            await append(store, direct, direct.draft(chat, anna))
        # Two whole attempts fit the budget and a third may begin. How long that takes by the
        # clock is the machine's affair: a busy one only does fewer.
        assert 1 <= 100 - rule.times <= 3
        rule.times = 0
        assert await append(store, direct, direct.draft(chat, anna)) == ["stored 1 after 0"]
