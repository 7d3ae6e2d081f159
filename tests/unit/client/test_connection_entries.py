"""The core with entries that are no messages: received, sent, refused, deleted."""

from typing import Any, Final

from tests.unit.client.stage import (
    CHAT,
    ME,
    THEM,
    Stage,
    amending,
    deletion,
    digest,
    edit,
    entry,
    entry_push,
    error,
    established,
    frames,
    item,
    key,
    listed,
    of,
    page,
    push,
    reaction,
    send_ack,
    sends,
    syncs,
)
from tidewire.client.effects import (
    Dropped,
    Effect,
    Erased,
    Keep,
    Mark,
    ReplicaChanged,
    Rewritten,
    SendFailed,
    Settled,
)
from tidewire.client.replica import ReplicaRecord
from tidewire.domain.chats import ChatType
from tidewire.domain.messages import EntryKind, MessageBody
from tidewire.wire.client_frames import (
    AckFrame,
    DeleteMessageFrame,
    DigestRequestFrame,
    EditMessageFrame,
    ReactFrame,
)

EDIT: Final = EntryKind.EDIT
DELETE: Final = EntryKind.DELETE
REACT: Final = EntryKind.REACT


def record(cursor: int, **fields: Any) -> ReplicaRecord:
    return ReplicaRecord(chat_id=CHAT, chat_type=ChatType.DIRECT, cursor=cursor, **fields)


def ready(cursor: int, **fields: Any) -> Stage:
    """Connected, and nothing is missing."""
    stage = Stage(replicas=[record(cursor, **fields)])
    stage.connect(listed(cursor, read=fields.get("read", 0), unread=fields.get("unread", 0)))
    return stage


def kept(effects: list[Effect]) -> list[int]:
    return [one.sequence for keep in of(effects, Keep) for one in keep.items]


# Receiving.


def test_entries_are_held_like_messages_whatever_their_kind() -> None:
    stage = ready(1)
    done = stage.receive(
        entry_push(edit(2, 1, "new")),
        entry_push(reaction(3, 1, "👍", count=1)),
        entry_push(item(4, kind="poll", target=1)),
        entry_push(deletion(5, 1)),
        push(6, kind="edit", content=""),
    )
    assert kept(done) == [2, 3, 4, 5, 6]
    done += stage.wait(5_000)
    assert frames(done, AckFrame)[-1].payload.last_acked_sequence == 6


def test_hole_before_an_entry_is_fetched() -> None:
    stage = ready(1)
    done = stage.receive(entry_push(edit(3, 1, "new")))
    assert kept(done) == []
    (asked,) = syncs(done)
    done = stage.receive(page(asked.request_id, [item(2), edit(3, 1, "new")]))
    assert kept(done) == [2, 3]


def test_deletion_takes_what_it_erases_from_what_is_unread() -> None:
    stage = ready(2, unread=2)
    replica = stage.core.replicas[CHAT]
    (keep,) = of(stage.receive(entry_push(deletion(3, 1))), Keep)
    assert (keep.deletions, replica.unread) == ([3], 2)
    done = stage.did(stage.core.erased(keep, [Erased(1, 3, is_mention=False)], stage.now))
    assert replica.unread == 1
    assert of(done, ReplicaChanged)
    assert not stage.did(stage.core.erased(keep, [Erased(1, 9, is_mention=False)], stage.now))


def test_deletion_that_the_server_has_counted_meanwhile_takes_nothing() -> None:
    stage = ready(2, unread=2)
    (keep,) = of(stage.receive(entry_push(deletion(3, 1))), Keep)
    stage.receive(digest(listed(3, unread=1)))
    stage.did(stage.core.erased(keep, [Erased(1, 3, is_mention=False)], stage.now))
    assert stage.core.replicas[CHAT].unread == 1


def test_deletion_that_a_page_of_history_tells_of_is_counted_once() -> None:
    stage = ready(2, unread=2)
    replica = stage.core.replicas[CHAT]
    gone = [Erased(1, 3, is_mention=False)]
    done = stage.did(stage.core.erased_elsewhere(replica, gone, stage.now))
    assert (replica.unread, len(of(done, ReplicaChanged))) == (1, 1)
    (keep,) = of(stage.receive(entry_push(deletion(3, 1))), Keep)
    # The store has erased it before, so it says nothing.
    stage.did(stage.core.erased(keep, [], stage.now))
    assert replica.unread == 1
    stage.did(stage.core.erased_elsewhere(replica, gone, stage.now))
    assert replica.unread == 1, "the count has this deletion in it"


def test_deletion_of_what_was_never_held_asks_the_server_what_is_unread() -> None:
    stage = Stage(replicas=[record(9, start=9, read=4)])
    stage.connect(listed(9, read=4, unread=5))
    done = stage.receive(entry_push(deletion(10, 3)))
    assert not frames(done + stage.wait(100), DigestRequestFrame)
    done = stage.receive(entry_push(deletion(11, 7)))
    assert len(frames(done + stage.wait(100), DigestRequestFrame)) == 1


# Sending.


def test_edit_and_deletion_of_our_own_continue_the_chain_by_their_answers() -> None:
    stage = ready(1)
    (frame,) = frames(stage.submit(amending(1, EDIT, 1)), EditMessageFrame)
    done = stage.receive(send_ack(frame, 2))
    (keep,) = of(done, Keep)
    (own,) = keep.items
    assert (own.sequence, own.kind, own.target, own.content) == (2, "edit", 1, "edited 1")
    assert (own.sender_id, own.is_on, own.emoji) == (ME, None, None)
    assert of(done, Settled) == [Settled(key(1), CHAT, 2)]
    (frame2,) = frames(stage.submit(amending(2, DELETE, 1)), DeleteMessageFrame)
    (own,) = of(stage.receive(send_ack(frame2, 3)), Keep)[0].items
    assert (own.sequence, own.kind, own.target, own.content) == (3, "delete", 1, "")
    assert not syncs(stage.wait(1_000))


def test_reaction_of_our_own_continues_the_chain_with_its_count() -> None:
    stage = ready(1)
    (frame,) = frames(stage.submit(amending(1, REACT, 1)), ReactFrame)
    (own,) = of(stage.receive(send_ack(frame, 2, count=3)), Keep)[0].items
    assert (own.kind, own.target, own.emoji, own.is_on, own.count) == ("react", 1, "👍", True, 3)
    assert not syncs(stage.wait(1_000))


def test_reaction_of_our_own_is_fetched_if_its_answer_has_no_count() -> None:
    stage = ready(1)
    (frame,) = frames(stage.submit(amending(1, REACT, 1)), ReactFrame)
    done = stage.receive(send_ack(frame, 2))
    assert of(done, Settled) == [Settled(key(1), CHAT, 2)]
    assert not of(done, Keep)
    assert stage.core.replicas[CHAT].is_own_missing
    (asked,) = syncs(done)
    assert asked.payload.last_acked_sequence == 1
    done = stage.receive(page(asked.request_id, [reaction(2, 1, "👍", count=3, sender=ME)]))
    assert kept(done) == [2]
    assert not stage.core.replicas[CHAT].is_own_missing


def test_reaction_of_an_earlier_run_is_not_fetched_again() -> None:
    stage = ready(5)
    (frame,) = frames(stage.submit(amending(1, REACT, 1)), ReactFrame)
    done = stage.receive(send_ack(frame, 4, deduplicated=True))
    assert of(done, Settled)
    assert not syncs(done)


def test_amendment_waits_for_the_answer_of_its_message() -> None:
    stage = ready(0)
    done = stage.submit(entry(1), amending(2, EDIT, behind=1))
    (message,) = sends(done)
    assert not frames(done, EditMessageFrame)
    done = stage.receive(send_ack(message, 1))
    (frame,) = frames(done, EditMessageFrame)
    assert frame.payload.target == 1


def test_amendment_learns_its_target_from_a_page_when_the_answer_is_lost() -> None:
    stage = ready(0)
    done = stage.submit(entry(1), amending(2, DELETE, behind=1))
    stage.lose()
    stage.wait(2_000)
    stage.did(stage.core.opened(stage.now))
    done = stage.receive(established(), digest(listed(1)))
    (asked,) = syncs(done)
    own = item(1, sender=ME, client_message_id=key(1))
    done = stage.receive(page(asked.request_id, [own]))
    (frame,) = frames(done, DeleteMessageFrame)
    assert frame.payload.target == 1


def test_amendment_of_a_message_that_was_given_up_fails() -> None:
    stage = ready(0)
    done = stage.submit(amending(2, EDIT, behind=1))
    (failed,) = of(done, SendFailed)
    assert (failed.is_kept, failed.entry.code) == (False, "TARGET_NOT_FOUND")


def test_amendment_of_an_earlier_run_whose_message_is_nowhere_is_told_as_failed() -> None:
    """At the start, and once: no connection is needed to know it."""
    stage = Stage(replicas=[record(5)], entries=[amending(1, EntryKind.EDIT, behind=9), entry(2)])
    (failed,) = of(stage.did(stage.core.start(stage.now)), SendFailed)
    assert (failed.entry.number, failed.is_kept) == (1, False)
    assert failed.entry.code == "TARGET_NOT_FOUND"
    stage.lose()
    done = stage.connect(listed(5))
    assert of(done, SendFailed) == []
    assert [frame.payload.client_message_id for frame in sends(done)] == [key(2)]
    assert len(stage.core.outbox) == 1


def test_deletion_drops_edits_that_wait() -> None:
    stage = ready(1)
    done = stage.submit(amending(1, REACT, 1), amending(2, EDIT, 1), amending(3, EDIT, 1))
    done = stage.receive(entry_push(deletion(2, 1)))
    (dropped,) = of(done, Dropped)
    assert [one.number for one in dropped.entries] == [2, 3]
    # In the outbox before the store is told: nothing of it is written after the erasure.
    assert done.index(dropped) < done.index(of(done, Keep)[0])


def test_answer_for_an_edit_that_was_dropped_means_nothing() -> None:
    stage = ready(1)
    (frame,) = frames(stage.submit(amending(1, EDIT, 1)), EditMessageFrame)
    stage.receive(entry_push(deletion(2, 1)))
    done = stage.receive(error("MESSAGE_DELETED", frame.request_id, deleted_sequence=2))
    assert not of(done, SendFailed)


def test_deletion_of_what_is_deleted_is_done() -> None:
    stage = ready(1)
    (frame,) = frames(stage.submit(amending(1, DELETE, 1)), DeleteMessageFrame)
    done = stage.receive(error("MESSAGE_DELETED", frame.request_id, deleted_sequence=7))
    assert of(done, Settled) == [Settled(key(1), CHAT, 7)]
    (dropped,) = of(done, Dropped)
    assert [one.number for one in dropped.entries] == [1]
    assert len(stage.core.outbox) == 0
    (frame,) = frames(stage.submit(amending(2, DELETE, 1)), DeleteMessageFrame)
    stage.receive(push(2, sender=ME, client_message_id=key(2)))
    assert not of(stage.receive(error("MESSAGE_DELETED", frame.request_id)), Settled)
    (frame,) = frames(stage.submit(amending(3, DELETE, 1)), DeleteMessageFrame)
    done = stage.receive(error("MESSAGE_DELETED", frame.request_id))
    assert of(done, Settled) == [Settled(key(3), CHAT, 0)]


def test_refused_reaction_is_told_and_forgotten_and_an_edit_stays() -> None:
    stage = ready(1)
    (react,) = frames(stage.submit(amending(1, REACT, 1)), ReactFrame)
    (failed,) = of(stage.receive(error("TOO_MANY_REACTIONS", react.request_id)), SendFailed)
    assert not failed.is_kept
    (frame,) = frames(stage.submit(amending(2, EDIT, 1)), EditMessageFrame)
    (failed,) = of(stage.receive(error("EDIT_CONFLICT", frame.request_id)), SendFailed)
    assert failed.is_kept
    assert failed.entry.body.content == "edited 2"


def test_message_that_fails_takes_its_amendments_along() -> None:
    stage = ready(1)
    (frame,) = sends(stage.submit(entry(1), amending(2, EDIT, behind=1)))
    done = stage.receive(error("INVALID_CONTENT", frame.request_id))
    (failed,) = of(done, SendFailed)
    assert (failed.is_kept, failed.entry.body.content) == (True, "edited 2")
    assert [one.number for one in of(done, Dropped)[0].entries] == [2]
    (frame,) = sends(stage.submit(entry(3), amending(4, DELETE, behind=3)))
    done = stage.receive(error("INVALID_CONTENT", frame.request_id))
    (failed,) = of(done, SendFailed)
    assert not failed.is_kept
    assert [one.number for one in of(done, Dropped)[0].entries] == [4]


def test_mention_of_one_who_just_left_is_dropped_and_the_text_goes_again() -> None:
    stage = ready(1)
    stage.stores = False
    body = MessageBody(content="hi", mentions=(THEM, ME))
    (frame,) = sends(stage.submit(entry(1, body=body)))
    done = stage.receive(error("INVALID_MENTION", frame.request_id, user_ids=[THEM]))
    (rewritten,) = of(done, Rewritten)
    (mark,) = of(done, Mark)
    assert done.index(rewritten) < done.index(mark), "on the disk before it leaves"
    assert not sends(done)
    (frame,) = sends(stage.did(stage.core.marked(mark.entries, 1, stage.now)))
    assert frame.payload.client_message_id == key(1)
    assert (frame.payload.content, frame.payload.mentions) == ("hi", (ME,))
    done = stage.receive(error("INVALID_MENTION", frame.request_id, user_ids="nonsense"))
    (failed,) = of(done, SendFailed)
    assert failed.entry.code == "INVALID_MENTION"


def test_older_server_is_sent_no_amendments() -> None:
    stage = Stage(replicas=[record(1)])
    stage.did(stage.core.start(stage.now))
    stage.did(stage.core.opened(stage.now))
    done = stage.receive(established(features=("batch",)), digest(listed(1)))
    done = stage.submit(entry(1), amending(2, EDIT, 1), amending(3, REACT, 1), entry(4))
    (first,) = sends(done)
    done = stage.receive(send_ack(first, 2))
    failed = of(done, SendFailed)
    assert [(one.entry.number, one.is_kept) for one in failed] == [(2, True), (3, False)]
    assert {one.entry.code for one in failed} == {"INVALID_OPERATION"}
    assert [one.payload.content for one in sends(done)] == ["text 4"], "nothing waits for them"
    assert not frames(done, EditMessageFrame)
