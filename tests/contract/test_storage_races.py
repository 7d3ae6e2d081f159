"""ChatStore: what happens when several people change a chat at once (M-05).

Every race must end as if its parts had come one after the other: the answers, the state and the
events tell the same story.
"""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from tests.support.replica import Replica
from tests.support.world import World
from tidewire.domain.chats import CreatedChat, CreateDirect, CreateGroup, Role
from tidewire.domain.errors import (
    AlreadyAMember,
    ChatIsFull,
    Forbidden,
    NotAMember,
    Refused,
    UserNotFound,
)
from tidewire.domain.events import ChatCreated, MembershipChanged

Result = TypeVar("Result")


async def together(*acts: Awaitable[Result]) -> list[Result | Refused]:
    """What each act gave, or by what it was refused; anything else is a fault."""
    outcomes = await asyncio.gather(*acts, return_exceptions=True)
    results: list[Result | Refused] = []
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            assert isinstance(outcome, Refused), outcome
        results.append(outcome)
    return results


def refusals(outcomes: list[Result | Refused]) -> list[type[Refused]]:
    return [type(outcome) for outcome in outcomes if isinstance(outcome, Refused)]


async def test_direct_chat_is_one_when_both_create_it_at_once(world: World) -> None:
    anna, ben = await world.people(2)
    world.new_commits()
    outcomes = await together(
        *(
            world.storage.create_direct(
                CreateDirect(chat_id=world.no_chat(), actor_id=one, other_id=other),
                now_ms=world.now(),
            )
            for one, other in [(anna, ben), (ben, anna)] * 4
        )
    )
    created = [outcome for outcome in outcomes if isinstance(outcome, CreatedChat)]
    assert len(created) == 8
    assert len({outcome.chat.chat_id for outcome in created}) == 1
    assert [outcome.created for outcome in created].count(True) == 1
    assert [type(event) for event in world.new_events()] == [ChatCreated]
    for user in (anna, ben):
        digest = await world.storage.digest(user, after=None, count_max=10)
        assert [entry.chat_id for entry in digest.entries] == [created[0].chat.chat_id]


async def test_group_is_one_when_a_retry_overtakes(world: World) -> None:
    anna, ben = await world.people(2)
    command = CreateGroup(chat_id=world.no_chat(), actor_id=anna, name="team", member_ids=[ben])
    world.new_commits()
    outcomes = await together(
        *(world.storage.create_group(command, members_max=5, now_ms=world.now()) for _ in range(4))
    )
    created = [outcome for outcome in outcomes if isinstance(outcome, CreatedChat)]
    assert [outcome.created for outcome in created].count(True) == 1
    assert {outcome.chat.chat_id for outcome in created} == {command.chat_id}
    assert [type(event) for event in world.new_events()] == [ChatCreated]


async def test_group_takes_no_more_than_its_bound_when_many_are_added_at_once(
    world: World,
) -> None:
    owner, *others = await world.people(9)
    chat = await world.group(owner, others[0])
    outcomes = await together(
        *(world.add(owner, chat, person, members_max=5) for person in others[1:])
    )
    assert refusals(outcomes) == [ChatIsFull] * 4
    assert (await world.chat(owner, chat)).member_count == 5
    assert len(await world.members(owner, chat)) == 5


async def test_member_is_added_once_when_added_twice_at_once(world: World) -> None:
    owner, admin, ben = await world.people(3)
    chat = await world.group(owner)
    await world.add(owner, chat, admin, Role.ADMIN)
    version = (await world.chat(owner, chat)).membership_version
    outcomes = await together(world.add(owner, chat, ben), world.add(admin, chat, ben))
    assert refusals(outcomes) == [AlreadyAMember]
    fresh = await world.chat(owner, chat)
    assert (fresh.member_count, fresh.membership_version) == (3, version + 1)


async def test_add_and_remove_of_one_user_at_once_end_in_one_order(world: World) -> None:
    """He is out first: then only adding can come first, and both happen or the removal fails."""
    owner, ben = await world.people(2)
    chat = await world.group(owner)
    world.new_commits()
    outcomes = await together(world.add(owner, chat, ben), world.remove(owner, chat, ben))
    is_in = ben in await world.members(owner, chat)
    assert refusals(outcomes) == ([UserNotFound] if is_in else [])
    changes = [event.change for event in world.new_events() if isinstance(event, MembershipChanged)]
    assert changes == (["added"] if is_in else ["added", "removed"])


async def test_member_goes_once_when_removed_and_leaving_at_once(world: World) -> None:
    owner, admin, ben = await world.people(3)
    chat = await world.group(owner, ben)
    await world.add(owner, chat, admin, Role.ADMIN)
    world.new_commits()
    outcomes = await together(
        world.remove(owner, chat, ben), world.leave(ben, chat), world.remove(admin, chat, ben)
    )
    assert len(refusals(outcomes)) == 2
    assert {*refusals(outcomes)} <= {UserNotFound, NotAMember}
    assert (await world.chat(owner, chat)).member_count == 2
    assert len(world.new_events()) == 1


async def test_demoted_admin_acts_before_his_demotion_or_not_at_all(world: World) -> None:
    """M-05: not on what he was when he asked, but on what he is when it is written."""
    owner, admin, ben, cleo = await world.people(4)
    chat = await world.group(owner)
    await world.add(owner, chat, admin, Role.ADMIN)
    world.new_commits()
    outcomes = await together(
        world.add(admin, chat, ben),
        world.change_role(owner, chat, admin, Role.MEMBER),
        world.add(admin, chat, cleo),
    )
    assert {*refusals(outcomes)} <= {Forbidden}
    changes = [event for event in world.new_events() if isinstance(event, MembershipChanged)]
    demotion = [event.user_id for event in changes].index(admin)
    assert [event.user_id for event in changes if event.changed_by == admin] == [
        event.user_id for event in changes[:demotion]
    ]
    assert 2 - len(refusals(outcomes)) == demotion
    assert set(await world.members(owner, chat)) - {owner, admin} == {
        event.user_id for event in changes[:demotion]
    }


async def test_joiner_joins_at_the_head_of_his_instant_when_others_send(world: World) -> None:
    """What was sent after his joining is above his joined_sequence, what was before is not."""
    owner, *joiners = await world.people(6)
    chat = await world.group(owner)
    world.new_commits()
    await asyncio.gather(
        *(
            act
            for person in joiners
            for act in (
                world.append(world.draft(chat, owner)),
                world.add(owner, chat, person),
                world.append(world.draft(chat, owner)),
            )
        )
    )
    # The events in commit order say where the head stood when each of them came in.
    head = 0
    joined = {}
    for event in world.new_events():
        if isinstance(event, MembershipChanged):
            assert event.joined_sequence == event.chat.head == head
            joined[event.user_id] = head
        elif hasattr(event, "message"):
            head = event.message.sequence
    members = await world.members(owner, chat)
    assert {user: members[user].joined_sequence for user in joiners} == joined


async def test_changes_at_once_are_told_in_the_order_of_their_versions(world: World) -> None:
    """Versions of the events rise one by one, and the events alone lead to the final state."""
    owner, *people = await world.people(8)
    chat = await world.group(owner, *people[:3])
    replica = await Replica.of(world, owner, chat)
    world.new_commits()
    await together(
        *(
            act
            for index, person in enumerate(people)
            for act in (
                world.add(owner, chat, person),
                world.change_role(owner, chat, person, Role.ADMIN),
                world.rename(owner, chat, f"name {index}"),
                world.append(world.draft(chat, person)),
                world.remove(owner, chat, person) if index % 2 else world.leave(person, chat),
            )
        )
    )
    events = world.new_events()
    version = replica.chats[chat].membership_version
    for event in events:
        if hasattr(event, "chat"):
            version += 1
            assert event.chat.membership_version == version
        replica.apply(event)
    assert replica == await Replica.of(world, owner, chat)
