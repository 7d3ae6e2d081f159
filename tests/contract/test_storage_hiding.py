"""ChatStore: a direct chat that is hidden, for one of the two, until the next message (B6)."""

import pytest

from tests.support.inspectors import verify_engine, violated
from tests.support.world import World
from tidewire.domain.chats import ChatType
from tidewire.domain.errors import InvalidOperation, NotAMember
from tidewire.domain.ids import ChatId, UserId


async def hide(world: World, user_id: UserId, chat_id: ChatId) -> None:
    await world.storage.hide(user_id, chat_id, wanted=True)


async def hidden(world: World, user_id: UserId, chat_id: ChatId) -> bool:
    """As digest, standing and chat list say, which agree."""
    entry = await world.entry(user_id, chat_id)
    assert await world.storage.standing(user_id, chat_id) == entry
    page = await world.storage.chat_list(user_id, cursor=None, count_max=10)
    [item] = [item for item in page.items if item.chat.chat_id == chat_id]
    assert item.is_hidden == entry.is_hidden
    return entry.is_hidden


@pytest.mark.parametrize("messages", [0, 2])
async def test_hidden_chat_comes_back_with_the_next_message(world: World, messages: int) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    for _ in range(messages):
        await world.send(chat, anna)
    assert not await hidden(world, anna, chat)
    await hide(world, anna, chat)
    assert await hidden(world, anna, chat)
    assert not await hidden(world, ben, chat)
    await world.send(chat, ben)
    assert not await hidden(world, anna, chat)
    # It may be hidden again, from there on.
    await hide(world, anna, chat)
    assert await hidden(world, anna, chat)


async def test_hiding_changes_nothing_else(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send_many(chat, ben, 3)
    await world.ack(anna, chat, 2)
    before, entry = await world.chat(anna, chat), await world.entry(anna, chat)
    moved = await world.storage.moved_at(anna, [chat])
    world.new_events()
    await hide(world, anna, chat)
    assert await world.chat(anna, chat) == before
    found = await world.entry(anna, chat)
    assert (found.unread, found.delivered, found.read) == (3, entry.delivered, entry.read)
    assert await world.storage.moved_at(anna, [chat]) == moved
    assert world.new_events() == []
    # Reading it does not bring it back.
    await world.read(anna, chat, 3)
    assert await hidden(world, anna, chat)
    assert violated(verify_engine(world.engine)) == []


async def test_hidden_chat_is_shown_again_when_it_is_opened(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await hide(world, anna, chat)
    await hide(world, ben, chat)
    assert await world.direct(anna, ben) == chat
    assert not await hidden(world, anna, chat)
    assert await hidden(world, ben, chat)
    for _ in range(2):
        await world.storage.hide(ben, chat, wanted=False)
    assert not await hidden(world, ben, chat)


async def test_only_a_direct_chat_of_ones_own_is_hidden(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    group, direct = await world.group(anna, ben), await world.direct(anna, ben)
    for wanted in (True, False):
        with pytest.raises(InvalidOperation, match="a group can be left"):
            await world.storage.hide(anna, group, wanted=wanted)
        for chat in (group, direct, world.no_chat()):
            with pytest.raises(NotAMember):
                await world.storage.hide(cleo, chat, wanted=wanted)
    assert (await world.entry(anna, group)).chat_type is ChatType.GROUP


async def test_position_moves_on_in_a_chat_that_was_hidden_first(world: World) -> None:
    """The row of positions may be made by hiding."""
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await hide(world, anna, chat)
    await world.send(chat, ben)
    await world.ack(anna, chat, 1)
    await world.send(chat, anna, seen=1)
    entry = await world.entry(anna, chat)
    assert (entry.delivered, entry.read, entry.is_hidden) == (2, 2, False)
