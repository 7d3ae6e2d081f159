"""Every trace check finds the one thing that it is there to find; what may be is not blamed.

Each story is told from the beginning, and violates exactly the named invariants.
"""

from collections.abc import Callable

import msgspec
import pytest

from tests.support.history import (
    AckFrameSent,
    CounterJumped,
    Died,
    FrameReceived,
    MemberRemoving,
    Published,
    SyncAsked,
    Synced,
    TextsAsked,
    TextsShown,
)
from tests.support.trace import CHECKS
from tests.unit.support.story import ANN, BOB, CHAT, EVE, Story, sound_story
from tidewire.domain.delivery import Positions
from tidewire.domain.errors import ErrorCode
from tidewire.domain.ids import MessageId
from tidewire.domain.messages import Amendment, EntryKind
from tidewire.ops.invariants import Kind, names_of

Tell = Callable[[Story], object]


def two_answers_to_one_key(story: Story) -> None:
    story.send(1, "k1")
    story.ack(story.begin_send("k1"), 1, deduplicated=True)
    story.entries[-1] = msgspec.structs.replace(story.entries[-1], created_at_ms=5)


def one_key_stored_twice(story: Story) -> None:
    story.begin_send("k1")
    story.store(1, "k1")
    story.store(2, "k1")


def other_text_acknowledged(story: Story) -> None:
    # The text of the second is nowhere, so it is not stored either.
    story.send(1, "k1", text="one")
    story.ack(story.begin_send("k1", text="other"), 1, deduplicated=True)


def sync_leaves_a_message_out(story: Story) -> None:
    story.send(1, "k1")
    story.send(2, "k2")
    story.sync(0, story.messages[0], has_more=True)
    story.sync(1, through=2)


def sync_skips_one_inside(story: Story) -> None:
    for sequence in (1, 2, 3):
        story.send(sequence, f"k{sequence}")
    # It lies about the chain as well, or it would be seen to go on from the wrong place.
    lie = msgspec.structs.replace(story.messages[2], prev_sequence=1)
    story.sync(0, story.messages[0], lie)


def sync_shows_what_is_lost(story: Story) -> None:
    story.begin_send("k1")
    message = story.store(1, "k1")
    story.sync(0, message)
    story.messages.clear()
    story.counters[CHAT] = 0


def sync_ends_before_what_was_acknowledged(story: Story) -> None:
    story.send(1, "k1")
    story.send(2, "k2")
    story.sync(0, story.messages[0])


def sync_goes_on_from_the_watermark(story: Story) -> None:
    story.send(1, "k1")
    story.send(2, "k2")
    story.sync(1, *story.messages)


def sync_claims_more_than_it_gave(story: Story) -> None:
    story.send(1, "k1")
    story.leaves_gaps = True
    story.counters[CHAT] = 5
    story.sync(0, story.messages[0], through=5)


def later_send_gets_the_lower_sequence(story: Story) -> None:
    story.begin_send("k2", BOB)
    second = story.begin_send("k1")
    story.store(1, "k2", BOB)
    story.store(2, "k1")
    story.ack(second, 2)
    late = story.begin_send("k2", BOB)
    story.ack(late, 1)


def one_sequence_for_two(story: Story) -> None:
    first, second = story.begin_send("k1"), story.begin_send("k2")
    story.store(1, "k1")
    story.ack(first, 1)
    story.ack(second, 1)


def counter_below_what_was_acknowledged(story: Story) -> None:
    story.send(1, "k1")
    story.counters[CHAT] = 0


def counter_above_what_was_given_out(story: Story) -> None:
    story.send(1, "k1")
    story.counters[CHAT] = 2


def gap_without_a_reason(story: Story) -> None:
    story.send(1, "k1")
    story.send(3, "k3")


def acknowledged_and_gone(story: Story) -> None:
    story.send(1, "k1")
    story.messages.clear()


def acknowledged_and_another_text(story: Story) -> None:
    story.send(1, "k1")
    story.messages[0] = msgspec.structs.replace(story.messages[0], content="changed")


def acknowledged_under_another_id(story: Story) -> None:
    story.send(1, "k1")
    story.messages[0] = msgspec.structs.replace(story.messages[0], message_id=MessageId("msg_x"))


def refused_and_stored(story: Story) -> None:
    story.refuse(story.begin_send("k1"))
    story.store(1, "k1")


def position_falls(story: Story) -> None:
    story.send(1, "k1")
    story.advance(1)
    story.look(0)


def read_position_falls(story: Story) -> None:
    story.send(1, "k1")
    story.advance(1, 1)
    story.look(1, 0)


def position_lost_in_the_end(story: Story) -> None:
    story.send(1, "k1")
    story.send(2, "k2", BOB)
    # His own message moved it; no device of his has acknowledged anything.
    story.look(2, 2)
    story.positions[BOB, CHAT] = Positions(1, 1)


def acknowledged_but_pending(story: Story) -> None:
    story.send(1, "k1")
    story.advance(1)
    story.show_summary(story.ask_summary(1), 0, 1, (ANN, 0, 1), (BOB, 0, 0))


def position_above_the_last_message(story: Story) -> None:
    story.send(1, "k1")
    story.look(2)


def boundary_above_the_last_message(story: Story) -> None:
    story.send(1, "k1")
    story.boundary(2)


def old_acknowledgement_moves(story: Story) -> None:
    story.send(1, "k1")
    story.send(2, "k2")
    story.advance(2)
    story.advance(1, shown=(2, 0), moved=True)


def acknowledgement_lost(story: Story) -> None:
    story.send(1, "k1")
    story.advance(1, shown=(0, 0), moved=False)


def acknowledged_row_gone(story: Story) -> None:
    story.send(1, "k1")
    story.advance(1)
    del story.positions[BOB, CHAT]


def position_that_nobody_acknowledged(story: Story) -> None:
    story.send(1, "k1")
    story.positions[BOB, CHAT] = Positions(1, 0)


def positions_removed_with_the_member(story: Story) -> None:
    story.join(ANN, BOB)
    story.send(1, "k1", BOB)
    story.look(1, user=BOB)
    story.leave(BOB)


def acknowledgement_answered(story: Story) -> None:
    story.entries += [AckFrameSent("r1"), FrameReceived("r1")]


def outsider_told_who_has_a_message(story: Story) -> None:
    story.join(ANN)
    story.send(1, "k1")
    story.show_summary(story.ask_summary(1, EVE), 0, 0, (ANN, 0, 1))


def member_refused(story: Story) -> None:
    story.join(ANN)
    story.refuse(story.ask_summary(1, ANN))


def outsider_refused_with_another_code(story: Story) -> None:
    story.join(ANN)
    story.refuse(story.ask_summary(1, EVE), ErrorCode.NOT_FOUND)


def all_delivered_too_early(story: Story) -> None:
    story.send(1, "k1")
    story.show_summary(story.ask_summary(1), 1, 0, (ANN, 0, 1), (BOB, 0, 0))


def joiner_awaited(story: Story) -> None:
    story.send(1, "k1")
    story.show_summary(story.ask_summary(1), 0, 1, (ANN, 0, 1), (BOB, 1, 0))


def author_awaited(story: Story) -> None:
    story.send(1, "k1")
    story.show_summary(story.ask_summary(1), 0, 1, (ANN, 0, 0))


def removed_member_sends(story: Story) -> None:
    story.join(ANN)
    story.leave(ANN)
    story.send(1, "k1")


def removed_member_reads(story: Story) -> None:
    story.join(ANN, BOB)
    story.send(1, "k1")
    story.leave(BOB)
    story.sync(0, story.messages[0], user=BOB)


def boundary_falls(story: Story) -> None:
    story.send(1, "k1")
    story.boundary(1)
    story.boundary(0)


def event_left_out(story: Story) -> None:
    story.entries += [Published(CHAT, 1, 0), Published(CHAT, 3, 2)]


def events_in_another_order(story: Story) -> None:
    story.entries += [Published(CHAT, 2, 1), Published(CHAT, 1, 0)]


def sync_gives_a_deleted_text(story: Story) -> None:
    story.send(1, "k1", text="secret")
    secret = story.messages[0]
    story.amend(2, EntryKind.DELETE)
    story.sync(0, secret, has_more=True)


def sync_gives_an_edit_of_what_is_deleted(story: Story) -> None:
    story.send(1, "k1", text="secret")
    story.amend(2, EntryKind.EDIT, text="still secret")
    secret = story.messages[1]
    story.amend(3, EntryKind.DELETE)
    story.sync(1, secret, has_more=True)


def sync_gives_whom_a_deleted_message_mentioned(story: Story) -> None:
    story.send(1, "k1")
    story.amend(2, EntryKind.DELETE)
    story.sync(0, msgspec.structs.replace(story.messages[0], mentions=(BOB,)), has_more=True)


def history_shows_a_text_after_a_sync_has_shown_its_deletion(story: Story) -> None:
    story.send(1, "k1", text="secret")
    amends = Amendment(kind=EntryKind.DELETE, target=1)
    story.begin_send("k2", ANN, "", amends)
    deletion = msgspec.structs.replace(story.store(2, "k2", ANN, ""), amends=amends)
    gone = msgspec.structs.replace(story.messages[0], content="", deleted_by=2)
    story.messages = [gone, deletion]
    story.sync(1, deletion)
    story.look_at_texts({1: "secret"})


def deletion_leaves_the_text(story: Story) -> None:
    story.send(1, "k1", text="secret")
    story.amend(2, EntryKind.DELETE, erases=False)


CASES: list[tuple[Tell, set[str]]] = [
    (two_answers_to_one_key, {"idempotency_guarantee"}),
    (one_key_stored_twice, {"idempotency_guarantee"}),
    (other_text_acknowledged, {"idempotency_guarantee", "ack_implies_persistence"}),
    (sync_leaves_a_message_out, {"sync_completeness", "sync_position_from_watermark"}),
    (sync_skips_one_inside, {"sync_completeness"}),
    (sync_shows_what_is_lost, {"sync_completeness"}),
    (sync_ends_before_what_was_acknowledged, {"sync_completeness"}),
    (sync_goes_on_from_the_watermark, {"sync_position_from_watermark"}),
    (sync_claims_more_than_it_gave, {"sync_position_from_watermark"}),
    (later_send_gets_the_lower_sequence, {"allocation_monotonicity"}),
    (one_sequence_for_two, {"add_operation_atomicity", "ack_implies_persistence"}),
    (counter_below_what_was_acknowledged, {"counter_is_last_allocated"}),
    (counter_above_what_was_given_out, {"counter_is_last_allocated"}),
    (gap_without_a_reason, {"gap_is_allocation_without_persistence"}),
    (acknowledged_and_gone, {"ack_implies_persistence"}),
    (acknowledged_and_another_text, {"ack_implies_persistence"}),
    (acknowledged_under_another_id, {"ack_implies_persistence"}),
    (refused_and_stored, {"refusal_stores_nothing"}),
    (position_falls, {"watermark_monotonic"}),
    (read_position_falls, {"watermark_monotonic"}),
    (position_lost_in_the_end, {"watermark_monotonic"}),
    (acknowledged_but_pending, {"ack_cumulative"}),
    (position_above_the_last_message, {"delivered_implies_persisted"}),
    (boundary_above_the_last_message, {"delivered_implies_persisted"}),
    (old_acknowledgement_moves, {"conditional_write_prevents_regression"}),
    (acknowledgement_lost, {"multi_device_highest_wins"}),
    (acknowledged_row_gone, {"multi_device_highest_wins"}),
    (position_that_nobody_acknowledged, {"multi_device_highest_wins"}),
    (positions_removed_with_the_member, {"delivery_state_independent_of_membership"}),
    (acknowledgement_answered, {"ack_fire_and_forget"}),
    (outsider_told_who_has_a_message, {"delivery_query_authorization"}),
    (member_refused, {"delivery_query_authorization"}),
    (outsider_refused_with_another_code, {"delivery_query_authorization"}),
    (all_delivered_too_early, {"group_delivered_requires_all_members"}),
    (joiner_awaited, {"group_delivered_requires_all_members"}),
    (author_awaited, {"group_delivered_requires_all_members"}),
    (removed_member_sends, {"membership_holds"}),
    (removed_member_reads, {"membership_holds"}),
    (boundary_falls, {"boundary_never_falls"}),
    (event_left_out, {"events_follow_commits"}),
    (events_in_another_order, {"events_follow_commits"}),
    (sync_gives_a_deleted_text, {"deleted_is_not_read"}),
    (sync_gives_an_edit_of_what_is_deleted, {"deleted_is_not_read"}),
    (sync_gives_whom_a_deleted_message_mentioned, {"deleted_is_not_read", "sync_completeness"}),
    (history_shows_a_text_after_a_sync_has_shown_its_deletion, {"deleted_is_not_read"}),
    (deletion_leaves_the_text, {"deleted_is_not_read"}),
]


@pytest.mark.parametrize(("tell", "expected"), CASES, ids=[case[0].__name__ for case in CASES])
def test_story_violates_exactly(tell: Tell, expected: set[str]) -> None:
    story = Story()
    tell(story)
    assert story.violated() == expected


def test_every_trace_invariant_has_a_story_that_violates_it() -> None:
    assert set().union(*(expected for _, expected in CASES)) == set(names_of(Kind.TRACE))


def test_sound_story_violates_nothing() -> None:
    assert sound_story().violated() == set()


def test_checks_are_in_the_order_of_the_list() -> None:
    assert list(CHECKS) == list(names_of(Kind.TRACE))


# What overlaps, or has an unknown outcome, may be either way.


def overlapping_sends_in_either_order(story: Story) -> None:
    first, second = story.begin_send("k1"), story.begin_send("k2")
    story.store(1, "k2")
    story.store(2, "k1")
    story.ack(first, 2)
    story.ack(second, 1)


def unanswered_send_stored(story: Story) -> None:
    story.begin_send("k1")
    story.entries.append(Died())
    story.store(1, "k1")


def unanswered_send_not_stored(story: Story) -> None:
    story.begin_send("k1")
    story.entries.append(Died())


def refused_but_another_try_stored(story: Story) -> None:
    story.begin_send("k1")
    story.refuse(story.begin_send("k1"), ErrorCode.IDEMPOTENCY_KEY_REUSED)
    story.store(1, "k1")


def gap_after_a_jump(story: Story) -> None:
    story.send(1, "k1")
    story.entries.append(CounterJumped(CHAT))
    story.send(10_002, "k2")
    story.counters[CHAT] = 10_005


def gap_after_a_restore(story: Story) -> None:
    story.entries.append(CounterJumped())
    story.send(1_048_577, "k1")


def gap_in_an_engine_that_leaves_them(story: Story) -> None:
    story.leaves_gaps = True
    story.send(1, "k1")
    story.send(3, "k3")
    story.counters[CHAT] = 4


def retry_answered_after_removal(story: Story) -> None:
    story.join(ANN)
    story.send(1, "k1")
    story.leave(ANN)
    story.ack(story.begin_send("k1"), 1, deduplicated=True)


def send_while_being_removed(story: Story) -> None:
    story.join(ANN)
    story.ask(MemberRemoving(op=story.op(), chat_id=CHAT, user_id=ANN))
    story.send(1, "k1")


def back_after_removal(story: Story) -> None:
    story.join(ANN)
    story.leave(ANN)
    story.join(ANN)
    story.send(1, "k1")


def removal_refused(story: Story) -> None:
    story.join(ANN)
    op = story.ask(MemberRemoving(op=story.op(), chat_id=CHAT, user_id=ANN))
    story.refuse(op, ErrorCode.INVALID_OPERATION)
    story.send(1, "k1")


def events_of_another_life(story: Story) -> None:
    story.entries += [Published(CHAT, 1, 0), Died(), Published(CHAT, 3, 2), Published(CHAT, 4, 3)]


def own_message_moves_own_position(story: Story) -> None:
    story.send(1, "k1", BOB)
    story.look(1, 1)
    story.positions[BOB, CHAT] = Positions(1, 1)


def page_cut_short(story: Story) -> None:
    story.send(1, "k1")
    story.send(2, "k2")
    story.sync(0, story.messages[0], has_more=True)


def read_that_overlaps_a_deletion(story: Story) -> None:
    story.send(1, "k1", text="secret")
    shown = story.messages[0]
    op = story.ask(SyncAsked(op=story.op(), chat_id=CHAT, user_id=BOB, after=0))
    look = story.ask(TextsAsked(op=story.op(), chat_id=CHAT, user_id=BOB, way="history"))
    story.amend(2, EntryKind.DELETE)
    story.answer(Synced(op=op, messages=[shown], synced_through=1, has_more=True))
    story.answer(TextsShown(op=look, texts={1: "secret"}))


def what_was_deleted_is_seen_as_such(story: Story) -> None:
    story.send(1, "k1", text="secret")
    story.amend(2, EntryKind.EDIT, text="still secret")
    story.send(3, "k3", text="no secret")
    story.amend(4, EntryKind.DELETE)
    story.sync(0, *story.messages)
    story.look_at_texts({1: "", 3: "no secret"})


def key_of_a_deleted_message_goes_on_answering(story: Story) -> None:
    story.send(1, "k1", text="secret")
    story.amend(2, EntryKind.DELETE)
    story.ack(story.begin_send("k1", text="something else"), 1, deduplicated=True)


ALLOWED: list[Tell] = [
    overlapping_sends_in_either_order,
    unanswered_send_stored,
    unanswered_send_not_stored,
    refused_but_another_try_stored,
    gap_after_a_jump,
    gap_after_a_restore,
    gap_in_an_engine_that_leaves_them,
    retry_answered_after_removal,
    send_while_being_removed,
    back_after_removal,
    removal_refused,
    events_of_another_life,
    own_message_moves_own_position,
    page_cut_short,
    read_that_overlaps_a_deletion,
    what_was_deleted_is_seen_as_such,
    key_of_a_deleted_message_goes_on_answering,
]


@pytest.mark.parametrize("tell", ALLOWED, ids=[tell.__name__ for tell in ALLOWED])
def test_story_may_be_told(tell: Tell) -> None:
    story = Story()
    tell(story)
    assert story.violated() == set()
