"""What fails unexpectedly for one event or one chat fails for it alone (A5)."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.unit.fanout.stage import Harness, Stage
from tidewire.domain.chats import Roster
from tidewire.domain.delivery import DigestEntry, Floors
from tidewire.domain.errors import StoreDamaged, StoreUnavailable, Unavailable
from tidewire.domain.ids import ChatId, ConnectionId, UserId
from tidewire.fanout import worker as module
from tidewire.fanout.options import ALONE_MAX


class Talk:
    """Two direct chats with one person in both."""

    def __init__(self, stage: Stage, people: Sequence[UserId], chats: Sequence[ChatId]) -> None:
        self.stage = stage
        self.ann, self.ben, self.eve = people
        self.bad, self.good = chats

    def got(self, user_id: UserId, kind: str) -> list[dict[str, Any]]:
        return self.stage.router.got(user_id, kind)


@pytest.fixture
async def talk(tmp_path: Path) -> AsyncIterator[Talk]:
    engine = Harness(tmp_path)
    await engine.open()
    stage = Stage(engine)
    people = await stage.world.people(3)
    chats = [await stage.world.direct(people[0], other) for other in people[1:]]
    stage.connect(*people)
    stage.fan_out()
    await stage.settled()
    yield Talk(stage, people, chats)
    await stage.tasks.close()
    await engine.close()


def failing_for(chat_id: ChatId, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a function of the plan fail for one chat."""
    good = getattr(module, name)

    def act(first: Any, *positional: Any, **named: Any) -> Any:
        concerned = first if isinstance(first, str) else first.message.chat_id
        if concerned == chat_id:
            raise ZeroDivisionError
        return good(first, *positional, **named)

    monkeypatch.setattr(module, name, act)


@pytest.mark.parametrize("is_known", [True, False], ids=["members known", "members read"])
async def test_event_that_fails_makes_its_members_sync_and_keeps_no_other_back(
    talk: Talk, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    stage = talk.stage
    failing_for(talk.bad, "push_of", monkeypatch)
    if not is_known:
        stage.worker.rosters_changed()
    await stage.world.send(talk.bad, talk.ann)
    await stage.world.send(talk.good, talk.ann)
    stage.bus([event for commit in stage.world.new_commits() for event in commit])
    await stage.settled()
    assert stage.sequences(talk.eve) == [1]
    assert [(sorted(users or ()), why) for users, why in stage.router.resyncs] == [
        (sorted([talk.ann, talk.ben]), "pushes_lost")
    ]
    assert stage.tasks.failures_by_kind == {"push": 1}


async def test_move_of_a_position_that_fails_keeps_no_other_back(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = talk.stage
    ticks = stage.worker._ticks
    good = ticks.moved

    def broken(chat_id: ChatId, user_id: UserId) -> None:
        if chat_id == talk.bad:
            raise ZeroDivisionError
        good(chat_id, user_id)

    monkeypatch.setattr(ticks, "moved", broken)
    for chat, other in ((talk.bad, talk.ben), (talk.good, talk.eve)):
        await stage.world.send(chat, talk.ann)
        await stage.world.ack(other, chat, 1)
    # As one commit: the bus is told of both at once, and must not raise.
    stage.bus([event for commit in stage.world.new_commits() for event in commit])
    await stage.router.until(lambda: told(talk, talk.good) == 1)
    # What was not told comes with the digest.
    assert [why for _, why in stage.router.resyncs] == ["pushes_lost"]
    assert stage.tasks.failures_by_kind == {"push": 1}


async def test_typing_that_fails_makes_nobody_sync(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_for(talk.bad, "typing_push", monkeypatch)
    for chat_id in (talk.bad, talk.good):
        talk.stage.worker.typing(talk.ann, chat_id, is_typing=True, origin=ConnectionId("conn_1"))
    await talk.stage.settled()
    assert len(talk.got(talk.eve, "typing_indicator")) == 1
    assert talk.stage.router.resyncs == []
    assert talk.stage.tasks.failures_by_kind == {"push": 1}


async def test_members_that_cannot_be_read_keep_no_other_chat_back(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = talk.stage
    good = stage.storage.roster

    async def roster(chat_id: ChatId) -> Roster | None:
        if chat_id == talk.bad:
            raise ZeroDivisionError
        return await good(chat_id)

    monkeypatch.setattr(stage.storage, "roster", roster)
    stage.worker.rosters_changed()
    stage.worker.typing(talk.ann, talk.bad, is_typing=True, origin=ConnectionId("conn_1"))
    await stage.settled()
    assert stage.router.resyncs == [], "only typing was to be told"
    await stage.world.send(talk.bad, talk.ann)
    await stage.world.send(talk.good, talk.ann)
    stage.fan_out()
    await stage.settled()
    assert stage.sequences(talk.eve) == [1]
    assert stage.router.resyncs == [(None, "store_unavailable")]
    assert stage.tasks.failures_by_kind == {"push": 2}


def damage_members(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The members of one chat cannot be read any more, and none are remembered."""
    good = talk.stage.storage.roster

    async def roster(chat_id: ChatId) -> Roster | None:
        if chat_id == talk.bad:
            raise StoreDamaged("a page")
        return await good(chat_id)

    monkeypatch.setattr(talk.stage.storage, "roster", roster)
    talk.stage.worker.rosters_changed()


def held_timers(monkeypatch: pytest.MonkeyPatch, seconds: float) -> list[Callable[[], None]]:
    """What the event loop was to call after this long, from now on."""
    held: list[Callable[[], None]] = []
    loop = asyncio.get_running_loop()
    call_later = loop.call_later

    def hold(delay: float, act: Callable[..., None], *arguments: Any) -> Any:
        if delay != seconds:
            return call_later(delay, act, *arguments)
        held.append(partial(act, *arguments))
        return None

    monkeypatch.setattr(loop, "call_later", hold)
    return held


async def test_damaged_members_take_no_other_chat_along(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The damaged chat is not asked for again and again, and what waits for the members of another
    chat is pushed, not given up."""
    stage = talk.stage
    damage_members(talk, monkeypatch)
    reads = stage.worker.counters.roster_reads
    stage.storage.gate.clear()
    await stage.world.send(talk.good, talk.ann)
    await stage.world.send(talk.bad, talk.ann)
    stage.fan_out()
    await stage.router.until(lambda: bool(stage.router.resyncs))
    stage.storage.gate.set()
    await stage.settled()
    assert stage.sequences(talk.eve) == [1]
    assert stage.router.resyncs == [(None, "store_unavailable")]
    assert stage.worker.counters.roster_reads == reads + 2
    assert stage.tasks.failures_by_kind == {"push": 1}


async def test_damaged_members_make_everybody_sync_once_in_a_while(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what was committed meanwhile is not forgotten: it is told of when the while is over."""
    stage = talk.stage
    whiles = held_timers(monkeypatch, module.RESYNC_ALL_S)
    damage_members(talk, monkeypatch)

    async def send() -> int:
        await stage.world.send(talk.bad, talk.ann)
        stage.fan_out()
        await stage.settled()
        return len(stage.router.resyncs)

    assert [await send() for _ in range(5)] == [1, 1, 1, 1, 1]
    assert stage.router.resyncs == [(None, "store_unavailable")]
    whiles.pop()()
    assert len(stage.router.resyncs) == 2
    whiles.pop()()
    assert len(stage.router.resyncs) == 2, "nothing was committed since"
    assert whiles == []
    assert await send() == 3


async def test_damaged_members_who_became_known_meanwhile_sync_alone(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = talk.stage
    talk.bad = await stage.world.direct(talk.ben, talk.eve)
    created = [event for commit in stage.world.new_commits() for event in commit]
    damage_members(talk, monkeypatch)
    await stage.world.send(talk.bad, talk.ben)
    stage.fan_out()
    stage.bus(created)
    await stage.settled()
    assert [(sorted(users or ()), why) for users, why in stage.router.resyncs] == [
        (sorted([talk.ben, talk.eve]), "store_unavailable")
    ]


@pytest.mark.parametrize(
    "error", [ZeroDivisionError(), StoreDamaged("a page")], ids=["fault", "damage"]
)
@pytest.mark.parametrize("method", ["floors", "roster"])
async def test_ticks_of_one_chat_that_cannot_be_read_keep_no_other_back(
    talk: Talk, monkeypatch: pytest.MonkeyPatch, method: str, error: Exception
) -> None:
    stage = talk.stage
    for chat_id, reader in ((talk.bad, talk.ben), (talk.good, talk.eve)):
        await stage.world.send(chat_id, talk.ann)
        await stage.world.ack(reader, chat_id, 1)
    floors_of, roster_of = stage.storage.floors, stage.storage.roster

    async def floors(chat_ids: Sequence[ChatId]) -> list[Floors | None]:
        if method == "floors" and talk.bad in chat_ids:
            raise error
        return await floors_of(chat_ids)

    async def roster(chat_id: ChatId) -> Roster | None:
        if method == "roster" and chat_id == talk.bad:
            raise error
        return await roster_of(chat_id)

    monkeypatch.setattr(stage.storage, "floors", floors)
    monkeypatch.setattr(stage.storage, "roster", roster)
    stage.worker.rosters_changed()
    for chat_id, reader in ((talk.bad, talk.ben), (talk.good, talk.eve)):
        stage.miss_status(chat_id, reader)
    await stage.router.until(lambda: len(talk.got(talk.ann, "status_update")) > 0)
    told = talk.got(talk.ann, "status_update")
    assert {one["chat_id"] for one in told} == {talk.good}
    assert stage.tasks.failures_by_kind == {"status": 1}


@pytest.mark.parametrize("method", ["roster", "standing"])
async def test_chat_that_is_slow_to_read_keeps_no_other_tick_back(
    talk: Talk, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """One slow chat must not delay the ticks of all others, now or later (F7)."""
    stage = talk.stage
    for chat_id in (talk.bad, talk.good):
        await stage.world.send_many(chat_id, talk.ann, 3)
    stage.fan_out()
    stage.connect(talk.ben)
    is_open = asyncio.Event()
    roster_of, standing_of = stage.storage.roster, stage.storage.standing

    async def roster(chat_id: ChatId) -> Roster | None:
        if method == "roster" and chat_id == talk.bad:
            await is_open.wait()
        return await roster_of(chat_id)

    async def standing(user_id: UserId, chat_id: ChatId) -> DigestEntry | None:
        if method == "standing" and chat_id == talk.bad:
            await is_open.wait()
        return await standing_of(user_id, chat_id)

    monkeypatch.setattr(stage.storage, "roster", roster)
    monkeypatch.setattr(stage.storage, "standing", standing)
    stage.worker.rosters_changed()
    for sequence in (1, 2, 3):
        for chat_id, reader in ((talk.bad, talk.ben), (talk.good, talk.eve)):
            await stage.world.ack(reader, chat_id, sequence)
        stage.fan_out()
        await stage.router.until(lambda at=sequence: told(talk, talk.good) == at)  # type: ignore[misc]
    assert told(talk, talk.bad) == 0
    is_open.set()
    await stage.router.until(lambda: told(talk, talk.bad) == 3)


def told(talk: Talk, chat_id: ChatId) -> object:
    """How far Ann was told that all others have a chat."""
    updates = talk.got(talk.ann, "status_update")
    return max((one["others_delivered"] for one in updates if one["chat_id"] == chat_id), default=0)


@pytest.mark.parametrize("method", ["floors", "standing"])
async def test_ticks_that_a_store_that_is_away_kept_back_are_told_when_it_is_there(
    talk: Talk, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    stage = talk.stage
    await stage.world.send(talk.good, talk.ann)
    stage.fan_out()
    good, failures = getattr(stage.storage, method), [StoreUnavailable("away")] * 2

    async def away(*positional: Any) -> Any:
        if failures:
            raise failures.pop()
        return await good(*positional)

    monkeypatch.setattr(stage.storage, method, away)
    await stage.world.ack(talk.eve, talk.good, 1)
    stage.fan_out()
    await stage.router.until(lambda: told(talk, talk.good) == 1)
    assert failures == []
    assert stage.tasks.failures_by_kind == {}


@pytest.mark.parametrize("is_roster_known", [True, False])
async def test_ticks_are_told_when_it_is_known_again_who_is_connected(
    talk: Talk, monkeypatch: pytest.MonkeyPatch, is_roster_known: bool
) -> None:
    """A router that cannot be asked has not said that no user is connected."""
    stage = talk.stage
    await stage.world.send(talk.good, talk.ann)
    stage.fan_out()
    await stage.settled()
    if not is_roster_known:
        stage.worker.roster_changed(talk.good)
    good, failures = stage.router.presence, [Unavailable("away")] * 2

    async def away(user_ids: Sequence[UserId]) -> Mapping[UserId, int]:
        if failures:
            raise failures.pop()
        return await good(user_ids)

    monkeypatch.setattr(stage.router, "presence", away)
    await stage.world.ack(talk.eve, talk.good, 1)
    stage.fan_out()
    await stage.router.until(lambda: told(talk, talk.good) == 1)
    assert failures == []
    assert stage.tasks.failures_by_kind == {}


async def test_ticks_go_on_after_presence_could_not_be_asked(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = talk.stage
    await stage.world.send_many(talk.good, talk.ann, 2)
    stage.fan_out()
    good, asked = stage.router.presence, asyncio.Event()

    async def broken(_: Sequence[UserId]) -> dict[UserId, int]:
        asked.set()
        raise ZeroDivisionError

    monkeypatch.setattr(stage.router, "presence", broken)
    await stage.world.ack(talk.eve, talk.good, 1)
    stage.fan_out()
    await asked.wait()
    monkeypatch.setattr(stage.router, "presence", good)
    await stage.world.ack(talk.eve, talk.good, 2)
    stage.fan_out()
    await stage.router.until(lambda: told(talk, talk.good) == 2)
    assert stage.tasks.failures_by_kind == {"status": 1}


async def test_ticks_that_none_was_told_are_told_with_the_next_move(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if that one leaves the lowest position, which the author is shown, where it was."""
    stage = talk.stage
    group = await stage.world.group(talk.ann, talk.ben, talk.eve)
    await stage.world.send_many(group, talk.ann, 3)
    await stage.world.ack(talk.ben, group, 2)
    stage.fan_out()
    await stage.settled()
    good, asked = stage.router.presence, asyncio.Event()

    async def broken(_: Sequence[UserId]) -> dict[UserId, int]:
        asked.set()
        raise ZeroDivisionError

    monkeypatch.setattr(stage.router, "presence", broken)
    await stage.world.ack(talk.eve, group, 1)
    stage.fan_out()
    await asked.wait()
    monkeypatch.setattr(stage.router, "presence", good)
    await stage.world.ack(talk.ben, group, 3)
    stage.fan_out()
    await stage.router.until(lambda: told(talk, group) == 1)


async def test_reads_for_ticks_are_bounded(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart no members are known: ticks must not take all the reads there are."""
    stage = talk.stage
    others = await stage.world.people(ALONE_MAX + 5)
    chats = [await stage.world.direct(talk.ann, other) for other in others]
    for chat in chats:
        await stage.world.send(chat, talk.ann)
    stage.fan_out()
    await stage.settled()
    good, are_enough, reading, most = stage.storage.roster, asyncio.Event(), 0, 0

    async def slow(chat_id: ChatId) -> Roster | None:
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        if reading == ALONE_MAX:
            # Not at once: others would come in this very turn.
            asyncio.get_running_loop().call_later(0.05, are_enough.set)
        await are_enough.wait()
        reading -= 1
        return await good(chat_id)

    monkeypatch.setattr(stage.storage, "roster", slow)
    stage.worker.rosters_changed()
    for other, chat in zip(others, chats, strict=True):
        await stage.world.ack(other, chat, 1)
    stage.fan_out()
    await stage.router.until(lambda: all(told(talk, chat) == 1 for chat in chats))
    assert most == ALONE_MAX


async def test_status_that_cannot_be_built_keeps_no_other_chat_back(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = talk.stage
    stage.router.devices = 1
    good = getattr(module, "status_pushes")  # noqa: B009 - not exported

    def broken(floors: Floors, *positional: Any, **named: Any) -> Any:
        if floors.chat_id == talk.bad:
            raise ZeroDivisionError
        return good(floors, *positional, **named)

    monkeypatch.setattr(module, "status_pushes", broken)
    for chat_id, reader in ((talk.bad, talk.ben), (talk.good, talk.eve)):
        await stage.world.send(chat_id, talk.ann)
        await stage.world.ack(reader, chat_id, 1)
    stage.fan_out()
    await stage.router.until(lambda: told(talk, talk.good) == 1)
    assert stage.tasks.failures_by_kind == {"status": 1}
