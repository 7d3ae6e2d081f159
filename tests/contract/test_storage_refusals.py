"""Who may add whom: a block holds in groups, and a group may be left for good (A12)."""

import asyncio

import pytest

from tests.support.inspectors import verify_engine, violated
from tests.support.world import MEMBERS_MAX, World
from tidewire.domain.access import cannot_add
from tidewire.domain.chats import CreateGroup
from tidewire.domain.errors import AlreadyAMember, Forbidden, InvalidOperation
from tidewire.domain.ids import ChatId, UserId


async def block(world: World, user_id: UserId, blocked_id: UserId) -> None:
    assert (await world.storage.block(user_id, blocked_id, now_ms=world.now())).changed


async def refusal_of(world: World, actor: UserId, chat: ChatId, user_id: UserId) -> str:
    with pytest.raises(Forbidden) as refused:
        await world.add(actor, chat, user_id)
    return str(refused.value)


async def test_person_who_blocks_you_cannot_be_added_by_you(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    chat = await world.group(anna, cleo)
    await block(world, ben, anna)
    before = await world.chat(anna, chat)
    world.new_events()
    assert await refusal_of(world, anna, chat, ben) == str(cannot_add())
    assert await world.chat(anna, chat) == before
    assert world.new_events() == []
    # By somebody else, and the other way round, it changes nothing.
    await world.hand_over(anna, chat, cleo)
    await world.add(cleo, chat, ben)
    own = await world.group(ben)
    await world.add(ben, own, anna)


async def test_group_does_not_begin_with_a_person_who_blocks_its_founder(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    await block(world, ben, anna)
    command = CreateGroup(
        chat_id=world.no_chat(), actor_id=anna, name="team", member_ids=(cleo, ben)
    )
    world.new_events()
    with pytest.raises(Forbidden) as refused:
        await world.storage.create_group(command, members_max=MEMBERS_MAX, now_ms=world.now())
    assert str(refused.value) == str(cannot_add())
    assert await world.storage.roster(command.chat_id) is None
    assert world.new_events() == []
    await world.storage.unblock(ben, anna)
    await world.storage.create_group(command, members_max=MEMBERS_MAX, now_ms=world.now())
    assert sorted(await world.members(anna, command.chat_id)) == sorted([anna, ben, cleo])


async def test_large_group_does_not_begin_with_a_person_who_blocks_its_founder(
    world: World,
) -> None:
    """More members than one transaction of DynamoDB can hold."""
    anna, *others = await world.people(100)
    await block(world, others[90], anna)
    command = CreateGroup(
        chat_id=world.no_chat(), actor_id=anna, name="crowd", member_ids=tuple(others)
    )
    for _ in range(2):
        with pytest.raises(Forbidden):
            await world.storage.create_group(command, members_max=200, now_ms=world.now())
    assert await world.storage.roster(command.chat_id) is None
    await world.storage.unblock(others[90], anna)
    made = await world.storage.create_group(command, members_max=200, now_ms=world.now())
    assert made.created


async def test_group_that_was_left_for_good_is_not_entered_again(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    chat = await world.group(anna, ben, cleo)
    await world.leave(ben, chat, for_good=True)
    world.new_events()
    assert await refusal_of(world, anna, chat, ben) == str(cannot_add())
    await world.hand_over(anna, chat, cleo)
    assert await refusal_of(world, cleo, chat, ben) == str(cannot_add())
    # Of this group only.
    await world.add(anna, await world.group(anna), ben)
    assert violated(verify_engine(world.engine)) == []


async def test_refusals_of_a_block_and_of_a_group_are_not_told_apart(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    chat = await world.group(anna, ben, cleo)
    await world.leave(ben, chat, for_good=True)
    await world.leave(cleo, chat)
    await block(world, cleo, anna)
    said = [await refusal_of(world, anna, chat, user_id) for user_id in (ben, cleo)]
    assert said[0] == said[1]


async def test_leaver_takes_the_refusal_back(world: World) -> None:
    anna, ben = await world.people(2)
    chats = [await world.group(anna, ben) for _ in range(3)]
    for chat in chats:
        await world.leave(ben, chat, for_good=True)
    refused = await world.storage.refused_groups(ben, after=None, count_max=10)
    assert refused == sorted(chats)
    rest = await world.storage.refused_groups(ben, after=refused[0], count_max=1)
    assert rest == [refused[1]]
    assert await world.storage.refused_groups(anna, after=None, count_max=10) == []
    for _ in range(2):
        await world.storage.readmit(ben, chats[0])
    await world.storage.readmit(ben, world.no_chat())
    await world.add(anna, chats[0], ben)
    await refusal_of(world, anna, chats[1], ben)
    assert await world.storage.refused_groups(ben, after=None, count_max=10) == sorted(chats[1:])


async def test_refused_groups_and_blocked_people_are_listed_apart(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.group(anna, ben)
    await world.leave(ben, chat, for_good=True)
    await block(world, ben, anna)
    assert await world.storage.blocked_users(ben, after=None, count_max=1) == [anna]
    assert await world.storage.refused_groups(ben, after=None, count_max=9) == [chat]


async def test_leaving_without_a_word_lets_one_be_added_again(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.group(anna, ben)
    await world.leave(ben, chat)
    await world.add(anna, chat, ben)


async def test_owner_cannot_leave_for_good_either_and_refuses_nothing(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.group(anna, ben)
    with pytest.raises(InvalidOperation):
        await world.leave(anna, chat, for_good=True)
    assert await world.storage.refused_groups(anna, after=None, count_max=9) == []


async def test_block_and_addition_at_once_leave_no_member_who_was_added_after_it(
    world: World,
) -> None:
    """Whatever the order: an addition that began after the block was answered is refused."""
    anna, *others = await world.people(9)
    chat = await world.group(anna)

    async def block_then_add(user_id: UserId) -> None:
        addition = asyncio.ensure_future(world.add(anna, chat, user_id))
        await block(world, user_id, anna)
        with pytest.raises((Forbidden, AlreadyAMember)):
            await world.add(anna, chat, user_id)
        await asyncio.gather(addition, return_exceptions=True)

    for other in others:
        await block_then_add(other)
    assert violated(verify_engine(world.engine)) == []


async def test_strangers_are_those_with_whom_no_chat_is_shared(world: World) -> None:
    anna, ben, cleo, dora, emil = await world.people(5)
    assert await world.storage.strangers(anna, [ben, cleo]) == [ben, cleo]
    await world.direct(ben, anna)
    group = await world.group(dora, anna, cleo)
    everybody = [ben, cleo, dora, emil]
    assert await world.storage.strangers(anna, everybody) == [emil]
    assert await world.storage.strangers(emil, [anna, ben]) == [anna, ben]
    assert await world.storage.strangers(anna, []) == []
    await world.leave(cleo, group)
    assert await world.storage.strangers(anna, everybody) == [cleo, emil]
    await world.close_group(dora, group)
    assert await world.storage.strangers(anna, everybody) == [cleo, dora, emil]
