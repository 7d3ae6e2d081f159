"""The conversation: from connecting to closing, over losses, refusals and restores."""

from typing import Any

import pytest

from tests.unit.client.stage import (
    CHAT,
    ME,
    WALL_MS,
    Stage,
    closing,
    digest,
    entry,
    error,
    established,
    frames,
    heartbeat_ack,
    item,
    key,
    listed,
    of,
    page,
    push,
    send_ack,
    sends,
    syncs,
)
from tidewire.client.effects import (
    Connect,
    ConnectionState,
    Disconnect,
    Introduced,
    Keep,
    Mark,
    Refusal,
    SendFailed,
    Settled,
    StatusChanged,
)
from tidewire.client.options import ClientOptions
from tidewire.client.outbox import FAILED, UNKNOWN
from tidewire.client.replica import ReplicaRecord
from tidewire.domain.chats import ChatType
from tidewire.domain.ids import ChatId
from tidewire.wire.client_frames import (
    DigestRequestFrame,
    HeartbeatFrame,
    TypingStartFrame,
    TypingStopFrame,
)
from tidewire.wire.codec import FrameRefusal, UnknownFrame

OTHER = ChatId("chat_2")


def record(cursor: int, chat_id: ChatId = CHAT, **fields: Any) -> ReplicaRecord:
    return ReplicaRecord(chat_id=chat_id, chat_type=ChatType.DIRECT, cursor=cursor, **fields)


# Connecting.


def test_connection_says_nothing_before_the_server_has_introduced_itself() -> None:
    stage = Stage(entries=[entry(1)])
    done = stage.did(stage.core.start(stage.now))
    done += stage.did(stage.core.opened(stage.now))
    done += stage.receive(digest(listed(3)))  # out of order: not heard
    assert of(done, Connect) == [Connect(with_new_token=False)]
    assert not frames(done, object)  # type: ignore[type-var]
    assert str(stage.core.status) == "connecting"
    done = stage.receive(established())
    assert str(stage.core.status) == "syncing"
    assert of(done, Introduced) == [Introduced(ME, "one", ("batch", "entries"))]


def test_features_of_the_introduction_are_those_of_the_socket() -> None:
    stage = Stage()
    stage.did(stage.core.start(stage.now))
    stage.did(stage.core.opened(stage.now))
    done = stage.receive(established(features=("batch", "of next year")))
    assert of(done, Introduced) == [Introduced(ME, "one", ("batch", "of next year"))]


def test_connection_is_ready_when_the_digest_tells_nothing_new() -> None:
    stage = Stage()
    stage.connect()
    assert str(stage.core.status) == "ready"
    assert str(stage.core.status) == "ready"


def test_connection_gives_a_handshake_up_that_takes_too_long() -> None:
    stage = Stage()
    stage.did(stage.core.start(stage.now))
    done = stage.wait(20_000)
    assert of(done, Disconnect) == [Disconnect(1001)]
    assert str(stage.core.status) == "offline(handshake_timeout)"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (established(protocol_version=2), "unsupported_version"),
        (established(user_id="user_other"), "other_user"),
    ],
)
def test_connection_closes_when_the_server_is_not_the_one_it_was(
    given: object, reason: str
) -> None:
    stage = Stage()
    stage.did(stage.core.start(stage.now))
    done = stage.receive(given)  # type: ignore[arg-type]
    assert of(done, Disconnect)
    assert str(stage.core.status) == f"closed({reason})"
    assert stage.wait(1_000_000) == []


def test_second_introduction_changes_nothing() -> None:
    stage = Stage()
    stage.connect()
    assert stage.receive(established("two")) == []
    assert stage.core.epoch == "one"


def test_clock_skew_is_seen_and_does_no_harm() -> None:
    stage = Stage()
    stage.connect()
    assert stage.core.skew_ms is not None
    assert stage.core.skew_ms != 0


def test_frames_of_unknown_types_are_counted_and_ignored() -> None:
    stage = Stage()
    stage.connect()
    refusal = FrameRefusal(
        code="INVALID_MESSAGE",  # type: ignore[arg-type]
        message="",
        request_id=None,
        counts_against_budget=False,
        frame_type=None,
    )
    assert stage.receive(UnknownFrame("party"), refusal) == []  # type: ignore[arg-type]
    assert stage.core.unknown_frames == 2
    assert str(stage.core.status) == "ready"


def test_frames_after_the_end_are_not_heard() -> None:
    stage = Stage()
    stage.connect(listed(0))
    stage.lose()
    assert stage.receive(push(1)) == []


# Sending.


def test_send_goes_out_and_its_answer_continues_the_chain() -> None:
    stage = Stage(replicas=[record(3)])
    stage.connect(listed(3))
    (sent,) = sends(stage.submit(entry(1)))
    assert sent.payload.content == "text 1"
    done = stage.receive(send_ack(sent, 4))
    assert of(done, Settled) == [Settled(key(1), CHAT, 4)]
    assert stage.kept == [4]
    assert len(stage.core.outbox) == 0
    assert stage.receive(send_ack(sent, 4)) == []


def test_one_message_a_chat_is_on_its_way() -> None:
    stage = Stage(replicas=[record(0), record(0, OTHER)])
    stage.connect(listed(0), listed(0, OTHER))
    done = stage.submit(entry(1), entry(2), entry(3, OTHER))
    assert [one.payload.client_message_id for one in sends(done)] == [key(1), key(3)]
    done = stage.receive(send_ack(sends(done)[0], 1))
    assert [one.payload.client_message_id for one in sends(done)] == [key(2)]


def test_request_ids_are_never_used_twice() -> None:
    stage = Stage(replicas=[record(0)])
    stage.connect(listed(0))
    seen = [one.request_id for one in sends(stage.submit(entry(1)))]
    stage.lose()
    done = stage.wait(2_000) + stage.receive(established(), digest(listed(1)))
    asked = syncs(done)
    seen += [one.request_id for one in asked]
    done = stage.receive(page(asked[0].request_id, [item(1)]))
    seen += [one.request_id for one in sends(done)]
    assert len(seen) == len(set(seen)) == 3


def test_entry_of_an_earlier_life_waits_for_the_sync_of_its_chat() -> None:
    stage = Stage(replicas=[record(3)], entries=[entry(1)])
    done = stage.connect(listed(4))
    assert sends(done) == []
    (asked,) = syncs(done)
    done = stage.receive(page(asked.request_id, [item(4)]))
    assert [one.payload.client_message_id for one in sends(done)] == [key(1)]


def test_entry_of_an_earlier_life_that_arrived_is_not_sent_again() -> None:
    stage = Stage(replicas=[record(3)], entries=[entry(1)])
    (asked,) = syncs(stage.connect(listed(4)))
    done = stage.receive(page(asked.request_id, [item(4, sender=ME, client_message_id=key(1))]))
    assert sends(done) == []
    assert of(done, Settled) == [Settled(key(1), CHAT, 4)]
    assert len(stage.core.outbox) == 0


def test_entry_that_arrived_below_the_start_of_this_device_is_kept_all_the_same() -> None:
    stage = Stage(entries=[entry(1)])
    (sent,) = sends(stage.connect(listed(9, delivered=9)))
    done = stage.receive(send_ack(sent, 7, deduplicated=True))
    (kept,) = of(done, Keep)
    assert [one.sequence for one in kept.items] == [7]
    assert kept.through == 9


def test_entry_of_unknown_fate_asks_its_user_after_six_days() -> None:
    old = entry(1, left_at_ms=WALL_MS - 6 * 24 * 3_600_000)
    stage = Stage(replicas=[record(3)], entries=[old, entry(2)])
    done = stage.connect(listed(3))
    assert [one.payload.client_message_id for one in sends(done)] == [key(2)]
    (changed,) = of(done, SendFailed)
    assert changed.entry.state is UNKNOWN
    (again,) = stage.core.outbox.retry(key(1), 3)
    done = stage.receive(send_ack(sends(done)[0], 4))
    done += stage.did(stage.core.resubmit(again, stage.now))
    assert [one.payload.client_message_id for one in sends(done)] == [key(1)]


def test_entry_written_offline_is_marked_on_the_disk_before_it_leaves() -> None:
    stage = Stage(replicas=[record(0)], entries=[entry(1, left_at_ms=None)], stores=False)
    done = stage.connect(listed(0))
    assert sends(done) == []
    (mark,) = of(done, Mark)
    done = stage.did(stage.core.marked(mark.entries, WALL_MS, stage.now))
    assert len(sends(done)) == 1
    assert mark.entries[0].left_at_ms == WALL_MS


def test_entry_that_arrives_while_it_is_marked_does_not_leave() -> None:
    stage = Stage(replicas=[record(0)], entries=[entry(1, left_at_ms=None)], stores=False)
    (mark,) = of(stage.connect(listed(0)), Mark)
    stage.receive(push(1, sender=ME, client_message_id=key(1)))
    assert sends(stage.did(stage.core.marked(mark.entries, WALL_MS, stage.now))) == []


def test_mark_that_comes_after_the_connection_was_lost_sends_nothing() -> None:
    stage = Stage(replicas=[record(0)], entries=[entry(1, left_at_ms=None)], stores=False)
    (mark,) = of(stage.connect(listed(0)), Mark)
    stage.lose()
    assert sends(stage.did(stage.core.marked(mark.entries, WALL_MS, stage.now))) == []


def test_nothing_passes_an_entry_that_is_being_marked() -> None:
    entries = [entry(1, left_at_ms=None), entry(2, left_at_ms=None), entry(3), entry(4)]
    stage = Stage(ClientOptions(window=3), replicas=[record(0)], entries=entries, stores=False)
    done = stage.connect(listed(0))
    assert sends(done) == []
    (mark,) = of(done, Mark)
    assert [one.number for one in mark.entries] == [1, 2]
    done = stage.did(stage.core.marked(mark.entries, WALL_MS, stage.now))
    assert [one.payload.client_message_id for one in sends(done)] == [key(1), key(2), key(3)]


def test_refused_message_has_failed_and_the_next_one_leaves() -> None:
    stage = Stage(replicas=[record(0)])
    stage.connect(listed(0))
    (sent,) = sends(stage.submit(entry(1), entry(2)))
    done = stage.receive(error("FORBIDDEN", sent.request_id))
    (changed,) = of(done, SendFailed)
    assert (changed.entry.state, changed.entry.code) == (FAILED, "FORBIDDEN")
    assert [one.payload.client_message_id for one in sends(done)] == [key(2)]
    assert stage.core.replicas[CHAT].is_member


def test_message_to_a_chat_that_is_no_longer_ours_fails_and_the_chat_is_dropped() -> None:
    stage = Stage(replicas=[record(0)])
    stage.connect(listed(0))
    (sent,) = sends(stage.submit(entry(1)))
    stage.receive(error("NOT_A_MEMBER", sent.request_id))
    assert not stage.core.replicas[CHAT].is_member


def test_message_to_a_chat_that_nobody_knows_is_for_the_server_to_refuse() -> None:
    stage = Stage(entries=[entry(1)])
    (sent,) = sends(stage.connect())
    stage.receive(error("NOT_A_MEMBER", sent.request_id))
    (left,) = stage.core.outbox.entries()
    assert left.state is FAILED


def test_message_that_is_stored_in_an_unknown_chat_asks_for_a_digest() -> None:
    stage = Stage(entries=[entry(1)])
    (sent,) = sends(stage.connect())
    stage.receive(send_ack(sent, 4))
    assert len(frames(stage.wait(1), DigestRequestFrame)) == 1


def test_busy_server_gets_the_same_message_again() -> None:
    stage = Stage(replicas=[record(0)])
    stage.connect(listed(0))
    (sent,) = sends(stage.submit(entry(1)))
    assert sends(stage.receive(error("SERVICE_UNAVAILABLE", sent.request_id))) == []
    (again,) = sends(stage.wait(1_300))
    assert again.payload == sent.payload
    assert again.request_id != sent.request_id


def test_answer_that_does_not_come_ends_the_connection() -> None:
    stage = Stage(replicas=[record(0)])
    stage.connect(listed(0))
    stage.submit(entry(1))
    done = stage.wait(20_000)
    assert Disconnect(1001) in done
    assert str(stage.core.status) == "offline(no_answer)"


def test_typing_goes_out_on_a_connection_and_nowhere_without() -> None:
    stage = Stage(replicas=[record(0)])
    assert stage.did(stage.core.type(CHAT, is_typing=True, now=stage.now)) == []
    stage.connect(listed(0))
    done = stage.did(stage.core.type(CHAT, is_typing=True, now=stage.now))
    assert len(frames(done, TypingStartFrame)) == 1
    done = stage.did(stage.core.type(CHAT, is_typing=False, now=stage.now))
    assert len(frames(done, TypingStopFrame)) == 1


# Losing and closing.


def test_lost_connection_comes_back_more_and_more_slowly() -> None:
    stage = Stage()
    stage.connect()
    waits = []
    for _ in range(8):
        stage.lose()
        began_ms = stage.now.ms
        deadline_ms = stage.core.next_deadline_ms()
        assert deadline_ms is not None
        waits.append(deadline_ms - began_ms)
        assert of(stage.wait(deadline_ms - began_ms), Connect)
    for wait_ms, middle_ms in zip(waits, [1, 2, 4, 8, 16, 30, 30, 30], strict=True):
        assert 0.75 <= wait_ms / (middle_ms * 1000) <= 1.25


def test_only_being_ready_ends_a_row_of_failures() -> None:
    stage = Stage(replicas=[record(0)])
    for _ in range(3):
        stage.did(stage.core.start(stage.now))
        stage.receive(established())
        stage.lose()
    stage.connect(listed(0))
    stage.lose()
    deadline_ms = stage.core.next_deadline_ms()
    assert deadline_ms is not None
    assert deadline_ms - stage.now.ms <= 1_250


def test_message_on_its_way_is_sent_again_after_a_loss() -> None:
    stage = Stage(replicas=[record(0)])
    stage.connect(listed(0))
    (first,) = sends(stage.submit(entry(1)))
    stage.lose()
    done = stage.wait(2_000) + stage.receive(established(), digest(listed(0)))
    (again,) = sends(done)
    assert again.payload == first.payload


@pytest.mark.parametrize("reason", ["duplicate_connection", "session_revoked"])
def test_some_ends_are_for_good(reason: str) -> None:
    stage = Stage()
    stage.connect()
    stage.receive(closing(reason))
    stage.lose(code=1008)
    assert str(stage.core.status) == f"closed({reason})"


@pytest.mark.parametrize("reason", ["slow_consumer", "idle_timeout", "protocol_error", "news"])
def test_other_ends_are_not(reason: str) -> None:
    stage = Stage()
    stage.connect()
    stage.receive(closing(reason))
    stage.lose(code=1008)
    assert str(stage.core.status) == f"offline({reason})"
    assert of(stage.wait(1_300), Connect) == [Connect(with_new_token=False)]


def test_code_of_the_range_that_means_stop_is_for_good() -> None:
    stage = Stage()
    stage.connect()
    stage.lose(code=4501)
    assert str(stage.core.status) == "closed(code_4501)"


def test_stopping_server_says_when_to_come_back() -> None:
    stage = Stage()
    stage.connect()
    stage.receive(closing("server_shutdown", 8_000))
    stage.lose(code=1012)
    assert stage.wait(7_900) == []
    assert of(stage.wait(2_200), Connect)


def test_nothing_is_sent_after_a_close_was_announced_but_answers_are_heard() -> None:
    stage = Stage(replicas=[record(0)])
    stage.connect(listed(0))
    (sent,) = sends(stage.submit(entry(1), entry(2)))
    stage.receive(closing("server_shutdown"))
    done = stage.receive(send_ack(sent, 1))
    assert of(done, Settled)
    assert sends(done) == []
    assert frames(stage.wait(40_000), HeartbeatFrame) == []
    stage.wait(40_000)
    assert stage.core.status.state is not ConnectionState.READY


def test_expired_token_is_renewed_for_the_next_connection() -> None:
    stage = Stage()
    stage.connect()
    stage.receive(closing("token_expired"))
    stage.lose(code=1008)
    assert of(stage.wait(1_300), Connect) == [Connect(with_new_token=True)]


def test_unauthorized_asks_for_a_new_token_too() -> None:
    stage = Stage()
    stage.connect()
    stage.receive(error("UNAUTHORIZED"))
    stage.lose(code=1008)
    assert of(stage.wait(1_300), Connect) == [Connect(with_new_token=True)]


def test_renewal_waits_for_the_answers_and_then_changes_the_connection() -> None:
    stage = Stage(replicas=[record(0)])
    stage.connect(listed(0))
    (sent,) = sends(stage.submit(entry(1), entry(2)))
    assert of(stage.did(stage.core.renew(stage.now)), Connect) == []
    done = stage.receive(send_ack(sent, 1))
    assert [type(effect) for effect in done if isinstance(effect, Connect | Disconnect)] == [
        Disconnect,
        Connect,
    ]
    done = stage.receive(established(), digest(listed(1)))
    assert [one.payload.client_message_id for one in sends(done)] == [key(2)]


def test_renewal_does_not_wait_for_ever() -> None:
    stage = Stage(replicas=[record(0)])
    stage.connect(listed(0))
    stage.submit(entry(1))
    stage.did(stage.core.renew(stage.now))
    assert of(stage.wait(5_000), Connect)


def test_renewal_of_a_connection_that_is_lost_meanwhile_connects_at_once() -> None:
    stage = Stage(replicas=[record(0)])
    stage.connect(listed(0))
    stage.submit(entry(1))
    stage.did(stage.core.renew(stage.now))
    assert of(stage.lose(), Connect)


def test_heartbeats_come_at_the_given_interval_and_measure_the_way() -> None:
    stage = Stage()
    stage.connect()
    (beat,) = frames(stage.wait(33_000), HeartbeatFrame)
    stage.wait(20)
    stage.receive(heartbeat_ack(beat.request_id))
    assert stage.core.round_trip_ms is not None
    stage.receive(heartbeat_ack(None))


def test_silence_ends_the_connection() -> None:
    stage = Stage()
    stage.connect()
    done = stage.wait(61_000)
    assert Disconnect(1001) in done
    assert of(done, Connect) or stage.core.status.reason == "silence"


def test_sign_of_life_is_a_sign_of_life() -> None:
    stage = Stage()
    stage.connect()
    for _ in range(5):
        stage.wait(50_000)
        stage.core.heard(stage.now)
    assert str(stage.core.status) == "ready"


def test_end_that_is_told_twice_is_one() -> None:
    stage = Stage()
    stage.connect()
    stage.lose()
    assert stage.lose() == []
    stage.did(stage.core.stop(stage.now, "closed"))
    assert stage.lose() == []
    assert stage.did(stage.core.stop(stage.now, "again")) == []
    assert str(stage.core.status) == "closed(closed)"


def test_handshake_that_is_refused_for_now_is_tried_again_later() -> None:
    stage = Stage()
    stage.did(stage.core.start(stage.now))
    busy = Refusal(status=503, error="unavailable", retry_after_ms=5_000)
    assert of(stage.did(stage.core.refused(busy, stage.now)), StatusChanged)
    # A timer that is early does no harm.
    assert stage.did(stage.core.tick(stage.now)) == []
    assert of(stage.wait(10_000), Connect)


def test_answer_that_a_page_was_quicker_than_changes_nothing() -> None:
    stage = Stage(replicas=[record(0)])
    stage.connect(listed(0))
    (sent,) = sends(stage.submit(entry(1)))
    stage.receive(push(1, sender=ME, client_message_id=key(1)))
    assert stage.kept == [1]
    assert of(stage.receive(send_ack(sent, 1)), Settled) == []
    assert stage.kept == [1]
