"""Events: in commit order, once per commit, complete.

A stale copy with the events applied must equal a fresh one (tests/support/replica.py).
"""

import asyncio
from collections.abc import Awaitable, Callable

from tests.support.replica import Replica
from tests.support.world import World
from tidewire.domain.chats import Role
from tidewire.domain.delivery import Positions
from tidewire.domain.events import MessageAppended, PositionsAdvanced
from tidewire.domain.ids import ChatId, UserId

Act = Callable[[], Awaitable[object]]


async def test_events_of_every_kind_bring_a_stale_copy_up_to_date(world: World) -> None:
    anna, ben, cleo, dora = await world.people(4)
    chat = await world.group(anna, ben)
    acts: list[Act] = [
        lambda: world.send(chat, ben),
        lambda: world.rename(anna, chat, "crew"),
        lambda: world.add(anna, chat, cleo),
        lambda: world.send_many(chat, cleo, 3),
        lambda: world.change_role(anna, chat, cleo, Role.ADMIN),
        lambda: world.add(cleo, chat, dora),
        lambda: world.ack(dora, chat, 4),
        lambda: world.send(chat, dora),
        lambda: world.remove(cleo, chat, ben),
        lambda: world.storage.mute(anna, chat, 5),
        lambda: world.leave(cleo, chat),
        lambda: world.send(chat, anna),
        lambda: world.add(anna, chat, ben, Role.ADMIN),
        lambda: world.send(chat, ben),
    ]
    for act in acts:
        replica = await Replica.of(world, anna, chat)
        world.new_commits()
        await act()
        for event in world.new_events():
            replica.apply(event)
        assert replica == await Replica.of(world, anna, chat)


async def test_events_alone_rebuild_everything_from_nothing(world: World) -> None:
    """Many acts at once, some refused: the events in their order tell all that happened."""
    anna, *others = await world.people(6)
    chats: list[ChatId] = []
    for other in others:
        chats += [await world.group(anna, other), await world.direct(anna, other)]

    async def live(chat: ChatId, user: UserId) -> None:
        await asyncio.gather(
            world.append(*(world.draft(chat, user) for _ in range(3))),
            world.append(world.draft(chat, anna), world.draft(chat, user)),
            world.try_ack(user, chat, 1),
            world.add(anna, chat, others[0]),
            world.rename(anna, chat, "other"),
            world.remove(anna, chat, user),
            world.append(world.draft(chat, user)),
            return_exceptions=True,
        )

    await asyncio.gather(*(live(chat, others[index // 2]) for index, chat in enumerate(chats)))
    replica = Replica()
    for event in world.engine.events:
        replica.apply(event)
    assert replica == await Replica.of(world, anna, *chats)


async def test_events_of_one_act_come_in_one_call(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    assert world.new_commits() == []
    one, other = await world.direct(anna, ben), await world.group(anna, cleo)
    assert len(world.new_commits()) == 2
    await world.append(*(world.draft(chat, anna) for chat in (one, other, one)))
    commits = world.new_commits()
    told = [
        e.message.chat_id for commit in commits for e in commit if isinstance(e, MessageAppended)
    ]
    assert sorted(told) == sorted([one, other, one])
    if not world.storage.appends_per_chat:
        assert told == [one, other, one]
        assert len(commits) == 1


async def test_events_are_told_before_the_caller_goes_on(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)

    async def send_and_look() -> bool:
        answer = await world.send(chat, anna)
        return any(
            event.message.message_id == answer.message_id
            for event in world.engine.events
            if isinstance(event, MessageAppended)
        )

    assert await asyncio.gather(*(send_and_look() for _ in range(20))) == [True] * 20


async def test_events_of_messages_come_in_the_order_of_their_sequences(world: World) -> None:
    """ADR-001, sequence_monotonic: committed earlier is numbered lower."""
    people = await world.people(4)
    chat = await world.group(*people)
    await asyncio.gather(
        *(
            world.append(world.draft(chat, person), world.draft(chat, person))
            for _ in range(5)
            for person in people
        )
    )
    told = [e.message.sequence for e in world.engine.events if isinstance(e, MessageAppended)]
    assert len(told) == 40
    assert told == sorted(told)


async def test_events_tell_every_move_of_a_position(world: World) -> None:
    """All but the own message that somebody up to date has just written."""
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send_many(chat, anna, 4)
    world.new_commits()
    await world.ack(ben, chat, 3)
    await world.ack(ben, chat, 2)
    await world.read(ben, chat, 1)
    # Ben answers without having received the fourth: he has read what had reached him.
    await world.send(chat, ben)
    await world.read(ben, chat, 5)
    # Nothing is left to be read: his next message is news to others only.
    await world.send(chat, ben)
    moves = [event for event in world.new_events() if isinstance(event, PositionsAdvanced)]
    assert [event.positions for event in moves] == [
        Positions(3, 0),
        Positions(3, 1),
        Positions(3, 3),
        Positions(5, 5),
    ]
    assert {(event.user_id, event.chat_id) for event in moves} == {(ben, chat)}
    assert await world.positions(ben, chat) == Positions(6, 6)


async def test_events_are_not_told_again_after_a_restart(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send(chat, anna)
    world.new_commits()
    await world.engine.reopen()
    assert world.new_commits() == []
    await world.send(chat, ben)
    assert len(world.new_commits()) == 1
