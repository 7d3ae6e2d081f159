"""PositionStore's reads: floors, delivery status, unread counts and digests."""

from collections.abc import Mapping

import pytest

from tests.support.world import PLENTY, World
from tidewire.domain.chats import ChatType, CreateDirect, Role
from tidewire.domain.delivery import DeliverySummary, Lowest, Positions
from tidewire.domain.errors import NotAMember, SequenceAboveHead
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.limits import UNREAD_MAX, UNREAD_SCAN_MAX

# Floors.


async def boundaries(world: World, chat: ChatId, viewer: UserId) -> tuple[int, int]:
    """What the viewer may show as delivered and as read, by the floors."""
    floors = (await world.storage.floors([chat]))[0]
    assert floors is not None
    return (
        floors.delivered.boundary(viewer, floors.head),
        floors.read.boundary(viewer, floors.head),
    )


def naive(effective: Mapping[UserId, Positions], viewer: UserId, head: int) -> tuple[int, int]:
    """The same by looking at everybody."""
    others = [positions for user, positions in effective.items() if user != viewer]
    return (
        min([positions.delivered for positions in others], default=head),
        min([positions.read for positions in others], default=head),
    )


async def test_floors_are_none_when_there_is_no_such_chat(world: World) -> None:
    assert await world.storage.floors([world.no_chat()]) == [None]


async def test_floors_show_the_head_to_somebody_alone(world: World) -> None:
    anna = await world.person()
    chat = await world.group(anna)
    await world.send_many(chat, anna, 3)
    floors = (await world.storage.floors([chat]))[0]
    assert floors is not None
    assert (floors.chat_id, floors.head) == (chat, 3)
    assert floors.delivered == floors.read == Lowest(anna, 3, None)
    assert await boundaries(world, chat, anna) == (3, 3)


async def test_floors_of_a_direct_chat_are_the_other_ones_positions(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send_many(chat, anna, 4)
    await world.ack(ben, chat, 3)
    await world.read(ben, chat, 1)
    assert await boundaries(world, chat, anna) == (3, 1)
    assert await boundaries(world, chat, ben) == (4, 4)


async def test_floors_give_every_member_the_naive_minimum(world: World) -> None:
    people = await world.people(5)
    chat = await world.group(*people)
    await world.send_many(chat, people[0], 9)
    effective = {user: Positions(0, 0) for user in people} | {people[0]: Positions(9, 9)}
    acks = [(1, 4, 2), (2, 4, 4), (3, 1, 0), (4, 9, 3), (3, 4, 4), (1, 9, 9), (2, 5, 5)]
    for index, delivered, read in acks:
        user = people[index]
        await world.ack(user, chat, delivered)
        await world.read(user, chat, read)
        effective[user] = effective[user].merged(Positions(max(delivered, read), read))
        for viewer in people:
            assert await boundaries(world, chat, viewer) == naive(effective, viewer, 9)
            entry = await world.entry(viewer, chat)
            assert (entry.others_delivered, entry.others_read) == naive(effective, viewer, 9)


async def test_floors_name_the_smaller_user_when_two_are_lowest(world: World) -> None:
    people = sorted(await world.people(3))
    chat = await world.group(people[2], people[0], people[1])
    floors = (await world.storage.floors([chat]))[0]
    assert floors is not None
    assert floors.delivered == floors.read == Lowest(people[0], 0, 0)


async def test_floors_do_not_fall_when_somebody_joins(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    chat = await world.group(anna, ben)
    await world.send_many(chat, anna, 5)
    await world.read(ben, chat, 5)
    await world.add(anna, chat, cleo)
    assert await boundaries(world, chat, anna) == (5, 5)
    await world.send(chat, anna)
    assert await boundaries(world, chat, anna) == (5, 5)
    await world.read(ben, chat, 6)
    await world.ack(cleo, chat, 6)
    assert await boundaries(world, chat, anna) == (6, 5)


@pytest.mark.parametrize("way", ["removed", "left"])
async def test_floors_rise_when_who_was_behind_goes(world: World, way: str) -> None:
    anna, ben, cleo = await world.people(3)
    chat = await world.group(anna, ben, cleo)
    await world.send_many(chat, anna, 5)
    await world.read(ben, chat, 4)
    assert await boundaries(world, chat, anna) == (0, 0)
    await (world.leave(cleo, chat) if way == "left" else world.remove(anna, chat, cleo))
    assert await boundaries(world, chat, anna) == (4, 4)


async def test_floors_do_not_fall_when_somebody_comes_back(world: World) -> None:
    """His old positions are below; what he missed while away is not owed to him."""
    anna, ben, cleo = await world.people(3)
    chat = await world.group(anna, ben, cleo)
    await world.send_many(chat, anna, 3)
    await world.read(cleo, chat, 1)
    await world.leave(cleo, chat)
    await world.send_many(chat, anna, 3)
    await world.read(ben, chat, 6)
    assert await boundaries(world, chat, anna) == (6, 6)
    await world.add(anna, chat, cleo)
    assert await boundaries(world, chat, anna) == (6, 6)
    assert await world.positions(cleo, chat) == Positions(1, 1)


async def test_floors_carry_the_version_of_the_members_whom_they_are_of(world: World) -> None:
    """Also where a block has raised it, of which no event tells."""
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    versions = []
    for act in (None, world.storage.block):
        if act is not None:
            await act(anna, ben, now_ms=1)
        [floors], roster = await world.storage.floors([chat]), await world.storage.roster(chat)
        assert floors is not None
        assert roster is not None
        assert floors.membership_version == roster.membership_version
        versions.append(floors.membership_version)
    assert versions[0] < versions[1]


async def test_floors_are_still_there_after_a_restart(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    chat = await world.group(anna, ben, cleo)
    await world.send_many(chat, anna, 4)
    await world.read(ben, chat, 3)
    await world.ack(cleo, chat, 2)
    before = (await world.storage.floors([chat]))[0]
    await world.engine.reopen()
    assert await world.storage.floors([chat]) == [before]


# Delivery status.


def summary(sequence: int, delivered: int, read: int, pending: int) -> DeliverySummary:
    return DeliverySummary(
        sequence=sequence, delivered_count=delivered, read_count=read, pending_count=pending
    )


async def test_delivery_status_counts_those_who_are_awaited(world: World) -> None:
    anna, ben, cleo, dora = await world.people(4)
    chat = await world.group(anna, ben, cleo, dora)
    await world.send_many(chat, anna, 3)
    await world.ack(ben, chat, 3)
    await world.read(cleo, chat, 2)
    found = [
        (await world.storage.delivery_status(dora, chat, sequence)).summary
        for sequence in (1, 2, 3, None)
    ]
    assert found == [
        summary(1, 2, 1, 1),
        summary(2, 2, 1, 1),
        summary(3, 1, 0, 2),
        summary(3, 1, 0, 2),
    ]


async def test_delivery_status_awaits_neither_the_author_nor_later_joiners(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    chat = await world.group(anna, ben)
    await world.send(chat, ben)
    await world.add(anna, chat, cleo)
    await world.send(chat, cleo)
    first = await world.storage.delivery_status(anna, chat, 1)
    second = await world.storage.delivery_status(anna, chat, 2)
    assert (first.summary, first.summary.all_delivered) == (summary(1, 0, 0, 1), False)
    assert second.summary == summary(2, 0, 0, 2)
    await world.ack(anna, chat, 1)
    assert (await world.storage.delivery_status(anna, chat, 1)).summary.all_delivered


async def test_delivery_status_forgets_who_has_gone_and_awaits_nobody_alone(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.group(anna, ben)
    await world.send(chat, anna)
    await world.leave(ben, chat)
    status = await world.storage.delivery_status(anna, chat, 1)
    assert (status.summary, status.summary.all_delivered) == (summary(1, 0, 0, 0), True)
    assert [member.user_id for member in status.members] == [anna]
    # Who comes back after the message is not waited for.
    await world.add(anna, chat, ben)
    assert (await world.storage.delivery_status(anna, chat, 1)).summary == summary(1, 0, 0, 0)


async def test_delivery_status_lists_every_members_positions(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    chat = await world.group(anna, ben)
    await world.send_many(chat, anna, 3)
    await world.add(anna, chat, cleo)
    await world.ack(ben, chat, 2)
    await world.read(ben, chat, 1)
    status = await world.storage.delivery_status(ben, chat, 3)
    assert (status.chat_id, status.chat_type, status.member_count) == (chat, ChatType.GROUP, 3)
    listed = {m.user_id: (m.joined_sequence, m.positions) for m in status.members}
    assert listed == {
        anna: (0, Positions(3, 3)),
        ben: (0, Positions(2, 1)),
        cleo: (3, Positions(0, 0)),
    }
    assert len(status.members) == 3


async def test_delivery_status_of_an_empty_chat_awaits_nobody(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    status = await world.storage.delivery_status(anna, chat, None)
    assert (status.summary, status.chat_type) == (summary(0, 0, 0, 0), ChatType.DIRECT)


async def test_delivery_status_of_a_hole_is_that_of_nobodys_message(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send(chat, anna)
    await world.engine.set_counter(chat, 10)
    await world.send(chat, anna)
    await world.ack(ben, chat, 5)
    assert (await world.storage.delivery_status(anna, chat, 5)).summary == summary(5, 2, 1, 0)
    assert (await world.storage.delivery_status(anna, chat, 6)).summary == summary(6, 1, 1, 1)


async def test_delivery_status_refuses_outsiders_and_what_is_above_the_head(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    chat = await world.direct(anna, ben)
    await world.send(chat, anna)
    await world.engine.set_counter(chat, 10)
    with pytest.raises(SequenceAboveHead) as above:
        await world.storage.delivery_status(anna, chat, 2)
    assert above.value.head == 1
    for sequence in (None, 1, 2):
        with pytest.raises(NotAMember):
            await world.storage.delivery_status(cleo, chat, sequence)
        with pytest.raises(NotAMember):
            await world.storage.delivery_status(anna, world.no_chat(), sequence)


# Unread.


async def test_unread_counts_messages_of_others_above_read(world: World) -> None:
    """Never head minus read: own messages and holes do not count (A-02)."""
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send_many(chat, anna, 2)
    await world.engine.set_counter(chat, 100)
    await world.send(chat, ben)
    await world.send(chat, anna)
    assert (await world.entry(ben, chat)).unread == 3
    await world.ack(ben, chat, 102)
    assert (await world.entry(ben, chat)).unread == 3
    await world.read(ben, chat, 1)
    assert (await world.entry(ben, chat)).unread == 2
    await world.read(ben, chat, 101)
    assert (await world.entry(ben, chat)).unread == 1
    await world.read(ben, chat, 102)
    assert (await world.entry(ben, chat)).unread == 0
    # Anna was up to date until Ben wrote: his message is what she has not read.
    assert (await world.entry(anna, chat)).unread == 1


async def test_unread_of_a_joiner_starts_at_his_joining(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.group(anna)
    await world.send_many(chat, anna, 4)
    await world.add(anna, chat, ben)
    assert (await world.entry(ben, chat)).unread == 0
    await world.send(chat, anna)
    assert (await world.entry(ben, chat)).unread == 1
    await world.leave(ben, chat)
    await world.send_many(chat, anna, 2)
    await world.add(anna, chat, ben)
    assert (await world.entry(ben, chat)).unread == 0


async def test_unread_is_counted_up_to_its_bound(world: World) -> None:
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send_many(chat, anna, UNREAD_MAX - 1)
    assert (await world.entry(ben, chat)).unread == UNREAD_MAX - 1
    await world.send_many(chat, anna, 1)
    assert (await world.entry(ben, chat)).unread == UNREAD_MAX
    await world.send_many(chat, anna, 20)
    assert (await world.entry(ben, chat)).unread == UNREAD_MAX


async def test_unread_of_one_who_is_far_behind_is_that_of_the_last_messages(world: World) -> None:
    """Own messages above the position are looked at too; what is before the last ones is not."""
    anna, ben = await world.people(2)
    chat = await world.direct(anna, ben)
    await world.send_many(chat, anna, 5)
    for _ in range(2):
        await world.send_many(chat, ben, UNREAD_SCAN_MAX // 2)
    await world.send(chat, anna)
    await world.store(world.draft(chat, anna, mentions=(ben,)))
    entry = await world.entry(ben, chat)
    assert (entry.read, entry.head) == (0, UNREAD_SCAN_MAX + 7)
    assert (entry.unread, entry.mentions_unread) == (2, 1)


# Digest.


async def test_digest_is_the_state_of_each_chat(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    direct, group = await world.direct(anna, ben), await world.group(cleo)
    await world.send_many(group, cleo, 2)
    await world.add(cleo, group, anna, Role.ADMIN)
    await world.send_many(group, cleo, 3)
    await world.send_many(direct, ben, 4)
    await world.ack(anna, direct, 3)
    await world.read(anna, direct, 2)
    digest = await world.storage.digest(anna, after=None, count_max=PLENTY)
    assert digest.next_chat_id is None
    entries = {entry.chat_id: entry for entry in digest.entries}
    first, second = entries[direct], entries[group]
    assert (first.chat_type, first.head, first.joined_sequence) == (ChatType.DIRECT, 4, 0)
    assert (first.delivered, first.read, first.unread) == (3, 2, 2)
    assert (first.others_delivered, first.others_read) == (4, 4)
    assert (second.chat_type, second.head, second.joined_sequence) == (ChatType.GROUP, 5, 2)
    assert (second.delivered, second.read, second.unread) == (0, 0, 3)
    assert (second.others_delivered, second.others_read) == (5, 5)
    for entry in entries.values():
        chat = await world.chat(anna, entry.chat_id)
        assert entry.membership_version == chat.shown_version


async def test_digest_is_paged_by_chat_id(world: World) -> None:
    anna, *others = await world.people(8)
    chats = [world.no_chat() for _ in others]
    # Made in another order than that of their ids.
    for chat, other in zip(reversed(chats), others, strict=True):
        command = CreateDirect(chat_id=chat, actor_id=anna, other_id=other)
        await world.storage.create_direct(command, now_ms=world.now())
    for count_max in (1, 3, 7, 8):
        found: list[ChatId] = []
        after: ChatId | None = None
        while True:
            page = await world.storage.digest(anna, after=after, count_max=count_max)
            assert 1 <= len(page.entries) <= count_max
            found += [entry.chat_id for entry in page.entries]
            if page.next_chat_id is None:
                break
            assert page.next_chat_id == found[-1]
            after = page.next_chat_id
        assert found == chats


async def test_digest_has_only_the_chats_the_user_is_in(world: World) -> None:
    anna, ben, cleo = await world.people(3)
    left, stays, never = (
        await world.group(anna, ben),
        await world.group(anna, ben),
        await world.group(anna, cleo),
    )
    await world.leave(ben, left)
    digest = await world.storage.digest(ben, after=None, count_max=PLENTY)
    assert [entry.chat_id for entry in digest.entries] == [stays]
    await world.add(anna, never, ben)
    await world.add(anna, left, ben)
    digest = await world.storage.digest(ben, after=None, count_max=PLENTY)
    assert [entry.chat_id for entry in digest.entries] == sorted([left, stays, never])


async def test_digest_of_somebody_without_chats_is_empty(world: World) -> None:
    for user in (await world.person(), world.stranger()):
        digest = await world.storage.digest(user, after=None, count_max=5)
        assert (list(digest.entries), digest.next_chat_id) == ([], None)
