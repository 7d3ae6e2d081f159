"""ChatStore: how chats come to be, what their members see, and that every change counts by one.

Who may do what to whom is in test_storage_access.py, what happens at once in test_storage_races.py.
"""

import pytest

from tests.support.world import MEMBERS_MAX, PLENTY, START_MS, World
from tidewire.domain.chats import (
    ChatType,
    CreatedChat,
    CreateDirect,
    CreateGroup,
    Role,
)
from tidewire.domain.errors import (
    ChatIsFull,
    InvalidOperation,
    NotAMember,
    UserNotFound,
)
from tidewire.domain.events import (
    ChatCreated,
    ChatRenamed,
    MembershipChange,
    MembershipChanged,
)
from tidewire.domain.ids import UserId


async def create_direct(world: World, one: UserId, other: UserId) -> CreatedChat:
    now_ms = world.now()
    command = CreateDirect(chat_id=world.ids.chat_id(now_ms), actor_id=one, other_id=other)
    return await world.storage.create_direct(command, now_ms=now_ms)


def group_of(world: World, owner: UserId, *members: UserId) -> CreateGroup:
    chat_id = world.ids.chat_id(world.now())
    return CreateGroup(chat_id=chat_id, actor_id=owner, name="team", member_ids=members)


# Direct chats.


async def test_create_direct_makes_the_chat_of_a_pair(world: World) -> None:
    anna, ben = await world.people(2)
    world.new_commits()
    created = await create_direct(world, anna, ben)
    chat = created.chat
    [[event]] = world.new_commits()
    assert isinstance(event, ChatCreated)
    assert (event.chat, sorted(event.member_ids)) == (chat, sorted([anna, ben]))
    assert created.created
    assert (chat.chat_type, chat.name, chat.created_by) == (ChatType.DIRECT, None, anna)
    assert (chat.member_count, chat.head) == (2, 0)
    assert chat.created_at_ms == chat.updated_at_ms > START_MS
    members = await world.members(ben, chat.chat_id)
    assert {user: (m.role, m.joined_sequence) for user, m in members.items()} == {
        anna: (Role.MEMBER, 0),
        ben: (Role.MEMBER, 0),
    }
    assert await world.engine.counter(chat.chat_id) == 0
    assert await world.chat(anna, chat.chat_id) == await world.chat(ben, chat.chat_id) == chat


async def test_create_direct_finds_the_chat_from_either_side(world: World) -> None:
    anna, ben = await world.people(2)
    first = await create_direct(world, anna, ben)
    await world.send(first.chat.chat_id, anna)
    world.new_commits()
    for one, other in [(anna, ben), (ben, anna)]:
        again = await create_direct(world, one, other)
        assert not again.created
        assert again.chat == await world.chat(one, first.chat.chat_id)
        assert (again.chat.chat_id, again.chat.head) == (first.chat.chat_id, 1)
    assert world.new_commits() == []


async def test_create_direct_keeps_pairs_apart(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    chats = {
        (await create_direct(world, one, other)).chat.chat_id
        for one, other in [(anna, ben), (ben, cleo), (cleo, anna), (ben, anna)]
    }
    assert len(chats) == 3


async def test_create_direct_refuses_oneself_and_strangers(world: World) -> None:
    anna = await world.person()
    world.new_commits()
    with pytest.raises(InvalidOperation):
        await create_direct(world, anna, anna)
    with pytest.raises(UserNotFound):
        await create_direct(world, anna, world.stranger())
    with pytest.raises(UserNotFound):
        await create_direct(world, world.stranger(), anna)
    assert world.new_commits() == []
    assert (await world.storage.digest(anna, after=None, count_max=PLENTY)).entries == []


# Groups.


async def test_create_group_makes_the_owner_and_all_members(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    command = group_of(world, anna, ben, cleo)
    world.new_commits()
    now_ms = world.now()
    created = await world.storage.create_group(command, members_max=3, now_ms=now_ms)
    chat = created.chat
    assert created.created
    assert (chat.chat_id, chat.chat_type, chat.name) == (command.chat_id, ChatType.GROUP, "team")
    assert (chat.created_by, chat.created_at_ms) == (anna, now_ms)
    assert (chat.member_count, chat.head) == (3, 0)
    members = await world.members(cleo, chat.chat_id)
    assert {user: member.role for user, member in members.items()} == {
        anna: Role.OWNER,
        ben: Role.MEMBER,
        cleo: Role.MEMBER,
    }
    for member in members.values():
        assert (member.joined_at_ms, member.joined_sequence) == (now_ms, 0)
        assert (member.added_by, member.muted_until_ms) == (anna, None)
    assert await world.engine.counter(chat.chat_id) == 0
    [[event]] = world.new_commits()
    assert isinstance(event, ChatCreated)
    assert (event.chat, sorted(event.member_ids)) == (chat, sorted([anna, ben, cleo]))


async def test_create_group_takes_an_owner_alone(world: World) -> None:
    anna = await world.person()
    chat = await world.chat(anna, await world.group(anna))
    assert chat.member_count == 1


async def test_create_group_finds_the_first_one_when_tried_again(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    command = group_of(world, anna, ben)
    await world.storage.create_group(command, members_max=MEMBERS_MAX, now_ms=world.now())
    await world.add(anna, command.chat_id, cleo)
    await world.send(command.chat_id, ben)
    world.new_commits()
    again = await world.storage.create_group(command, members_max=MEMBERS_MAX, now_ms=world.now())
    assert not again.created
    assert again.chat == await world.chat(anna, command.chat_id)
    assert (again.chat.member_count, again.chat.head) == (3, 1)
    assert world.new_commits() == []


async def test_create_group_is_never_merged_with_another(world: World) -> None:
    anna, ben = await world.people(2)
    assert await world.group(anna, ben) != await world.group(anna, ben)


async def test_create_group_makes_nothing_when_somebody_does_not_exist(world: World) -> None:
    anna, ben = await world.people(2)
    stranger = world.stranger()
    world.new_commits()
    command = group_of(world, anna, ben, stranger)
    with pytest.raises(UserNotFound) as not_found:
        await world.storage.create_group(command, members_max=MEMBERS_MAX, now_ms=world.now())
    assert list(not_found.value.user_ids) == [stranger]
    with pytest.raises(UserNotFound):
        await world.group(stranger, anna)
    assert await world.storage.roster(command.chat_id) is None
    assert await world.engine.counter(command.chat_id) is None
    assert world.new_commits() == []


async def test_create_group_counts_the_owner_against_the_bound(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    command = group_of(world, anna, ben, cleo)
    with pytest.raises(ChatIsFull):
        await world.storage.create_group(command, members_max=2, now_ms=world.now())
    assert await world.storage.roster(command.chat_id) is None
    created = await world.storage.create_group(command, members_max=3, now_ms=world.now())
    assert created.created


@pytest.mark.parametrize("name", ["", " team", "a\tb", "x" * 129])
async def test_create_group_refuses_what_cannot_be_a_name(world: World, name: str) -> None:
    anna = await world.person()
    with pytest.raises(InvalidOperation):
        await world.group(anna, name=name)


async def test_create_group_refuses_members_named_twice(world: World) -> None:
    """The creator is one of them already."""
    anna, ben = await world.people(2)
    for members in ([ben, ben], [anna, ben]):
        with pytest.raises(InvalidOperation):
            await world.group(anna, *members)


async def test_create_group_refuses_the_id_of_a_chat_that_is_not_its_own(world: World) -> None:
    """A retry finds the first one; somebody else's chat is none of the creator's business."""
    anna, ben = await world.people(2)
    for taken_id in (await world.group(anna, ben), await world.direct(anna, ben)):
        command = CreateGroup(chat_id=taken_id, actor_id=ben, name="mine", member_ids=[])
        with pytest.raises(InvalidOperation):
            await world.storage.create_group(command, members_max=5, now_ms=world.now())
        assert (await world.chat(ben, taken_id)).created_by == anna


async def test_create_group_makes_a_large_one_whole(world: World) -> None:
    owner, *members = await world.people(120)
    command = group_of(world, owner, *members)
    created = await world.storage.create_group(command, members_max=120, now_ms=world.now())
    assert created.chat.member_count == 120
    roster = await world.storage.roster(command.chat_id)
    assert roster is not None
    assert sorted(roster.user_ids) == sorted([owner, *members])


# Changes: each one raises the version by one and is told once, with the chat after it.


async def test_every_change_raises_the_version_by_one_and_is_told_once(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    chat = await world.group(anna, ben)
    changes = [
        world.add(anna, chat, cleo),
        world.change_role(anna, chat, cleo, Role.ADMIN),
        world.rename(cleo, chat, "crew"),
        world.change_role(anna, chat, cleo, Role.MEMBER),
        world.remove(anna, chat, ben),
        world.leave(cleo, chat),
        world.add(anna, chat, ben, Role.ADMIN),
    ]
    version = (await world.chat(anna, chat)).membership_version
    world.new_commits()
    for change in changes:
        await change
        fresh = await world.chat(anna, chat)
        assert fresh.membership_version == version + 1
        version = fresh.membership_version
        [[event]] = world.new_commits()
        assert isinstance(event, MembershipChanged | ChatRenamed)
        assert event.chat == fresh
        assert event.changed_at_ms == fresh.updated_at_ms


async def test_refused_and_empty_changes_do_not_raise_the_version(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    chat = await world.group(anna, ben)
    before = await world.chat(anna, chat)
    world.new_commits()
    await world.rename(anna, chat, "team")
    await world.change_role(anna, chat, ben, Role.MEMBER)
    await world.storage.mute(ben, chat, 77)
    await world.send(chat, ben)
    world.new_commits()
    with pytest.raises(NotAMember):
        await world.add(cleo, chat, cleo)
    with pytest.raises(UserNotFound):
        await world.remove(anna, chat, cleo)
    after = await world.chat(anna, chat)
    assert after.membership_version == before.membership_version
    assert world.new_commits() == []


async def test_add_member_joins_at_the_head(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    chat = await world.group(anna, ben)
    await world.send_many(chat, anna, 3)
    await world.engine.set_counter(chat, 90)
    world.new_commits()
    now_ms = world.now()
    member = await world.storage.add_member(
        anna, chat, cleo, Role.ADMIN, members_max=3, now_ms=now_ms
    )
    # The head is the last stored message, not the last number given out.
    assert (member.user_id, member.role, member.joined_sequence) == (cleo, Role.ADMIN, 3)
    assert (member.joined_at_ms, member.added_by, member.muted_until_ms) == (now_ms, anna, None)
    access = await world.storage.access_chat(cleo, chat)
    assert (access.me, access.chat.member_count) == (member, 3)
    [[event]] = world.new_commits()
    assert event == MembershipChanged(
        chat=access.chat,
        user_id=cleo,
        change=MembershipChange.ADDED,
        role=Role.ADMIN,
        joined_sequence=3,
        changed_by=anna,
        changed_at_ms=now_ms,
    )


@pytest.mark.parametrize("way", ["removed", "left"])
async def test_member_who_goes_is_gone_and_told_with_his_last_role(world: World, way: str) -> None:
    anna, ben = await world.people(2)
    chat = await world.group(anna, ben)
    await world.send(chat, anna)
    await world.change_role(anna, chat, ben, Role.ADMIN)
    world.new_commits()
    await (world.leave(ben, chat) if way == "left" else world.remove(anna, chat, ben))
    [[event]] = world.new_commits()
    assert isinstance(event, MembershipChanged)
    assert (event.user_id, event.change, event.role) == (ben, MembershipChange.REMOVED, Role.ADMIN)
    assert (event.joined_sequence, event.changed_by) == (0, ben if way == "left" else anna)
    assert (event.chat.member_count, event.chat.head) == (1, 1)
    assert list(await world.members(anna, chat)) == [anna]
    with pytest.raises(NotAMember):
        await world.storage.access_chat(ben, chat)
    digest = await world.storage.digest(ben, after=None, count_max=PLENTY)
    assert list(digest.entries) == []


async def test_member_who_comes_back_joins_anew(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.group(anna, ben)
    await world.change_role(anna, chat, ben, Role.ADMIN)
    await world.storage.mute(ben, chat, 77)
    await world.leave(ben, chat)
    await world.send_many(chat, anna, 2)
    member = await world.add(anna, chat, ben)
    assert (member.role, member.joined_sequence) == (Role.MEMBER, 2)
    assert member.muted_until_ms is None


async def test_change_role_changes_the_role_alone(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.group(anna, ben)
    await world.send(chat, anna)
    await world.storage.mute(ben, chat, 77)
    before = (await world.members(anna, chat))[ben]
    world.new_commits()
    after = await world.change_role(anna, chat, ben, Role.ADMIN)
    assert after == (await world.members(anna, chat))[ben]
    assert after.role is Role.ADMIN
    assert (after.joined_sequence, after.joined_at_ms, after.muted_until_ms) == (
        before.joined_sequence,
        before.joined_at_ms,
        77,
    )
    [[event]] = world.new_commits()
    assert isinstance(event, MembershipChanged)
    assert (event.change, event.role) == (MembershipChange.ROLE_CHANGED, Role.ADMIN)
    assert (event.user_id, event.changed_by) == (ben, anna)


async def test_rename_gives_another_name(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.group(anna, ben)
    world.new_commits()
    now_ms = world.now()
    access = await world.storage.rename(anna, chat, "crew ⚓", now_ms=now_ms)
    assert (access.chat.name, access.me.user_id) == ("crew ⚓", anna)
    assert await world.chat(ben, chat) == access.chat
    assert world.new_commits() == [(ChatRenamed(access.chat, anna, now_ms),)]


async def test_mute_is_the_members_own_business(world: World) -> None:
    anna, ben = await world.people(2)
    for chat in (await world.group(anna, ben), await world.direct(anna, ben)):
        before = await world.chat(anna, chat)
        world.new_commits()
        assert (await world.storage.mute(ben, chat, 5_000)).muted_until_ms == 5_000
        assert (await world.storage.access_chat(ben, chat)).me.muted_until_ms == 5_000
        assert (await world.storage.access_chat(anna, chat)).me.muted_until_ms is None
        assert (await world.storage.mute(ben, chat, None)).muted_until_ms is None
        assert (await world.storage.access_chat(ben, chat)).me.muted_until_ms is None
        assert await world.chat(anna, chat) == before
        assert world.new_commits() == []


# Looking.


async def test_members_are_paged_by_user_id(world: World) -> None:
    people = sorted(await world.people(5))
    chat = await world.group(*reversed(people))
    found: list[UserId] = []
    while len(found) < 5:
        page = await world.storage.members(
            people[0], chat, after=found[-1] if found else None, count_max=2
        )
        assert 1 <= len(page) <= 2
        found += [member.user_id for member in page]
    assert found == people
    assert await world.storage.members(people[0], chat, after=found[-1], count_max=2) == []


async def test_roster_names_everybody_with_its_version(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    chat = await world.group(anna, ben)
    await world.add(anna, chat, cleo)
    await world.remove(anna, chat, ben)
    roster = await world.storage.roster(chat)
    assert roster is not None
    assert (roster.chat_id, sorted(roster.user_ids)) == (chat, sorted([anna, cleo]))
    assert roster.membership_version == (await world.chat(anna, chat)).membership_version


async def test_roster_says_after_which_message_members_joined(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    chat = await world.group(anna, ben)
    await world.send_many(chat, anna, 2)
    await world.add(anna, chat, cleo)
    roster = await world.storage.roster(chat)
    assert roster is not None
    assert sorted(roster.readers_of(2)) == sorted([anna, ben])
    assert sorted(roster.readers_of(3)) == sorted([anna, ben, cleo])
    assert (dict(roster.joined), roster.joined_max) == ({cleo: 2}, 2)


async def test_roster_is_none_when_there_is_no_such_chat(world: World) -> None:
    assert await world.storage.roster(world.no_chat()) is None


async def test_chat_and_members_are_for_members_only(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    chat = await world.group(anna, ben)
    for place in (chat, world.no_chat()):
        with pytest.raises(NotAMember):
            await world.storage.access_chat(cleo, place)
        with pytest.raises(NotAMember):
            await world.storage.members(cleo, place, after=None, count_max=5)
        with pytest.raises(NotAMember):
            await world.storage.mute(cleo, place, None)


# A life of the store.


async def test_chats_are_still_there_after_a_restart(world: World) -> None:
    anna, ben = await world.people(2)
    direct, group = await world.direct(anna, ben), await world.group(anna, ben)
    await world.send(group, ben)
    await world.storage.mute(ben, group, 9)
    await world.rename(anna, group, "crew")
    before = [await world.storage.access_chat(ben, chat) for chat in (direct, group)]
    epoch = world.storage.epoch
    await world.engine.reopen()
    assert [await world.storage.access_chat(ben, chat) for chat in (direct, group)] == before
    assert world.storage.epoch == epoch
    assert await world.direct(ben, anna) == direct
