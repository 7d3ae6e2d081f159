"""The conversation about what is held: syncs, acknowledgements, restores, chats."""

from typing import Any

import pytest

from tests.unit.client.stage import (
    CHAT,
    ME,
    TIME,
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
from tidewire.client.acks import OWN_LATER
from tidewire.client.effects import (
    Disconnect,
    Effect,
    Introduced,
    Keep,
    Restart,
    Typed,
)
from tidewire.client.options import ClientOptions
from tidewire.client.replica import ReplicaRecord
from tidewire.domain.chats import ChatType
from tidewire.domain.ids import ChatId
from tidewire.wire.client_frames import (
    AckFrame,
    DigestRequestFrame,
    ReadFrame,
)
from tidewire.wire.server_frames import (
    ResyncFrame,
    ResyncPayload,
    StatusUpdateFrame,
    StatusUpdatePayload,
    TypingIndicatorFrame,
    TypingIndicatorPayload,
)

OTHER = ChatId("chat_2")


def record(cursor: int, chat_id: ChatId = CHAT, **fields: Any) -> ReplicaRecord:
    given = {"chat_type": ChatType.DIRECT, **fields}
    return ReplicaRecord(chat_id=chat_id, cursor=cursor, **given)


# Syncing.


def test_digest_decides_what_is_synced_and_not_the_users_position() -> None:
    stage = Stage(replicas=[record(3)])
    done = stage.connect(listed(9, delivered=9))
    (asked,) = syncs(done)
    assert asked.payload.last_acked_sequence == 3
    assert asked.payload.limit == 500
    assert str(stage.core.status) == "syncing"
    done = stage.receive(page(asked.request_id, [item(n) for n in range(4, 7)], has_more=True))
    (again,) = syncs(done)
    assert again.payload.last_acked_sequence == 6
    stage.receive(page(again.request_id, [item(n) for n in range(7, 10)]))
    assert str(stage.core.status) == "ready"
    assert stage.kept == [4, 5, 6, 7, 8, 9]


def test_new_device_starts_where_its_user_had_got_to() -> None:
    stage = Stage()
    done = stage.connect(listed(9, delivered=7), listed(5, OTHER, joined_sequence=5))
    (asked,) = syncs(done)
    assert (asked.payload.chat_id, asked.payload.last_acked_sequence) == (CHAT, 7)
    assert stage.core.replicas[OTHER].start == 5


def test_at_most_so_many_chats_are_synced_at_once() -> None:
    stage = Stage(ClientOptions(syncs_max=2))
    chats = [ChatId(f"chat_{n}") for n in range(4)]
    done = stage.connect(*(listed(1, chat_id) for chat_id in chats))
    asked = syncs(done)
    assert len(asked) == 2
    done = stage.receive(page(asked[0].request_id, [item(1)], chat_id=chats[0]))
    assert [one.payload.chat_id for one in syncs(done)] == [chats[2]]


def test_gap_is_synced_and_what_came_after_it_waits() -> None:
    stage = Stage(replicas=[record(3)])
    stage.connect(listed(3))
    done = stage.receive(push(6), push(7))
    (asked,) = syncs(done)
    assert stage.kept == []
    stage.receive(page(asked.request_id, [item(4), item(5)], through=5, has_more=True))
    assert stage.kept == [4, 5, 6, 7]


def test_hole_in_the_numbers_is_no_gap() -> None:
    stage = Stage(replicas=[record(3)])
    stage.connect(listed(3))
    done = stage.receive(push(900, prev=3))
    assert stage.kept == [900]
    assert syncs(done) == []


def test_gap_waits_a_moment_while_an_own_message_may_fill_it() -> None:
    stage = Stage(replicas=[record(3)])
    stage.connect(listed(3))
    (sent,) = sends(stage.submit(entry(1)))
    assert syncs(stage.receive(push(5))) == []
    stage.receive(send_ack(sent, 4))
    assert stage.kept == [4, 5]
    assert syncs(stage.wait(1_000)) == []


def test_gap_is_synced_when_the_own_message_does_not_fill_it() -> None:
    stage = Stage(replicas=[record(3)])
    stage.connect(listed(3))
    stage.submit(entry(1))
    assert syncs(stage.receive(push(5))) == []
    assert len(syncs(stage.wait(300))) == 1


def test_page_without_progress_is_asked_for_again_but_not_at_once() -> None:
    stage = Stage(replicas=[record(3)])
    (asked,) = syncs(stage.connect(listed(5)))
    assert syncs(stage.receive(page(asked.request_id, [], through=3, has_more=True))) == []
    assert len(syncs(stage.wait(1_500))) == 1


def test_answer_to_nothing_is_ignored() -> None:
    stage = Stage(replicas=[record(3)])
    (asked,) = syncs(stage.connect(listed(5)))
    assert stage.receive(page("nothing", [item(4)])) == []
    assert stage.receive(page(asked.request_id, [item(4)], chat_id=OTHER)) == []


@pytest.mark.parametrize("code", ["SERVICE_UNAVAILABLE", "SERVER_BUSY", "CODE_OF_TOMORROW"])
def test_sync_that_fails_is_tried_again_later(code: str) -> None:
    stage = Stage(replicas=[record(3)])
    (asked,) = syncs(stage.connect(listed(5)))
    assert syncs(stage.receive(error(code, asked.request_id))) == []
    assert len(syncs(stage.wait(1_500))) == 1


def test_sync_waits_as_long_as_the_server_says() -> None:
    stage = Stage(replicas=[record(3)])
    (asked,) = syncs(stage.connect(listed(5)))
    stage.receive(error("RATE_LIMITED", asked.request_id, retry_after_seconds=9))
    assert syncs(stage.wait(8_000)) == []
    # A push says nothing of the server's load, and neither does a digest.
    assert syncs(stage.receive(push(7), digest(listed(8)))) == []
    assert len(syncs(stage.wait(1_500))) == 1


def test_pushes_do_not_make_a_sync_that_keeps_failing_more_frequent() -> None:
    stage = Stage(replicas=[record(3)])
    asked = syncs(stage.connect(listed(5)))
    asks = 0
    for number in range(7, 107):
        refusals = [error("SERVICE_UNAVAILABLE", one.request_id) for one in asked]
        asked = syncs(stage.receive(*refusals) + stage.wait(100) + stage.receive(push(number)))
        asks += len(asked)
    assert 2 <= asks <= 4


def test_sync_that_failed_is_tried_at_once_on_the_next_connection() -> None:
    stage = Stage(replicas=[record(3)])
    (asked,) = syncs(stage.connect(listed(5)))
    stage.receive(error("RATE_LIMITED", asked.request_id, retry_after_seconds=9))
    stage.lose()
    assert len(syncs(stage.connect(listed(5)))) == 1


@pytest.mark.parametrize("code", ["NOT_A_MEMBER", "FORBIDDEN", "NOT_FOUND"])
def test_chat_of_others_is_dropped_and_not_asked_for_again(code: str) -> None:
    stage = Stage(replicas=[record(3)])
    (asked,) = syncs(stage.connect(listed(5)))
    done = stage.receive(error(code, asked.request_id))
    assert not stage.core.replicas[CHAT].is_member
    assert str(stage.core.status) == "ready"
    assert syncs(done + stage.wait(60_000)) == []


def test_sync_that_is_refused_for_good_leaves_the_rest_in_peace() -> None:
    stage = Stage(replicas=[record(3)])
    (asked,) = syncs(stage.connect(listed(5)))
    stage.receive(error("INVALID_MESSAGE", asked.request_id))
    assert str(stage.core.status) == "ready"


def test_push_of_an_unknown_chat_asks_for_a_digest() -> None:
    stage = Stage()
    stage.connect()
    stage.receive(push(1))
    (asked,) = frames(stage.wait(1), DigestRequestFrame)
    done = stage.receive(digest(listed(1), request_id=asked.request_id))
    assert len(syncs(done)) == 1


def test_resync_asks_for_a_digest_after_the_delay() -> None:
    stage = Stage(replicas=[record(3)])
    stage.connect(listed(3))
    stage.receive(ResyncFrame(timestamp=TIME, payload=ResyncPayload(reason="x", delay_ms=700)))
    assert frames(stage.wait(600), DigestRequestFrame) == []
    (asked,) = frames(stage.wait(200), DigestRequestFrame)
    done = stage.receive(digest(listed(5), request_id=asked.request_id))
    assert [one.payload.last_acked_sequence for one in syncs(done)] == [3]
    assert str(stage.core.status) == "ready"


def test_digest_that_fails_is_asked_for_again() -> None:
    stage = Stage()
    stage.connect()
    stage.receive(ResyncFrame(timestamp=TIME, payload=ResyncPayload(reason="x", delay_ms=0)))
    (asked,) = frames(stage.wait(1), DigestRequestFrame)
    stage.receive(error("SERVICE_UNAVAILABLE", asked.request_id))
    assert len(frames(stage.wait(1_100), DigestRequestFrame)) == 1


def test_disk_that_is_slow_stops_the_reading() -> None:
    options = ClientOptions(unstored_max=500)
    stage = Stage(options, replicas=[record(0)], stores=False)
    (asked,) = syncs(stage.connect(listed(2_000)))
    done = stage.receive(page(asked.request_id, [item(n) for n in range(1, 501)], has_more=True))
    assert [type(effect).__name__ for effect in done if "Reading" in type(effect).__name__] == [
        "PauseReading"
    ]
    assert syncs(done) == []
    (kept,) = of(done, Keep)
    done = stage.did(stage.core.stored(kept.replica, 500, 500, kept.generation, stage.now))
    assert [type(effect).__name__ for effect in done if "Reading" in type(effect).__name__] == [
        "ResumeReading"
    ]
    assert len(syncs(done)) == 1


def is_own_missing(stage: Stage) -> bool:
    return stage.core.replicas[CHAT].is_own_missing


def test_own_message_is_missing_here_while_one_before_it_is_on_its_way() -> None:
    stage = Stage(replicas=[record(0)])
    stage.connect(listed(0))
    (sent,) = sends(stage.submit(entry(1)))
    stage.receive(send_ack(sent, 2, 1))
    assert is_own_missing(stage)
    stage.receive(push(1))
    assert not is_own_missing(stage)
    assert stage.kept == [1, 2]
    (sent,) = sends(stage.submit(entry(2)))
    stage.receive(send_ack(sent, 4, 3))
    assert is_own_missing(stage)
    stage.lose()
    assert not is_own_missing(stage)


# Acknowledging.


def acked(effects: object) -> list[int]:
    return [frame.payload.last_acked_sequence for frame in frames(effects, AckFrame)]  # type: ignore[arg-type]


def test_message_of_a_direct_chat_is_acknowledged_at_once_and_the_next_ones_soon() -> None:
    stage = Stage(replicas=[record(0)])
    stage.connect(listed(0))
    assert acked(stage.receive(push(1))) == [1]
    done = stage.receive(*(push(n) for n in range(2, 5)))
    assert acked(done + stage.wait(200)) == []
    assert acked(stage.wait(50)) == [4]
    stage.wait(250)
    assert acked(stage.receive(push(5))) == [5]


def test_group_gathers_ten_messages_or_five_seconds_after_its_first() -> None:
    stage = Stage(replicas=[record(0, chat_type=ChatType.GROUP)])
    stage.connect(listed(0))
    assert acked(stage.receive(push(1))) == [1]
    stage.wait(1_000)
    done = stage.receive(*(push(n) for n in range(2, 11)))
    assert acked(done) == []
    assert acked(stage.wait(3_900)) == []
    assert acked(stage.wait(200)) == [10]
    done = stage.receive(*(push(n) for n in range(11, 21)))
    assert acked(done) == [20]


def test_own_messages_are_acknowledged_late_because_the_server_knows() -> None:
    stage = Stage(replicas=[record(0)])
    stage.connect(listed(0))
    done = stage.submit(entry(1))
    done = stage.receive(send_ack(sends(done)[0], 1))
    assert acked(done + stage.wait(OWN_LATER * ClientOptions().ack_ms - 100)) == []
    assert acked(stage.wait(200)) == [1]


def test_own_messages_are_acknowledged_with_those_of_others() -> None:
    stage = Stage(replicas=[record(0)])
    stage.connect(listed(0))
    done = stage.submit(entry(1))
    done = stage.receive(send_ack(sends(done)[0], 1))
    assert acked(done + stage.wait(12_000)) == []
    assert acked(stage.receive(push(2))) == [2]
    assert acked(stage.wait(OWN_LATER * ClientOptions().ack_ms)) == []


def test_nothing_is_acknowledged_before_it_is_stored() -> None:
    stage = Stage(replicas=[record(0)], stores=False)
    stage.connect(listed(0))
    done = stage.receive(*(push(n) for n in range(1, 21)))
    assert acked(done + stage.wait(10_000)) == []
    keeps = of(done, Keep)
    done = stage.did(stage.core.stored(keeps[0].replica, 12, 12, 0, stage.now))
    assert acked(done) == [12]


def test_everything_is_acknowledged_again_after_a_reconnect() -> None:
    stage = Stage(replicas=[record(5, start=2, read=4)])
    done = stage.connect(listed(5, delivered=5, read=4))
    assert acked(done) == [5]
    assert [f.payload.last_read_sequence for f in frames(done, ReadFrame)] == [4]
    stage.lose()
    done = stage.wait(2_000)
    done += stage.receive(established(), digest(listed(5, delivered=5, read=4)))
    assert acked(done) == [5]


def test_acknowledgements_are_flushed_before_a_close_and_when_one_is_announced() -> None:
    stage = Stage(replicas=[record(0)])
    stage.connect(listed(0))
    stage.receive(push(1), push(2))
    assert acked(stage.receive(closing("server_shutdown"))) == [2]
    stage.lose()
    stage.wait(2_000)
    stage.receive(established(), digest(listed(2)), push(3), push(4))
    done = stage.did(stage.core.stop(stage.now, "closed"))
    assert acked(done) == [4]
    assert of(done, Disconnect) == [Disconnect(1000)]
    assert str(stage.core.status) == "closed(closed)"


def test_read_is_told_and_never_above_what_is_held() -> None:
    stage = Stage(replicas=[record(0)])
    stage.connect(listed(0))
    stage.receive(push(1), push(2))
    stage.wait(10)
    done = stage.did(stage.core.read(CHAT, 99, stage.now))
    assert [f.payload.last_read_sequence for f in frames(done, ReadFrame)] == [2]
    assert frames(stage.did(stage.core.read(CHAT, 1, stage.now)), ReadFrame) == []
    assert stage.did(stage.core.read(OTHER, 1, stage.now)) == []


def read_told(effects: list[Effect]) -> list[int]:
    return [frame.payload.last_read_sequence for frame in frames(effects, ReadFrame)]


@pytest.mark.parametrize("chat_type", ChatType)
def test_read_while_messages_are_being_stored_is_told_up_to_the_disk(chat_type: ChatType) -> None:
    stage = Stage(replicas=[record(0, chat_type=chat_type)], stores=False)
    stage.connect(listed(0))
    (first,) = of(stage.receive(push(1)), Keep)
    stage.did(stage.core.stored(first.replica, 1, 1, 0, stage.now))
    (second,) = of(stage.receive(push(2)), Keep)
    (third,) = of(stage.receive(push(3)), Keep)
    stage.wait(10)
    assert read_told(stage.did(stage.core.read(CHAT, 3, stage.now))) == [1]
    stage.wait(10)
    # What was read before it was stored is told as soon as it is, and not before.
    assert read_told(stage.did(stage.core.stored(second.replica, 2, 1, 0, stage.now))) == [2]
    stage.wait(10)
    done = stage.did(stage.core.stored(third.replica, 3, 1, 0, stage.now))
    assert read_told(done) == [3]
    assert acked(done) == []


def test_read_above_everything_that_is_held_means_all_that_is_held() -> None:
    stage = Stage(replicas=[record(4)])
    stage.connect(listed(4))
    stage.wait(10)
    assert read_told(stage.did(stage.core.read(CHAT, 9, stage.now))) == [4]
    assert stage.core.replicas[CHAT].read == stage.core.replicas[CHAT].seen == 4
    stage.wait(1_000)
    # Five more come: they were not read.
    done = stage.receive(*(push(n) for n in range(5, 10))) + stage.wait(10_000)
    assert read_told(done) == []
    assert stage.core.replicas[CHAT].unread == 5


def test_limit_of_the_server_is_respected() -> None:
    stage = Stage(replicas=[record(0)])
    stage.connect(listed(0))
    stage.receive(error("RATE_LIMITED", retry_after_seconds=3))
    done = stage.receive(*(push(n) for n in range(1, 11)))
    assert acked(done + stage.wait(2_900)) == []
    assert acked(stage.wait(200)) == [10]


# Restores.


def test_new_epoch_drops_the_cursors_and_keeps_the_outbox() -> None:
    stage = Stage(replicas=[record(9, start=2)], entries=[entry(1)])
    done = stage.connect(listed(5), epoch="two")
    (restart,) = of(done, Restart)
    assert restart.epoch == "two"
    (introduced,) = of(done, Introduced)
    assert done.index(restart) < done.index(introduced)
    (asked,) = syncs(done)
    assert asked.payload.last_acked_sequence == 2
    done = stage.receive(page(asked.request_id, [item(3), item(5, 3)]))
    (kept,) = of(done, Keep)
    assert kept.is_complete
    assert [one.payload.client_message_id for one in sends(done)] == [key(1)]


def test_what_is_stored_for_the_old_life_does_not_count_for_the_new() -> None:
    stage = Stage(replicas=[record(0)], stores=False)
    stage.connect(listed(0))
    (kept,) = of(stage.receive(push(1)), Keep)
    stage.lose()
    stage.wait(2_000)
    stage.receive(established("two"), digest(listed(0)))
    stage.did(stage.core.stored(kept.replica, 1, 1, kept.generation, stage.now))
    assert stage.core.replicas[CHAT].stored == 0


def test_head_below_the_cursor_is_looked_into() -> None:
    stage = Stage(replicas=[record(9)])
    (asked,) = syncs(stage.connect(listed(5)))
    assert asked.payload.last_acked_sequence == 9
    done = stage.receive(error("CURSOR_AHEAD", asked.request_id, head=5))
    assert of(done, Restart)[0].replicas == [stage.core.replicas[CHAT]]
    (again,) = syncs(done)
    assert again.payload.last_acked_sequence == 0
    stage.receive(page(again.request_id, [item(n) for n in range(1, 6)]))
    assert str(stage.core.status) == "ready"
    assert stage.core.replicas[CHAT].cursor == 5


def test_cursor_ahead_without_a_head_begins_at_the_beginning() -> None:
    stage = Stage(replicas=[record(9, start=7)])
    (asked,) = syncs(stage.connect(listed(5)))
    (again,) = syncs(stage.receive(error("CURSOR_AHEAD", asked.request_id)))
    assert again.payload.last_acked_sequence == 0


# Chats.


def test_chat_that_is_neither_listed_nor_changed_is_gone() -> None:
    stage = Stage(replicas=[record(3), record(3, OTHER)])
    stage.connect(listed(3))
    assert not stage.core.replicas[OTHER].is_member
    assert stage.core.replicas[CHAT].is_member


def test_entry_of_a_digest_that_is_older_than_what_is_known_is_ignored() -> None:
    stage = Stage(replicas=[record(3)])
    stage.connect(listed(3))
    stage.receive(chat_update("member_removed", 5, user_id=ME))
    assert not stage.core.replicas[CHAT].is_member
    stage.receive(digest(listed(4, membership_version=4)))
    assert not stage.core.replicas[CHAT].is_member
    stage.receive(chat_update("renamed", 3, name="old news"))
    assert stage.core.replicas[CHAT].name is None


def test_chat_that_is_made_is_known_and_can_be_written_to() -> None:
    stage = Stage()
    stage.connect()
    stage.receive(chat_update("created", 1, name="team", joined_sequence=0))
    assert stage.core.replicas[CHAT].name == "team"
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
    assert CHAT not in stage.core.replicas
    assert len(frames(stage.wait(1), DigestRequestFrame)) == 1


def test_removal_from_an_unknown_chat_counts_more_than_an_older_addition() -> None:
    stage = Stage()
    stage.connect()
    done = stage.receive(
        chat_update("member_removed", 5, user_id=ME, head=8),
        chat_update("member_added", 4, user_id=ME, joined_sequence=6, head=8),
    )
    assert not stage.core.replicas[CHAT].is_member
    assert syncs(done) == []
    assert stage.core.replicas[CHAT].record().membership_version == 5
    done = stage.receive(
        chat_update("member_added", 7, user_id=ME, joined_sequence=9, head=9),
        chat_update("member_removed", 6, user_id=ME, head=9),
    )
    assert stage.core.replicas[CHAT].is_member
    assert [one.payload.last_acked_sequence for one in syncs(done)] == [8]


def test_change_about_others_in_a_chat_that_was_left_means_being_in_again() -> None:
    stage = Stage(replicas=[record(3, is_member=False, membership_version=5)])
    stage.connect()
    stage.receive(chat_update("member_added", 4, user_id=OTHER))
    assert not stage.core.replicas[CHAT].is_member
    stage.receive(chat_update("role_changed", 7, user_id=OTHER, head=3))
    assert stage.core.replicas[CHAT].is_member


def test_push_of_a_chat_that_was_left_is_not_kept_and_asks_for_a_digest() -> None:
    stage = Stage(replicas=[record(3, is_member=False, membership_version=5)])
    stage.connect()
    done = stage.receive(push(4))
    assert of(done, Keep) == []
    assert stage.core.replicas[CHAT].cursor == stage.core.replicas[CHAT].head == 3
    assert len(frames(stage.wait(1), DigestRequestFrame)) == 1
    # Nor when the chat is the user's again: what is missing is fetched then, from the cursor.
    (asked,) = frames(stage.effects, DigestRequestFrame)
    done = stage.receive(digest(listed(5, membership_version=6), request_id=asked.request_id))
    assert [one.payload.last_acked_sequence for one in syncs(done)] == [3]


def test_adopted_chat_can_be_written_to_at_once() -> None:
    stage = Stage()
    stage.connect()
    stage.did(stage.core.adopt(record(2, start=2, head=2), stage.now))
    assert len(sends(stage.submit(entry(1)))) == 1
    stage.did(stage.core.adopt(record(0, head=9, membership_version=3), stage.now))
    assert stage.core.replicas[CHAT].head == 9
    stage.did(stage.core.adopt(record(0, head=99, membership_version=2), stage.now))
    assert stage.core.replicas[CHAT].head == 9


def test_ticks_merge_and_typing_is_passed_on() -> None:
    stage = Stage(replicas=[record(3)])
    stage.connect(listed(3, others_delivered=2))
    for delivered in (3, 1):
        payload = StatusUpdatePayload(chat_id=CHAT, others_delivered=delivered, others_read=0)
        stage.receive(StatusUpdateFrame(timestamp=TIME, payload=payload))
    assert stage.core.replicas[CHAT].others_delivered == 3
    strange = StatusUpdatePayload(chat_id=OTHER, others_delivered=1, others_read=0)
    assert stage.receive(StatusUpdateFrame(timestamp=TIME, payload=strange)) == []
    typing = TypingIndicatorPayload(chat_id=CHAT, user_id=ME, is_typing=True)
    done = stage.receive(TypingIndicatorFrame(timestamp=TIME, payload=typing))
    assert of(done, Typed) == [Typed(typing)]


def test_error_about_nothing_that_was_asked_is_ignored() -> None:
    stage = Stage()
    stage.connect()
    assert stage.receive(error("INTERNAL_ERROR", "strange"), error("INVALID_SEQUENCE")) == []
