"""A lost counter comes back above everything that was ever given out, and only a lost one."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewire.domain.ids import ChatId
from tidewire.domain.limits import RECOVERY_SEQUENCE_JUMP, SEQUENCE_MAX
from tidewire.ops.recover import (
    InconsistentCounter,
    NoSuchChat,
    RecoveryOutcome,
    decide_recovery,
    recover_counter,
)
from tidewire.ports.inspection import CounterEvidence, CounterRepair, NewCounter

CHAT = ChatId("chat_1")
NOW_MS = 1_800_000_000_000


class FakeRepair:
    """A store of one chat that remembers what was put."""

    def __init__(self, evidence: CounterEvidence) -> None:
        self._evidence = evidence
        self.put: NewCounter | None = None

    def close(self) -> None:
        pass

    def evidence(self, chat_id: ChatId) -> CounterEvidence:
        return self._evidence

    def repair_counter(
        self, chat_id: ChatId, decide: Callable[[CounterEvidence], NewCounter | None]
    ) -> CounterEvidence:
        self.put = decide(self._evidence)
        return self._evidence


_CONFORMS: type[CounterRepair] = FakeRepair


def evidence(counter: int | None, message: int = 0, position: int = 0) -> CounterEvidence:
    return CounterEvidence(True, counter, message, position)


def test_missing_counter_is_put_a_margin_above_the_last_message() -> None:
    new = decide_recovery(CHAT, evidence(None, message=42, position=40), now_ms=NOW_MS)
    assert new == NewCounter(42 + RECOVERY_SEQUENCE_JUMP, 42, NOW_MS)


def test_position_above_the_last_message_was_given_out_too() -> None:
    new = decide_recovery(CHAT, evidence(None, message=42, position=45), now_ms=NOW_MS)
    assert new == NewCounter(45 + RECOVERY_SEQUENCE_JUMP, 45, NOW_MS)


def test_chat_without_messages_gets_its_counter_too() -> None:
    new = decide_recovery(CHAT, evidence(None), now_ms=NOW_MS)
    assert new == NewCounter(RECOVERY_SEQUENCE_JUMP, 0, NOW_MS)


@pytest.mark.parametrize("counter", [42, 43, 10_042])
def test_counter_that_is_there_is_left_alone(counter: int) -> None:
    assert decide_recovery(CHAT, evidence(counter, message=42), now_ms=NOW_MS) is None


@pytest.mark.parametrize("seen", [evidence(41, message=42), evidence(41, position=42)])
def test_counter_below_what_was_given_out_is_for_a_person(seen: CounterEvidence) -> None:
    with pytest.raises(InconsistentCounter) as caught:
        decide_recovery(CHAT, seen, now_ms=NOW_MS)
    assert (caught.value.counter, caught.value.highest) == (41, 42)
    assert "stop the server" in str(caught.value)


def test_chat_that_does_not_exist_gets_no_counter() -> None:
    with pytest.raises(NoSuchChat, match="there is no chat chat_1"):
        decide_recovery(CHAT, CounterEvidence(False, None, 0, 0), now_ms=NOW_MS)


@given(st.integers(0, SEQUENCE_MAX), st.integers(0, SEQUENCE_MAX))
def test_new_counter_is_never_below_anything_seen(message: int, position: int) -> None:
    new = decide_recovery(CHAT, evidence(None, message, position), now_ms=NOW_MS)
    assert new is not None
    assert max(message, position) <= new.sequence_counter <= SEQUENCE_MAX


def test_recovery_without_apply_puts_nothing() -> None:
    store = FakeRepair(evidence(None, message=42))
    done = recover_counter(store, CHAT, apply=False, now_ms=NOW_MS)
    assert done.outcome is RecoveryOutcome.WOULD_RECOVER
    assert done.counter == 42 + RECOVERY_SEQUENCE_JUMP
    assert store.put is None


def test_recovery_with_apply_puts_what_it_says() -> None:
    store = FakeRepair(evidence(None, message=42))
    done = recover_counter(store, CHAT, apply=True, now_ms=NOW_MS)
    assert done.outcome is RecoveryOutcome.RECOVERED
    assert store.put == NewCounter(done.counter, 42, NOW_MS)


@pytest.mark.parametrize("apply", [False, True])
def test_recovery_of_a_counter_that_is_there_does_nothing(apply: bool) -> None:
    store = FakeRepair(evidence(50, message=42))
    done = recover_counter(store, CHAT, apply=apply, now_ms=NOW_MS)
    assert (done.outcome, done.counter) == (RecoveryOutcome.NOTHING_TO_DO, 50)
    assert store.put is None
