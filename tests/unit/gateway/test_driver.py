"""The shell of a connection: what its core wants is done, in few writes, and within bounds."""

import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.logs import our_lines
from tests.support.pushing import give
from tests.unit.gateway.fakes import OTHER_DEVICE, turns
from tests.unit.gateway.stage import SETTLED, Stage, staged
from tidewire.domain.errors import NotAMember, StoreUnavailable
from tidewire.domain.ids import ChatId
from tidewire.gateway import driver
from tidewire.gateway.driver import CONFIRMED_CHATS_MAX, ConnectionDriver
from tidewire.gateway.effects import CLOSED, READY
from tidewire.gateway.options import GatewayOptions
from tidewire.wire.error_table import CloseReason
from tidewire.wire.framing import frame_text

SMALL = GatewayOptions(outbound_bytes_max=10_000, drained_bytes_max=1_000, digest_chats_max=2)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(tmp_path) as stage:
        yield stage


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[Stage]:
    """With bounds that are soon reached."""
    async with staged(tmp_path, SMALL) as stage:
        yield stage


def push(text: str = "x", size: int = 0) -> bytes:
    frame = {"type": "message", "payload": {"text": text + "." * size}}
    return frame_text(json.dumps(frame, separators=(",", ":")).encode())


def texts(frames: list[dict[str, Any]]) -> list[str]:
    return [frame["payload"]["text"].rstrip(".") for frame in frames]


async def test_send_is_stored_acked_and_pushed_to_the_others(stage: Stage) -> None:
    ann, ben, chat_id = await stage.pair()
    phone, laptop = await stage.connect(ann), await stage.connect(ann, device_id=OTHER_DEVICE)
    friend = await stage.connect(ben)
    phone.sends("r1", chat_id, 1, "lunch?")
    await turns(SETTLED)
    [answer] = phone.new_frames()
    assert (answer["type"], answer["request_id"]) == ("send_message_ack", "r1")
    assert (answer["payload"]["sequence"], answer["payload"]["deduplicated"]) == (1, False)
    for peer in (laptop, friend):
        [message] = peer.new_frames()
        assert message["type"] == "message"
        assert message["payload"]["content"] == "lunch?"
        assert message["payload"]["message_id"] == answer["payload"]["message_id"]
    assert stage.hub.counters.send_latency_ms.counts[0] == 1


async def test_acks_and_reads_move_positions(stage: Stage) -> None:
    ann, ben, chat_id = await stage.pair()
    await stage.world.send_many(chat_id, ann, 3)
    peer = await stage.connect(ben)
    peer.says("ack", chat_id=chat_id, last_acked_sequence=3)
    peer.says("read", chat_id=chat_id, last_read_sequence=2)
    await stage.delivery.drain()
    positions = await stage.world.positions(ben, chat_id)
    assert (positions.delivered, positions.read) == (3, 2)
    assert peer.new_frames() == []


async def test_acknowledgements_of_the_author_are_hastened_before_a_send(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, _, chat_id = await stage.pair()
    peer = await stage.connect(ann)
    sends_before: list[tuple[object, object, int]] = []
    monkeypatch.setattr(
        stage.delivery,
        "hasten",
        lambda *who: sends_before.append((*who, stage.ingest.counters.sends)),
    )
    peer.sends("r1", chat_id, 1)
    assert sends_before == [(ann, chat_id, 0)]
    assert stage.ingest.counters.sends == 1


async def test_ack_above_the_head_is_told_and_an_outsiders_is_not(stage: Stage) -> None:
    ann, ben, chat_id = await stage.pair()
    await stage.world.send_many(chat_id, ann, 3)
    peer, outsider = await stage.connect(ben), await stage.connect(await stage.world.person())
    peer.says("ack", "ignored", chat_id=chat_id, last_acked_sequence=4)
    outsider.says("ack", chat_id=chat_id, last_acked_sequence=1)
    await turns(SETTLED)
    [error] = peer.new_frames()
    assert error["payload"]["code"] == "INVALID_SEQUENCE"
    assert "request_id" not in error
    assert outsider.new_frames() == []
    counters = stage.hub.counters
    assert (counters.acks_above_head, counters.acks_not_a_member) == (1, 1)


async def test_ack_without_room_is_counted(stage: Stage) -> None:
    ann, _, chat_id = await stage.pair()
    peer = await stage.connect(ann)
    stage.delivery._tracker._waiting_max = 0
    peer.says("ack", chat_id=chat_id, last_acked_sequence=1)
    assert stage.hub.counters.acks_without_room == 1


async def test_typing_goes_to_the_relay(stage: Stage) -> None:
    ann, _, chat_id = await stage.pair()
    peer = await stage.connect(ann)
    peer.says("typing_start", chat_id=chat_id)
    peer.says("typing_start", chat_id=chat_id)
    peer.says("typing_stop", chat_id=chat_id)
    assert stage.typed == [
        (ann, chat_id, True, peer.connection_id),
        (ann, chat_id, False, peer.connection_id),
    ]
    assert stage.hub.counters.typing_dropped == 1


async def test_sync_gives_pages_until_complete(stage: Stage) -> None:
    ann, ben, chat_id = await stage.pair()
    await stage.world.send_many(chat_id, ann, 5)
    peer = await stage.connect(ben)
    cursor, seen = 0, []
    for number in range(3):
        [page] = await peer.asks(
            "sync_request", f"s{number}", chat_id=chat_id, last_acked_sequence=cursor, limit=2
        )
        assert (page["type"], page["request_id"]) == ("sync_response", f"s{number}")
        seen += [item["sequence"] for item in page["payload"]["messages"]]
        cursor = page["payload"]["synced_through"]
        assert page["payload"]["has_more"] == (number < 2)
    assert seen == [1, 2, 3, 4, 5]


async def test_pages_beyond_their_budget_wait_and_are_never_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[int] = []

    async def pause(delay_ms: int) -> None:
        waits.append(delay_ms)
        slow.clock.now_ms += delay_ms

    monkeypatch.setattr(driver, "pause", pause)
    options = GatewayOptions(page_bytes_per_second=10_000, page_burst_bytes=20_000)
    async with staged(tmp_path, options) as slow:
        ann, ben, chat_id = await slow.pair()
        await slow.world.send_many(chat_id, ann, 5)
        peer = await slow.connect(ben)
        for number in range(10):
            [page] = await peer.asks(
                "sync_request", f"s{number}", chat_id=chat_id, last_acked_sequence=0, limit=5
            )
            assert page["type"] == "sync_response"
        # Errors are paid for as well: they read, too.
        [refused] = await peer.asks(
            "sync_request", "s", chat_id="chat_elsewhere", last_acked_sequence=0, limit=5
        )
        assert refused["type"] == "error"
    assert len(waits) >= 5
    assert all(400 <= wait_ms <= 1_000 for wait_ms in waits[1:])


async def test_sync_of_somebody_elses_chat_is_refused(stage: Stage) -> None:
    _, _, chat_id = await stage.pair()
    outsider = await stage.connect(await stage.world.person())
    for chat in (chat_id, stage.world.no_chat()):
        [error] = await outsider.asks("sync_request", "s1", chat_id=chat, last_acked_sequence=0)
        assert (error["type"], error["payload"]["code"]) == ("error", "NOT_A_MEMBER")


async def test_sync_is_answered_when_the_store_fails(stage: Stage) -> None:
    ann, _, chat_id = await stage.pair()
    peer = await stage.connect(ann)
    stage.storage.faults = [StoreUnavailable("no"), NotAMember()]
    for code in ("SERVICE_UNAVAILABLE", "NOT_A_MEMBER"):
        [error] = await peer.asks("sync_request", "s1", chat_id=chat_id, last_acked_sequence=0)
        assert error["payload"]["code"] == code


async def test_page_that_takes_too_long_is_answered(tmp_path: Path) -> None:
    async with staged(tmp_path, GatewayOptions(store_timeout_ms=1)) as stage:
        ann, _, chat_id = await stage.pair()
        peer = await stage.connect(ann)
        stage.storage.gate.clear()
        peer.says("sync_request", "s1", chat_id=chat_id, last_acked_sequence=0)
        while not (frames := peer.new_frames()):
            await turns()
        assert frames[0]["payload"]["code"] == "SERVICE_UNAVAILABLE"


async def test_digest_comes_in_pages_of_all_chats(small: Stage) -> None:
    ann = await small.world.person()
    chats = [await small.world.group(ann, name=f"team {number}") for number in range(5)]
    peer = small.arrives(ann)
    await turns(SETTLED)
    first, *pages = peer.new_frames()
    assert first["type"] == "connection_established"
    assert [page["payload"]["page"] for page in pages] == [0, 1, 2]
    assert [page["payload"]["last"] for page in pages] == [False, False, True]
    listed = [entry["chat_id"] for page in pages for entry in page["payload"]["chats"]]
    assert listed == sorted(chats)
    assert all("request_id" not in page for page in pages)
    again = await peer.asks("digest_request", "d1")
    assert {page["request_id"] for page in again} == {"d1"}
    assert {page["payload"]["digest_id"] for page in again} == {"digest_2"}


async def test_pushes_wait_behind_connection_established_and_the_first_page(stage: Stage) -> None:
    ann, _, _ = await stage.pair()
    stage.storage.gate.clear()
    peer = stage.arrives(ann)
    give(stage.hub, [ann], push("one"))
    await turns(SETTLED)
    give(stage.hub, [ann], push("two"))
    peer.says("heartbeat", "h1")
    assert peer.new_frames() == []
    stage.storage.gate.set()
    await turns(SETTLED)
    give(stage.hub, [ann], push("three"))
    await turns(SETTLED)
    established, page, *rest = peer.new_frames()
    assert (established["type"], page["type"]) == ("connection_established", "chat_digest")
    assert [frame["type"] for frame in rest] == [
        "message",
        "message",
        "heartbeat_ack",
        "message",
    ]
    assert texts([frame for frame in rest if frame["type"] == "message"]) == [
        "one",
        "two",
        "three",
    ]


async def test_push_in_the_very_turn_of_the_digest_comes_after_it(stage: Stage) -> None:
    ann, _, _ = await stage.pair()
    stage.storage.gate.clear()
    peer = stage.arrives(ann)
    await turns(SETTLED)
    stage.storage.gate.set()
    for _ in range(SETTLED):
        give(stage.hub, [ann], push())
        await turns()
    await turns()
    assert peer.new_types() == ["connection_established", "chat_digest"] + ["message"] * SETTLED


async def test_pushes_that_wait_are_bounded(small: Stage) -> None:
    ann, _, _ = await small.pair()
    small.storage.gate.clear()
    peer = small.arrives(ann)
    for _ in range(20):
        give(small.hub, [ann], push(size=1_000))
        await turns()
    assert peer.closed == (1008, "slow_consumer")
    # What was held back is gone; what is said instead is not.
    error, closing = peer.new_frames()
    assert error["payload"]["code"] == "SLOW_CONSUMER"
    assert closing["payload"]["reason"] == "slow_consumer"
    assert await small.hub.presence([ann]) == {}
    small.storage.gate.set()
    await turns(SETTLED)
    assert peer.new_frames() == []


async def test_connection_that_cannot_begin_is_closed_for_later(stage: Stage) -> None:
    ann, _, _ = await stage.pair()
    stage.storage.faults = [StoreUnavailable("no")]
    peer = stage.arrives(ann)
    give(stage.hub, [ann], push())
    await turns(SETTLED)
    [error] = peer.new_frames()
    assert error["payload"]["code"] == "SERVICE_UNAVAILABLE"
    assert peer.closed == (1013, "SERVICE_UNAVAILABLE")
    assert await stage.hub.presence([ann]) == {}


async def test_frames_of_one_turn_go_out_in_one_write(stage: Stage) -> None:
    ann, _, _ = await stage.pair()
    peer = await stage.connect(ann)
    writes = len(peer.transport.writes)
    for number in range(10):
        give(stage.hub, [ann], push(str(number)))
        peer.says("heartbeat", f"h{number}")
    await turns()
    assert len(peer.transport.writes) == writes + 1
    assert peer.new_types() == ["message", "heartbeat_ack"] * 10


async def test_slow_peer_is_logged_at_80_percent_and_closed_at_the_bound(
    small: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    ann, _, _ = await small.pair()
    peer = await small.connect(ann)
    peer.transport.is_reading = False
    caplog.set_level(logging.WARNING)
    for _ in range(8):
        give(small.hub, [ann], push(size=1_000))
        await turns()
    assert small.hub.counters.backlogs == 1
    assert [record.message for record in our_lines(caplog)] == ["connection is slow"]
    assert peer.driver.core.state is READY
    for _ in range(2):
        give(small.hub, [ann], push(size=1_000))
        await turns()
    assert peer.closed == (1008, "slow_consumer")
    assert peer.new_types()[-2:] == ["error", "connection_closing"]
    assert small.hub.counters.slow_consumers == 1


async def test_peer_that_catches_up_is_reported_again_only_when_it_falls_behind_again(
    small: Stage,
) -> None:
    ann, _, _ = await small.pair()
    peer = await small.connect(ann)
    peer.transport.is_reading = False
    for _ in range(3):
        for _ in range(9):
            give(small.hub, [ann], push(size=900))
            await turns()
        peer.transport.read_all()
        give(small.hub, [ann], push())
        await turns()
    assert small.hub.counters.backlogs == 3
    assert peer.driver.core.state is READY


async def test_page_is_outside_the_budget_and_the_next_waits_until_it_has_drained(
    small: Stage,
) -> None:
    ann, ben, chat_id = await small.pair()
    for _ in range(6):
        await small.world.send(chat_id, ann, "x" * 4_000)
    peer = await small.connect(ben)
    peer.transport.is_reading = False
    for number in range(3):
        peer.says("sync_request", f"s{number}", chat_id=chat_id, last_acked_sequence=0)
    await turns(SETTLED)
    assert peer.new_types() == ["sync_response"]
    assert peer.transport.unsent_bytes() > small.options.outbound_bytes_max
    assert peer.driver.core.state is READY
    assert small.storage.reads.count("sync") == 1
    # The rest of the budget is there for pushes.
    give(small.hub, [ben], push(size=5_000))
    await turns(SETTLED)
    assert peer.driver.core.state is READY
    peer.transport.read_down_to(small.options.drained_bytes_max + 1)
    await turns(SETTLED)
    assert small.storage.reads.count("sync") == 1
    peer.transport.read_down_to(small.options.drained_bytes_max)
    await turns(SETTLED)
    assert small.storage.reads.count("sync") == 2
    assert peer.new_types() == ["message", "sync_response"]


async def test_page_that_is_still_to_be_written_has_not_drained(
    small: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In that turn the peer may read what was written before it."""
    _, ben, chat_id = await small.pair()
    peer = await small.connect(ben)
    mark, were_draining = small.hub.mark, []

    def marked(driver: ConnectionDriver) -> None:
        mark(driver)
        driver.drained()
        were_draining.append(driver.core._lane.is_draining)

    monkeypatch.setattr(small.hub, "mark", marked)
    await peer.asks("sync_request", "s1", chat_id=chat_id, last_acked_sequence=0)
    assert were_draining == [True]
    assert not peer.driver.core._lane.is_draining


async def test_pushes_beside_a_page_are_bounded_all_the_same(small: Stage) -> None:
    ann, ben, chat_id = await small.pair()
    for _ in range(6):
        await small.world.send(chat_id, ann, "x" * 4_000)
    peer = await small.connect(ben)
    peer.transport.is_reading = False
    await peer.asks("sync_request", "s1", chat_id=chat_id, last_acked_sequence=0)
    for _ in range(11):
        give(small.hub, [ben], push(size=1_000))
        await turns()
    assert peer.closed == (1008, "slow_consumer")


async def test_lost_connection_is_forgotten_and_its_messages_are_stored(stage: Stage) -> None:
    ann, ben, chat_id = await stage.pair()
    peer = await stage.connect(ann)
    peer.sends("r1", chat_id, 1)
    peer.goes()
    await stage.ingest.drain()
    assert len(await stage.world.messages(ben, chat_id)) == 1
    assert peer.new_frames() == []
    assert peer.driver.core.state is CLOSED
    assert stage.hub.connections_count == 0
    assert stage.hub.counters.connections_by_status["lost"] == 1


async def test_lost_connection_does_not_hold_up_what_was_to_be_written(stage: Stage) -> None:
    ann, ben, _ = await stage.pair()
    gone, here = await stage.connect(ann), await stage.connect(ben)
    give(stage.hub, [ann, ben], push())
    gone.goes()
    await turns()
    assert gone.new_frames() == []
    assert here.new_types() == ["message"]


async def test_page_that_comes_after_the_end_is_forgotten(stage: Stage) -> None:
    ann, _, chat_id = await stage.pair()
    peer = await stage.connect(ann)
    stage.storage.gate.clear()
    peer.says("sync_request", "s1", chat_id=chat_id, last_acked_sequence=0)
    await turns(SETTLED)
    peer.goes()
    stage.storage.gate.set()
    await turns(SETTLED)
    assert peer.new_frames() == []


async def test_end_writes_what_was_gathered_and_then_closes(stage: Stage) -> None:
    ann, _, _ = await stage.pair()
    peer = await stage.connect(ann)
    give(stage.hub, [ann], push())
    peer.driver.end(CloseReason.SESSION_REVOKED)
    assert peer.new_types() == ["message", "connection_closing"]
    assert peer.closed == (1008, "session_revoked")
    await turns()
    assert peer.new_frames() == []


async def test_frames_are_counted_by_type(stage: Stage) -> None:
    ann, _, chat_id = await stage.pair()
    peer = await stage.connect(ann)
    peer.says("heartbeat", "h1")
    peer.says("heartbeat")
    peer.says("dance")
    peer.driver.text_received(memoryview(b"{"))
    peer.says("ack", chat_id=chat_id, last_acked_sequence=-1)
    give(stage.hub, [ann], push())
    await turns()
    counters = stage.hub.counters
    assert counters.frames_received_by_type == {"heartbeat": 2, "unknown": 1, "invalid": 2}
    sent = counters.frames_sent_by_type
    assert (sent["heartbeat_ack"], sent["error"], sent["message"]) == (2, 2, 1)
    assert counters.errors_sent_by_code == {"INVALID_MESSAGE": 2}
    assert counters.bytes_sent == sum(map(len, peer.transport.writes))
    assert counters.bytes_received > 100


async def test_flood_is_counted(tmp_path: Path) -> None:
    options = GatewayOptions(control_rate_per_second=1, control_burst=1)
    async with staged(tmp_path, options) as stage:
        ann, _, chat_id = await stage.pair()
        peer = await stage.connect(ann)
        for _ in range(3):
            peer.says("ack", chat_id=chat_id, last_acked_sequence=1)
        assert stage.hub.counters.frames_flood_dropped == 2


async def test_end_of_a_connection_is_one_line_without_content(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    ann, _, chat_id = await stage.pair()
    peer = await stage.connect(ann)
    caplog.set_level(logging.DEBUG, logger="tidewire")
    peer.sends("r1", chat_id, 1, "a secret")
    await turns(SETTLED)
    stage.clock.forward(1_500)
    peer.goes()
    [record] = our_lines(caplog)
    assert record.message == "connection ended"
    fields = vars(record)
    assert (fields["user_id"], fields["reason"], fields["open_ms"]) == (ann, "lost", 1_500)
    assert "a secret" not in str(fields)


async def test_peer_that_says_goodbye_is_not_lost(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    ann, ben, _ = await stage.pair()
    peer, closed = await stage.connect(ann), await stage.connect(ben)
    caplog.set_level(logging.INFO, logger="tidewire")
    peer.goes(says_goodbye=True)
    # What the server itself had to say counts more than the answer to it.
    closed.driver.end(CloseReason.SESSION_REVOKED)
    closed.goes(says_goodbye=True)
    # On a busy machine asyncio has something to say as well.
    assert [vars(one)["reason"] for one in our_lines(caplog)] == [
        "closed_by_client",
        "session_revoked",
    ]
    assert stage.hub.counters.connections_by_status["closed_by_client"] == 1


async def test_first_confirmation_is_asked_for_once_per_chat_and_kind(stage: Stage) -> None:
    ann, _, chat_id = await stage.pair()
    driver = (await stage.connect(ann)).driver
    assert driver.is_first_confirmation(chat_id, is_read=False)
    assert not driver.is_first_confirmation(chat_id, is_read=False)
    assert driver.is_first_confirmation(chat_id, is_read=True)
    for number in range(CONFIRMED_CHATS_MAX):
        assert driver.is_first_confirmation(ChatId(f"chat_{number}"), is_read=False)
    # Memory is bounded: what was forgotten counts as the first again.
    assert driver.is_first_confirmation(chat_id, is_read=True)


async def test_peer_that_overruns_its_budget_is_told_to_come_back_later(stage: Stage) -> None:
    ann, _, _ = await stage.pair()
    phone = await stage.connect(ann)
    phone.driver.overrun()
    await turns(SETTLED)
    [closing] = phone.new_frames()
    assert closing["type"] == "connection_closing"
    assert closing["payload"]["reason"] == CloseReason.RATE_LIMITED
    assert phone.driver.core.close_reason == CloseReason.RATE_LIMITED
