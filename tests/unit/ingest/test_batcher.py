"""Each rule of the batcher, by itself. `test_batcher_model.py` plays them all against a model."""

import pytest

from tests.unit.ingest.invariants import check_batcher
from tidewire.domain.errors import (
    CounterMissing,
    DeadlinePassed,
    NotAMember,
    Overloaded,
    StoreUnavailable,
    Unavailable,
)
from tidewire.domain.ids import ChatId, ClientMessageId, ConnectionId, MessageId, UserId
from tidewire.domain.messages import Appended, AppendOutcome, SendMessage
from tidewire.ingest.batcher import SUSPECTS_MAX, Answers, Batch, Batcher
from tidewire.ingest.options import IngestOptions

LATER_MS = 10_000
FAULT = StoreUnavailable("the store is away")


def stored(sequence: int, *, deduplicated: bool = False) -> Appended:
    return Appended(MessageId(f"msg_{sequence}"), sequence, sequence - 1, 77, deduplicated)


class Bench:
    """A batcher whose tokens are the labels of the sends."""

    def __init__(self, *, per_chat: bool = False, **options: int) -> None:
        self.batcher: Batcher[str] = Batcher(IngestOptions(**options), per_chat=per_chat)

    def offer(
        self,
        label: str,
        *,
        key: str | None = None,
        line: str | None = "phone",
        chat: str = "chat_1",
        sender: str = "anna",
        content: str = "hello",
        deadline_ms: int = LATER_MS,
    ) -> None:
        """Offer a send; its label is also its key unless another is given."""
        send = SendMessage(
            chat_id=ChatId(chat),
            sender_id=UserId(sender),
            client_message_id=ClientMessageId(label if key is None else key),
            content=content,
            message_id=MessageId(f"msg_{label}"),
            origin_connection_id=None if line is None else ConnectionId(line),
        )
        self.batcher.offer(send, label, deadline_ms)
        check_batcher(self.batcher)

    def take(self) -> Batch[str]:
        batch = self.batcher.take()
        assert batch is not None
        assert batch.sends == [entry.send for entry in batch.entries]
        check_batcher(self.batcher)
        return batch

    def complete(self, batch: Batch[str], *outcomes: AppendOutcome) -> dict[str, AppendOutcome]:
        return self._checked(self.batcher.completed(batch, outcomes))

    def fail(self, batch: Batch[str], error: Unavailable = FAULT) -> dict[str, AppendOutcome]:
        return self._checked(self.batcher.failed(batch, error))

    def expire(self, now_ms: int) -> dict[str, AppendOutcome]:
        return self._checked(self.batcher.expire(now_ms))

    def abandon(self, error: Unavailable) -> dict[str, AppendOutcome]:
        return self._checked(self.batcher.abandon(error))

    def _checked(self, answers: Answers[str]) -> dict[str, AppendOutcome]:
        check_batcher(self.batcher)
        answer_by_label = dict(answers)
        assert len(answer_by_label) == len(answers), "somebody was answered twice"
        self.batcher.answers_given()
        return answer_by_label


def labels(batch: Batch[str]) -> list[str]:
    return [entry.token for entry in batch.entries]


# Batches and bounds.


def test_take_gives_everything_that_waits_in_arrival_order() -> None:
    bench = Bench()
    for label in "abc":
        bench.offer(label, chat=f"chat_{label}")
    batch = bench.take()
    assert labels(batch) == ["a", "b", "c"]
    assert bench.complete(batch, stored(1), NotAMember(), stored(2)).keys() == {"a", "b", "c"}
    assert bench.batcher.is_idle


def test_take_gives_nothing_when_nothing_waits() -> None:
    bench = Bench()
    assert bench.batcher.take() is None
    assert not bench.batcher.can_take()


def test_take_gives_nothing_while_the_lane_is_in_flight() -> None:
    bench = Bench()
    bench.offer("a")
    first = bench.take()
    bench.offer("b", chat="chat_2")
    assert bench.batcher.take() is None
    bench.complete(first, stored(1))
    assert labels(bench.take()) == ["b"]


def test_take_stops_at_the_bound_of_sends() -> None:
    bench = Bench(batch_sends_max=2)
    for label in "abc":
        bench.offer(label)
    first = bench.take()
    assert labels(first) == ["a", "b"]
    assert bench.batcher.queued_count == 1
    bench.complete(first, stored(1), stored(2))
    assert labels(bench.take()) == ["c"]


def test_take_stops_at_the_bound_of_bytes_and_skips_nobody() -> None:
    bench = Bench(batch_bytes_max=4096)
    bench.offer("a", content="x" * 2000)
    bench.offer("b", content="ü" * 1049)  # 2098 bytes: two more than there is room for
    bench.offer("c", content="x")
    first = bench.take()
    assert labels(first) == ["a"]
    bench.complete(first, stored(1))
    assert labels(bench.take()) == ["b", "c"]


def test_offer_is_refused_at_the_bound_and_nothing_is_taken_in() -> None:
    bench = Bench(queue_sends_max=2)
    bench.offer("a")
    bench.offer("b")
    with pytest.raises(Overloaded):
        bench.offer("c", chat="chat_2")
    batch = bench.take()
    assert labels(batch) == ["a", "b"]
    bench.offer("d")  # What is in flight waits no more.
    assert bench.batcher.queued_count == 1


def test_offer_is_refused_at_the_bound_of_one_chat_and_others_go_on() -> None:
    bench = Bench(per_chat=True, queue_chat_sends_max=1)
    bench.offer("a", chat="chat_1")
    with pytest.raises(Overloaded):
        bench.offer("b", chat="chat_1")
    bench.offer("c", chat="chat_2")
    assert bench.batcher.queued_count == 2


# Lanes.


def test_take_gives_one_batch_per_chat_when_chats_are_apart() -> None:
    bench = Bench(per_chat=True)
    for label, chat in (("a", "chat_1"), ("b", "chat_2"), ("c", "chat_1")):
        bench.offer(label, chat=chat)
    assert bench.batcher.can_take()
    first, second = bench.take(), bench.take()
    assert (labels(first), labels(second)) == (["a", "c"], ["b"])
    bench.offer("d", chat="chat_1")
    assert bench.batcher.take() is None
    bench.complete(second, stored(1))
    assert bench.batcher.take() is None
    bench.complete(first, stored(1), stored(2))
    assert labels(bench.take()) == ["d"]


def test_take_gives_no_more_batches_than_may_be_in_flight() -> None:
    bench = Bench(per_chat=True, appends_in_flight_max=1)
    bench.offer("a", chat="chat_1")
    bench.offer("b", chat="chat_2")
    assert bench.batcher.can_take()
    first = bench.take()
    assert not bench.batcher.can_take()
    assert bench.batcher.take() is None
    assert bench.batcher.in_flight_count == 1
    bench.complete(first, stored(1))
    assert labels(bench.take()) == ["b"]


# One send per key.


def test_equal_send_in_the_queue_gets_the_first_ones_answer() -> None:
    bench = Bench()
    bench.offer("first", key="k")
    bench.offer("again", key="k")
    batch = bench.take()
    assert labels(batch) == ["first"]
    answers = bench.complete(batch, stored(7))
    assert answers == {"first": stored(7), "again": stored(7, deduplicated=True)}
    assert bench.batcher.is_idle


def test_equal_send_that_comes_during_the_append_gets_the_first_ones_answer() -> None:
    bench = Bench()
    bench.offer("first", key="k", line="phone")
    batch = bench.take()
    bench.offer("again", key="k", line="laptop")
    bench.offer("other", key="o", line="laptop")
    answers = bench.complete(batch, stored(7))
    assert answers == {"first": stored(7), "again": stored(7, deduplicated=True)}
    assert labels(bench.take()) == ["other"]


def test_equal_send_deep_in_the_queue_is_answered_and_skipped() -> None:
    bench = Bench(batch_sends_max=1)
    for label, key in (("first", "k"), ("other", "o"), ("again", "k"), ("last", "l")):
        bench.offer(label, key=key, line=None)
    assert bench.complete(bench.take(), stored(1)).keys() == {"first", "again"}
    assert bench.batcher.queued_count == 3  # The answered one leaves when its turn comes.
    assert bench.complete(bench.take(), stored(2)).keys() == {"other"}
    assert bench.complete(bench.take(), stored(3)).keys() == {"last"}
    assert bench.batcher.is_idle


def test_answered_send_inside_the_next_batch_is_skipped_and_holds_nobody_back() -> None:
    bench = Bench(batch_sends_max=2)
    bench.offer("first", key="k", line=None)
    bench.offer("a", line=None)
    bench.offer("b", line=None)
    bench.offer("again", key="k", line="phone")
    bench.offer("c", line="phone")
    assert bench.complete(bench.take(), stored(1), stored(2)).keys() == {"first", "a", "again"}
    assert labels(bench.take()) == ["b", "c"]


@pytest.mark.parametrize(
    "difference",
    [{"content": "goodbye"}, {"content": "Hello"}, {"sender": "bert"}],
    ids=["content", "case", "sender"],
)
def test_follower_that_differs_is_asked_of_the_store(difference: dict[str, str]) -> None:
    bench = Bench()
    bench.offer("first", key="k", line=None)
    bench.offer("other", key="k", line=None, **difference)  # type: ignore[arg-type]
    bench.offer("equal", key="k", line=None)
    assert bench.complete(bench.take(), stored(1)).keys() == {"first", "equal"}
    assert labels(bench.take()) == ["other"]


def test_next_follower_takes_the_place_when_the_first_stored_nothing() -> None:
    bench = Bench()
    for label in ("first", "second", "third"):
        bench.offer(label, key="k", line=None)
    refusal = NotAMember()
    assert bench.complete(bench.take(), refusal) == {"first": refusal}
    batch = bench.take()
    assert labels(batch) == ["second"]
    assert bench.complete(batch, stored(1)).keys() == {"second", "third"}
    assert bench.batcher.is_idle


def test_same_key_in_another_chat_is_another_message() -> None:
    bench = Bench()
    bench.offer("a", key="k", chat="chat_1")
    bench.offer("b", key="k", chat="chat_2")
    assert labels(bench.take()) == ["a", "b"]


# The order of a line.


def test_send_behind_a_follower_of_its_line_waits_and_others_do_not() -> None:
    bench = Bench()
    bench.offer("first", key="k", line="laptop")
    bench.offer("again", key="k", line="phone")
    bench.offer("next", line="phone")
    bench.offer("next_but_one", line="phone")
    bench.offer("elsewhere", line="phone", chat="chat_2")
    bench.offer("stranger", line="tablet")
    bench.offer("rest", line=None)
    batch = bench.take()
    assert labels(batch) == ["first", "elsewhere", "stranger", "rest"]
    bench.complete(batch, *[stored(number) for number in range(1, 5)])
    assert labels(bench.take()) == ["next", "next_but_one"]


def test_send_without_a_line_waits_for_nobody() -> None:
    bench = Bench()
    bench.offer("first", key="k", line=None)
    bench.offer("again", key="k", line=None)
    bench.offer("next", line=None)
    assert labels(bench.take()) == ["first", "next"]


# Failures.


def test_failed_append_answers_its_sends_and_takes_their_lines_along() -> None:
    bench = Bench()
    bench.offer("m1", line="phone")
    bench.offer("rest1", line=None)
    batch = bench.take()
    bench.offer("m2", line="phone")
    bench.offer("m3", line="phone", chat="chat_2")
    bench.offer("n1", line="laptop")
    bench.offer("rest2", line=None)
    assert bench.fail(batch) == dict.fromkeys(("m1", "rest1", "m2"), FAULT)
    assert labels(bench.take()) == ["m3", "n1", "rest2"]


def test_failed_append_lets_a_follower_of_another_line_take_the_place() -> None:
    bench = Bench()
    bench.offer("first", key="k", line="phone")
    batch = bench.take()
    bench.offer("again", key="k", line="phone")
    bench.offer("reconnected", key="k", line="laptop")
    assert bench.fail(batch).keys() == {"first", "again"}
    assert labels(bench.take()) == ["reconnected"]


def test_failed_append_leaves_nothing_behind_when_all_were_of_its_lines() -> None:
    bench = Bench()
    bench.offer("m1")
    batch = bench.take()
    bench.offer("m2")
    assert bench.fail(batch).keys() == {"m1", "m2"}
    assert bench.batcher.is_idle
    assert bench.batcher.next_deadline_ms() is None


def test_single_fault_in_a_batch_takes_its_line_along() -> None:
    bench = Bench()
    bench.offer("m1", chat="chat_1")
    bench.offer("n1", chat="chat_2")
    bench.offer("rest1", chat="chat_1", line=None)
    batch = bench.take()
    bench.offer("m2", chat="chat_1")
    bench.offer("n2", chat="chat_2")
    bench.offer("rest2", chat="chat_1", line=None)
    missing = CounterMissing("chat_1")
    answers = bench.complete(batch, missing, stored(1), missing)
    assert answers == {"m1": missing, "n1": stored(1), "rest1": missing, "m2": missing}
    assert labels(bench.take()) == ["n2", "rest2"]


def test_refusal_takes_nobody_along() -> None:
    bench = Bench()
    bench.offer("m1")
    batch = bench.take()
    bench.offer("m2")
    assert bench.complete(batch, NotAMember()).keys() == {"m1"}
    assert labels(bench.take()) == ["m2"]


# Deadlines.


def test_queued_send_expires_with_the_later_ones_of_its_line() -> None:
    bench = Bench()
    bench.offer("m0", deadline_ms=60)
    bench.offer("m1", deadline_ms=50)
    bench.offer("m2", deadline_ms=99)
    bench.offer("n1", line="laptop", deadline_ms=99)
    bench.offer("rest", line=None, deadline_ms=50)
    assert bench.batcher.next_deadline_ms() == 50
    assert bench.expire(49) == {}
    answers = bench.expire(50)
    assert answers.keys() == {"m1", "m2", "rest"}
    assert all(isinstance(answer, DeadlinePassed) for answer in answers.values())
    assert bench.batcher.next_deadline_ms() == 60
    assert labels(bench.take()) == ["m0", "n1"]


def test_send_in_flight_expires_but_stays_in_flight_for_its_retry() -> None:
    bench = Bench()
    bench.offer("first", key="k", deadline_ms=50)
    batch = bench.take()
    bench.offer("next", deadline_ms=99)
    assert bench.expire(50).keys() == {"first"}
    bench.offer("retry", key="k", deadline_ms=120)
    assert bench.expire(60) == {}
    assert bench.batcher.next_deadline_ms() == 99
    assert bench.complete(batch, stored(1)) == {"retry": stored(1, deduplicated=True)}
    assert labels(bench.take()) == ["next"]


def test_send_that_expired_in_flight_is_not_answered_again_by_a_failure() -> None:
    bench = Bench()
    bench.offer("m1", deadline_ms=50)
    batch = bench.take()
    bench.offer("m2", deadline_ms=99)
    assert bench.expire(50).keys() == {"m1"}
    assert bench.fail(batch) == {"m2": FAULT}


def test_follower_takes_the_place_of_a_first_one_that_expired_in_the_queue() -> None:
    bench = Bench(per_chat=True)
    bench.offer("first", key="k", line="phone", deadline_ms=50)
    bench.offer("second", key="k", line="laptop")
    bench.offer("third", key="k", line=None, deadline_ms=40)
    bench.offer("alone", chat="chat_2", deadline_ms=50)
    assert bench.expire(50).keys() == {"first", "third", "alone"}
    assert labels(bench.take()) == ["second"]
    assert bench.batcher.take() is None


def test_next_deadline_is_never_later_than_the_earliest_one() -> None:
    bench = Bench(batch_sends_max=1)
    bench.offer("a", deadline_ms=50)
    bench.offer("b", deadline_ms=70)
    bench.complete(bench.take(), stored(1))
    early_ms = bench.batcher.next_deadline_ms()
    assert early_ms is not None
    assert early_ms <= 70
    assert bench.expire(early_ms) == {}
    assert bench.batcher.next_deadline_ms() == 70
    bench.complete(bench.take(), stored(2))
    assert bench.batcher.next_deadline_ms() is None


# The end.


def test_abandon_answers_everything_and_what_is_in_flight_stays_so() -> None:
    bench = Bench()
    bench.offer("expired", deadline_ms=50)
    bench.offer("under_way")
    batch = bench.take()
    bench.expire(50)
    bench.offer("queued")
    bench.offer("again", key="under_way")
    assert bench.abandon(FAULT) == dict.fromkeys(("under_way", "queued", "again"), FAULT)
    assert not bench.batcher.is_idle
    assert bench.batcher.next_deadline_ms() is None
    assert bench.complete(batch, stored(1), stored(2)) == {}
    assert bench.batcher.is_idle


def test_abandon_answers_nobody_twice() -> None:
    bench = Bench(batch_sends_max=1)
    for label, key in (("first", "k"), ("queued", "q"), ("again", "k")):
        bench.offer(label, key=key, line=None)
    assert bench.complete(bench.take(), stored(1)).keys() == {"first", "again"}
    assert bench.abandon(FAULT) == {"queued": FAULT}
    assert bench.batcher.is_idle


def test_abandon_empties_a_lane_that_is_not_in_flight() -> None:
    bench = Bench()
    bench.offer("queued")
    assert bench.abandon(FAULT) == {"queued": FAULT}
    assert bench.batcher.is_idle
    assert bench.batcher.take() is None


# Misuse by our own shell is an assertion.


def test_completed_refuses_a_wrong_number_of_outcomes() -> None:
    bench = Bench()
    bench.offer("a")
    batch = bench.take()
    with pytest.raises(AssertionError):
        bench.batcher.completed(batch, [])
    assert bench.fail(batch) == {"a": FAULT}


def test_completed_refuses_a_batch_that_is_not_in_flight() -> None:
    bench = Bench()
    bench.offer("a", key="k")
    batch = bench.take()
    bench.complete(batch, stored(1))
    bench.offer("b", key="k")
    with pytest.raises(AssertionError):
        bench.batcher.completed(batch, [stored(1)])


# What is decided and not told yet.


def test_failed_line_takes_nothing_in_until_its_sender_knows() -> None:
    bench = Bench()
    bench.offer("m1")
    batch = bench.take()
    bench.offer("n1", line="laptop")
    bench.batcher.failed(batch, FAULT)
    with pytest.raises(StoreUnavailable) as refusal:
        bench.offer("m2")
    assert refusal.value is FAULT
    bench.offer("n2", line="laptop")
    bench.offer("o1", chat="chat_2")
    bench.offer("rest", line=None)
    bench.batcher.answers_given()
    bench.offer("m3")
    assert labels(bench.take()) == ["n1", "n2", "o1", "rest", "m3"]


def test_line_that_found_no_room_takes_nothing_in_until_its_sender_knows() -> None:
    """Room may come back before the sender of the refused one knows of it."""
    bench = Bench(queue_sends_max=1)
    bench.offer("m1")
    with pytest.raises(Overloaded):
        bench.offer("m2")
    bench.take()
    with pytest.raises(Overloaded):
        bench.offer("m3")
    bench.offer("n1", line="laptop")


def test_line_that_expired_takes_nothing_in_until_its_sender_knows() -> None:
    bench = Bench()
    bench.offer("m1", deadline_ms=5)
    bench.batcher.expire(5)
    with pytest.raises(DeadlinePassed):
        bench.offer("m2")


def test_line_of_a_send_that_expired_in_flight_goes_on_behind_it() -> None:
    bench = Bench()
    bench.offer("m1", deadline_ms=5)
    batch = bench.take()
    bench.batcher.expire(5)
    bench.offer("m2")
    assert bench.fail(batch) == {"m2": FAULT}


# Suspects.


def test_send_that_breaks_the_store_takes_others_along_once_and_then_no_more() -> None:
    bench = Bench()
    bench.offer("bad", chat="chat_bad")
    bench.offer("a", chat="chat_a")
    bench.offer("b", chat="chat_b")
    answers = dict(bench.batcher.failed(bench.take(), FAULT, is_unexpected=True))
    assert answers == {"bad": FAULT, "a": FAULT, "b": FAULT}
    bench.batcher.answers_given()
    for label in ("a", "bad", "b", "c"):
        bench.offer(label, chat=f"chat_{label}")
    # Each alone, and those that nobody suspects together.
    batch = bench.take()
    assert labels(batch) == ["a"]
    bench.complete(batch, stored(1))
    batch = bench.take()
    assert labels(batch) == ["bad"]
    bench.batcher.failed(batch, FAULT, is_unexpected=True)
    bench.batcher.answers_given()
    batch = bench.take()
    assert labels(batch) == ["b"]
    bench.complete(batch, stored(2))
    assert labels(bench.take()) == ["c"]
    # From now on the guilty one is alone, however often it comes.
    bench = _after_a_guilty_one()
    for label in ("a2", "bad2", "b2"):
        bench.offer(label, chat=f"chat_{label[:-1]}")
    batch = bench.take()
    assert labels(batch) == ["a2", "b2"]
    bench.complete(batch, stored(3), stored(4))
    assert labels(bench.take()) == ["bad2"]


def _after_a_guilty_one() -> Bench:
    bench = Bench()
    bench.offer("bad1", chat="chat_bad")
    bench.batcher.failed(bench.take(), FAULT, is_unexpected=True)
    bench.batcher.answers_given()
    return bench


def test_guilty_chat_is_trusted_again_after_many_good_sends() -> None:
    bench = _after_a_guilty_one()
    for number in range(100):
        bench.offer(f"bad{number}", chat="chat_bad")
        bench.offer(f"a{number}", chat="chat_a")
        batch = bench.take()
        assert labels(batch) == [f"bad{number}"]
        bench.complete(batch, stored(number))
        bench.complete(bench.take(), stored(1000 + number))
    bench.offer("bad", chat="chat_bad")
    bench.offer("a", chat="chat_a")
    assert labels(bench.take()) == ["bad", "a"]


def test_suspects_are_bounded() -> None:
    bench = Bench()
    for number in range(SUSPECTS_MAX + 1):
        bench.offer("m", chat=f"chat_{number}")
        bench.batcher.failed(bench.take(), FAULT, is_unexpected=True)
        bench.batcher.answers_given()
    bench.offer("x", chat="chat_0")
    bench.offer("y", chat="chat_new")
    assert labels(bench.take()) == ["x", "y"]
