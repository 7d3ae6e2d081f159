"""Erasing what a person has written: all of it, once, whatever run it takes."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.engines import MemoryHarness
from tests.support.world import World, taken
from tidewire.domain.errors import (
    MessageDeleted,
    StoreDamaged,
    StoreUnavailable,
    TargetNotFound,
    TidewireError,
)
from tidewire.domain.ids import SYSTEM, ChatId, ClientMessageId, UserId
from tidewire.domain.messages import Amendment, Appended, MessageBody
from tidewire.ops.erase import AT_ONCE, Erased, erase_messages


class Door:
    """The way into a store, which can be shut after some deletions."""

    def __init__(self, world: World, taken_max: int = 1_000_000) -> None:
        self._world = world
        self.taken_max = taken_max
        self.keys: list[ClientMessageId] = []

    async def __call__(
        self,
        body: MessageBody,
        *,
        chat_id: ChatId,
        sender_id: UserId,
        client_message_id: ClientMessageId,
        amends: Amendment,
    ) -> Appended:
        if len(self.keys) >= self.taken_max:
            raise StoreUnavailable("shut")
        draft = self._world.draft(
            chat_id, sender_id, body.content, key=client_message_id, amends=amends
        )
        [outcome] = await self._world.append(draft)
        if isinstance(outcome, TidewireError):
            raise outcome
        self.keys.append(client_message_id)
        return taken(outcome)


@pytest.fixture
async def world(tmp_path: Path) -> World:
    harness = MemoryHarness(tmp_path)
    await harness.open()
    return World(harness)


async def talk(world: World) -> tuple[UserId, UserId, list[ChatId]]:
    anna, ben = await world.people(2)
    chats = [await world.group(anna, ben), await world.direct(anna, ben), await world.group(anna)]
    for chat in chats[:2]:
        await world.send_many(chat, anna, AT_ONCE + 7)
        await world.send(chat, ben, "of ben")
        await world.store(world.edit(chat, anna, 1, "edited"))
    await world.remove(anna, chats[0], ben)
    return anna, ben, chats


async def texts(world: World, chat: ChatId) -> set[str]:
    return {one.content for one in await world.engine.messages(chat) if one.content}


async def test_erasure_deletes_everything_that_one_wrote_and_nothing_else(world: World) -> None:
    anna, ben, chats = await talk(world)
    told: list[Erased] = []
    done = await erase_messages(world.storage, Door(world), anna, told.append)
    assert (done.chats, done.messages) == (2, 2 * (AT_ONCE + 7))
    assert told
    for chat in chats[:2]:
        assert await texts(world, chat) == {"of ben"}
        entries = await world.engine.messages(chat)
        assert {one.sender_id for one in entries[-AT_ONCE:]} == {SYSTEM}
    # One who is out is erased as well.
    assert (await erase_messages(world.storage, Door(world), ben)).messages == 2
    assert await texts(world, chats[0]) == set()


async def test_erasure_that_broke_off_goes_on_and_does_nothing_twice(world: World) -> None:
    anna, _, chats = await talk(world)
    door = Door(world, taken_max=AT_ONCE + 3)
    with pytest.raises(StoreUnavailable):
        await erase_messages(world.storage, door, anna)
    door.taken_max = 1_000_000
    await erase_messages(world.storage, door, anna)
    assert len(set(door.keys)) == len(door.keys) == 2 * (AT_ONCE + 7)
    assert (await erase_messages(world.storage, door, anna)).messages == 0
    for chat in chats[:2]:
        assert await texts(world, chat) == {"of ben"}


async def test_erasure_takes_what_was_deleted_meanwhile_for_done(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send_many(chat, anna, 2)

    class Late(Door):
        async def __call__(self, body: MessageBody, **given: object) -> Appended:
            raise MessageDeleted(9)

    assert (await erase_messages(world.storage, Late(world), anna)).messages == 2


@pytest.mark.parametrize("refusal", [TargetNotFound(2), StoreDamaged("an edit is none")])
async def test_damaged_message_does_not_keep_the_others_from_going(
    world: World, refusal: TidewireError
) -> None:
    """A store takes no deletion of what it cannot erase: it is told, and passed over."""
    anna, _, chats = await talk(world)
    door = Door(world)

    async def delete(body: MessageBody, **given: Any) -> Appended:
        if given["amends"].target == 2:
            raise refusal
        return await door(body, **given)

    done = await erase_messages(world.storage, delete, anna)
    assert (done.messages, done.damaged) == (2 * (AT_ONCE + 6), 2)
    for chat in chats[:2]:
        assert await texts(world, chat) == {"message 1", "of ben"}
