"""PositionStore.advance: positions that only grow, within bounds, for members (ADR-008).

Tests named `test_adr008_…` check the invariant of that name in ADR-008, appendix E.
"""

import asyncio

import pytest

from tests.support.world import World
from tidewire.domain.delivery import Advance, Advanced, Positions
from tidewire.domain.errors import NotAMember, SequenceAboveHead
from tidewire.domain.events import PositionsAdvanced


async def test_advance_moves_delivered_alone(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send_many(chat, anna, 5)
    assert await world.ack(ben, chat, 3) == Advanced(Positions(3, 0), moved=True)
    assert await world.positions(ben, chat) == Positions(3, 0)


async def test_advance_delivers_what_is_read(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send_many(chat, anna, 5)
    assert await world.read(ben, chat, 3) == Advanced(Positions(3, 3), moved=True)
    await world.ack(ben, chat, 5)
    assert await world.read(ben, chat, 4) == Advanced(Positions(5, 4), moved=True)
    assert await world.positions(ben, chat) == Positions(5, 4)


@pytest.mark.parametrize(
    ("delivered", "read", "expected"),
    [
        (0, 0, Positions(3, 2)),
        (3, 2, Positions(3, 2)),
        (1, 1, Positions(3, 2)),
        (4, 0, Positions(4, 2)),
        (0, 3, Positions(3, 3)),
        (0, 5, Positions(5, 5)),
        (5, 1, Positions(5, 2)),
        (1, 4, Positions(4, 4)),
    ],
)
async def test_advance_takes_the_higher_of_each(
    world: World, delivered: int, read: int, expected: Positions
) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send_many(chat, anna, 5)
    await world.ack(ben, chat, 3)
    await world.read(ben, chat, 2)
    world.new_commits()
    [outcome] = await world.storage.advance(
        [Advance(user_id=ben, chat_id=chat, delivered=delivered, read=read)], now_ms=world.now()
    )
    moved = expected != Positions(3, 2)
    assert outcome == Advanced(expected, moved=moved)
    assert await world.positions(ben, chat) == expected
    assert world.new_events() == ([PositionsAdvanced(chat, ben, expected)] if moved else [])


async def test_advance_stamps_a_move_and_only_a_move(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send_many(chat, anna, 2)

    async def updated_at_ms() -> int:
        status = await world.storage.delivery_status(anna, chat, None)
        return {member.user_id: member.updated_at_ms for member in status.members}[ben]

    advance = Advance(user_id=ben, chat_id=chat, delivered=2)
    now_ms = world.now()
    await world.storage.advance([advance], now_ms=now_ms)
    assert await updated_at_ms() == now_ms
    await world.storage.advance([advance], now_ms=world.now())
    assert await updated_at_ms() == now_ms


async def test_advance_refuses_outsiders_before_it_looks_at_the_bound(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    chat = await world.group(anna, ben)
    await world.send(chat, anna)
    await world.leave(ben, chat)
    world.new_commits()
    for user in (ben, cleo, world.stranger()):
        for sequence in (0, 1, 900):
            assert isinstance(await world.try_ack(user, chat, sequence), NotAMember)
            assert isinstance(await world.try_read(user, chat, sequence), NotAMember)
    assert isinstance(await world.try_ack(anna, world.no_chat(), 1), NotAMember)
    assert world.new_commits() == []


async def test_advance_refuses_above_the_head_and_moves_nothing(world: World) -> None:
    """D-04: the head is the last stored message, whatever the counter says."""
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send_many(chat, anna, 3)
    await world.engine.set_counter(chat, 10)
    world.new_commits()
    for outcome in (
        await world.try_ack(ben, chat, 4),
        await world.try_read(ben, chat, 4),
        *await world.storage.advance(
            [Advance(user_id=ben, chat_id=chat, delivered=2, read=10**15)], now_ms=world.now()
        ),
    ):
        assert isinstance(outcome, SequenceAboveHead)
        assert outcome.head == 3
    assert await world.positions(ben, chat) == Positions(0, 0)
    assert world.new_commits() == []
    assert (await world.ack(ben, chat, 3)).moved


async def test_advance_takes_a_position_inside_a_hole(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send(chat, anna)
    await world.engine.set_counter(chat, 10)
    await world.send(chat, anna)
    assert (await world.ack(ben, chat, 5)).positions == Positions(5, 0)


async def test_advance_answers_each_of_a_batch_by_itself(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    one, other = await world.direct(anna, ben), await world.group(anna, cleo)
    await world.send_many(one, anna, 3)
    await world.send_many(other, anna, 2)
    world.new_commits()
    outcomes = await world.storage.advance(
        [
            Advance(user_id=ben, chat_id=one, delivered=2),
            Advance(user_id=ben, chat_id=other, delivered=1),
            Advance(user_id=cleo, chat_id=other, read=9),
            Advance(user_id=cleo, chat_id=other, read=1),
            Advance(user_id=anna, chat_id=one, delivered=1),
            Advance(user_id=ben, chat_id=one, delivered=1),
            Advance(user_id=ben, chat_id=one, read=3),
        ],
        now_ms=world.now(),
    )
    assert outcomes[0] == Advanced(Positions(2, 0), moved=True)
    assert isinstance(outcomes[1], NotAMember)
    assert isinstance(outcomes[2], SequenceAboveHead)
    assert outcomes[3] == Advanced(Positions(1, 1), moved=True)
    assert outcomes[4] == Advanced(Positions(3, 3), moved=False)
    assert outcomes[5] == Advanced(Positions(2, 0), moved=False)
    assert outcomes[6] == Advanced(Positions(3, 3), moved=True)
    [commit] = world.new_commits()
    told = {}
    for event in commit:
        assert isinstance(event, PositionsAdvanced)
        told[event.user_id, event.chat_id] = event.positions
    assert told == {(ben, one): Positions(3, 3), (cleo, other): Positions(1, 1)}


async def test_advance_of_nothing_is_nothing(world: World) -> None:
    assert await world.storage.advance([], now_ms=world.now()) == []
    assert world.new_commits() == []


async def test_advance_at_once_ends_at_the_highest(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send_many(chat, anna, 20)
    await asyncio.gather(
        *(world.ack(ben, chat, sequence) for sequence in (7, 20, 3, 11)),
        *(world.read(ben, chat, sequence) for sequence in (9, 2, 12, 5)),
    )
    assert await world.positions(ben, chat) == Positions(20, 12)


async def test_advance_goes_on_from_the_old_positions_when_a_member_comes_back(
    world: World,
) -> None:
    anna, ben = await world.people(2)
    chat = await world.group(anna, ben)
    await world.send_many(chat, anna, 4)
    await world.ack(ben, chat, 3)
    await world.read(ben, chat, 2)
    await world.leave(ben, chat)
    await world.send_many(chat, anna, 4)
    await world.add(anna, chat, ben)
    entry = await world.entry(ben, chat)
    assert (entry.delivered, entry.read, entry.joined_sequence) == (3, 2, 8)
    assert await world.ack(ben, chat, 2) == Advanced(Positions(3, 2), moved=False)
    assert await world.ack(ben, chat, 8) == Advanced(Positions(8, 2), moved=True)


# ADR-008, appendix E.


async def test_adr008_watermark_monotonic(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.group(anna, ben)
    await world.send_many(chat, anna, 9)
    highest = Positions(0, 0)
    for sequence in (5, 4, 9, 1, 7):
        await world.ack(ben, chat, sequence)
        await world.read(ben, chat, sequence // 2)
        positions = await world.positions(ben, chat)
        assert positions == positions.merged(highest)
        highest = positions
    assert highest == Positions(9, 4)


async def test_adr008_ack_cumulative(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send_many(chat, anna, 5)
    await world.ack(ben, chat, 3)
    delivered = [
        (await world.storage.delivery_status(anna, chat, sequence)).summary.all_delivered
        for sequence in range(1, 6)
    ]
    assert delivered == [True, True, True, False, False]


async def test_adr008_delivered_implies_persisted(world: World) -> None:
    """Held by the bound: nothing above the last stored message can be acknowledged."""
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    assert isinstance(await world.try_ack(ben, chat, 1), SequenceAboveHead)
    await world.send(chat, anna)
    await world.ack(ben, chat, 1)
    assert (await world.storage.delivery_status(anna, chat, 1)).summary.delivered_count == 1


async def test_adr008_watermark_bounded_by_counter(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send_many(chat, anna, 2)
    for sequence in range(6):
        await world.try_read(ben, chat, sequence)
    counter = await world.engine.counter(chat)
    assert counter is not None
    assert await world.positions(ben, chat) == Positions(2, 2)
    assert counter >= 2


async def test_adr008_conditional_write_prevents_regression(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send_many(chat, anna, 50)
    assert (await world.ack(ben, chat, 50)).moved
    assert await world.ack(ben, chat, 45) == Advanced(Positions(50, 0), moved=False)
    assert await world.ack(ben, chat, 50) == Advanced(Positions(50, 0), moved=False)


async def test_adr008_multi_device_highest_wins(world: World) -> None:
    """The schedule of ADR-008 section 5.2: phone 50, tablet 48, tablet 52."""
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send_many(chat, anna, 60)
    await world.ack(ben, chat, 45)
    stored = [(await world.ack(ben, chat, ack)).positions.delivered for ack in (50, 48, 52)]
    assert stored == [50, 50, 52]
    # A tablet that is behind its phone still gets everything above its own cursor (D-01).
    assert [m.sequence for m in await world.messages(ben, chat, 48)] == list(range(49, 61))


async def test_adr008_delivery_state_independent_of_membership(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.group(anna, ben)
    await world.send_many(chat, anna, 3)
    await world.read(ben, chat, 2)
    await world.remove(anna, chat, ben)
    await world.engine.reopen()
    await world.add(anna, chat, ben)
    assert await world.positions(ben, chat) == Positions(2, 2)


async def test_adr008_delivery_query_authorization(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    chat = await world.group(anna, ben)
    await world.send(chat, anna)
    for member in (anna, ben):
        assert (await world.storage.delivery_status(member, chat, 1)).member_count == 2
    await world.leave(ben, chat)
    for outsider in (ben, cleo):
        with pytest.raises(NotAMember):
            await world.storage.delivery_status(outsider, chat, 1)


async def test_adr008_group_delivered_requires_all_members(world: World) -> None:
    """All who are awaited: members other than the author who joined before the message.

    ADR-008 says "every current member"; a joiner would then turn ✓✓ back into ✓.
    """
    anna, ben, cleo, dora = await world.people(4)
    chat = await world.group(anna, ben, cleo)
    await world.send(chat, anna)

    async def is_delivered() -> bool:
        return (await world.storage.delivery_status(anna, chat, 1)).summary.all_delivered

    await world.ack(ben, chat, 1)
    assert not await is_delivered()
    await world.ack(cleo, chat, 1)
    assert await is_delivered()
    await world.add(anna, chat, dora)
    assert await is_delivered()


async def test_moved_at_tells_when_a_position_last_moved(world: World) -> None:
    anna, ben = await world.people(2)
    chats = [await world.direct(anna, ben), await world.group(anna, ben)]
    await world.send(chats[0], anna)
    before = await world.storage.moved_at(ben, chats)
    assert set(before) == set(chats)
    (advanced,) = await world.storage.advance(
        [Advance(user_id=ben, chat_id=chats[0], delivered=1)], now_ms=before[chats[0]] + 5
    )
    assert isinstance(advanced, Advanced)
    after = await world.storage.moved_at(ben, [*chats, world.no_chat()])
    assert after == {chats[0]: before[chats[0]] + 5, chats[1]: before[chats[1]]}
