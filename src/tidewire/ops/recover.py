"""Recovering a chat's lost counter: ADR-004's procedure, made safe (P-02).

The new counter starts a margin above every sequence that the store shows for the chat, so that no
sequence is given out twice even if some of them are lost; the gap that this leaves is legal. An
existing counter is never overwritten.
"""

from enum import StrEnum

import msgspec

from tidewire.domain.errors import StoreUnusable
from tidewire.domain.ids import ChatId
from tidewire.domain.limits import RECOVERY_SEQUENCE_JUMP, SEQUENCE_MAX
from tidewire.ports.inspection import CounterEvidence, CounterRepair, NewCounter


class RecoveryOutcome(StrEnum):
    RECOVERED = "recovered"
    WOULD_RECOVER = "would recover"
    NOTHING_TO_DO = "nothing to do"


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """What was done, or would be. `counter` is the counter afterwards."""

    chat_id: ChatId
    outcome: RecoveryOutcome
    evidence: CounterEvidence
    counter: int


class NoSuchChat(StoreUnusable):
    def __init__(self, chat_id: ChatId) -> None:
        super().__init__(
            f"there is no chat {chat_id} in this store; look the id up in the message of the "
            "refused send, or let 'tidewire verify' list the chats without a counter"
        )


class InconsistentCounter(StoreUnusable):
    """There is a counter, and it is wrong. Only the operator can find out why."""

    def __init__(self, chat_id: ChatId, *, counter: int, highest: int) -> None:
        super().__init__(
            f"{chat_id} has a counter, {counter}, but its sequences go up to {highest}: it was "
            "changed by hand, or this database is made of parts of different age. Restore the last "
            "backup. If you know that only this row is wrong, stop the server, take a backup, "
            "delete this chat's row of the table chat_counters, and run this command again"
        )
        self.counter = counter
        self.highest = highest


def decide_recovery(
    chat_id: ChatId, evidence: CounterEvidence, *, now_ms: int
) -> NewCounter | None:
    """The counter to write, or None if the existing one is right. PURE."""
    if not evidence.chat_exists:
        raise NoSuchChat(chat_id)
    # A position is never above the last message. If one is, its message was lost, and the sequence
    # of that message must not be given out again.
    highest = max(evidence.highest_message, evidence.highest_position)
    if evidence.counter is None:
        return NewCounter(
            sequence_counter=min(highest + RECOVERY_SEQUENCE_JUMP, SEQUENCE_MAX),
            recovered_from_sequence=highest,
            now_ms=now_ms,
        )
    if evidence.counter < highest:
        raise InconsistentCounter(chat_id, counter=evidence.counter, highest=highest)
    return None


def recover_counter(store: CounterRepair, chat_id: ChatId, *, apply: bool, now_ms: int) -> Recovery:
    """Put the chat's counter back if it is missing; without `apply`, only report it.

    Raises NoSuchChat, InconsistentCounter, and what the store raises.
    """
    new: NewCounter | None = None

    def decide(evidence: CounterEvidence) -> NewCounter | None:
        nonlocal new
        new = decide_recovery(chat_id, evidence, now_ms=now_ms)
        return new

    if apply:
        evidence = store.repair_counter(chat_id, decide)
    else:
        evidence = store.evidence(chat_id)
        decide(evidence)
    return recovery_of(chat_id, evidence, new, is_applied=apply)


def recovery_of(
    chat_id: ChatId, evidence: CounterEvidence, new: NewCounter | None, *, is_applied: bool
) -> Recovery:
    """The result of a decision. PURE."""
    if new is None:
        assert evidence.counter is not None
        outcome, counter = RecoveryOutcome.NOTHING_TO_DO, evidence.counter
    else:
        outcome = RecoveryOutcome.RECOVERED if is_applied else RecoveryOutcome.WOULD_RECOVER
        counter = new.sequence_counter
    return Recovery(chat_id=chat_id, outcome=outcome, evidence=evidence, counter=counter)
