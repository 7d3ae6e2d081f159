"""The worker and its rosters: none too old is used, and none makes the last word wrong."""

import asyncio

import msgspec
import pytest

from tests.unit.fanout.stage import CONNECTION, Stage
from tidewire.domain.chats import Roster
from tidewire.domain.events import MessageAppended, PositionsAdvanced
from tidewire.domain.ids import ChatId, UserId


async def test_changes_in_reverse_order_leave_nobody_with_the_wrong_last_word(
    stage: Stage,
) -> None:
    """Version 5, then 4, as a relay and a publisher may cross in a cluster (B8)."""
    ann, ben, cem = await stage.world.people(3)
    chat_id = await stage.world.group(ann, ben, cem)
    stage.connect(ben, cem)
    stage.fan_out()
    await stage.world.remove(ann, chat_id, cem)
    await stage.world.add(ann, chat_id, cem)
    for commit in reversed(stage.world.new_commits()):
        stage.bus(commit)
    await stage.settled()
    for user_id in (ben, cem):
        last = stage.router.got(user_id, "chat_update")[-1]
        assert (last["change"], last["user_id"]) == ("member_added", cem)


async def test_readded_member_is_not_pushed_what_was_sent_meanwhile(stage: Stage) -> None:
    """The worker is late: it reads the members when the member is back already (B9)."""
    ann, ben, cem = await stage.world.people(3)
    chat_id = await stage.world.group(ann, ben, cem)
    stage.world.new_commits()
    stage.connect(ben, cem)
    await stage.world.remove(ann, chat_id, cem)
    await stage.world.send_many(chat_id, ann, 3)
    await stage.world.add(ann, chat_id, cem)
    await stage.world.send(chat_id, ann)
    stage.fan_out()
    await stage.router.until(lambda: stage.sequences(ben) == [1, 2, 3, 4])
    assert stage.sequences(cem) == [4]


# What a roster is good for, and the order of what waits for one (E13).


async def two_changes_of_members(stage: Stage) -> tuple[ChatId, UserId, UserId, UserId]:
    """Three in a chat, one of them removed; the worker has heard of the chat's creation only."""
    ann, ben, cem = await stage.world.people(3)
    chat_id = await stage.world.group(ann, ben, cem)
    stage.connect(ann, ben, cem)
    stage.fan_out()
    await stage.world.remove(ann, chat_id, cem)
    await stage.world.rename(ann, chat_id, "without Cem")
    stage.world.new_commits()
    return chat_id, ann, ben, cem


async def test_roster_older_than_the_event_is_read_again(stage: Stage) -> None:
    """The worker knows an older roster, and the store answers with one that is older still."""
    chat_id, ann, ben, cem = await two_changes_of_members(stage)
    stage.storage.outdated = [Roster(chat_id, 2, (ann, ben, cem))] * 2
    await stage.world.send(chat_id, ann)
    stage.fan_out()
    await stage.router.until(lambda: stage.sequences(ben) == [1])
    assert stage.sequences(cem) == []
    assert stage.worker.counters.roster_reads == 3


async def test_event_does_not_overtake_those_that_wait_for_members(stage: Stage) -> None:
    """The second event would be content with the roster that is known; the first is not."""
    chat_id, ann, ben, _ = await two_changes_of_members(stage)
    await stage.world.send_many(chat_id, ann, 2)
    [[first, second]] = [
        [event for event in commit if isinstance(event, MessageAppended)]
        for commit in stage.world.new_commits()
    ]
    stage.storage.gate.clear()
    stage.bus([first])
    stage.bus([msgspec.structs.replace(second, membership_version=1)])
    stage.worker.typing(ann, chat_id, is_typing=True, origin=CONNECTION)
    assert stage.router.connected[ben][1:] == []
    stage.storage.gate.set()
    await stage.router.until(lambda: len(stage.router.connected[ben]) == 4)
    kinds = [frame["type"] for frame in stage.router.connected[ben]]
    assert kinds == ["chat_update", "message", "message", "typing_indicator"]
    assert stage.sequences(ben) == [1, 2]


# Ticks go to those who are members when the positions are read. A gateway of a cluster hears of no
# change of members, and would believe the roster that it knows.


@pytest.mark.parametrize("devices", [1, 2])
async def test_ticks_reach_a_member_who_has_only_just_joined(stage: Stage, devices: int) -> None:
    """All have read what the newcomer said first, and nothing moves after that."""
    stage.router.devices = devices
    ann, ben, cem = await stage.world.people(3)
    chat_id = await stage.world.group(ann, ben)
    stage.connect(ann, ben, cem)
    stage.fan_out()
    await stage.world.add(ann, chat_id, cem)
    await stage.world.send(chat_id, cem)
    await stage.world.read(ann, chat_id, 1)
    await stage.world.read(ben, chat_id, 1)
    hear_positions_only(stage)
    await stage.router.until(lambda: last_status(stage, cem) == (1, 1))


@pytest.mark.parametrize("devices", [1, 2])
async def test_ticks_do_not_reach_a_member_who_has_only_just_gone(
    stage: Stage, devices: int
) -> None:
    stage.router.devices = devices
    ann, ben, cem = await stage.world.people(3)
    chat_id = await stage.world.group(ann, ben, cem)
    stage.connect(ann, ben, cem)
    stage.fan_out()
    await stage.world.remove(ann, chat_id, cem)
    await stage.world.send(chat_id, ann)
    await stage.world.read(ben, chat_id, 1)
    hear_positions_only(stage)
    await stage.router.until(lambda: last_status(stage, ann) == (1, 1))
    assert stage.router.got(cem, "status_update") == []


async def test_member_who_is_back_is_told_the_ticks_of_meanwhile(stage: Stage) -> None:
    """The others were told while this one was out; nothing moves any more."""
    ann, ben, cem = await stage.world.people(3)
    chat_id = await stage.world.group(ann, ben, cem)
    stage.connect(ann, ben, cem)
    stage.router.devices = 1
    await stage.world.send(chat_id, cem)
    await stage.world.remove(ann, chat_id, cem)
    await stage.world.read(ann, chat_id, 1)
    await stage.world.read(ben, chat_id, 1)
    stage.fan_out()
    await stage.router.until(lambda: last_status(stage, ann) == (1, 1))
    await stage.world.add(ann, chat_id, cem)
    stage.fan_out()
    await stage.router.until(lambda: last_status(stage, cem) == (1, 1))


def hear_positions_only(stage: Stage) -> None:
    for commit in stage.world.new_commits():
        stage.bus([event for event in commit if isinstance(event, PositionsAdvanced)])


def last_status(stage: Stage, user_id: UserId) -> tuple[object, object] | None:
    """The others' numbers as the user was told them last."""
    got = stage.router.got(user_id, "status_update")
    return (got[-1]["others_delivered"], got[-1]["others_read"]) if got else None


# A block changes a roster without an event.


async def blocked_while_read(stage: Stage) -> tuple[UserId, UserId, ChatId]:
    """Two people whose roster is read, and one blocks the other before the answer is there."""
    ann, ben = await stage.world.people(2)
    chat_id = await stage.world.direct(ann, ben)
    stage.world.new_commits()
    stage.connect(ann, ben)
    stage.storage.answered.clear()
    return ann, ben, chat_id


async def under_way(stage: Stage) -> None:
    async with asyncio.timeout(30):
        while not stage.storage.reads:
            await turn()


async def turn() -> None:
    """Let everybody else have a go."""
    loop = asyncio.get_running_loop()
    passed = loop.create_future()
    loop.call_soon(passed.set_result, None)
    await passed


async def test_roster_that_was_read_before_a_block_is_not_used_after_it(stage: Stage) -> None:
    ann, ben, chat_id = await blocked_while_read(stage)
    stage.worker.typing(ann, chat_id, is_typing=True, origin=CONNECTION)
    await under_way(stage)
    await stage.storage.block(ben, ann, now_ms=1)
    stage.worker.roster_changed(chat_id)
    stage.storage.answered.set()
    await stage.world.send(chat_id, ben)
    stage.fan_out()
    await stage.router.until(lambda: stage.sequences(ann) == [1])
    stage.worker.typing(ann, chat_id, is_typing=True, origin=CONNECTION)
    assert stage.router.got(ben, "typing_indicator") == []
    assert stage.worker.counters.roster_reads == 2


async def test_ticks_are_not_told_by_a_roster_from_before_a_block(stage: Stage) -> None:
    ann, ben, chat_id = await blocked_while_read(stage)
    stage.miss_status(chat_id, ben)
    await under_way(stage)
    await stage.storage.block(ben, ann, now_ms=1)
    stage.worker.roster_changed(chat_id)
    stage.storage.answered.set()
    async with asyncio.timeout(30):
        while stage.worker.counters.roster_reads < 2:
            await turn()
    await stage.world.send(chat_id, ben)
    stage.fan_out()
    await stage.router.until(lambda: stage.sequences(ann) == [1])
    assert stage.router.got(ann, "status_update") == []


async def test_changed_roster_is_read_again(stage: Stage) -> None:
    ann, ben = await stage.world.people(2)
    chat_id = await stage.world.direct(ann, ben)
    stage.connect(ann, ben)
    stage.fan_out()
    assert stage.storage.reads == 0
    stage.worker.roster_changed(chat_id)
    await stage.world.send(chat_id, ann)
    stage.fan_out()
    await stage.router.until(lambda: stage.sequences(ben) == [1])
    assert stage.storage.reads == 1
