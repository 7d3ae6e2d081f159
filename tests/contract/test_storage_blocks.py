"""BlockStore: what a block does to the pair's direct chat, and that it does nothing else."""

import asyncio

import pytest

from tests.support.world import World, taken
from tidewire.domain.chats import ChatType, CreateDirect, DirectPolicy
from tidewire.domain.errors import (
    CounterMissing,
    Forbidden,
    InvalidOperation,
    KeyReused,
    NotAMember,
    UserNotFound,
)
from tidewire.domain.ids import UserId
from tidewire.domain.messages import Appended


async def block(world: World, user_id: UserId, blocked_id: UserId) -> None:
    assert (await world.storage.block(user_id, blocked_id, now_ms=world.now())).changed


async def test_block_refuses_the_sends_of_the_blocked_one_only(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send(chat, ben, "before")
    await block(world, anna, ben)
    outcome = await world.try_send(chat, ben)
    assert isinstance(outcome, Forbidden)
    assert "cannot write" in str(outcome)
    await world.send(chat, anna, "to the one I block")
    assert [message.content for message in await world.messages(ben, chat)] == [
        "before",
        "to the one I block",
    ]


async def test_block_of_each_other_refuses_both(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await block(world, anna, ben)
    await block(world, ben, anna)
    for sender in (anna, ben):
        assert isinstance(await world.try_send(chat, sender), Forbidden)
    await world.storage.unblock(anna, ben)
    await world.send(chat, ben)
    assert isinstance(await world.try_send(chat, anna), Forbidden)


async def test_unblock_undoes_it(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await block(world, anna, ben)
    change = await world.storage.unblock(anna, ben)
    assert (change.changed, change.chat_id) == (True, chat)
    await world.send(chat, ben)
    roster = await world.storage.roster(chat)
    assert roster is not None
    assert not roster.has_block


async def test_block_leaves_groups_and_other_chats_alone(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    group = await world.group(anna, ben, cleo)
    other = await world.direct(ben, cleo)
    direct = await world.direct(anna, ben)
    await block(world, anna, ben)
    await world.send(group, ben)
    await world.send(other, ben)
    assert isinstance(await world.try_send(direct, ben), Forbidden)
    for chat in (group, other):
        roster = await world.storage.roster(chat)
        assert roster is not None
        assert not roster.has_block


async def test_block_comes_after_own_key_and_membership_before_the_rest(world: World) -> None:
    """The order of verdicts: own key, membership, block, counter, somebody else's key."""
    anna, ben, cleo = await world.people(3)
    chat = await world.direct(anna, ben)
    mine, hers = world.key(), world.key()
    first = await world.send(chat, ben, "first", key=mine)
    await world.send(chat, anna, "hers", key=hers)
    await block(world, anna, ben)
    again = taken(await world.try_send(chat, ben, "first", key=mine))
    assert (again.sequence, again.deduplicated) == (first.sequence, True)
    assert isinstance(await world.try_send(chat, ben, "other", key=mine), KeyReused)
    assert isinstance(await world.try_send(chat, cleo), NotAMember)
    assert isinstance(await world.try_send(chat, ben, "x", key=hers), Forbidden)
    await world.engine.drop_counter(chat)
    assert isinstance(await world.try_send(chat, ben), Forbidden)
    assert isinstance(await world.try_send(chat, anna), CounterMissing)


async def test_block_raises_the_version_and_tells_nobody(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    before = await world.chat(ben, chat)
    world.new_events()
    for number, act in enumerate((world.storage.block, world.storage.block), start=1):
        change = await act(anna, ben, now_ms=world.now())
        assert change.changed == (number == 1)
        assert change.chat_id == (chat if number == 1 else None)
    blocked = await world.chat(ben, chat)
    assert blocked.membership_version == before.membership_version + 1
    # The place in the blocked one's list must not give it away either.
    assert blocked.updated_at_ms == before.updated_at_ms
    roster = await world.storage.roster(chat)
    assert roster is not None
    assert (roster.has_block, roster.membership_version) == (True, blocked.membership_version)
    assert sorted(roster.user_ids) == sorted([anna, ben])
    await world.storage.unblock(anna, ben)
    assert not (await world.storage.unblock(anna, ben)).changed
    unblocked = await world.chat(ben, chat)
    assert unblocked.membership_version == before.membership_version + 2
    assert world.new_events() == []


async def test_block_shows_in_no_number_that_members_see(world: World) -> None:
    """A16: the fence's version rises, the version that the blocked person is shown does not."""
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send(chat, ben)
    shown = (await world.chat(ben, chat)).shown_version
    seen = [await world.entry(user_id, chat) for user_id in (anna, ben)]
    await block(world, anna, ben)
    for change in (world.storage.unblock(anna, ben), world.storage.block(ben, anna, now_ms=1)):
        for user_id, entry in zip((anna, ben), seen, strict=True):
            assert (await world.chat(user_id, chat)).shown_version == shown
            assert await world.entry(user_id, chat) == entry
            assert await world.storage.standing(user_id, chat) == entry
        await change
    found = await world.chat(ben, chat)
    assert (found.membership_version, found.shown_version) == (shown + 3, shown)


async def test_shown_version_rises_with_every_change_of_a_group(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    chat = await world.group(anna, ben)
    await block(world, ben, anna)
    for number, change in enumerate(
        (world.rename(anna, chat, "other"), world.add(anna, chat, cleo)), start=2
    ):
        await change
        assert (await world.chat(anna, chat)).shown_version == number
        assert (await world.entry(ben, chat)).membership_version == number


async def test_block_holds_at_the_instant_of_every_append(world: World) -> None:
    """Whatever is stored after the block was answered is not the blocked one's."""
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    sends = [asyncio.ensure_future(world.append(world.draft(chat, ben))) for _ in range(10)]
    await asyncio.sleep(0)
    await block(world, anna, ben)
    stored_before = len(await world.messages(anna, chat))
    outcomes = [outcome for [outcome] in await asyncio.gather(*sends)]
    late = await asyncio.gather(*(world.append(world.draft(chat, ben)) for _ in range(5)))
    assert all(isinstance(outcome, Forbidden) for [outcome] in late)
    stored = sum(isinstance(outcome, Appended) for outcome in outcomes)
    assert len(await world.messages(anna, chat)) == stored == stored_before


async def test_block_keeps_reading_and_positions(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send(chat, anna)
    await block(world, anna, ben)
    assert len(await world.messages(ben, chat)) == 1
    assert (await world.read(ben, chat, 1)).moved


# Beginning a direct chat.


@pytest.mark.parametrize("blocker", [0, 1])
async def test_block_keeps_either_from_beginning_a_direct_chat(world: World, blocker: int) -> None:
    people = await world.people(2)
    await block(world, people[blocker], people[1 - blocker])
    for one, other in (people, people[::-1]):
        with pytest.raises(Forbidden):
            await world.direct(one, other)
    await world.storage.unblock(people[blocker], people[1 - blocker])
    await world.direct(*people)


async def test_block_lets_a_direct_chat_be_found_that_is_there(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await block(world, anna, ben)
    assert await world.direct(ben, anna) == chat
    assert await world.direct(anna, ben) == chat


async def begin(world: World, one: UserId, other: UserId, policy: DirectPolicy) -> bool:
    now_ms = world.now()
    command = CreateDirect(
        chat_id=world.ids.chat_id(now_ms), actor_id=one, other_id=other, policy=policy
    )
    return (await world.storage.create_direct(command, now_ms=now_ms)).created


async def test_direct_chat_is_begun_by_those_whom_the_policy_lets(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    await world.group(anna, ben)
    with pytest.raises(Forbidden):
        await begin(world, anna, ben, DirectPolicy.NOBODY)
    with pytest.raises(Forbidden):
        await begin(world, anna, cleo, DirectPolicy.SHARED_GROUP)
    assert await begin(world, anna, ben, DirectPolicy.SHARED_GROUP)
    assert await begin(world, anna, cleo, DirectPolicy.ANYONE)
    for other in (ben, cleo):
        assert not await begin(world, anna, other, DirectPolicy.NOBODY)


async def test_share_group_is_true_of_current_members_of_a_group(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    group = await world.group(anna, ben)
    await world.direct(anna, cleo)
    assert await world.storage.share_group(anna, ben)
    assert await world.storage.share_group(ben, anna)
    assert not await world.storage.share_group(anna, cleo)
    await world.leave(ben, group)
    assert not await world.storage.share_group(anna, ben)


# The list, and what is refused.


async def test_blocked_users_are_listed_in_pages(world: World) -> None:
    anna, *others = await world.people(6)
    for other in others:
        await block(world, anna, other)
    await block(world, others[0], others[1])
    listed: list[UserId] = []
    while page := await world.storage.blocked_users(
        anna, after=listed[-1] if listed else None, count_max=2
    ):
        listed += page
    assert listed == sorted(others)
    await world.storage.unblock(anna, others[0])
    assert others[0] not in await world.storage.blocked_users(anna, after=None, count_max=9)


async def test_block_refuses_oneself_and_nobody(world: World) -> None:
    [anna] = await world.people(1)
    with pytest.raises(InvalidOperation):
        await world.storage.block(anna, anna, now_ms=world.now())
    with pytest.raises(UserNotFound):
        await world.storage.block(anna, world.stranger(), now_ms=world.now())
    assert not (await world.storage.unblock(anna, world.stranger())).changed


async def test_block_is_still_there_after_a_restart(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await block(world, anna, ben)
    await world.engine.reopen()
    assert isinstance(await world.try_send(chat, ben), Forbidden)
    assert (await world.chat(anna, chat)).chat_type is ChatType.DIRECT
