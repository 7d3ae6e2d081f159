"""Committed, but not to be seen yet: what queries and weak reads of a real DynamoDB show.

A query is only read-committed against transactions, so it may show a message and not the one before
it; a read that is not strong may show what was there before. The proxy does both for half a second.
Each guard is tried without itself as well (`mutated`): the test must then turn red.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.engines.dynamodb.conftest import Behind
from tests.support.dynamodb_proxy import Proxy
from tests.support.outcomes import chained, describe
from tests.support.world import PLENTY, World
from tidewire.domain.chats import CreateDirect, Role
from tidewire.domain.errors import NotAMember
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.messages import Message, MessagePage
from tidewire.engines.dynamodb import reading
from tidewire_bench.dynamodb_relay import Body

pytestmark = pytest.mark.slow
"""Half a second passes until everything can be seen."""


def hide(proxy: Proxy, *sequences: int) -> None:
    """Keep these messages out of query answers for a while after their commit."""
    numbers = {str(sequence) for sequence in sequences}

    def is_hidden(table: str, item: Body) -> bool:
        return table.endswith("_messages") and item["sequence"]["N"] in numbers

    proxy.withhold = is_hidden


async def a_pair(world: World) -> tuple[ChatId, UserId, UserId]:
    anna, ben = await world.people(2)
    return await world.direct(anna, ben), anna, ben


async def send(behind: Behind, world: World, chat: ChatId, sender: UserId, count: int) -> None:
    drafts = [world.draft(chat, sender) for _ in range(count)]
    outcomes = await behind.storage.append(drafts, now_ms=world.now())
    assert all("stored" in text for text in describe(outcomes))


async def synced(behind: Behind, reader: UserId, chat: ChatId) -> list[MessagePage]:
    """Everything, page by page as a client asks for it."""
    pages: list[MessagePage] = []
    cursor, has_more = 0, True
    while has_more:
        page = await behind.storage.messages_after(
            reader, chat, cursor, count_max=PLENTY, bytes_max=PLENTY
        )
        pages.append(page)
        cursor, has_more = page.synced_through, page.has_more
    return pages


def check_complete(pages: Sequence[MessagePage], count: int) -> None:
    found = [message for page in pages for message in page.messages]
    assert [message.sequence for message in found] == list(range(1, count + 1))
    assert chained(found)


def as_they_come(messages: Sequence[Message], _: int) -> list[Message]:
    """What the pages would be made of without the chain."""
    return list(messages)


@pytest.mark.parametrize("hidden", [(2,), (1,), (1, 3), (4,)])
async def test_sync_shows_no_message_before_the_one_it_follows(
    direct: World, behind: Behind, proxy: Proxy, hidden: tuple[int, ...]
) -> None:
    chat, anna, ben = await a_pair(direct)
    hide(proxy, *hidden)
    await send(behind, direct, chat, anna, 4)
    check_complete(await synced(behind, ben, chat), 4)


async def test_sync_turns_red_without_the_chain_cut(
    direct: World, behind: Behind, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "chained_after", as_they_come)
    chat, anna, ben = await a_pair(direct)
    hide(proxy, 2)
    await send(behind, direct, chat, anna, 4)
    with pytest.raises(AssertionError):
        check_complete(await synced(behind, ben, chat), 4)


async def test_sync_of_what_cannot_be_seen_yet_waits_for_it(
    direct: World, behind: Behind, proxy: Proxy
) -> None:
    """The only message of the page is hidden: the answer comes when it is there, not empty."""
    chat, anna, ben = await a_pair(direct)
    hide(proxy, 1)
    await send(behind, direct, chat, anna, 1)
    [page] = await synced(behind, ben, chat)
    assert [message.sequence for message in page.messages] == [1]


def hide_member(proxy: Proxy, user_id: UserId) -> None:
    """Keep a membership out of query answers for a while after its commit."""

    def is_hidden(table: str, item: Body) -> bool:
        return table.endswith("_chat_memberships") and item["user_id"]["S"] == user_id

    proxy.withhold = is_hidden


async def test_roster_has_a_member_whose_row_cannot_be_seen_yet(
    direct: World, behind: Behind, proxy: Proxy
) -> None:
    """Rosters are remembered by their version: one without the member would get no push."""
    anna, ben, cem = await direct.people(3)
    group = await direct.group(anna, ben)
    hide_member(proxy, cem)
    await behind.storage.add_member(
        anna, group, cem, Role.MEMBER, members_max=9, now_ms=direct.now()
    )
    roster = await behind.storage.roster(group)
    assert roster is not None
    assert set(roster.user_ids) == {anna, ben, cem}


async def test_direct_chat_is_listed_while_a_member_cannot_be_seen_yet(
    direct: World, behind: Behind, proxy: Proxy
) -> None:
    anna, ben = await direct.people(2)
    hide_member(proxy, ben)
    command = CreateDirect(chat_id=direct.ids.chat_id(direct.now()), actor_id=anna, other_id=ben)
    made = await behind.storage.create_direct(command, now_ms=direct.now())
    page = await behind.storage.chat_list(anna, cursor=None, count_max=5)
    [item] = page.items
    assert item.chat == made.chat
    assert item.other is not None
    assert item.other.user_id == ben


async def newest(behind: Behind, reader: UserId, chat: ChatId, before: int | None) -> list[int]:
    page = await behind.storage.messages_before(reader, chat, before, count_max=2, bytes_max=PLENTY)
    return [message.sequence for message in page.messages]


@pytest.mark.parametrize(
    ("hidden", "before", "allowed"),
    [
        (4, None, ([3, 4],)),
        (3, None, ([4], [3, 4])),
        (2, 4, ([3], [2, 3])),
        (3, 3, ([1, 2],)),
        (4, 3, ([1, 2],)),
    ],
)
async def test_history_is_a_whole_piece_below_its_end(
    direct: World,
    behind: Behind,
    proxy: Proxy,
    hidden: int,
    before: int | None,
    allowed: tuple[list[int], ...],
) -> None:
    chat, anna, ben = await a_pair(direct)
    hide(proxy, hidden)
    await send(behind, direct, chat, anna, 4)
    assert await newest(behind, ben, chat, before) in allowed


async def test_history_turns_red_without_the_chain_cut(
    direct: World, behind: Behind, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "chained_before", as_they_come)
    chat, anna, ben = await a_pair(direct)
    hide(proxy, 4)
    await send(behind, direct, chat, anna, 4)
    assert await newest(behind, ben, chat, None) == [2, 3]


async def test_sync_stays_complete_while_two_write_and_much_is_hidden(
    direct: World, behind: Behind, proxy: Proxy
) -> None:
    chat, anna, ben = await a_pair(direct)
    proxy.withhold_seconds = 0.1
    hide(proxy, *range(1, 60, 3))

    async def write(sender: UserId) -> None:
        for _ in range(6):
            await send(behind, direct, chat, sender, 3)

    async def read() -> list[Message]:
        found: list[Message] = []
        while len(found) < 36:
            page = await behind.storage.messages_after(
                ben, chat, found[-1].sequence if found else 0, count_max=5, bytes_max=PLENTY
            )
            found += page.messages
        return found

    found, *_ = await asyncio.gather(read(), write(anna), write(ben))
    assert chained(found)
    assert found == await direct.engine.messages(chat)


# Strong reads.


def read_weakly(behind: Behind, monkeypatch: pytest.MonkeyPatch, operation: str) -> None:
    """The engine with one kind of its reads not strong any more."""
    database = behind.storage._database
    call = database.call

    async def weak(name: str, **request: Any) -> dict[str, Any]:
        if name == operation:
            if "RequestItems" in request:
                tables = request["RequestItems"].items()
                request["RequestItems"] = {
                    table: asked | {"ConsistentRead": False} for table, asked in tables
                }
            else:
                request["ConsistentRead"] = False
        return await call(name, **request)

    monkeypatch.setattr(database, "call", weak)


STALE_S = 10.0
"""Longer than a story takes on a busy machine: a weak read is then stale for certain."""


async def removed_member_reads(direct: World, behind: Behind, proxy: Proxy) -> None:
    """Contract-facts 1.6: membership is read strongly. From his removal on he sees nothing."""
    anna, ben = await direct.people(2)
    chat = await direct.group(anna, ben)
    await direct.send(chat, anna)
    proxy.stale_seconds = STALE_S
    await behind.storage.remove_member(anna, chat, ben, now_ms=direct.now())
    with pytest.raises(NotAMember):
        await behind.storage.messages_after(ben, chat, 0, count_max=9, bytes_max=PLENTY)


async def new_message_is_read(direct: World, behind: Behind, proxy: Proxy) -> None:
    """The head of a sync is read strongly: what was acknowledged is shown."""
    chat, anna, ben = await a_pair(direct)
    proxy.stale_seconds = STALE_S
    await send(behind, direct, chat, anna, 1)
    assert [len(page.messages) for page in await synced(behind, ben, chat)] == [1]


async def removed_member_sends(direct: World, behind: Behind, proxy: Proxy) -> None:
    """The head row and the memberships of phase 0: a removal is seen at once. (Without, the fence
    would still keep the message out, but only time would end the attempts.)"""
    anna, ben = await direct.people(2)
    chat = await direct.group(anna, ben)
    await direct.send(chat, ben)
    proxy.stale_seconds = STALE_S
    await behind.storage.remove_member(anna, chat, ben, now_ms=direct.now())
    before = behind.storage.counts.fences_failed
    [outcome] = await behind.storage.append([direct.draft(chat, ben)], now_ms=direct.now())
    assert isinstance(outcome, NotAMember)
    assert behind.storage.counts.fences_failed == before


async def retry_is_answered(direct: World, behind: Behind, proxy: Proxy) -> None:
    """A key is found at once (P-06): no number is taken for a retry."""
    chat, anna, _ = await a_pair(direct)
    proxy.stale_seconds = STALE_S
    key = direct.key()
    for expected in ("stored 1 after 0", "again 1 after 0"):
        draft = direct.draft(chat, anna, "once", key=key)
        outcomes = await behind.storage.append([draft], now_ms=direct.now())
        assert describe(outcomes) == [expected]
    assert await direct.engine.counter(chat) == 1
    assert behind.storage.counts.fences_failed == 0


async def new_member_is_in_the_roster(direct: World, behind: Behind, proxy: Proxy) -> None:
    anna, ben = await direct.people(2)
    chat = await direct.group(anna)
    proxy.stale_seconds = 0.5
    await behind.storage.add_member(
        anna, chat, ben, Role.MEMBER, members_max=5, now_ms=direct.now()
    )
    roster = await behind.storage.roster(chat)
    assert roster is not None
    assert (list(roster.user_ids), roster.membership_version) == (sorted([anna, ben]), 2)


STORIES = {
    removed_member_reads: "get_item",
    new_message_is_read: "get_item",
    removed_member_sends: "batch_get_item",
    retry_is_answered: "batch_get_item",
}
"""What must hold, and the kind of read that must be strong for it."""


async def test_new_member_is_in_the_roster_at_once(
    direct: World, behind: Behind, proxy: Proxy
) -> None:
    await new_member_is_in_the_roster(direct, behind, proxy)


async def test_roster_waits_for_all_members_that_its_chat_counts(
    direct: World, behind: Behind, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the query were weak: the count is that of a strong read."""
    read_weakly(behind, monkeypatch, "query")
    await new_member_is_in_the_roster(direct, behind, proxy)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
async def test_strong_reads_see_what_was_just_written(
    direct: World, behind: Behind, proxy: Proxy, story: Any
) -> None:
    await story(direct, behind, proxy)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
async def test_strong_reads_turn_red_when_they_are_weak(
    direct: World,
    behind: Behind,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
    story: Any,
) -> None:
    read_weakly(behind, monkeypatch, STORIES[story])
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        await story(direct, behind, proxy)
