"""What fails unexpectedly for one event or one chat fails for it alone (A5)."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.unit.fanout.stage import Harness, Stage
from tidewire.domain.chats import Roster
from tidewire.domain.delivery import Floors
from tidewire.domain.errors import StoreDamaged
from tidewire.domain.ids import ChatId, ConnectionId, UserId
from tidewire.fanout import worker as module


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
    await stage.worker.settled()
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
    stage.worker.committed([event for commit in stage.world.new_commits() for event in commit])
    await stage.worker.settled()
    assert stage.sequences(talk.eve) == [1]
    assert [(sorted(users or ()), why) for users, why in stage.router.resyncs] == [
        (sorted([talk.ann, talk.ben]), "pushes_lost")
    ]
    assert stage.tasks.failures_by_kind == {"push": 1}


async def test_typing_that_fails_makes_nobody_sync(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_for(talk.bad, "typing_push", monkeypatch)
    for chat_id in (talk.bad, talk.good):
        talk.stage.worker.typing(talk.ann, chat_id, is_typing=True, origin=ConnectionId("conn_1"))
    await talk.stage.worker.settled()
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
    await stage.worker.settled()
    assert stage.router.resyncs == [], "only typing was to be told"
    await stage.world.send(talk.bad, talk.ann)
    await stage.world.send(talk.good, talk.ann)
    stage.fan_out()
    await stage.worker.settled()
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
    await stage.worker.settled()
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
        await stage.worker.settled()
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
    stage.worker.committed(created)
    await stage.worker.settled()
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
        stage.worker.tell_status(chat_id, reader)
    await stage.router.until(lambda: len(talk.got(talk.ann, "status_update")) > 0)
    told = talk.got(talk.ann, "status_update")
    assert {one["chat_id"] for one in told} == {talk.good}
    assert stage.tasks.failures_by_kind == {"status": 1}
