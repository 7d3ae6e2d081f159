"""The thirteen named invariants of the protocol, each with a test of its name.

They are tried on the whole gateway with real services behind it; `test_connection_model` tries the
same of the core in every order of events that hypothesis can think of.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.pushing import give
from tests.unit.gateway.fakes import OTHER_DEVICE, turns
from tests.unit.gateway.stage import SETTLED, Stage, staged
from tests.unit.gateway.test_driver import push
from tidewire.domain.delivery import Positions
from tidewire.domain.resync import ResyncReason
from tidewire.gateway.options import GatewayOptions
from tidewire.wire.error_table import ERROR_TABLE


@pytest.fixture(params=[(), ("batch",)], ids=["bare", "batch"])
async def stage(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    """They hold whichever features are on."""
    async with staged(tmp_path) as stage:
        stage.features = request.param
        yield stage


async def test_request_response_correlation(stage: Stage) -> None:
    ann, _, chat_id = await stage.pair()
    peer = await stage.connect(ann)
    peer.sends("a", chat_id, 1)
    peer.says("sync_request", "b", chat_id=chat_id, last_acked_sequence=0)
    peer.says("heartbeat", "c")
    peer.says("digest_request", "d")
    peer.says("send_message", "e", chat_id=chat_id)
    peer.says("sync_request", "f", chat_id=stage.world.no_chat(), last_acked_sequence=0)
    await turns(SETTLED)
    answers = {frame["request_id"]: frame["type"] for frame in peer.new_frames()}
    assert answers == {
        "a": "send_message_ack",
        "b": "sync_response",
        "c": "heartbeat_ack",
        "d": "chat_digest",
        "e": "error",
        "f": "error",
    }


async def test_one_way_messages_no_response(stage: Stage) -> None:
    ann, ben, chat_id = await stage.pair()
    await stage.world.send_many(chat_id, ben, 3)
    peer = await stage.connect(ann)
    for request_id in (None, "x"):
        peer.says("ack", request_id, chat_id=chat_id, last_acked_sequence=2)
        peer.says("read", request_id, chat_id=chat_id, last_read_sequence=2)
        peer.says("typing_start", request_id, chat_id=chat_id)
        peer.says("typing_stop", request_id, chat_id=chat_id)
    await turns(SETTLED)
    assert peer.new_frames() == []
    # What is wrong with one is said unasked, never as an answer.
    peer.says("ack", "x", chat_id=chat_id, last_acked_sequence=-1)
    peer.says("ack", "x", chat_id=chat_id, last_acked_sequence=4)
    await turns(SETTLED)
    errors = peer.new_frames()
    assert [error["payload"]["code"] for error in errors] == ["INVALID_MESSAGE", "INVALID_SEQUENCE"]
    assert all("request_id" not in error for error in errors)


async def test_server_push_no_request_id(stage: Stage) -> None:
    ann, ben, chat_id = await stage.pair()
    sender, peer = await stage.connect(ben), stage.arrives(ann)
    await turns(SETTLED)
    sender.sends("a", chat_id, 1)
    await turns(SETTLED)
    stage.hub.resync(None, ResyncReason.FANOUT_OVERLOADED)
    stage.hub.shutdown()
    frames = peer.new_frames()
    assert [frame["type"] for frame in frames] == [
        "connection_established",
        "chat_digest",
        "message",
        "resync",
        "connection_closing",
    ]
    assert all("request_id" not in frame for frame in frames)


async def test_ack_cumulative(stage: Stage) -> None:
    ann, ben, chat_id = await stage.pair()
    await stage.world.send_many(chat_id, ben, 9)
    peer = await stage.connect(ann)
    for sequence in (4, 9, 7, 1):
        peer.says("ack", chat_id=chat_id, last_acked_sequence=sequence)
        await turns(3)
    await stage.delivery.drain()
    assert await stage.world.positions(ann, chat_id) == Positions(9, 0)


async def test_sync_returns_ordered(stage: Stage) -> None:
    ann, ben, chat_id = await stage.pair()
    await stage.world.send_many(chat_id, ben, 20)
    peer = await stage.connect(ann)
    [page] = await peer.asks("sync_request", "a", chat_id=chat_id, last_acked_sequence=5)
    sequences = [item["sequence"] for item in page["payload"]["messages"]]
    assert sequences == list(range(6, 21))


async def test_send_ack_matches_request(stage: Stage) -> None:
    ann, ben, chat_id = await stage.pair()
    peer = await stage.connect(ann)
    for number in range(10):
        peer.sends(f"q{number}", chat_id, number, f"text {number}")
    await turns(SETTLED)
    stored = {
        message.client_message_id: message for message in await stage.world.messages(ben, chat_id)
    }
    answers = peer.new_frames()
    assert len(answers) == len(stored) == 10
    for answer in answers:
        payload = answer["payload"]
        message = stored[payload["client_message_id"]]
        assert answer["request_id"] == f"q{int(message.client_message_id[:8], 16)}"
        assert (payload["chat_id"], payload["message_id"]) == (chat_id, message.message_id)
        assert (payload["sequence"], payload["prev_sequence"]) == (
            message.sequence,
            message.prev_sequence,
        )


async def test_connection_established_required(stage: Stage) -> None:
    ann, ben, chat_id = await stage.pair()
    stage.storage.gate.clear()
    peer = stage.arrives(ann)
    peer.sends("early", chat_id, 1)
    give(stage.hub, [ann], push())
    await turns(SETTLED)
    stage.storage.gate.set()
    await turns(SETTLED)
    first, *rest = peer.new_frames()
    assert first["type"] == "connection_established"
    [error] = [frame for frame in rest if frame["type"] == "error"]
    assert (error["request_id"], error["payload"]["code"]) == ("early", "INVALID_MESSAGE")
    assert await stage.world.messages(ben, chat_id) == []


async def test_heartbeat_interval_respected(stage: Stage) -> None:
    peer = stage.arrives(await stage.world.person())
    await turns(SETTLED)
    interval_ms = peer.new_frames()[0]["payload"]["heartbeat_interval_ms"]
    assert interval_ms == 30_000
    # A client that answers no ping, and is a tenth late with every heartbeat, is kept.
    for _ in range(20):
        stage.time_passes(interval_ms + interval_ms // 10)
        peer.says("heartbeat", "h")
    assert peer.closed is None
    stage.time_passes(60_000)
    assert peer.closed == (4000, "idle_timeout")


async def test_error_code_is_documented(stage: Stage) -> None:
    ann, ben, chat_id = await stage.pair()
    peer = await stage.connect(ann)
    await stage.world.send(chat_id, ben)
    for raw in (b"", b"{", b'"x"', b'{"type":5}', b'{"type":"ack"}', b"[" * 5_000, b"\xff"):
        peer.driver.text_received(raw)
    peer.sends("empty", chat_id, 1, "")
    peer.sends("long", chat_id, 2, "x" * 5_000)
    peer.sends("nul", chat_id, 3, "\0")
    peer.sends("mine", chat_id, 4, "one text")
    peer.sends("reused", chat_id, 4, "another text")
    peer.sends("outside", stage.world.no_chat(), 5)
    peer.says("sync_request", "ahead", chat_id=chat_id, last_acked_sequence=99)
    for number in range(30):
        peer.sends(f"flood{number}", chat_id, 100 + number)
    await turns(SETTLED)
    codes = {frame["payload"]["code"] for frame in peer.new_frames() if frame["type"] == "error"}
    assert codes <= set(ERROR_TABLE)
    assert codes == {
        "INVALID_MESSAGE",
        "INVALID_ENCODING",
        "INVALID_CONTENT",
        "MESSAGE_TOO_LARGE",
        "IDEMPOTENCY_KEY_REUSED",
        "NOT_A_MEMBER",
        "CURSOR_AHEAD",
        "RATE_LIMITED",
    }


async def test_sequence_in_message_is_valid(stage: Stage) -> None:
    ann, ben, chat_id = await stage.pair()
    sender, peer = await stage.connect(ann), await stage.connect(ben)
    for number in range(5):
        sender.sends(f"q{number}", chat_id, number)
        await turns(3)
    await turns(SETTLED)
    head = (await stage.world.entry(ben, chat_id)).head
    pushed = [frame["payload"] for frame in peer.new_frames()]
    assert len(pushed) == 5
    assert all(0 <= one["prev_sequence"] < one["sequence"] <= head for one in pushed)


async def test_idempotency_preserved_across_connections(stage: Stage) -> None:
    ann, ben, chat_id = await stage.pair()
    first = await stage.connect(ann)
    first.sends("a", chat_id, 1)
    await turns(SETTLED)
    [original] = first.new_frames()
    second = await stage.connect(ann)
    third = await stage.connect(ann, device_id=OTHER_DEVICE)
    for peer in (second, third):
        peer.sends("b", chat_id, 1)
        await turns(SETTLED)
        [retry] = peer.new_frames()
        assert retry["payload"] == {**original["payload"], "deduplicated": True}
    assert len(await stage.world.messages(ben, chat_id)) == 1


async def test_slow_consumer_not_silent(tmp_path: Path) -> None:
    options = GatewayOptions(outbound_bytes_max=20_000, drained_bytes_max=1_000)
    async with staged(tmp_path, options) as stage:
        ann, _, _ = await stage.pair()
        peer = await stage.connect(ann)
        peer.transport.is_reading = False
        pushed = 0
        while peer.closed is None:
            give(stage.hub, [ann], push(size=500))
            pushed += 1
            await turns()
        *got, error, closing = peer.new_frames()
        assert len(got) == pushed, "nothing is dropped before it is said"
        assert error["payload"]["code"] == "SLOW_CONSUMER"
        assert error["payload"]["details"]["limit_bytes"] == 20_000
        assert closing["payload"]["reason"] == "slow_consumer"
        assert peer.closed == (1008, "slow_consumer")


async def test_version_consistency(stage: Stage) -> None:
    peer = stage.arrives(await stage.world.person())
    await turns(SETTLED)
    [established, _] = peer.new_frames()
    # The version in the path (`handshake` takes /v1/ws only) is the one that is spoken.
    assert established["payload"]["protocol_version"] == 1
    assert established["payload"]["epoch"] == "epoch_1"
