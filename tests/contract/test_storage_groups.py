"""ChatStore: groups that are handed over, left by their owner, and closed (B6)."""

import asyncio

import pytest

from tests.support.inspectors import verify_engine, violated
from tests.support.replica import Replica
from tests.support.world import MEMBERS_MAX, PLENTY, World
from tidewire.domain.chats import CreateGroup, Role
from tidewire.domain.errors import (
    Forbidden,
    InvalidOperation,
    NotAMember,
    UserNotFound,
)
from tidewire.domain.events import ChatClosed, MembershipChange, MembershipChanged
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.messages import Appended


async def roles(world: World, reader: UserId, chat_id: ChatId) -> dict[UserId, Role]:
    members = await world.members(reader, chat_id)
    return {user_id: member.role for user_id, member in members.items()}


# Handing over.


async def test_hand_over_makes_the_member_owner_and_the_owner_admin(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    chat = await world.group(anna, ben, cleo)
    new_owner = await world.hand_over(anna, chat, ben)
    assert (new_owner.user_id, new_owner.role) == (ben, Role.OWNER)
    expected = {anna: Role.ADMIN, ben: Role.OWNER, cleo: Role.MEMBER}
    assert await roles(world, cleo, chat) == expected
    await world.leave(anna, chat)
    assert anna not in await roles(world, ben, chat)
    assert violated(verify_engine(world.engine)) == []


async def test_hand_over_is_two_changes_of_roles_in_order(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.group(anna, ben)
    version = (await world.chat(anna, chat)).membership_version
    replica = await Replica.of(world, anna, chat)
    world.new_events()
    await world.hand_over(anna, chat, ben)
    events = world.new_events()
    told = [
        (event.user_id, event.role, event.change, event.chat.membership_version)
        for event in events
        if isinstance(event, MembershipChanged)
    ]
    changed = MembershipChange.ROLE_CHANGED
    assert told == [
        (ben, Role.OWNER, changed, version + 1),
        (anna, Role.ADMIN, changed, version + 2),
    ]
    for event in events:
        replica.apply(event)
    assert replica == await Replica.of(world, anna, chat)


async def test_hand_over_again_changes_nothing(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.group(anna, ben)
    await world.hand_over(anna, chat, ben)
    before = await world.chat(anna, chat)
    world.new_events()
    again = await world.hand_over(anna, chat, ben)
    assert (again.user_id, again.role) == (ben, Role.OWNER)
    assert await world.chat(anna, chat) == before
    assert world.new_events() == []


async def test_hand_over_is_refused_to_others_and_for_others(world: World) -> None:
    anna, ben, cleo, dora = await world.people(4)
    chat = await world.group(anna, ben, cleo)
    await world.change_role(anna, chat, ben, Role.ADMIN)
    before = await world.chat(anna, chat)
    for actor, target, refusal in (
        (ben, cleo, Forbidden),
        (cleo, ben, Forbidden),
        (dora, ben, NotAMember),
        (dora, anna, NotAMember),
        (anna, dora, UserNotFound),
    ):
        with pytest.raises(refusal):
            await world.hand_over(actor, chat, target)
    with pytest.raises(InvalidOperation):
        await world.hand_over(anna, await world.direct(anna, ben), ben)
    with pytest.raises(NotAMember):
        await world.hand_over(anna, world.no_chat(), ben)
    assert await world.chat(anna, chat) == before


async def test_group_has_one_owner_whoever_hands_over_at_once(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    chat = await world.group(anna, ben, cleo)
    outcomes = await asyncio.gather(
        world.hand_over(anna, chat, ben),
        world.hand_over(anna, chat, cleo),
        world.leave(cleo, chat),
        return_exceptions=True,
    )
    assert any(not isinstance(one, BaseException) for one in outcomes[:2])
    found = list((await roles(world, ben, chat)).values())
    assert found.count(Role.OWNER) == 1
    assert violated(verify_engine(world.engine)) == []


# Closing.


async def test_closed_group_is_no_chat_to_anybody(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.group(anna, ben)
    key = world.key()
    first = await world.send(chat, ben, "first", key=key)
    await world.close_group(anna, chat)
    for user_id in (anna, ben):
        for look in (
            world.chat(user_id, chat),
            world.members(user_id, chat),
            world.messages(user_id, chat),
            world.leave(user_id, chat),
            world.rename(user_id, chat, "again"),
            world.add(user_id, chat, ben),
            world.storage.mute(user_id, chat, None),
        ):
            with pytest.raises(NotAMember):
                await look
        assert isinstance(await world.try_send(chat, user_id), NotAMember)
        assert isinstance(await world.try_ack(user_id, chat, 1), NotAMember)
        digest = await world.storage.digest(user_id, after=None, count_max=PLENTY)
        assert list(digest.entries) == []
        listed = await world.storage.chat_list(user_id, cursor=None, count_max=10)
        assert list(listed.items) == []
        assert await world.storage.standing(user_id, chat) is None
    assert await world.storage.roster(chat) is None
    assert await world.storage.floors([chat]) == [None]
    assert not await world.storage.share_group(anna, ben)
    # An own message that was stored is still answered.
    again = await world.try_send(chat, ben, "first", key=key)
    assert isinstance(again, Appended)
    assert (again.sequence, again.deduplicated) == (first.sequence, True)
    assert [message.content for message in await world.engine.messages(chat)] == ["first"]
    assert violated(verify_engine(world.engine)) == []


async def test_closing_tells_who_was_in_it(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.group(anna, ben)
    await world.send(chat, anna)
    before = await world.chat(anna, chat)
    world.new_events()
    await world.close_group(anna, chat)
    [event] = world.new_events()
    assert isinstance(event, ChatClosed)
    assert (sorted(event.member_ids), event.closed_by) == (sorted([anna, ben]), anna)
    assert event.chat.membership_version == before.membership_version + 1
    assert (event.chat.member_count, event.chat.head) == (0, 1)
    with pytest.raises(NotAMember):
        await world.close_group(anna, chat)
    assert world.new_events() == []


async def test_closing_is_the_owners(world: World) -> None:
    anna, ben, cleo, dora = await world.people(4)
    chat = await world.group(anna, ben, cleo)
    await world.change_role(anna, chat, ben, Role.ADMIN)
    for actor, refusal in ((ben, Forbidden), (cleo, Forbidden), (dora, NotAMember)):
        with pytest.raises(refusal):
            await world.close_group(actor, chat)
    with pytest.raises(InvalidOperation):
        await world.close_group(anna, await world.direct(anna, ben))
    with pytest.raises(NotAMember):
        await world.close_group(anna, world.no_chat())
    await world.send(chat, cleo)


async def test_id_of_a_closed_group_is_not_used_again(world: World) -> None:
    anna, ben = await world.people(2)
    command = CreateGroup(chat_id=world.no_chat(), actor_id=anna, name="team", member_ids=(ben,))
    await world.storage.create_group(command, members_max=MEMBERS_MAX, now_ms=world.now())
    await world.close_group(anna, command.chat_id)
    with pytest.raises(NotAMember):
        await world.storage.create_group(command, members_max=MEMBERS_MAX, now_ms=world.now())


async def test_nothing_is_stored_after_a_group_was_closed(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.group(anna, ben)
    sends = [asyncio.ensure_future(world.append(world.draft(chat, ben))) for _ in range(8)]
    await asyncio.sleep(0)
    await world.close_group(anna, chat)
    stored = len(await world.engine.messages(chat))
    outcomes = [outcome for [outcome] in await asyncio.gather(*sends)]
    late = await world.append(world.draft(chat, ben))
    assert isinstance(late[0], NotAMember)
    assert sum(isinstance(one, Appended) for one in outcomes) == stored
    assert len(await world.engine.messages(chat)) == stored


async def test_large_group_is_closed_whole(world: World) -> None:
    """More members than one transaction of DynamoDB can hold (M-03)."""
    anna, *others = await world.people(120)
    command = CreateGroup(
        chat_id=world.no_chat(), actor_id=anna, name="crowd", member_ids=tuple(others)
    )
    await world.storage.create_group(command, members_max=200, now_ms=world.now())
    world.new_events()
    await world.close_group(anna, command.chat_id)
    [event] = world.new_events()
    assert isinstance(event, ChatClosed)
    assert sorted(event.member_ids) == sorted([anna, *others])
    for user_id in (anna, others[0], others[-1]):
        digest = await world.storage.digest(user_id, after=None, count_max=PLENTY)
        assert list(digest.entries) == []
    assert violated(verify_engine(world.engine)) == []
