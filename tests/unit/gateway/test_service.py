"""Who may connect: order of the checks, limits, and what somebody is told who may not."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tests.support.logs import our_lines
from tests.unit.gateway.fakes import DEVICE, OTHER_DEVICE, WALL_MS, FakeTransport, turns
from tests.unit.gateway.stage import SETTLED, Peer, Stage, staged
from tidewire.domain.errors import AuthFailure, StoreUnavailable, Unauthorized
from tidewire.domain.ids import SessionId, UserId
from tidewire.gateway.driver import ConnectionDriver
from tidewire.gateway.options import GatewayOptions
from tidewire.gateway.service import send_limiter
from tidewire.ports.services import Identity
from tidewire.ports.transport import Admission, HandshakeRefusal, UpgradeRequest


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(tmp_path) as stage:
        admit(stage, "ann")
        yield stage


def admit(stage: Stage, name: str) -> UserId:
    """From now on the token of this name is good."""
    user_id = UserId(f"user_{name}")
    stage.authenticator.outcomes[name] = Identity(
        user_id=user_id,
        session_id=SessionId(f"sess_{name}"),
        device_id=None,
        expires_at_ms=WALL_MS + 60_000,
    )
    return user_id


async def refused(stage: Stage, request: UpgradeRequest) -> HandshakeRefusal:
    outcome = await stage.gateway.authorise(request)
    assert isinstance(outcome, HandshakeRefusal)
    return outcome


async def test_valid_token_is_admitted(stage: Stage) -> None:
    admission = await stage.gateway.authorise(stage.request("ann"))
    assert admission == Admission(
        user_id=UserId("user_ann"),
        session_id=SessionId("sess_ann"),
        device_id=DEVICE,
        token_expires_at_ms=WALL_MS + 60_000,
        client_ip="192.0.2.1",
    )
    assert stage.authenticator.asked == [("ann", DEVICE)]


async def test_browser_is_admitted_by_subprotocols(stage: Stage) -> None:
    request = UpgradeRequest(
        path="/v1/ws",
        query="",
        headers={"sec-websocket-protocol": f"tidewire.v1, bearer.ann, device.{DEVICE}"},
        client_ip="192.0.2.1",
    )
    admission = await stage.gateway.authorise(request)
    assert isinstance(admission, Admission)
    assert admission.subprotocol == "tidewire.v1"


async def test_connection_ends_when_the_admitted_token_does(stage: Stage) -> None:
    admission = await stage.gateway.authorise(stage.request("ann"))
    assert isinstance(admission, Admission)
    peer = stage.arrives(UserId("user_ann"))
    assert peer.driver.core._token_ends_at_ms == stage.clock.now_ms + 3_600_000


@pytest.mark.parametrize("reason", list(AuthFailure))
async def test_bad_token_is_refused_with_the_reason(stage: Stage, reason: AuthFailure) -> None:
    stage.authenticator.outcomes["bad"] = Unauthorized(reason)
    refusal = await refused(stage, stage.request("bad"))
    is_revoked = reason is AuthFailure.TOKEN_REVOKED
    error = "token_revoked" if is_revoked else "invalid_token"
    assert (refusal.http_status, refusal.error) == (401, error)
    assert refusal.details == {"reason": reason.value}
    assert stage.hub.counters.auth_failures_by_reason == {reason.value: 1}


async def test_expired_token_is_told_since_when(stage: Stage) -> None:
    expired = Unauthorized(AuthFailure.TOKEN_EXPIRED, expired_at_ms=WALL_MS)
    stage.authenticator.outcomes["old"] = expired
    refusal = await refused(stage, stage.request("old"))
    assert refusal.details["expired_at"] == "2027-01-15T08:00:00.000Z"


async def test_request_that_cannot_be_read_is_refused_before_anybody_is_asked(
    stage: Stage,
) -> None:
    refusal = await refused(stage, stage.request("ann", device_id="my phone"))
    assert (refusal.http_status, refusal.error) == (400, "invalid_request")
    assert stage.authenticator.asked == []
    assert stage.hub.counters.handshakes_refused_by_error == {"invalid_request": 1}


async def test_store_that_fails_is_no_reason_to_refuse_a_token(stage: Stage) -> None:
    stage.authenticator.outcomes["ann"] = StoreUnavailable("no")
    refusal = await refused(stage, stage.request("ann"))
    assert (refusal.http_status, refusal.error) == (503, "service_unavailable")
    assert refusal.retry_after_seconds == 5


async def test_token_that_takes_too_long_is_refused_for_now(tmp_path: Path) -> None:
    async with staged(tmp_path, GatewayOptions(handshake_timeout_ms=1)) as stage:
        stage.authenticator.gate = asyncio.Event()
        refusal = await refused(stage, stage.request("ann"))
        assert (refusal.http_status, refusal.error) == (503, "service_unavailable")


async def test_address_may_try_so_often_a_minute(tmp_path: Path) -> None:
    async with staged(tmp_path, GatewayOptions(ip_connects_per_minute=3)) as stage:
        for name in ("ann", "ben", "eve", "bob"):
            admit(stage, name)
        assert isinstance(await stage.gateway.authorise(stage.request("ann")), Admission)
        # What fails counts as well.
        assert (await refused(stage, stage.request("bad"))).http_status == 401
        assert (await refused(stage, stage.request("x", device_id="y"))).http_status == 400
        for token in ("ben", "bad"):
            refusal = await refused(stage, stage.request(token))
            assert (refusal.http_status, refusal.error) == (429, "rate_limited")
            assert refusal.retry_after_seconds == 20
        elsewhere = stage.request("eve", client_ip="192.0.2.2")
        assert isinstance(await stage.gateway.authorise(elsewhere), Admission)
        stage.clock.forward(20_000)
        assert isinstance(await stage.gateway.authorise(stage.request("bob")), Admission)


async def test_user_may_connect_so_often_a_minute(tmp_path: Path) -> None:
    async with staged(tmp_path, GatewayOptions(user_connects_per_minute=2)) as stage:
        admit(stage, "ann")
        admit(stage, "ben")
        for _ in range(2):
            assert isinstance(await stage.gateway.authorise(stage.request("ann")), Admission)
        refusal = await refused(stage, stage.request("ann"))
        assert (refusal.http_status, refusal.retry_after_seconds) == (429, 30)
        assert isinstance(await stage.gateway.authorise(stage.request("ben")), Admission)


async def test_user_has_so_many_devices(tmp_path: Path) -> None:
    async with staged(tmp_path, GatewayOptions(user_connections_max=1)) as stage:
        ann = admit(stage, "ann")
        stage.arrives(ann)
        refusal = await refused(stage, stage.request("ann", device_id=OTHER_DEVICE))
        assert (refusal.http_status, refusal.error) == (429, "rate_limited")
        assert isinstance(await stage.gateway.authorise(stage.request("ann")), Admission)
        await turns(5)


async def test_full_server_has_no_room(tmp_path: Path) -> None:
    async with staged(tmp_path, GatewayOptions(connections_max=1)) as stage:
        admit(stage, "ann")
        peer = stage.arrives(UserId("user_ben"))
        assert (await refused(stage, stage.request("ann"))).http_status == 503
        await turns(5)
        peer.goes()
        assert isinstance(await stage.gateway.authorise(stage.request("ann")), Admission)


async def test_handshakes_under_way_are_bounded(tmp_path: Path) -> None:
    async with staged(tmp_path, GatewayOptions(handshakes_max=2)) as stage:
        admit(stage, "ann")
        stage.authenticator.gate = asyncio.Event()
        outcomes: list[object] = []

        async def try_it() -> None:
            outcomes.append(await stage.gateway.authorise(stage.request("ann")))

        for _ in range(3):
            stage.tasks.start_service("handshake", try_it())
        await turns(5)
        [refusal] = outcomes
        assert isinstance(refusal, HandshakeRefusal)
        assert refusal.http_status == 503
        stage.authenticator.gate.set()
        await turns(5)
        assert [type(outcome) for outcome in outcomes[1:]] == [Admission, Admission]
        assert stage.gateway._handshakes_count == 0


async def test_server_that_stops_takes_nobody(stage: Stage) -> None:
    stage.hub.shutdown()
    assert (await refused(stage, stage.request("ann"))).http_status == 503


async def test_refusal_is_one_line_without_the_token(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="tidewire")
    await refused(stage, stage.request("verysecret"))
    [record] = our_lines(caplog)
    fields = vars(record)
    assert (record.message, fields["error"]) == ("handshake refused", "invalid_token")
    assert (fields["client_ip"], fields["http_status"]) == ("192.0.2.1", 401)
    assert "verysecret" not in str(fields)


def test_send_limiter_has_the_limits_of_the_options() -> None:
    options = GatewayOptions(send_chat_burst=2, send_user_burst=3)
    limiter = send_limiter(options)
    one, other = "chat_1", "chat_2"
    passed = [
        limiter.take(UserId("u"), chat, 0) == 0  # type: ignore[arg-type]
        for chat in (one, one, one, other, other)
    ]
    assert passed == [True, True, False, True, False]


async def test_attempts_to_connect_count_over_all_servers(stage: Stage) -> None:
    views = stage.gateway.share_limits()
    await stage.gateway.authorise(stage.request("ann"))
    [(_, by_ip)] = views["connect_ip"].take_used(10)
    assert by_ip == 1
    views["connect_ip"].learn("192.0.2.1", 3_600_000_000, stage.clock.monotonic_ms())
    refused = await stage.gateway.authorise(stage.request("ann"))
    assert isinstance(refused, HandshakeRefusal)
    assert refused.error == "rate_limited"


# What a store of an earlier release does not take yet.


class OlderStore:
    """Says whether entries are taken; or what it says is a fault."""

    def __init__(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answer: bool | Exception = False
        self.asked = 0
        monkeypatch.setattr(stage.storage, "takes_entries", self._takes_entries)

    async def _takes_entries(self) -> bool:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def arrive(stage: Stage, device_id: str, features: str = "entries, batch") -> Peer:
    request = stage.request("ann", device_id=device_id)
    headers = {**request.headers, "x-tidewire-features": features}
    admission = await stage.gateway.authorise(msgspec.structs.replace(request, headers=headers))
    assert isinstance(admission, Admission)
    transport = FakeTransport()
    driver = stage.gateway.connected(admission, transport)
    assert isinstance(driver, ConnectionDriver)
    await turns(SETTLED)
    return Peer(stage, driver, transport)


def told(peer: Peer) -> list[str]:
    [established, _] = peer.new_frames()
    features: list[str] = established["payload"].get("features", [])
    return features


async def test_entries_are_listed_once_the_store_takes_them(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections of before come back to be told; others stay."""
    store = OlderStore(stage, monkeypatch)
    before = await arrive(stage, DEVICE)
    assert told(before) == ["batch"]
    assert before.driver.has_entries, "it knows them: what others write comes whole"
    plain = await arrive(stage, OTHER_DEVICE, features="batch")
    assert told(plain) == ["batch"]
    store.answer = StoreUnavailable("not now")
    third, fourth = f"{DEVICE[:-1]}a", f"{DEVICE[:-1]}b"
    assert told(await arrive(stage, third)) == ["batch"]
    store.answer = True
    assert told(await arrive(stage, fourth)) == ["batch", "entries"]
    closing = before.new_frames()[-1]
    assert (closing["type"], closing["payload"]["reason"]) == (
        "connection_closing",
        "server_shutdown",
    )
    assert plain.new_frames() == []
    assert store.asked == 3
    again = await arrive(stage, DEVICE)
    assert told(again) == ["batch", "entries"]
    assert store.asked == 3, "it is so for good"


async def test_handshake_that_was_overtaken_by_the_upgrade_is_told_of_entries(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = OlderStore(stage, monkeypatch)
    request = stage.request("ann")
    headers = {**request.headers, "x-tidewire-features": "entries"}
    admission = await stage.gateway.authorise(msgspec.structs.replace(request, headers=headers))
    assert isinstance(admission, Admission)
    assert admission.withheld == ("entries",)
    store.answer = True
    await arrive(stage, OTHER_DEVICE)
    transport = FakeTransport()
    driver = stage.gateway.connected(admission, transport)
    assert isinstance(driver, ConnectionDriver)
    await turns(SETTLED)
    assert told(Peer(stage, driver, transport)) == ["entries"]
