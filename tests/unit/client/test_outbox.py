"""The order of sending, retries, failures, and what nobody can know."""

from random import Random
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from tests.unit.client.stage import CHAT, WALL_MS, entry, key
from tidewire.client.errors import OutboxFull
from tidewire.client.options import ClientOptions
from tidewire.client.outbox import FAILED, FLYING, QUEUED, UNKNOWN, Outbox, OutboxEntry
from tidewire.domain.errors import ErrorCode
from tidewire.domain.ids import ChatId
from tidewire.wire.error_table import ERROR_TABLE

OTHER = ChatId("chat_2")
NOW_MS = 1_000


def outbox(
    *entries: OutboxEntry, open_chats: tuple[ChatId, ...] = (CHAT, OTHER), **options: Any
) -> Outbox:
    box = Outbox(ClientOptions(**options), Random(1), entries)
    for chat_id in open_chats:
        box.release(chat_id)
    return box


def taken(box: Outbox, now_ms: int = NOW_MS) -> list[int]:
    leaving, _ = box.take(now_ms, WALL_MS)
    return [one.number for one in leaving]


def refuse(
    box: Outbox, number: int, code: str, retry_after_ms: int = 0, after: int | None = None
) -> OutboxEntry | None:
    refused = box.refused(
        key(number),
        code,
        "no",
        retry_after_ms=retry_after_ms,
        now_ms=NOW_MS,
        after=None if after is None else key(after).upper(),
    )
    if refused is None:
        return None
    box.saved([refused.entry, *refused.dropped])
    return refused.entry


def test_one_a_chat_leaves_at_a_time_and_chats_take_turns() -> None:
    box = outbox(entry(1), entry(2), entry(3, OTHER))
    assert taken(box) == [1, 3]
    assert taken(box) == []
    box.stored(key(1), 1)
    assert taken(box) == [2]


def test_window_lets_more_leave_and_the_total_is_bounded() -> None:
    box = outbox(*(entry(n) for n in range(1, 9)), window=4)
    assert taken(box) == [1, 2, 3, 4]
    box = outbox(*(entry(n) for n in range(1, 9)), window=8, sends_max=3)
    assert taken(box) == [1, 2, 3]
    assert box.flying_count == 3


def test_held_chat_sends_nothing() -> None:
    box = outbox(entry(1), open_chats=())
    assert taken(box) == []
    box.release(CHAT)
    box.hold(CHAT)
    assert taken(box) == []
    box.hold(OTHER)
    box.release(CHAT)
    assert taken(box) == [1]


def test_outbox_is_bounded_and_says_so() -> None:
    box = outbox(entry(1), entry(2), outbox_max=3)
    box.check_room()
    with pytest.raises(OutboxFull, match="3 messages wait"):
        box.check_room(2)
    box.add(entry(3))
    assert len(box) == 3
    with pytest.raises(OutboxFull):
        box.check_room()


@pytest.mark.parametrize("code", list(ErrorCode))
def test_table_of_codes_decides_what_is_tried_again(code: ErrorCode) -> None:
    box = outbox(entry(1))
    taken(box)
    refused = refuse(box, 1, code)
    assert refused is not None
    assert refused.state is (QUEUED if ERROR_TABLE[code].retryable else FAILED)


def test_retry_waits_longer_each_time_and_at_least_as_long_as_told() -> None:
    box = outbox(entry(1), entry(2))
    taken(box)
    refuse(box, 1, "SERVICE_UNAVAILABLE")
    first_ms = box.next_deadline_ms()
    assert first_ms is not None
    assert 750 <= first_ms - NOW_MS <= 1_250
    assert taken(box, first_ms - 1) == []
    assert taken(box, first_ms) == [1]
    refuse(box, 1, "RATE_LIMITED", retry_after_ms=50_000)
    assert box.next_deadline_ms() == NOW_MS + 50_000
    box.stored(key(1), 1)
    assert box.get(key(1)) is None


@pytest.mark.parametrize("code", ["INTERNAL_ERROR", "CODE_OF_TOMORROW"])
def test_some_codes_are_tried_a_few_times_only(code: str) -> None:
    box = outbox(entry(1))
    now_ms = NOW_MS
    for _ in range(2):
        assert taken(box, now_ms) == [1]
        refused = refuse(box, 1, code)
        assert refused is not None
        assert refused.state is QUEUED
        now_ms += 100_000
    assert taken(box, now_ms) == [1]
    refused = refuse(box, 1, code)
    assert refused is not None
    assert (refused.state, refused.code, refused.reason) == (FAILED, code, "no")


def test_failed_one_stays_visible_until_it_is_retried_or_dropped() -> None:
    box = outbox(entry(1), entry(2), entry(3))
    taken(box)
    refuse(box, 1, "FORBIDDEN")
    assert [one.number for one in box.entries(CHAT)] == [1, 2, 3]
    assert box.entries(OTHER) == []
    assert taken(box) == [2]
    assert box.retry(key(2), 9) == []
    assert box.retry(key(99), 9) == []
    (again,) = box.retry(key(1), 9)
    assert (again.code, again.left_at_ms) == (None, None)
    box.stored(key(2), 2)
    assert taken(box) == [3]
    refuse(box, 3, "FORBIDDEN")
    dropped = box.drop(key(3))
    assert [one.number for one in dropped] == [3]
    assert key(3) not in box
    box.saved(dropped)
    assert taken(box) == [9]


def test_what_may_arrive_cannot_be_dropped_and_what_surely_did_not_can() -> None:
    box = outbox(entry(1), entry(2, left_at_ms=None))
    assert box.drop(key(1)) == []
    taken(box)
    assert box.drop(key(1)) == []
    assert box.drop(key(7)) == []
    assert [one.number for one in box.drop(key(2))] == [2]


@pytest.mark.parametrize("code", ["INTERNAL_ERROR", "SERVICE_UNAVAILABLE", "MADE_LATER"])
def test_refusal_that_leaves_it_open_whether_it_was_stored_makes_it_doubtful(code: str) -> None:
    """A server that could not answer may have stored it all the same."""
    box = outbox(entry(1))
    assert taken(box) == [1]
    refused = refuse(box, 1, code)
    assert refused is not None
    assert (refused.state, refused.is_doubtful) == (QUEUED, True)
    assert box.drop(key(1)) == []
    late_ms = WALL_MS + ClientOptions().fate_ms_max
    leaving, doubtful = box.take(NOW_MS + 60_000, late_ms)
    assert (leaving, doubtful) == ([], [refused])
    assert refused.state is UNKNOWN


def test_what_was_on_its_way_is_sent_again_in_order_after_a_loss() -> None:
    box = outbox(*(entry(n) for n in range(1, 6)), window=3)
    assert taken(box) == [1, 2, 3]
    box.stored(key(2), 2)
    box.lost()
    assert taken(box) == []
    box.release(CHAT)
    assert taken(box) == [1, 3, 4]
    assert refuse(box, 5, "FORBIDDEN") is None


def test_entry_of_an_earlier_life_that_was_flying_is_doubtful() -> None:
    (one,) = outbox(entry(1, state=FLYING)).entries()
    assert (one.state, one.is_doubtful) == (QUEUED, True)
    (one,) = outbox(entry(1, left_at_ms=None)).entries()
    assert not one.is_doubtful
    (one,) = outbox(entry(1, state=FAILED)).entries()
    assert one.state is FAILED


def test_old_entry_of_unknown_fate_does_not_leave_by_itself() -> None:
    days_ms = 24 * 3_600_000
    old = entry(1, left_at_ms=WALL_MS - 6 * days_ms)
    young = entry(2, left_at_ms=WALL_MS - 6 * days_ms + 1)
    box = outbox(old, young)
    leaving, doubtful = box.take(NOW_MS, WALL_MS)
    assert leaving == []
    assert [one.state for one in doubtful] == [UNKNOWN]
    box.saved(doubtful)
    assert taken(box) == [2]


def test_text_of_an_entry_stays_out_of_what_is_logged() -> None:
    assert "text 1" not in repr(entry(1))


# The line of a connection.


def test_line_that_was_refused_is_sent_again_in_the_order_of_writing() -> None:
    box = outbox(*(entry(n) for n in range(1, 6)), window=4)
    assert taken(box) == [1, 2, 3, 4]
    refuse(box, 2, "RATE_LIMITED", 2_000)
    refuse(box, 3, "RATE_LIMITED", 2_000, after=2)
    assert taken(box, NOW_MS + 60_000) == [], "4 is still to be answered"
    refuse(box, 4, "RATE_LIMITED", after=2)
    assert taken(box, NOW_MS + 1_999) == []
    # 1 is on its way still: the server has not refused it, and may yet.
    assert taken(box, NOW_MS + 2_500) == []
    box.stored(key(1), 1)
    leaving, _ = box.take(NOW_MS + 2_500, WALL_MS)
    assert [one.number for one in leaving] == [2, 3, 4, 5]
    assert not any(one.is_first for one in leaving)


def test_refusals_because_of_another_count_as_one_failure_and_as_no_try() -> None:
    box = outbox(*(entry(n) for n in range(1, 9)), window=8)
    at_ms = NOW_MS
    for _ in range(2):
        assert taken(box, at_ms) == list(range(1, 9))
        refuse(box, 1, "INTERNAL_ERROR")
        for number in range(2, 9):
            refuse(box, number, "INTERNAL_ERROR", after=1)
        assert (box.next_deadline_ms() or 0) <= NOW_MS + 2_500
        at_ms = NOW_MS + 60_000
    assert [one.tries for one in box.entries()] == [2, 0, 0, 0, 0, 0, 0, 0]


def test_entry_that_is_given_up_is_not_waited_for() -> None:
    box = outbox(entry(1), entry(2), entry(3), entry(4, OTHER), tries_max=1)
    assert taken(box) == [1, 4]
    refused = refuse(box, 1, "INTERNAL_ERROR")
    assert refused is not None
    assert refused.state is FAILED
    leaving, _ = box.take(NOW_MS, WALL_MS)
    assert [(one.number, one.is_first) for one in leaving] == [(2, True)]
    box.stored(key(2), 2)
    box.stored(key(4), 4)
    leaving, _ = box.take(NOW_MS, WALL_MS)
    assert [(one.number, one.is_first) for one in leaving] == [(3, False)]


def test_nothing_passes_those_that_are_refused_after_the_one_that_is_given_up() -> None:
    box = outbox(*(entry(n) for n in range(5)), window=4, tries_max=1)
    assert taken(box) == [0, 1, 2, 3]
    refuse(box, 0, "INTERNAL_ERROR")
    for number in (1, 2, 3):
        assert taken(box, NOW_MS + 60_000) == [], "4 was written after these"
        refuse(box, number, "INTERNAL_ERROR", after=0)
    leaving, _ = box.take(NOW_MS + 60_000, WALL_MS)
    assert [(one.number, one.is_first) for one in leaving] == [
        (1, True),
        (2, False),
        (3, False),
        (4, False),
    ]


def test_refusal_for_good_closes_no_line() -> None:
    box = outbox(entry(1), entry(2))
    assert taken(box) == [1]
    refuse(box, 1, "INVALID_CONTENT")
    leaving, _ = box.take(NOW_MS, WALL_MS)
    assert [(one.number, one.is_first) for one in leaving] == [(2, False)]


def test_server_that_waits_for_what_does_not_come_is_told_so() -> None:
    box = outbox(entry(2))
    assert taken(box) == [2]
    refuse(box, 2, "SERVICE_UNAVAILABLE", after=1)
    leaving, _ = box.take(NOW_MS + 60_000, WALL_MS)
    assert [(one.number, one.is_first) for one in leaving] == [(2, True)]


def test_new_connection_has_new_lines() -> None:
    box = outbox(entry(1), entry(2), tries_max=1)
    assert taken(box) == [1]
    refuse(box, 1, "INTERNAL_ERROR")
    box.lost()
    box.release(CHAT)
    leaving, _ = box.take(NOW_MS, WALL_MS)
    assert [(one.number, one.is_first) for one in leaving] == [(2, False)]


@settings(max_examples=150)
@given(
    steps=st.lists(st.sampled_from(["take", "ack", "busy", "lose", "lose-stored"]), max_size=60),
    count=st.integers(1, 8),
)
def test_order_of_writing_survives_every_failure(steps: list[str], count: int) -> None:
    """With one on its way at a time, what the server stores is what was written, in that order."""
    box = outbox(*(entry(n) for n in range(1, count + 1)))
    now_ms = NOW_MS
    flying: list[OutboxEntry] = []
    stored: list[int] = []

    def store(one: OutboxEntry) -> None:
        if one.number not in stored:
            stored.append(one.number)

    for step in [*steps, *["lose", "take", "ack"] * (count + 1)]:
        now_ms += 100_000
        if step == "take":
            flying += box.take(now_ms, WALL_MS)[0]
        elif step.startswith("lose"):
            if step == "lose-stored":
                for one in flying:
                    store(one)
            flying.clear()
            box.lost()
            # The sync before a chat opens again brings what has arrived.
            for number in stored:
                box.stored(key(number), number)
            box.release(CHAT)
        elif flying:
            one = flying.pop(0)
            if step == "ack":
                store(one)
                box.stored(one.client_message_id, one.number)
            else:
                box.refused(
                    one.client_message_id, "SERVER_BUSY", "", retry_after_ms=0, now_ms=now_ms
                )
        assert box.flying_count <= 1
    assert stored == list(range(1, count + 1))
    assert len(box) == 0


def test_what_is_marked_leaves_once_and_only_if_it_still_wants_to() -> None:
    fresh = entry(1, left_at_ms=None)
    made = outbox(fresh)
    assert made.take(0, WALL_MS) == ([fresh], [])
    assert made.marked([fresh], 7) == [fresh]
    assert made.marked([fresh], 8) == []
    assert fresh.left_at_ms == 8
    other = entry(2, left_at_ms=None)
    made.add(other)
    made.lost()
    assert made.marked([other], 9) == []
