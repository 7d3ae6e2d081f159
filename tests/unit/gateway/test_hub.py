"""The hub: pushes reach whom they should, routes come and go, time is looked after in bulk."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.pushing import give
from tests.unit.gateway.fakes import DEVICE, OTHER_DEVICE, turns
from tests.unit.gateway.stage import SETTLED, Peer, Stage, staged
from tests.unit.gateway.test_driver import push, texts
from tidewire.domain.delivery import Advance, Advanced, Positions
from tidewire.domain.errors import SequenceAboveHead
from tidewire.domain.events import Acknowledged, StatusMissed
from tidewire.domain.ids import ChatId, ConnectionId, SessionId, UserId
from tidewire.domain.resync import ResyncReason
from tidewire.gateway import hub as hub_module
from tidewire.gateway.connection import Connection
from tidewire.gateway.driver import ConnectionDriver
from tidewire.gateway.effects import CLOSING, READY
from tidewire.gateway.options import GatewayOptions
from tidewire.ports.router import Route


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(tmp_path) as stage:
        yield stage


async def crowd(stage: Stage, count: int) -> list[Peer]:
    return [await stage.connect(user_id) for user_id in await stage.world.people(count)]


def users(peers: list[Peer]) -> list[UserId]:
    return [peer.driver.core.user_id for peer in peers]


# Pushes.


async def test_push_reaches_every_connection_of_the_users_but_one(stage: Stage) -> None:
    ann, ben, eve = await stage.world.people(3)
    phone, laptop = await stage.connect(ann), await stage.connect(ann, device_id=OTHER_DEVICE)
    friend, stranger = await stage.connect(ben), await stage.connect(eve)
    give(stage.hub, [ann, ben], push("hi"), except_connection=phone.connection_id)
    await turns()
    assert texts(laptop.new_frames()) == ["hi"]
    assert texts(friend.new_frames()) == ["hi"]
    assert phone.new_frames() == []
    assert stranger.new_frames() == []
    assert stage.hub.counters.pushes == 2
    assert stage.hub.counters.frames_sent_by_type["message"] == 2


async def test_pushes_keep_their_order(stage: Stage) -> None:
    ann = await stage.world.person()
    peer = await stage.connect(ann)
    for number in range(50):
        give(stage.hub, [ann], push(str(number)))
        if number % 7 == 0:
            await turns()
    await turns()
    assert texts(peer.new_frames()) == [str(number) for number in range(50)]


async def test_push_gives_the_same_bytes_to_all(stage: Stage) -> None:
    peers = await crowd(stage, 10)
    framed = push()
    give(stage.hub, users(peers), framed)
    await turns()
    assert all(peer.transport.writes[-1] is framed for peer in peers)


async def test_push_to_nobody_is_nothing(stage: Stage) -> None:
    give(stage.hub, [UserId("user_x")], push())
    assert stage.hub.counters.pushes == 0


async def test_presence_counts_the_connections_of_those_who_have_one(stage: Stage) -> None:
    ann, ben = await stage.world.people(2)
    peer = await stage.connect(ann)
    await stage.connect(ann, device_id=OTHER_DEVICE)
    assert await stage.hub.presence([ben, ann]) == {ann: 2}
    peer.goes()
    assert await stage.hub.presence([ben, ann]) == {ann: 1}


async def test_hub_is_settled_at_once(stage: Stage) -> None:
    [peer] = await crowd(stage, 1)
    give(stage.hub, users([peer]), push())
    await stage.hub.settled()
    await turns()
    assert peer.new_types() == ["message"]


async def test_transport_that_raises_keeps_nobody_else_from_his_frames(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = await crowd(stage, 2)

    def write(framed: bytes) -> None:
        raise RuntimeError("it must not")

    monkeypatch.setattr(one.transport, "write", write)
    give(stage.hub, users([one, other]), push())
    await turns(3)
    assert other.new_types() == ["message"]
    assert one.closed == (1011, "INTERNAL_ERROR")
    # Its frames, and then the last word to it.
    assert stage.tasks.failures_by_kind == {"connection": 2}


# Who is here.


async def test_second_connection_of_a_device_replaces_the_first(stage: Stage) -> None:
    ann = await stage.world.person()
    first = await stage.connect(ann)
    second = await stage.connect(ann)
    [closing] = first.new_frames()
    assert closing["payload"]["reason"] == "duplicate_connection"
    assert first.closed == (4500, "duplicate_connection")
    give(stage.hub, [ann], push())
    await turns()
    assert second.new_types() == ["message"]
    first.goes()
    assert await stage.hub.presence([ann]) == {ann: 1}
    assert stage.hub.counters.connections_by_status["duplicate_connection"] == 1


async def test_replaced_connection_still_gets_the_answers_it_is_owed(stage: Stage) -> None:
    ann, _, chat_id = await stage.pair()
    first = await stage.connect(ann)
    first.sends("r1", chat_id, 1)
    stage.arrives(ann)
    assert first.closed is None
    await turns(SETTLED)
    assert first.new_types() == ["connection_closing", "send_message_ack"]
    assert first.closed == (4500, "duplicate_connection")


async def test_user_has_so_many_devices_and_no_more(tmp_path: Path) -> None:
    async with staged(tmp_path, GatewayOptions(user_connections_max=2)) as stage:
        ann = await stage.world.person()
        await stage.connect(ann)
        await stage.connect(ann, device_id=OTHER_DEVICE)
        third = stage.arrives(ann, device_id="33333333-0000-4000-8000-000000000000")
        assert third.closed == (1013, "rate_limited")
        assert third.new_types() == ["connection_closing"]
        third.goes()
        # A device that comes back takes its own place.
        await stage.connect(ann, device_id=OTHER_DEVICE)
        assert stage.hub.other_devices_count(ann, DEVICE) == 1


async def test_revoked_session_loses_its_connections_at_once(stage: Stage) -> None:
    ann, ben = await stage.world.people(2)
    phone, laptop = await stage.connect(ann), await stage.connect(ann, device_id=OTHER_DEVICE)
    friend = await stage.connect(ben)
    stage.hub.close_session([phone.driver.admission.session_id])
    assert phone.closed == (1008, "session_revoked")
    assert phone.new_types() == ["connection_closing"]
    assert [laptop.closed, friend.closed] == [None, None]
    stage.hub.close_session([laptop.driver.admission.session_id])
    assert [laptop.closed, friend.closed] == [(1008, "session_revoked"), None]


async def test_session_revoked_during_the_handshake_never_connects(stage: Stage) -> None:
    ann = await stage.world.person()
    stage.hub.close_session([SessionId("sess_1")])
    peer = stage.arrives(ann, session_id="sess_1")
    assert peer.closed == (1008, "session_revoked")
    assert await stage.hub.presence([ann]) == {}


async def test_tokens_that_end_close_all_connections_and_those_under_way(stage: Stage) -> None:
    peers = await crowd(stage, 2)
    stage.hub.end_tokens()
    assert [peer.closed for peer in peers] == [(1008, "token_expired")] * 2
    # Its token was looked at before they ended.
    late = stage.arrives(await stage.world.person())
    assert late.closed == (1008, "token_expired")


async def test_memory_of_revoked_sessions_is_bounded(tmp_path: Path) -> None:
    async with staged(tmp_path, GatewayOptions(revoked_sessions_max=3)) as stage:
        stage.hub.close_session(SessionId(f"sess_{number}") for number in range(10))
        assert list(stage.hub._revoked) == ["sess_7", "sess_8", "sess_9"]


async def test_everything_is_forgotten_when_all_have_gone(stage: Stage) -> None:
    peers = await crowd(stage, 5)
    for peer in peers:
        peer.goes()
    hub = stage.hub
    assert hub.connections_count == 0
    assert (hub._by_id, hub._by_user, hub._by_session) == ({}, {}, {})
    stage.time_passes(80_000)
    assert hub._wheel._slots == {}
    assert hub.unsent_bytes == 0


async def test_unsent_bytes_are_those_of_all(stage: Stage) -> None:
    peers = await crowd(stage, 2)
    for peer in peers:
        peer.transport.is_reading = False
    give(stage.hub, users(peers), push())
    await turns()
    assert stage.hub.unsent_bytes == 2 * len(push())


# Being told to come back.


async def test_resync_tells_everybody_with_spread_delays(tmp_path: Path) -> None:
    async with staged(tmp_path, GatewayOptions(return_rate_per_second=10)) as stage:
        peers = await crowd(stage, 5)
        stage.hub.resync(None, ResyncReason.FANOUT_OVERLOADED)
        await turns()
        frames = [peer.new_frames()[0] for peer in peers]
        assert {frame["type"] for frame in frames} == {"resync"}
        assert {frame["payload"]["reason"] for frame in frames} == {"fanout_overloaded"}
        assert [frame["payload"]["delay_ms"] for frame in frames] == [0, 100, 200, 300, 400]
        assert stage.hub.counters.resyncs == 5


async def test_resync_of_some_leaves_the_others_alone(stage: Stage) -> None:
    one, other = await crowd(stage, 2)
    stage.hub.resync(users([one]), ResyncReason.STORE_UNAVAILABLE)
    await turns()
    assert one.new_types() == ["resync"]
    assert other.new_frames() == []


async def test_delays_stay_below_the_longest(tmp_path: Path) -> None:
    options = GatewayOptions(return_rate_per_second=1, return_spread_ms_max=1_000)
    async with staged(tmp_path, options) as stage:
        delays = list(stage.hub._return_delays_ms(100))
        assert delays == sorted(delays)
        assert (delays[0], delays[-1]) == (0, 990)


async def test_shutdown_tells_everybody_and_closes(stage: Stage) -> None:
    peers = await crowd(stage, 3)
    stage.hub.shutdown()
    for peer in peers:
        [closing] = peer.new_frames()
        assert closing["payload"]["reason"] == "server_shutdown"
        assert peer.closed == (1012, "server_shutdown")
    assert not stage.hub._is_empty.is_set()
    for peer in peers:
        peer.goes()
    await stage.hub.empty()


async def test_shutdown_waits_for_messages_that_are_being_stored(stage: Stage) -> None:
    ann, ben, chat_id = await stage.pair()
    peer = await stage.connect(ann)
    peer.sends("r1", chat_id, 1)
    stage.hub.shutdown()
    await stage.ingest.drain()
    await turns()
    assert peer.new_types() == ["connection_closing", "send_message_ack"]
    assert peer.closed == (1012, "server_shutdown")
    assert len(await stage.world.messages(ben, chat_id)) == 1


async def test_nobody_is_taken_in_after_shutdown(stage: Stage) -> None:
    stage.hub.shutdown()
    late = stage.arrives(await stage.world.person())
    [closing] = late.new_frames()
    assert closing["payload"]["reconnect_delay_ms"] == 5_000
    assert late.closed == (1012, "server_shutdown")


# Acknowledgements.


async def test_first_ack_that_moves_nothing_has_the_status_told(stage: Stage) -> None:
    ann, ben, chat_id = await stage.pair()
    await stage.world.send_many(chat_id, ann, 3)
    await stage.world.ack(ben, chat_id, 3)
    told: list[tuple[ChatId, UserId]] = []
    stage.bus.subscribe(
        (StatusMissed,), lambda events: told.extend((one.chat_id, one.user_id) for one in events)
    )
    peer = await stage.connect(ben)
    for _ in range(3):
        peer.says("ack", chat_id=chat_id, last_acked_sequence=3)
        await stage.delivery.drain()
    assert told == [(chat_id, ben)]
    for _ in range(3):
        peer.says("read", chat_id=chat_id, last_read_sequence=1)
        await stage.delivery.drain()
    # The first read moved something, which the fan-out hears of by itself; the second did not.
    assert told == [(chat_id, ben)] * 2


async def test_outcome_for_a_connection_that_has_gone_is_ignored(stage: Stage) -> None:
    gone = ConnectionId("conn_x")
    wish = Advance(user_id=UserId("u"), chat_id=ChatId("c"), delivered=9)
    stage.bus([Acknowledged(gone, wish, Advanced(Positions(9, 0), moved=False))])
    stage.bus([Acknowledged(gone, wish, SequenceAboveHead(sequence=9, head=1))])
    assert stage.hub.counters.acks_above_head == 1


# Time.


async def test_silent_connection_is_pinged_and_closed_within_a_minute(stage: Stage) -> None:
    alive, silent = await crowd(stage, 2)
    pings = 0
    for _ in range(60):
        stage.time_passes(1_000)
        if alive.transport.pings > pings:
            pings += 1
            alive.driver.pong_received()
    assert silent.transport.pings == 1
    assert silent.closed == (4000, "idle_timeout")
    assert alive.driver.core.state is READY
    assert alive.transport.pings == 2


async def test_connection_ends_with_its_token(stage: Stage) -> None:
    [peer] = await crowd(stage, 1)
    for _ in range(361):
        stage.clock.forward(10_000)
        peer.driver.pong_received()
        stage.hub.tick()
    assert peer.closed == (1008, "token_expired")


async def test_lingering_connection_is_closed_after_its_grace(stage: Stage) -> None:
    ann, _, chat_id = await stage.pair()
    peer = await stage.connect(ann)
    stage.ingest.submit_nowait = lambda *_, **__: None  # type: ignore[method-assign]
    peer.sends("r1", chat_id, 1)
    stage.hub.shutdown()
    assert peer.driver.core.state is CLOSING
    stage.time_passes(4_500)
    assert peer.closed is None
    stage.time_passes(1_500)
    assert peer.closed == (1012, "server_shutdown")


async def test_many_deadlines_at_once_leave_the_loop_its_turns(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "TICKS_PER_TURN_MAX", 2)
    peers = await crowd(stage, 5)
    stage.clock.forward(26_000)
    stage.hub.tick()
    assert sum(peer.transport.pings for peer in peers) == 2
    await turns(2)
    assert sum(peer.transport.pings for peer in peers) == 5


async def test_timer_runs_while_somebody_is_connected(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    [peer] = await crowd(stage, 1)
    assert stage.hub._timer is not None
    stage.hub._on_timer()
    assert stage.hub._timer is not None
    peer.goes()
    stage.hub._timer.cancel()
    stage.hub._on_timer()
    assert stage.hub._timer is None


async def test_hub_does_not_grow_with_connections_that_come_and_go(stage: Stage) -> None:
    ann = await stage.world.person()
    for _ in range(200):
        peer = stage.arrives(ann)
        await turns(5)
        peer.goes()
        stage.time_passes(500)
    await turns(SETTLED)
    waiting = sum(len(drivers) for drivers in stage.hub._wheel._slots.values())
    # Each is on the wheel until its first deadline would have come.
    assert waiting <= 2 * (stage.options.ping_interval_ms // 500 + 2)


# Several processes.


class FakeRegistrar:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.elsewhere = 0
        self.gate = asyncio.Event()
        self.registered: list[Route] = []
        self.unregistered: list[Route] = []

    async def register(self, route: Route) -> int:
        self.registered.append(route)
        await self.gate.wait()
        return self.elsewhere

    def unregister(self, route: Route) -> None:
        self.unregistered.append(route)


@pytest.fixture
def registrar(stage: Stage) -> FakeRegistrar:
    made = FakeRegistrar()
    stage.hub.use_registrar(made, stage.tasks)
    return made


async def test_digest_is_read_when_the_route_is_known(
    stage: Stage, registrar: FakeRegistrar
) -> None:
    ann = await stage.world.person()
    peer = stage.arrives(ann)
    await turns(SETTLED)
    assert registrar.registered == [Route(peer.connection_id, ann, DEVICE)]
    assert peer.new_frames() == []
    # What is pushed meanwhile waits for the connection to be established.
    give(stage.hub, [ann], push())
    registrar.gate.set()
    await turns(SETTLED)
    assert peer.new_types() == ["connection_established", "chat_digest", "message"]
    peer.goes()
    assert registrar.unregistered == registrar.registered


async def test_connection_that_goes_while_it_is_registered_never_begins(
    stage: Stage, registrar: FakeRegistrar
) -> None:
    ann = await stage.world.person()
    peer = stage.arrives(ann)
    await turns()
    peer.goes()
    registrar.gate.set()
    await turns(SETTLED)
    assert peer.new_frames() == []
    assert registrar.unregistered == registrar.registered


async def test_session_revoked_while_it_is_registered_never_begins(
    stage: Stage, registrar: FakeRegistrar
) -> None:
    ann = await stage.world.person()
    peer = stage.arrives(ann, session_id="sess_1")
    await turns()
    assert stage.hub.sessions == [(ann, SessionId("sess_1"))]
    stage.hub.close_session([SessionId("sess_1")])
    registrar.gate.set()
    await turns(SETTLED)
    assert peer.closed == (1008, "session_revoked")
    assert peer.new_types() == ["connection_closing"]


async def test_connections_at_other_servers_count(stage: Stage, registrar: FakeRegistrar) -> None:
    ann, ben = await stage.world.people(2)
    registrar.gate.set()
    registrar.elsewhere = stage.options.user_connections_max - 1
    allowed = await stage.connect(ann)
    registrar.elsewhere += 1
    refused = stage.arrives(ben)
    await turns(SETTLED)
    assert allowed.closed is None
    assert refused.closed is not None
    assert refused.closed[1] == "rate_limited"
    assert [one.user_id for one in registrar.unregistered] == [ben]


async def test_device_that_connected_elsewhere_is_closed_here(stage: Stage) -> None:
    [peer, other] = await crowd(stage, 2)
    stage.hub.close_duplicate(peer.connection_id)
    stage.hub.close_duplicate(ConnectionId("conn_unknown"))
    assert peer.closed == (4500, "duplicate_connection")
    assert other.closed is None


async def test_resync_of_connections_tells_exactly_those(stage: Stage) -> None:
    ann = await stage.world.person()
    phone, laptop = await stage.connect(ann), await stage.connect(ann, device_id=OTHER_DEVICE)
    stage.hub.resync_connections(
        [laptop.connection_id, ConnectionId("conn_unknown")], ResyncReason.PUSHES_LOST
    )
    await turns()
    assert phone.new_frames() == []
    [frame] = laptop.new_frames()
    assert frame["type"] == "resync"
    assert frame["payload"]["reason"] == "pushes_lost"
    assert stage.hub.counters.resyncs == 1


async def test_route_that_cannot_be_made_known_closes_with_1011(
    stage: Stage, registrar: FakeRegistrar, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(route: Route) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(registrar, "register", broken)
    peer = stage.arrives((await stage.world.people(1))[0])
    await turns(SETTLED)
    assert peer.closed == (1011, "INTERNAL_ERROR")
    assert stage.tasks.failures_by_kind == {"registration": 1}
    peer.goes()
    assert stage.hub.connections_count == 0


@pytest.mark.parametrize("act", ["tick", "resync", "close_session", "shutdown"])
async def test_connection_that_fails_keeps_no_other_from_its_turn(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    one, other = await crowd(stage, 2)
    for method in ("tick", "resync", "end"):
        monkeypatch.setattr(
            f"tidewire.gateway.connection.Connection.{method}", failing_for(one, method)
        )
    match act:
        case "tick":
            stage.time_passes(120_000)
            assert other.transport.pings > 0
        case "resync":
            stage.hub.resync(None, ResyncReason.PUSHES_LOST)
            await turns(3)
            assert other.new_types() == ["resync"]
        case "close_session":
            stage.hub.close_session([one.driver.admission.session_id])
            stage.hub.close_session([other.driver.admission.session_id])
            assert other.closed == (1008, "session_revoked")
        case _:
            stage.hub.shutdown()
            assert other.closed == (1012, "server_shutdown")
    assert one.closed == (1011, "INTERNAL_ERROR")
    assert stage.tasks.failures_by_kind == {"connection": 1}
    one.goes()
    other.goes()
    assert stage.hub.connections_count == 0


def failing_for(peer: Peer, method: str) -> Any:
    """The core's method, which fails for this peer."""
    good = getattr(Connection, method)

    def act(core: Connection, *positional: Any, **named: Any) -> Any:
        if core is peer.driver.core:
            raise ZeroDivisionError
        return good(core, *positional, **named)

    return act


async def test_core_that_cannot_even_say_goodbye_is_closed_without_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = await crowd(stage, 2)
    for method in ("receive", "broken", "lost"):
        monkeypatch.setattr(Connection, method, failing_for(one, method))
    one.says("heartbeat", "r1")
    assert one.closed == (1011, "INTERNAL_ERROR")
    one.goes()
    assert stage.tasks.failures_by_kind == {"connection": 3}
    assert stage.hub.connections_count == 1
    assert len(await other.asks("heartbeat", "r2")) == 1


async def test_connection_that_cannot_even_be_ended_keeps_no_other_from_its_push(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = await crowd(stage, 2)

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    flush = ConnectionDriver.flush
    monkeypatch.setattr(
        ConnectionDriver,
        "flush",
        lambda one, shared: broken() if one is bad.driver else flush(one, shared),
    )
    monkeypatch.setattr(ConnectionDriver, "failed", broken)
    give(stage.hub, users([bad, good]), push())
    await turns(2)
    assert good.new_types() == ["message"]
    assert "a connection that failed could not be ended" in caplog.text
