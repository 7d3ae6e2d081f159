"""Sessions are looked up again: those that ended are told, the others are left alone."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from tests.support.engines import MemoryHarness
from tests.support.memory.storage import MemoryStorage
from tests.unit.accounts.parts import LAPTOP, Plane
from tests.unit.accounts.test_authenticator import TEAM, external, identified, token_of
from tidewire.accounts import recheck as module
from tidewire.accounts.recheck import Connected, SessionRecheck
from tidewire.domain.accounts import Session
from tidewire.domain.errors import StoreUnavailable, Unauthorized
from tidewire.domain.ids import SessionId
from tidewire.runtime.supervise import TaskSupervisor


class Stage:
    def __init__(self, engine: MemoryHarness) -> None:
        self.plane = Plane(engine, external=TEAM)
        self.tasks = TaskSupervisor()
        self.connected: list[Connected] = []
        self.looks = 0
        self.ended: list[SessionId] = []
        self.done = asyncio.Event()
        self.recheck = SessionRecheck(
            store=engine.storage,
            clock=self.plane.clock,
            tasks=self.tasks,
            connected=self.look,
            on_ended=self.on_ended,
        )

    def look(self) -> Sequence[Connected]:
        self.looks += 1
        return self.connected

    def on_ended(self, session_ids: Sequence[SessionId]) -> None:
        self.ended += session_ids
        self.done.set()


@pytest.fixture
async def stage(engine: MemoryHarness) -> AsyncIterator[Stage]:
    made = Stage(engine)
    yield made
    await made.tasks.close()


async def test_session_that_ended_is_told(stage: Stage) -> None:
    plane = stage.plane
    anna = await plane.registered("anna")
    laptop = await plane.logged_in("anna", LAPTOP)
    user_id = anna.user.user_id
    stage.connected = [(user_id, one.session.session_id) for one in (anna, laptop)]
    await plane.engine.storage.revoke_session(user_id, laptop.session.session_id)
    stage.recheck()
    await asyncio.wait_for(stage.done.wait(), 30)
    assert stage.ended == [laptop.session.session_id]


async def test_session_that_expired_is_told(stage: Stage) -> None:
    anna = await stage.plane.registered("anna")
    stage.connected = [(anna.user.user_id, anna.session.session_id)]
    stage.plane.clock.pass_ms(stage.plane.options.session_ms)
    stage.recheck()
    await asyncio.wait_for(stage.done.wait(), 30)
    assert stage.ended == [anna.session.session_id]


async def test_user_of_an_identity_provider_stays_until_he_is_disabled(stage: Stage) -> None:
    identity = await identified(stage.plane, external())
    ghost = SessionId("sess_ghost")
    stage.connected = [(identity.user_id, identity.session_id), (identity.user_id, ghost)]
    stage.recheck()
    await asyncio.wait_for(stage.done.wait(), 30)
    assert stage.ended == [ghost]
    stage.done.clear()
    stage.connected.pop()
    await stage.plane.engine.storage.disable_user(identity.user_id, now_ms=1)
    stage.recheck()
    await asyncio.wait_for(stage.done.wait(), 30)
    assert stage.ended == [ghost, identity.session_id]


async def test_asked_for_often_it_looks_once_more_and_not_at_once(stage: Stage) -> None:
    ghost = await stage.plane.registered("anna")
    stage.connected = [(ghost.user.user_id, SessionId("sess_ghost"))]
    for _ in range(10):
        stage.recheck()
    await asyncio.wait_for(stage.done.wait(), 30)
    assert stage.looks == 1


async def test_recheck_asked_for_during_a_recheck_is_not_forgotten(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ended after the first look was read, and before it was over, ends too (E14)."""
    anna = await stage.plane.registered("anna")
    laptop = await stage.plane.logged_in("anna", LAPTOP)
    user_id = anna.user.user_id
    stage.connected = [(user_id, one.session.session_id) for one in (anna, laptop)]
    reading, goes_on = asyncio.Event(), asyncio.Event()
    read = MemoryStorage.session

    async def session(self: MemoryStorage, session_id: SessionId) -> Session | None:
        found = await read(self, session_id)
        reading.set()
        await goes_on.wait()
        return found

    monkeypatch.setattr(MemoryStorage, "session", session)
    stage.recheck()
    await asyncio.wait_for(reading.wait(), 30)
    await stage.plane.engine.storage.revoke_session(user_id, laptop.session.session_id)
    stage.recheck()
    goes_on.set()
    await asyncio.wait_for(stage.done.wait(), 30)
    assert stage.ended == [laptop.session.session_id]
    assert stage.looks == 2


async def test_store_that_does_not_answer_is_asked_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_MS", 1)
    anna = await stage.plane.registered("anna")
    stage.connected = [(anna.user.user_id, SessionId("sess_ghost"))]
    failures = 3
    read = MemoryStorage.session

    async def session(self: MemoryStorage, session_id: SessionId) -> Session | None:
        nonlocal failures
        if failures:
            failures -= 1
            raise StoreUnavailable("the test says so")
        return await read(self, session_id)

    monkeypatch.setattr(MemoryStorage, "session", session)
    stage.recheck()
    await asyncio.wait_for(stage.done.wait(), 30)
    assert failures == 0


async def test_forgotten_sessions_are_looked_up_again(stage: Stage) -> None:
    plane = stage.plane
    anna = await plane.registered("anna")
    await identified(plane, token_of(anna))
    # Elsewhere, and nobody has told us.
    await plane.engine.storage.revoke_session(anna.user.user_id, anna.session.session_id)
    await identified(plane, token_of(anna))
    plane.accounts.authenticator.forget()
    with pytest.raises(Unauthorized):
        await identified(plane, token_of(anna))


async def test_session_that_cannot_be_read_ends_and_takes_no_other_along(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    anna, ben = await stage.plane.registered("anna"), await stage.plane.registered("ben")
    stage.connected = [(one.user.user_id, one.session.session_id) for one in (anna, ben)]
    good = MemoryStorage.session

    async def session(self: MemoryStorage, session_id: SessionId) -> Session | None:
        if session_id == anna.session.session_id:
            raise ZeroDivisionError
        return await good(self, session_id)

    monkeypatch.setattr(MemoryStorage, "session", session)
    stage.recheck()
    await asyncio.wait_for(stage.done.wait(), 30)
    assert stage.ended == [anna.session.session_id]
    assert stage.tasks.failures_by_kind == {"session": 1}
