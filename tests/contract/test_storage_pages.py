"""MessageStore's reads: pages of a sync, pages of history, one message by its id."""

import asyncio
from collections.abc import Sequence

import pytest

from tests.support.outcomes import chained
from tests.support.world import PLENTY, World
from tidewire.domain.errors import CursorAhead, MessageNotFound, NotAMember
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.messages import Message, MessagePage


async def after(
    world: World,
    reader: UserId,
    chat: ChatId,
    cursor: int,
    *,
    count_max: int = PLENTY,
    bytes_max: int = PLENTY,
) -> MessagePage:
    return await world.storage.messages_after(
        reader, chat, cursor, count_max=count_max, bytes_max=bytes_max
    )


async def before(
    world: World,
    reader: UserId,
    chat: ChatId,
    sequence: int | None,
    *,
    count_max: int = PLENTY,
    bytes_max: int = PLENTY,
) -> MessagePage:
    return await world.storage.messages_before(
        reader, chat, sequence, count_max=count_max, bytes_max=bytes_max
    )


def sequences(page: MessagePage) -> list[int]:
    return [message.sequence for message in page.messages]


# Sync.


async def test_messages_after_gives_what_is_above_the_cursor(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send_many(chat, anna, 5)
    page = await after(world, ben, chat, 2)
    assert (sequences(page), page.synced_through, page.has_more, page.head) == (
        [3, 4, 5],
        5,
        False,
        5,
    )


async def test_messages_after_gives_an_empty_page_at_the_head(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    empty = await after(world, ben, chat, 0)
    assert (sequences(empty), empty.synced_through, empty.has_more, empty.head) == ([], 0, False, 0)
    await world.send_many(chat, anna, 3)
    page = await after(world, ben, chat, 3)
    assert (sequences(page), page.synced_through, page.has_more, page.head) == ([], 3, False, 3)


async def test_messages_after_is_cut_by_count(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send_many(chat, anna, 5)
    first = await after(world, ben, chat, 0, count_max=2)
    assert (sequences(first), first.synced_through, first.has_more, first.head) == (
        [1, 2],
        2,
        True,
        5,
    )
    last = await after(world, ben, chat, 2, count_max=3)
    assert (sequences(last), last.has_more) == ([3, 4, 5], False)


async def test_messages_after_is_cut_by_bytes_of_content(world: World) -> None:
    """100 bytes a message, in two-byte letters: a page of 250 bytes has two, not four."""
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    for _ in range(4):
        await world.send(chat, anna, "ä" * 50)
    page = await after(world, ben, chat, 0, bytes_max=250)
    assert (sequences(page), page.synced_through, page.has_more) == ([1, 2], 2, True)
    assert sequences(await after(world, ben, chat, 0, bytes_max=250, count_max=1)) == [1]
    assert sequences(await after(world, ben, chat, 2, bytes_max=250)) == [3, 4]


async def test_messages_after_has_one_message_even_if_it_is_over_the_bytes(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    for _ in range(2):
        await world.send(chat, anna, "x" * 4096)
    page = await after(world, ben, chat, 0, bytes_max=100)
    assert (sequences(page), page.synced_through, page.has_more) == ([1], 1, True)


@pytest.mark.parametrize("count_max", [1, 2, 3, 7, 100])
async def test_messages_after_page_by_page_is_complete(world: World, count_max: int) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send_many(chat, anna, 4)
    await world.engine.set_counter(chat, 50)
    await world.send_many(chat, ben, 3)
    found: list[Message] = []
    cursor, has_more = 0, True
    while has_more:
        page = await after(world, ben, chat, cursor, count_max=count_max)
        assert page.synced_through == page.messages[-1].sequence > cursor
        found += page.messages
        cursor, has_more = page.synced_through, page.has_more
    assert found == await world.engine.messages(chat)
    assert [message.sequence for message in found] == [1, 2, 3, 4, 51, 52, 53]
    assert chained(found)


async def test_messages_after_goes_on_from_a_cursor_inside_a_hole(world: World) -> None:
    """The first message of a page hangs on one at or below the cursor."""
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send(chat, anna)
    await world.engine.set_counter(chat, 10)
    await world.send(chat, anna)
    page = await after(world, ben, chat, 5)
    assert (sequences(page), page.messages[0].prev_sequence) == ([11], 1)


async def test_messages_after_refuses_a_cursor_above_the_head(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    with pytest.raises(CursorAhead) as ahead:
        await after(world, ben, chat, 1)
    assert ahead.value.head == 0
    await world.send_many(chat, anna, 3)
    await world.engine.set_counter(chat, 20)
    with pytest.raises(CursorAhead) as ahead:
        await after(world, ben, chat, 4)
    assert ahead.value.head == 3
    assert (await after(world, ben, chat, 3)).head == 3


async def test_messages_after_shows_a_new_member_what_was_before_him(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.group(anna)
    await world.send_many(chat, anna, 2)
    await world.add(anna, chat, ben)
    assert sequences(await after(world, ben, chat, 0)) == [1, 2]


async def test_messages_after_is_complete_while_others_write(world: World) -> None:
    """No page shows a message before everything that precedes it (P-01)."""
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)

    async def write() -> list[MessagePage]:
        for _ in range(20):
            await world.append(world.draft(chat, anna), world.draft(chat, anna))
        return []

    async def read() -> list[MessagePage]:
        pages: list[MessagePage] = []
        cursor = count = 0
        while count < 40:
            page = await after(world, ben, chat, cursor, count_max=7)
            pages.append(page)
            cursor = page.synced_through
            count += len(page.messages)
        return pages

    _, pages = await asyncio.gather(write(), read())
    found = [message for page in pages for message in page.messages]
    assert chained(found)
    assert found == await world.engine.messages(chat)
    for page in pages:
        assert page.has_more == (page.synced_through < page.head)


# History.


async def test_messages_before_gives_the_newest_ascending(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send_many(chat, anna, 5)
    page = await before(world, ben, chat, None, count_max=2)
    assert (sequences(page), page.has_more, page.head) == ([4, 5], True, 5)
    everything = await before(world, ben, chat, None)
    assert (sequences(everything), everything.has_more) == ([1, 2, 3, 4, 5], False)


async def test_messages_before_gives_the_last_ones_below_a_sequence(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send_many(chat, anna, 5)
    page = await before(world, ben, chat, 4, count_max=2)
    assert (sequences(page), page.has_more, page.head) == ([2, 3], True, 5)
    assert page.synced_through == 3
    first = await before(world, ben, chat, 2)
    assert (sequences(first), first.has_more) == ([1], False)


@pytest.mark.parametrize("sequence", [None, 0, 1, 7])
async def test_messages_before_gives_an_empty_page_when_there_is_nothing(
    world: World, sequence: int | None
) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    page = await before(world, ben, chat, sequence)
    assert (sequences(page), page.has_more, page.head) == ([], False, 0)


@pytest.mark.parametrize("sequence", [0, 1])
async def test_messages_before_gives_an_empty_page_when_nothing_is_below(
    world: World, sequence: int
) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send_many(chat, anna, 2)
    page = await before(world, ben, chat, sequence)
    assert (sequences(page), page.has_more, page.synced_through, page.head) == ([], False, 0, 2)


async def test_messages_before_takes_a_sequence_above_the_head(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send_many(chat, anna, 2)
    page = await before(world, ben, chat, 900)
    assert (sequences(page), page.has_more) == ([1, 2], False)


async def test_messages_before_is_cut_by_bytes_at_its_older_end(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    for _ in range(4):
        await world.send(chat, anna, "ä" * 50)
    page = await before(world, ben, chat, None, bytes_max=250)
    assert (sequences(page), page.has_more) == ([3, 4], True)
    one = await before(world, ben, chat, 4, bytes_max=1)
    assert (sequences(one), one.has_more) == ([3], True)


@pytest.mark.parametrize("count_max", [1, 3, 100])
async def test_messages_before_page_by_page_is_complete(world: World, count_max: int) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send_many(chat, anna, 4)
    await world.engine.set_counter(chat, 50)
    await world.send_many(chat, ben, 3)
    found: list[Message] = []
    cursor: int | None = None
    has_more = True
    while has_more:
        page = await before(world, ben, chat, cursor, count_max=count_max)
        found = [*page.messages, *found]
        cursor, has_more = page.messages[0].sequence, page.has_more
    assert found == await world.engine.messages(chat)


# One message.


async def test_message_is_found_by_its_id(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send_many(chat, anna, 3)
    for message in await world.messages(ben, chat):
        assert await world.storage.message(ben, chat, message.message_id) == message


async def test_message_is_not_found_when_there_is_none_or_in_another_chat(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    chat, other = await world.direct(anna, ben), await world.direct(anna, cleo)
    answer = await world.send(other, anna)
    with pytest.raises(MessageNotFound):
        await world.storage.message(anna, chat, answer.message_id)
    with pytest.raises(MessageNotFound):
        await world.storage.message(anna, chat, world.ids.message_id(world.now()))


# Who may read.


async def refused_reads(world: World, reader: UserId, chat: ChatId) -> Sequence[str]:
    """The reads that refuse this reader as not a member."""
    [stored] = [*(await world.engine.messages(chat))][:1]
    reads = {
        "after": after(world, reader, chat, 0),
        "after, ahead": after(world, reader, chat, 900),
        "before": before(world, reader, chat, None),
        "message": world.storage.message(reader, chat, stored.message_id),
        "no message": world.storage.message(reader, chat, world.ids.message_id(world.now())),
    }
    refused = []
    for name, read in reads.items():
        try:
            await read
        except NotAMember:
            refused.append(name)
        except (CursorAhead, MessageNotFound):
            pass
    return refused


async def test_reads_refuse_outsiders_before_anything_else(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    chat = await world.group(anna, ben)
    await world.send(chat, anna)
    everything = ["after", "after, ahead", "before", "message", "no message"]
    assert await refused_reads(world, ben, chat) == []
    assert await refused_reads(world, cleo, chat) == everything
    await world.remove(anna, chat, ben)
    assert await refused_reads(world, ben, chat) == everything
    await world.add(anna, chat, ben)
    assert await refused_reads(world, ben, chat) == []
    await world.leave(ben, chat)
    assert await refused_reads(world, ben, chat) == everything


async def test_reads_answer_a_chat_that_does_not_exist_like_one_of_others(world: World) -> None:
    anna = await world.person()
    chat = world.no_chat()
    with pytest.raises(NotAMember):
        await after(world, anna, chat, 0)
    with pytest.raises(NotAMember):
        await before(world, anna, chat, None)
    with pytest.raises(NotAMember):
        await world.storage.message(anna, chat, world.ids.message_id(world.now()))
