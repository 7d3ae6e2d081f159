"""Edits, deletions and reactions in the outbox: behind their messages, in place, or dropped."""

from collections.abc import Iterable
from typing import Final

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from tests.unit.client.stage import CHAT, ME, THEM, WALL_MS, amending, entry, key
from tests.unit.client.test_outbox import NOW_MS, OTHER, outbox, refuse, taken
from tidewire.client.outbox import FAILED, QUEUED, UNKNOWN, OutboxEntry, Refused
from tidewire.domain.errors import ErrorCode
from tidewire.domain.ids import ClientMessageId
from tidewire.domain.messages import Amendment, EntryKind, MessageBody
from tidewire.wire.client_frames import (
    DeleteMessageFrame,
    EditMessageFrame,
    ReactFrame,
    SendMessageFrame,
)

EDIT: Final = EntryKind.EDIT
DELETE: Final = EntryKind.DELETE
REACT: Final = EntryKind.REACT


def numbers(entries: Iterable[OutboxEntry]) -> list[int]:
    return [one.number for one in entries]


def test_amendments_leave_in_the_order_of_writing_like_messages() -> None:
    box = outbox(entry(1), amending(2, EDIT, 7), entry(3), amending(4, REACT, 8))
    for number in (1, 2, 3, 4):
        assert taken(box) == [number]
        box.stored(key(number), number)
    assert len(box) == 0


def test_frame_is_that_of_the_kind() -> None:
    edit = amending(1, EDIT, 7, base=3).frame("r")
    assert isinstance(edit, EditMessageFrame)
    assert (edit.payload.target, edit.payload.content, edit.payload.base) == (7, "edited 1", 3)
    deletion = amending(2, DELETE, 7, is_first=True).frame("r")
    assert isinstance(deletion, DeleteMessageFrame)
    assert (deletion.payload.target, deletion.payload.reason) == (7, None)
    assert deletion.payload.is_first
    reaction = amending(3, REACT, 7).frame("r")
    assert isinstance(reaction, ReactFrame)
    payload = reaction.payload
    assert (payload.client_message_id, payload.chat_id) == (key(3), CHAT)
    assert (payload.target, payload.emoji, payload.is_on) == (7, "👍", True)
    message = entry(4, body=MessageBody(content="hi", reply_to=3, mentions=(ME,))).frame("r")
    assert isinstance(message, SendMessageFrame)
    assert (message.payload.reply_to, message.payload.mentions) == (3, (ME,))
    with pytest.raises(AssertionError):
        amending(5, EntryKind.MESSAGE, 7).frame("r")


def test_amendment_of_a_message_on_its_way_waits_for_its_sequence() -> None:
    box = outbox(entry(1), amending(2, EDIT, behind=1), entry(3), window=4)
    assert taken(box) == [1]
    box.stored(key(1), 41)
    leaving, _ = box.take(NOW_MS, WALL_MS)
    assert numbers(leaving) == [2, 3]
    assert leaving[0].amends == Amendment(kind=EDIT, target=41)
    assert leaving[0].target_key is None


def test_amendment_waits_also_when_its_message_is_refused_for_now() -> None:
    box = outbox(entry(1), amending(2, REACT, behind=1))
    assert taken(box) == [1]
    refuse(box, 1, "SERVER_BUSY")
    assert taken(box, NOW_MS + 60_000) == [1]
    box.lost()
    box.release(CHAT)
    assert taken(box) == [1]
    box.stored(key(1), 9)
    assert taken(box) == [2]


def test_message_that_is_refused_for_good_is_changed_where_it_is() -> None:
    box = outbox(
        entry(1), amending(2, EDIT, behind=1), amending(3, REACT, behind=1), amending(4, EDIT, 9)
    )
    taken(box)
    refused = box.refused(key(1), "FORBIDDEN", "no", retry_after_ms=0, now_ms=NOW_MS)
    assert refused is not None
    assert numbers(refused.dropped) == [2, 3]
    assert {(one.code, one.reason) for one in refused.dropped} == {("FORBIDDEN", "no")}
    assert numbers(box.entries()) == [1, 4]
    assert (refused.entry.state, refused.entry.body.content) == (FAILED, "edited 2")
    box.saved([refused.entry])
    assert taken(box) == [], "the disk still has the amendments"
    box.saved(refused.dropped)
    assert taken(box) == [4]


def test_message_that_was_to_be_deleted_goes_when_it_is_refused() -> None:
    box = outbox(entry(1), amending(2, EDIT, behind=1), amending(3, DELETE, behind=1))
    taken(box)
    refused = box.refused(key(1), "FORBIDDEN", "no", retry_after_ms=0, now_ms=NOW_MS)
    assert refused is not None
    assert numbers(refused.dropped) == [2, 3, 1]
    assert len(box) == 0
    assert box.waiting_chats() == []


def test_amendment_of_a_message_that_is_given_up_is_not_taken_in() -> None:
    box = outbox(entry(1, state=FAILED))
    late = amending(2, EDIT, behind=1)
    assert not box.add(late)
    assert (late.state, late.code) == (FAILED, ErrorCode.TARGET_NOT_FOUND)
    assert not box.add(amending(3, EDIT, behind=99))
    assert numbers(box.entries()) == [1]


def test_amendment_of_a_message_of_unknown_fate_waits_beside_it() -> None:
    old = entry(1, left_at_ms=WALL_MS - 6 * 24 * 3_600_000)
    box = outbox(old, amending(2, EDIT, behind=1, left_at_ms=None), entry(3))
    leaving, doubtful = box.take(NOW_MS, WALL_MS)
    assert (numbers(leaving), numbers(doubtful)) == ([], [1])
    box.saved(doubtful)
    assert taken(box) == [3]
    box.stored(key(3), 3)
    assert box.waiting_chats() == []
    again = box.retry(key(1), 8)
    assert [(one.number, one.client_message_id) for one in again] == [(8, key(1)), (9, key(2))]
    box.release(CHAT)
    assert taken(box) == [8]
    box.stored(key(1), 50)
    assert taken(box) == [9]


def test_unknown_fate_is_still_unknown_in_the_next_life() -> None:
    box = outbox(entry(1, state=UNKNOWN), amending(2, EDIT, behind=1), entry(3))
    assert taken(box) == [3]
    # A sync brings the message after all.
    box.stored(key(1), 50)
    box.stored(key(3), 51)
    assert taken(box) == [2]
    box = outbox(entry(1, state=UNKNOWN), amending(2, EDIT, behind=1))
    assert numbers(box.drop(key(1))) == [1, 2]
    assert len(box) == 0


def test_amendment_of_a_failed_message_holds_nothing_back_in_the_next_life() -> None:
    """A process can be killed after it has stored one, and before it has told that it fails."""
    box = outbox(entry(1, state=FAILED), amending(2, EDIT, behind=1), entry(3))
    assert taken(box) == [3]
    box.stored(key(3), 3)
    assert box.waiting_chats() == []
    assert numbers(box.retry(key(1), 8)) == [8, 9]
    box.release(CHAT)
    assert taken(box) == [8]
    # Some refusals leave it open whether the message was stored; then a sync brings it.
    box = outbox(entry(1, state=FAILED), amending(2, EDIT, behind=1))
    box.stored(key(1), 50)
    box.release(CHAT)
    assert taken(box) == [2]


def test_amendment_of_a_message_that_is_nowhere_holds_nothing_back_in_the_next_life() -> None:
    """A process can be killed after it has dropped a message, and before it has told that a change
    of it, which was being written meanwhile, fails."""
    box = outbox(amending(2, EDIT, behind=1), amending(3, REACT, behind=1), entry(4))
    assert taken(box) == [4]
    box.stored(key(4), 4)
    assert box.waiting_chats() == []
    assert len(box) == 0
    assert [(one.number, one.state, one.code) for one in box.orphans] == [
        (2, FAILED, ErrorCode.TARGET_NOT_FOUND),
        (3, FAILED, ErrorCode.TARGET_NOT_FOUND),
    ]


def test_change_of_a_change_that_has_failed_fails_too() -> None:
    box = outbox(amending(2, EDIT, behind=1), amending(3, REACT, behind=2), entry(4))
    assert taken(box) == [4]
    assert numbers(box.orphans) == [2, 3]


def test_amendment_waits_behind_its_message_however_that_was_numbered() -> None:
    """`retry` numbers a message anew, also while an amendment of it is being written."""
    box = outbox(entry(1, state=FAILED), entry(4))
    assert taken(box) == [4]
    box.retry(key(1), 6)
    box.add(amending(5, EDIT, behind=1))
    box.add(entry(7))
    box.stored(key(4), 4)
    for _ in range(2):
        assert taken(box) == [6]
        assert taken(box) == []
        # The next life, in the order in which they are on the disk.
        waiting = [replace(one) for one in box.entries()]
        assert numbers(waiting) == [5, 6, 7]
        box = outbox(*waiting)
    assert taken(box) == [6]
    box.stored(key(1), 50)
    assert taken(box) == [5]
    box.stored(key(5), 51)
    assert taken(box) == [7]


def test_dropping_a_message_drops_what_would_change_it() -> None:
    box = outbox(entry(1, left_at_ms=None), amending(2, REACT, behind=1), entry(3))
    dropped = box.drop(key(1))
    assert numbers(dropped) == [1, 2]
    box.saved(dropped)
    assert taken(box) == [3]
    box = outbox(entry(1, left_at_ms=None), amending(2, REACT, behind=1, left_at_ms=None))
    assert numbers(box.drop(key(2))) == [2]
    assert numbers(box.drop(key(1))) == [1]


def test_text_that_surely_has_not_left_is_changed_in_place() -> None:
    box = outbox(entry(1), entry(2, left_at_ms=None), amending(3, EDIT, 9, left_at_ms=None))
    waiting = entry(4)
    box.add(waiting)
    assert box.rewrite(key(1), "no") is None, "it may have left in the life before"
    assert box.rewrite(key(99), "no") is None
    for number in (2, 3, 4):
        changed = box.rewrite(key(number), "other")
        assert changed is not None
        assert (changed.body.content, changed.left_at_ms) == ("other", None)
    box.stored(key(1), 1)
    leaving, _ = box.take(NOW_MS, WALL_MS)
    assert numbers(leaving) == [2]
    assert box.rewrite(key(2), "no") is None, "it is on its way"
    failed = refuse(box, 2, "FORBIDDEN")
    assert box.rewrite(key(2), "again") is failed


def test_last_edit_of_a_message_is_found() -> None:
    box = outbox(
        entry(1), amending(2, EDIT, 7), amending(3, EDIT, 7), amending(4, REACT, 7),
        amending(5, EDIT, 8), amending(6, EDIT, behind=1),
    )  # fmt: skip
    found = [box.last_edit(CHAT, target) for target in (7, 8, key(1), 9)]
    assert [None if one is None else one.number for one in found] == [3, 5, 6, None]
    assert box.last_edit(OTHER, 7) is None


def test_deletion_drops_the_edits_of_its_message_and_their_texts() -> None:
    box = outbox(
        amending(1, EDIT, 7), amending(2, REACT, 7), amending(3, EDIT, 7, state=FAILED),
        amending(4, EDIT, 8), entry(5, OTHER), amending(6, EDIT, 7, chat_id=OTHER),
    )  # fmt: skip
    assert taken(box) == [1, 5]
    dropped = box.erased(CHAT, 7)
    assert numbers(dropped) == [1, 3]
    assert [(one.body.content, one.code) for one in dropped] == [("", "MESSAGE_DELETED")] * 2
    assert numbers(box.entries()) == [2, 4, 5, 6]
    assert box.flying_count == 1
    box.saved(dropped)
    assert taken(box) == [2]


def test_only_what_has_a_text_stays_when_it_failed() -> None:
    box = outbox(amending(1, DELETE, 7), amending(2, REACT, 7), amending(3, EDIT, 7))
    for number, stays in ((1, False), (2, False), (3, True)):
        assert taken(box) == [number]
        refused = box.refused(key(number), "EDIT_CONFLICT", "no", retry_after_ms=0, now_ms=NOW_MS)
        assert refused is not None
        assert refused.entry.state is FAILED
        assert (key(number) in box) is stays
        assert numbers(refused.dropped) == ([] if stays else [number])
        box.saved([refused.entry])


def test_edit_of_a_deleted_message_leaves_no_text() -> None:
    box = outbox(amending(1, EDIT, 7))
    taken(box)
    refused = box.refused(key(1), "MESSAGE_DELETED", "gone", retry_after_ms=0, now_ms=NOW_MS)
    assert refused is not None
    assert (refused.entry.body.content, refused.entry.reason) == ("", "gone")
    assert len(box) == 0


def test_mention_of_an_outsider_is_left_out_and_the_text_goes_again() -> None:
    box = outbox(entry(1, body=MessageBody(content="hi", mentions=(ME, THEM))), entry(2))
    assert taken(box) == [1]

    def refused(*outsiders: str) -> Refused:
        found = box.refused(
            key(1),
            "INVALID_MENTION",
            "no",
            retry_after_ms=0,
            now_ms=NOW_MS,
            outsiders=outsiders,
        )
        assert found is not None
        return found

    first = refused(THEM)
    assert first.is_rewritten
    assert first.entry.body == MessageBody(content="hi", mentions=(ME,))
    assert (first.entry.state, first.entry.left_at_ms) == (QUEUED, None)
    assert taken(box) == [1]
    # A server that complains of others would be asked for ever.
    second = refused(THEM)
    assert not second.is_rewritten
    assert second.entry.state is FAILED
    box.saved([second.entry])
    assert taken(box) == [2]


@settings(max_examples=150)
@given(
    kinds=st.lists(st.sampled_from([None, EDIT, REACT, DELETE]), min_size=1, max_size=8),
    steps=st.lists(
        st.sampled_from(["take", "ack", "busy", "fail", "lose", "lose-stored"]), max_size=60
    ),
    window=st.integers(1, 4),
)
def test_no_amendment_leaves_before_its_target_is_known(
    kinds: list[EntryKind | None], steps: list[str], window: int
) -> None:
    """Messages, and amendments of the last message before them, over a bad network."""
    entries: list[OutboxEntry] = []
    last: int | None = None
    for number, kind in enumerate(kinds, start=1):
        if kind is None or last is None:
            last = number
            entries.append(entry(number, left_at_ms=None))
        else:
            entries.append(amending(number, kind, behind=last, left_at_ms=None))
    box = outbox(*entries, window=window)
    at_server: dict[str, int] = {}
    flying: list[OutboxEntry] = []
    now_ms = NOW_MS
    for step in [*steps, *["lose", "take", "ack"] * (len(kinds) + 1)]:
        now_ms += 100_000
        if step == "take":
            leaving, _ = box.take(now_ms, WALL_MS)
            for one in leaving:
                assert one.amends is None or one.amends.target in at_server.values()
            flying += leaving
        elif step.startswith("lose"):
            for one in flying if step == "lose-stored" else ():
                at_server.setdefault(one.client_message_id, len(at_server) + 1)
            flying.clear()
            box.lost()
            for sent, sequence in at_server.items():
                box.stored(ClientMessageId(sent), sequence)
            box.release(CHAT)
        elif flying:
            one = flying.pop(0)
            if step == "ack":
                sequence = at_server.setdefault(one.client_message_id, len(at_server) + 1)
                box.stored(one.client_message_id, sequence)
            else:
                code = "SERVER_BUSY" if step == "busy" else "FORBIDDEN"
                if code == "FORBIDDEN" and one.client_message_id in at_server:
                    continue
                refused = box.refused(
                    one.client_message_id, code, "", retry_after_ms=0, now_ms=now_ms
                )
                if refused is not None:
                    box.saved([refused.entry, *refused.dropped])
    assert [one for one in box.entries() if one.state is not FAILED] == []
    assert box.waiting_chats() == []
