"""The conversation: from connecting to closing, over losses, refusals and restores."""

import pytest

from tests.unit.client.stage import (
    CHAT,
    ME,
    TIME,
    WALL_MS,
    Stage,
    chat_update,
    closing,
    digest,
    entry,
    error,
    established,
    frames,
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
    EntryChanged,
    Introduced,
    Keep,
    Mark,
    Restart,
    Settled,
    Typed,
)
from tidewire.client.options import ClientOptions
from tidewire.client.outbox import FAILED, UNKNOWN
from tidewire.client.places import PlaceRecord
from tidewire.domain.chats import ChatType
from tidewire.domain.ids import ChatId, ClientMessageId
from tidewire.wire.client_frames import (
    AckFrame,
    DigestRequestFrame,
    HeartbeatFrame,
    ReadFrame,
    TypingStartFrame,
    TypingStopFrame,
)
from tidewire.wire.codec import FrameRefusal, UnknownFrame
from tidewire.wire.server_frames import (
    HeartbeatAckFrame,
    HeartbeatAckPayload,
    ResyncFrame,
    ResyncPayload,
    StatusUpdateFrame,
    StatusUpdatePayload,
    TypingIndicatorFrame,
    TypingIndicatorPayload,
)

OTHER = ChatId("chat_2")


def record(cursor: int, chat_id: ChatId = CHAT, **fields: int) -> PlaceRecord:
    return PlaceRecord(chat_id=chat_id, chat_type=ChatType.DIRECT, cursor=cursor, **fields)


# Connecting.


def test_connection_says_nothing_before_the_server_has_introduced_itself() -> None:
    stage = Stage(entries=[entry(1)])
    done = stage.did(stage.core.start(stage.now))
    done += stage.did(stage.core.opened(stage.now))
    done += stage.receive(digest(listed(3)))  # out of order: not heard
    assert of(done, Connect) == [Connect(with_new_token=False)]
    assert not frames(done, object)  # type: ignore[type-var]
    assert stage.core.status.state is ConnectionState.CONNECTING
    done = stage.receive(established())
    assert stage.core.status.state is ConnectionState.SYNCING
    assert of(done, Introduced) == [Introduced(ME, "one")]


def test_connection_is_ready_when_the_digest_tells_nothing_new() -> None:
    stage = Stage()
    stage.connect()
    assert stage.core.status.state is ConnectionState.READY
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
    assert stage.core.status.state is ConnectionState.READY


def test_frames_after_the_end_are_not_heard() -> None:
    stage = Stage()
    stage.connect(listed(0))
    stage.lose()
    assert stage.receive(push(1)) == []


# Syncing.


def test_digest_decides_what_is_synced_and_not_the_users_position() -> None:
    stage = Stage(places=[record(3)])
    done = stage.connect(listed(9, delivered=9))
    (asked,) = syncs(done)
    assert asked.payload.last_acked_sequence == 3
    assert asked.payload.limit == 500
    assert stage.core.status.state is ConnectionState.SYNCING
    done = stage.receive(page(asked.request_id, [item(n) for n in range(4, 7)], has_more=True))
    (again,) = syncs(done)
    assert again.payload.last_acked_sequence == 6
    stage.receive(page(again.request_id, [item(n) for n in range(7, 10)]))
    assert stage.core.status.state is ConnectionState.READY
    assert stage.kept == [4, 5, 6, 7, 8, 9]


def test_new_device_starts_where_its_user_had_got_to() -> None:
    stage = Stage()
    done = stage.connect(listed(9, delivered=7), listed(5, OTHER, joined_sequence=5))
    (asked,) = syncs(done)
    assert (asked.payload.chat_id, asked.payload.last_acked_sequence) == (CHAT, 7)
    assert stage.core.places[OTHER].start == 5


def test_at_most_so_many_chats_are_synced_at_once() -> None:
    stage = Stage(ClientOptions(syncs_max=2))
    chats = [ChatId(f"chat_{n}") for n in range(4)]
    done = stage.connect(*(listed(1, chat_id) for chat_id in chats))
    asked = syncs(done)
    assert len(asked) == 2
    done = stage.receive(page(asked[0].request_id, [item(1)], chat_id=chats[0]))
    assert [one.payload.chat_id for one in syncs(done)] == [chats[2]]


def test_gap_is_synced_and_what_came_after_it_waits() -> None:
    stage = Stage(places=[record(3)])
    stage.connect(listed(3))
    done = stage.receive(push(6), push(7))
    (asked,) = syncs(done)
    assert stage.kept == []
    stage.receive(page(asked.request_id, [item(4), item(5)], through=5, has_more=True))
    assert stage.kept == [4, 5, 6, 7]


def test_hole_in_the_numbers_is_no_gap() -> None:
    stage = Stage(places=[record(3)])
    stage.connect(listed(3))
    done = stage.receive(push(900, prev=3))
    assert stage.kept == [900]
    assert syncs(done) == []


def test_gap_waits_a_moment_while_an_own_message_may_fill_it() -> None:
    stage = Stage(places=[record(3)])
    stage.connect(listed(3))
    (sent,) = sends(stage.submit(entry(1)))
    assert syncs(stage.receive(push(5))) == []
    stage.receive(send_ack(sent, 4))
    assert stage.kept == [4, 5]
    assert syncs(stage.wait(1_000)) == []


def test_gap_is_synced_when_the_own_message_does_not_fill_it() -> None:
    stage = Stage(places=[record(3)])
    stage.connect(listed(3))
    stage.submit(entry(1))
    assert syncs(stage.receive(push(5))) == []
    assert len(syncs(stage.wait(300))) == 1


def test_page_without_progress_is_asked_for_again_but_not_at_once() -> None:
    stage = Stage(places=[record(3)])
    (asked,) = syncs(stage.connect(listed(5)))
    assert syncs(stage.receive(page(asked.request_id, [], through=3, has_more=True))) == []
    assert len(syncs(stage.wait(1_500))) == 1


def test_answer_to_nothing_is_ignored() -> None:
    stage = Stage(places=[record(3)])
    (asked,) = syncs(stage.connect(listed(5)))
    assert stage.receive(page("nothing", [item(4)])) == []
    assert stage.receive(page(asked.request_id, [item(4)], chat_id=OTHER)) == []


@pytest.mark.parametrize("code", ["SERVICE_UNAVAILABLE", "SERVER_BUSY", "CODE_OF_TOMORROW"])
def test_sync_that_fails_is_tried_again_later(code: str) -> None:
    stage = Stage(places=[record(3)])
    (asked,) = syncs(stage.connect(listed(5)))
    assert syncs(stage.receive(error(code, asked.request_id))) == []
    assert len(syncs(stage.wait(1_500))) == 1


def test_sync_waits_as_long_as_the_server_says() -> None:
    stage = Stage(places=[record(3)])
    (asked,) = syncs(stage.connect(listed(5)))
    stage.receive(error("RATE_LIMITED", asked.request_id, retry_after_seconds=9))
    assert syncs(stage.wait(8_000)) == []
    assert len(syncs(stage.wait(1_500))) == 1


@pytest.mark.parametrize("code", ["NOT_A_MEMBER", "FORBIDDEN", "NOT_FOUND"])
def test_chat_of_others_is_dropped_and_not_asked_for_again(code: str) -> None:
    stage = Stage(places=[record(3)])
    (asked,) = syncs(stage.connect(listed(5)))
    done = stage.receive(error(code, asked.request_id))
    assert not stage.core.places[CHAT].is_member
    assert stage.core.status.state is ConnectionState.READY
    assert syncs(done + stage.wait(60_000)) == []


def test_sync_that_is_refused_for_good_leaves_the_rest_in_peace() -> None:
    stage = Stage(places=[record(3)])
    (asked,) = syncs(stage.connect(listed(5)))
    stage.receive(error("INVALID_MESSAGE", asked.request_id))
    assert stage.core.status.state is ConnectionState.READY


def test_push_of_an_unknown_chat_asks_for_a_digest() -> None:
    stage = Stage()
    stage.connect()
    stage.receive(push(1))
    (asked,) = frames(stage.wait(1), DigestRequestFrame)
    done = stage.receive(digest(listed(1), request_id=asked.request_id))
    assert len(syncs(done)) == 1


def test_resync_asks_for_a_digest_after_the_delay() -> None:
    stage = Stage(places=[record(3)])
    stage.connect(listed(3))
    stage.receive(ResyncFrame(timestamp=TIME, payload=ResyncPayload(reason="x", delay_ms=700)))
    assert frames(stage.wait(600), DigestRequestFrame) == []
    (asked,) = frames(stage.wait(200), DigestRequestFrame)
    done = stage.receive(digest(listed(5), request_id=asked.request_id))
    assert [one.payload.last_acked_sequence for one in syncs(done)] == [3]
    assert stage.core.status.state is ConnectionState.READY


def test_digest_that_fails_is_asked_for_again() -> None:
    stage = Stage()
    stage.connect()
    stage.receive(ResyncFrame(timestamp=TIME, payload=ResyncPayload(reason="x", delay_ms=0)))
    (asked,) = frames(stage.wait(1), DigestRequestFrame)
    stage.receive(error("SERVICE_UNAVAILABLE", asked.request_id))
    assert len(frames(stage.wait(1_100), DigestRequestFrame)) == 1


def test_disk_that_is_slow_stops_the_reading() -> None:
    options = ClientOptions(unstored_max=500)
    stage = Stage(options, places=[record(0)], stores=False)
    (asked,) = syncs(stage.connect(listed(2_000)))
    done = stage.receive(page(asked.request_id, [item(n) for n in range(1, 501)], has_more=True))
    assert [type(effect).__name__ for effect in done if "Reading" in type(effect).__name__] == [
        "PauseReading"
    ]
    assert syncs(done) == []
    (kept,) = of(done, Keep)
    done = stage.did(stage.core.stored(kept.place, 500, 500, kept.life, stage.now))
    assert [type(effect).__name__ for effect in done if "Reading" in type(effect).__name__] == [
        "ResumeReading"
    ]
    assert len(syncs(done)) == 1


# Acknowledging.


def acked(effects: object) -> list[int]:
    return [frame.payload.last_acked_sequence for frame in frames(effects, AckFrame)]  # type: ignore[arg-type]


def test_ten_messages_are_acknowledged_at_once_and_fewer_after_five_seconds() -> None:
    stage = Stage(places=[record(0)])
    stage.connect(listed(0))
    done = stage.receive(*(push(n) for n in range(1, 10)))
    assert acked(done) == []
    assert acked(stage.wait(4_900)) == []
    assert acked(stage.wait(200)) == [9]
    done = stage.receive(*(push(n) for n in range(10, 20)))
    assert acked(done) == [19]


def test_nothing_is_acknowledged_before_it_is_stored() -> None:
    stage = Stage(places=[record(0)], stores=False)
    stage.connect(listed(0))
    done = stage.receive(*(push(n) for n in range(1, 21)))
    assert acked(done + stage.wait(10_000)) == []
    keeps = of(done, Keep)
    done = stage.did(stage.core.stored(keeps[0].place, 12, 12, 0, stage.now))
    assert acked(done) == [12]


def test_everything_is_acknowledged_again_after_a_reconnect() -> None:
    stage = Stage(places=[record(5, start=2, read=4)])
    done = stage.connect(listed(5, delivered=5, read=4))
    assert acked(done) == [5]
    assert [f.payload.last_read_sequence for f in frames(done, ReadFrame)] == [4]
    stage.lose()
    done = stage.wait(2_000)
    done += stage.receive(established(), digest(listed(5, delivered=5, read=4)))
    assert acked(done) == [5]


def test_acknowledgements_are_flushed_before_a_close_and_when_one_is_announced() -> None:
    stage = Stage(places=[record(0)])
    stage.connect(listed(0))
    stage.receive(push(1))
    assert acked(stage.receive(closing("server_shutdown"))) == [1]
    stage.lose()
    stage.wait(2_000)
    stage.receive(established(), digest(listed(1)), push(2))
    done = stage.did(stage.core.stop(stage.now, "closed"))
    assert acked(done) == [2]
    assert of(done, Disconnect) == [Disconnect(1000)]
    assert str(stage.core.status) == "closed(closed)"


def test_read_is_told_and_never_above_what_is_held() -> None:
    stage = Stage(places=[record(0)])
    stage.connect(listed(0))
    stage.receive(push(1), push(2))
    done = stage.did(stage.core.read(CHAT, 99, stage.now))
    assert [f.payload.last_read_sequence for f in frames(done, ReadFrame)] == [2]
    assert frames(stage.did(stage.core.read(CHAT, 1, stage.now)), ReadFrame) == []
    assert stage.did(stage.core.read(OTHER, 1, stage.now)) == []


def test_limit_of_the_server_is_respected() -> None:
    stage = Stage(places=[record(0)])
    stage.connect(listed(0))
    stage.receive(error("RATE_LIMITED", retry_after_seconds=3))
    done = stage.receive(*(push(n) for n in range(1, 11)))
    assert acked(done + stage.wait(2_900)) == []
    assert acked(stage.wait(200)) == [10]


# Sending.


def test_send_goes_out_and_its_answer_continues_the_chain() -> None:
    stage = Stage(places=[record(3)])
    stage.connect(listed(3))
    (sent,) = sends(stage.submit(entry(1)))
    assert sent.payload.content == "text 1"
    done = stage.receive(send_ack(sent, 4))
    assert of(done, Settled) == [Settled(key(1), CHAT, 4)]
    assert stage.kept == [4]
    assert len(stage.core.outbox) == 0
    assert stage.receive(send_ack(sent, 4)) == []


def test_one_message_a_chat_is_on_its_way() -> None:
    stage = Stage(places=[record(0), record(0, OTHER)])
    stage.connect(listed(0), listed(0, OTHER))
    done = stage.submit(entry(1), entry(2), entry(3, OTHER))
    assert [one.payload.client_message_id for one in sends(done)] == [key(1), key(3)]
    done = stage.receive(send_ack(sends(done)[0], 1))
    assert [one.payload.client_message_id for one in sends(done)] == [key(2)]


def test_request_ids_are_never_used_twice() -> None:
    stage = Stage(places=[record(0)])
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
    stage = Stage(places=[record(3)], entries=[entry(1)])
    done = stage.connect(listed(4))
    assert sends(done) == []
    (asked,) = syncs(done)
    done = stage.receive(page(asked.request_id, [item(4)]))
    assert [one.payload.client_message_id for one in sends(done)] == [key(1)]


def test_entry_of_an_earlier_life_that_arrived_is_not_sent_again() -> None:
    stage = Stage(places=[record(3)], entries=[entry(1)])
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
    stage = Stage(places=[record(3)], entries=[old, entry(2)])
    done = stage.connect(listed(3))
    assert [one.payload.client_message_id for one in sends(done)] == [key(2)]
    (changed,) = of(done, EntryChanged)
    assert changed.entry.state is UNKNOWN
    again = stage.core.outbox.retry(key(1), 3)
    assert again is not None
    done = stage.receive(send_ack(sends(done)[0], 4))
    done += stage.did(stage.core.resubmit(again, stage.now))
    assert [one.payload.client_message_id for one in sends(done)] == [key(1)]


def test_entry_written_offline_is_marked_on_the_disk_before_it_leaves() -> None:
    stage = Stage(places=[record(0)], entries=[entry(1, left_at_ms=None)], stores=False)
    done = stage.connect(listed(0))
    assert sends(done) == []
    (mark,) = of(done, Mark)
    done = stage.did(stage.core.marked(mark.entries, WALL_MS, stage.now))
    assert len(sends(done)) == 1
    assert mark.entries[0].left_at_ms == WALL_MS


def test_entry_that_arrives_while_it_is_marked_does_not_leave() -> None:
    stage = Stage(places=[record(0)], entries=[entry(1, left_at_ms=None)], stores=False)
    (mark,) = of(stage.connect(listed(0)), Mark)
    stage.receive(push(1, sender=ME, client_message_id=key(1)))
    assert sends(stage.did(stage.core.marked(mark.entries, WALL_MS, stage.now))) == []


def test_mark_that_comes_after_the_connection_was_lost_sends_nothing() -> None:
    stage = Stage(places=[record(0)], entries=[entry(1, left_at_ms=None)], stores=False)
    (mark,) = of(stage.connect(listed(0)), Mark)
    stage.lose()
    assert sends(stage.did(stage.core.marked(mark.entries, WALL_MS, stage.now))) == []


def test_refused_message_has_failed_and_the_next_one_leaves() -> None:
    stage = Stage(places=[record(0)])
    stage.connect(listed(0))
    (sent,) = sends(stage.submit(entry(1), entry(2)))
    done = stage.receive(error("FORBIDDEN", sent.request_id))
    (changed,) = of(done, EntryChanged)
    assert (changed.entry.state, changed.entry.code) == (FAILED, "FORBIDDEN")
    assert [one.payload.client_message_id for one in sends(done)] == [key(2)]
    assert stage.core.places[CHAT].is_member


def test_message_to_a_chat_that_is_no_longer_ours_fails_and_the_chat_is_dropped() -> None:
    stage = Stage(places=[record(0)])
    stage.connect(listed(0))
    (sent,) = sends(stage.submit(entry(1)))
    stage.receive(error("NOT_A_MEMBER", sent.request_id))
    assert not stage.core.places[CHAT].is_member


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
    stage = Stage(places=[record(0)])
    stage.connect(listed(0))
    (sent,) = sends(stage.submit(entry(1)))
    assert sends(stage.receive(error("SERVICE_UNAVAILABLE", sent.request_id))) == []
    (again,) = sends(stage.wait(1_300))
    assert again.payload == sent.payload
    assert again.request_id != sent.request_id


def test_answer_that_does_not_come_ends_the_connection() -> None:
    stage = Stage(places=[record(0)])
    stage.connect(listed(0))
    stage.submit(entry(1))
    done = stage.wait(20_000)
    assert Disconnect(1001) in done
    assert str(stage.core.status) == "offline(no_answer)"


def test_typing_goes_out_on_a_connection_and_nowhere_without() -> None:
    stage = Stage(places=[record(0)])
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
    stage = Stage(places=[record(0)])
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
    stage = Stage(places=[record(0)])
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
    stage = Stage(places=[record(0)])
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
    stage = Stage(places=[record(0)])
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
    stage = Stage(places=[record(0)])
    stage.connect(listed(0))
    stage.submit(entry(1))
    stage.did(stage.core.renew(stage.now))
    assert of(stage.wait(5_000), Connect)


def test_renewal_of_a_connection_that_is_lost_meanwhile_connects_at_once() -> None:
    stage = Stage(places=[record(0)])
    stage.connect(listed(0))
    stage.submit(entry(1))
    stage.did(stage.core.renew(stage.now))
    assert of(stage.lose(), Connect)


def test_heartbeats_come_at_the_given_interval_and_measure_the_way() -> None:
    stage = Stage()
    stage.connect()
    (beat,) = frames(stage.wait(33_000), HeartbeatFrame)
    assert 0 < stage.now.ms
    stage.wait(20)
    stage.receive(
        HeartbeatAckFrame(
            timestamp=TIME,
            request_id=beat.request_id,
            payload=HeartbeatAckPayload(server_time=TIME),
        )
    )
    assert stage.core.round_trip_ms is not None
    stage.receive(HeartbeatAckFrame(timestamp=TIME, payload=HeartbeatAckPayload(server_time=TIME)))


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
    assert stage.core.status.state is ConnectionState.READY


def test_end_that_is_told_twice_is_one() -> None:
    stage = Stage()
    stage.connect()
    stage.lose()
    assert stage.lose() == []
    stage.did(stage.core.stop(stage.now, "closed"))
    assert stage.lose() == []
    assert stage.did(stage.core.stop(stage.now, "again")) == []
    assert str(stage.core.status) == "closed(closed)"


# Restores.


def test_new_epoch_drops_the_cursors_and_keeps_the_outbox() -> None:
    stage = Stage(places=[record(9, start=2)], entries=[entry(1)])
    done = stage.connect(listed(5), epoch="two")
    (restart,) = of(done, Restart)
    assert restart.epoch == "two"
    (asked,) = syncs(done)
    assert asked.payload.last_acked_sequence == 2
    done = stage.receive(page(asked.request_id, [item(3), item(5, 3)]))
    (kept,) = of(done, Keep)
    assert kept.is_complete
    assert [one.payload.client_message_id for one in sends(done)] == [key(1)]


def test_what_is_stored_for_the_old_life_does_not_count_for_the_new() -> None:
    stage = Stage(places=[record(0)], stores=False)
    stage.connect(listed(0))
    (kept,) = of(stage.receive(push(1)), Keep)
    stage.lose()
    stage.wait(2_000)
    stage.receive(established("two"), digest(listed(0)))
    stage.did(stage.core.stored(kept.place, 1, 1, kept.life, stage.now))
    assert stage.core.places[CHAT].stored == 0


def test_head_below_the_cursor_is_looked_into() -> None:
    stage = Stage(places=[record(9)])
    (asked,) = syncs(stage.connect(listed(5)))
    assert asked.payload.last_acked_sequence == 9
    done = stage.receive(error("CURSOR_AHEAD", asked.request_id, head=5))
    assert of(done, Restart)[0].places == [stage.core.places[CHAT]]
    (again,) = syncs(done)
    assert again.payload.last_acked_sequence == 0
    stage.receive(page(again.request_id, [item(n) for n in range(1, 6)]))
    assert stage.core.status.state is ConnectionState.READY
    assert stage.core.places[CHAT].cursor == 5


def test_cursor_ahead_without_a_head_begins_at_the_beginning() -> None:
    stage = Stage(places=[record(9, start=7)])
    (asked,) = syncs(stage.connect(listed(5)))
    (again,) = syncs(stage.receive(error("CURSOR_AHEAD", asked.request_id)))
    assert again.payload.last_acked_sequence == 0


# Chats.


def test_chat_that_is_neither_listed_nor_changed_is_gone() -> None:
    stage = Stage(places=[record(3), record(3, OTHER)])
    stage.connect(listed(3))
    assert not stage.core.places[OTHER].is_member
    assert stage.core.places[CHAT].is_member


def test_entry_of_a_digest_that_is_older_than_what_is_known_is_ignored() -> None:
    stage = Stage(places=[record(3)])
    stage.connect(listed(3))
    stage.receive(chat_update("member_removed", 5, user_id=ME))
    assert not stage.core.places[CHAT].is_member
    stage.receive(digest(listed(4, membership_version=4)))
    assert not stage.core.places[CHAT].is_member
    stage.receive(chat_update("renamed", 3, name="old news"))
    assert stage.core.places[CHAT].name is None


def test_chat_that_is_made_is_known_and_can_be_written_to() -> None:
    stage = Stage()
    stage.connect()
    stage.receive(chat_update("created", 1, name="team", joined_sequence=0))
    assert stage.core.places[CHAT].name == "team"
    assert len(sends(stage.submit(entry(1)))) == 1


def test_member_who_is_added_begins_where_he_joined() -> None:
    stage = Stage()
    stage.connect()
    done = stage.receive(
        chat_update("member_added", 4, user_id=ME, joined_sequence=6, head=8, name="team")
    )
    assert [one.payload.last_acked_sequence for one in syncs(done)] == [6]


def test_change_of_an_unknown_chat_asks_for_a_digest() -> None:
    stage = Stage()
    stage.connect()
    stage.receive(chat_update("renamed", 4, name="team"))
    assert CHAT not in stage.core.places
    assert len(frames(stage.wait(1), DigestRequestFrame)) == 1


def test_removal_from_an_unknown_chat_is_told_and_no_more() -> None:
    stage = Stage()
    stage.connect()
    stage.receive(chat_update("member_removed", 4, user_id=ME))
    assert CHAT not in stage.core.places


def test_adopted_chat_can_be_written_to_at_once() -> None:
    stage = Stage()
    stage.connect()
    stage.did(stage.core.adopt(record(2, start=2, head=2), stage.now))
    assert len(sends(stage.submit(entry(1)))) == 1
    stage.did(stage.core.adopt(record(0, head=9, membership_version=3), stage.now))
    assert stage.core.places[CHAT].head == 9
    stage.did(stage.core.adopt(record(0, head=99, membership_version=2), stage.now))
    assert stage.core.places[CHAT].head == 9


def test_ticks_merge_and_typing_is_passed_on() -> None:
    stage = Stage(places=[record(3)])
    stage.connect(listed(3, others_delivered=2))
    for delivered in (3, 1):
        payload = StatusUpdatePayload(chat_id=CHAT, others_delivered=delivered, others_read=0)
        stage.receive(StatusUpdateFrame(timestamp=TIME, payload=payload))
    assert stage.core.places[CHAT].others_delivered == 3
    strange = StatusUpdatePayload(chat_id=OTHER, others_delivered=1, others_read=0)
    assert stage.receive(StatusUpdateFrame(timestamp=TIME, payload=strange)) == []
    typing = TypingIndicatorPayload(chat_id=CHAT, user_id=ME, is_typing=True)
    done = stage.receive(TypingIndicatorFrame(timestamp=TIME, payload=typing))
    assert of(done, Typed) == [Typed(typing)]


def test_error_about_nothing_that_was_asked_is_ignored() -> None:
    stage = Stage()
    stage.connect()
    assert stage.receive(error("INTERNAL_ERROR", "strange"), error("INVALID_SEQUENCE")) == []


def test_client_message_id_is_typed() -> None:
    assert ClientMessageId(key(1)) == key(1)
