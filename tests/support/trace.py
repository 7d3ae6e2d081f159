"""The trace invariants as functions over a history and the state it ended in. PURE.

`CHECKS` has one function for every TRACE entry of `ops/invariants.py`; those about positions and
membership are in `trace_delivery.py`, those about messages that change in `trace_entries.py`. Only
acts that came one after the other are compared: two that overlapped may have happened in either
order.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from tests.support import trace_delivery, trace_entries
from tests.support.history import (
    Acked,
    AckFrameSent,
    CounterJumped,
    Died,
    Entry,
    FinalState,
    Found,
    FrameReceived,
    History,
    Published,
    Refused,
    Sent,
    SyncAsked,
    Synced,
)
from tidewire.domain.ids import ChatId, ClientMessageId
from tidewire.domain.messages import Message
from tidewire.ops.checks import Violation

Check = Callable[[History, FinalState], Iterator[Found]]
_Key = tuple[ChatId, ClientMessageId]


def check_history(entries: Sequence[Entry], final: FinalState) -> list[Violation]:
    """Run every TRACE check on a history; return all violations."""
    history = History(entries)
    return [
        Violation(name, chat_id, found)
        for name, check in CHECKS.items()
        for chat_id, found in check(history, final)
    ]


def check_idempotency_guarantee(history: History, final: FinalState) -> Iterator[Found]:
    stored = Counter(_key_of(message) for chat in final.messages.values() for message in chat)
    for (chat_id, client_id), count in stored.items():
        if count > 1:
            yield chat_id, f"{count} messages of client_message_id {client_id}"
    answers: defaultdict[_Key, set[tuple[int, str, int]]] = defaultdict(set)
    texts: defaultdict[_Key, set[tuple[object, ...]]] = defaultdict(set)
    erased = {_key_of(one) for chat in final.messages.values() for one in chat if one.is_deleted}
    for _, _, sent, acked in history.exchanges(Sent, Acked):
        key = sent.chat_id, sent.client_message_id
        answers[key].add((acked.sequence, acked.message_id, acked.created_at_ms))
        texts[key].add(sent.said)
    for (chat_id, client_id), different in answers.items():
        if len(different) > 1:
            yield chat_id, f"sends of {client_id} got different answers: {sorted(different)}"
        # Of an erased entry nothing is left to compare a retry with.
        if len(texts[chat_id, client_id]) > 1 and (chat_id, client_id) not in erased:
            yield chat_id, f"{client_id} was acknowledged for different senders or texts"


def check_sync_completeness(history: History, final: FinalState) -> Iterator[Found]:
    last_acked = _last_acked(history)
    for began, _, asked, page in history.exchanges(SyncAsked, Synced):
        chat_id = asked.chat_id
        got = {message.sequence: message for message in page.messages}
        stored = {message.sequence: message for message in final.of(chat_id)}
        for sequence in stored:
            if asked.after < sequence <= page.synced_through and sequence not in got:
                found = f"a sync from {asked.after} to {page.synced_through} left out {sequence}"
                yield chat_id, found
        for sequence, message in got.items():
            if not trace_entries.is_shown_as_stored(message, stored.get(sequence)):
                found = f"a sync showed {message.message_id} at {sequence}, which is not stored so"
                yield chat_id, found
        acked = last_acked(chat_id, began)
        if not page.has_more and page.synced_through < acked:
            found = f"a sync ended at {page.synced_through}, after {acked} had been acknowledged"
            yield chat_id, found


def check_sync_position(history: History, final: FinalState) -> Iterator[Found]:
    for _, _, asked, page in history.exchanges(SyncAsked, Synced):
        cursor = asked.after
        for message in page.messages:
            if not message.prev_sequence <= cursor < message.sequence:
                found = (
                    f"a sync from {asked.after} went on from {cursor} to {message.sequence}, "
                    f"whose prev_sequence is {message.prev_sequence}"
                )
                yield asked.chat_id, found
            cursor = message.sequence
        if page.synced_through != cursor:
            found = f"a sync from {asked.after} gave all up to {cursor}, not {page.synced_through}"
            yield asked.chat_id, found


def check_allocation_monotonicity(history: History, final: FinalState) -> Iterator[Found]:
    by_chat: defaultdict[ChatId, list[tuple[int, int, int]]] = defaultdict(list)
    for began, ended, sent, acked in history.exchanges(Sent, Acked):
        if not acked.deduplicated:
            by_chat[sent.chat_id].append((began, ended, acked.sequence))
    for chat_id, allocations in by_chat.items():
        for earlier, later in trace_delivery.falls(allocations):
            yield chat_id, f"a send that began after {earlier} was answered got {later}"


def check_add_operation_atomicity(history: History, final: FinalState) -> Iterator[Found]:
    keys: dict[tuple[ChatId, int], ClientMessageId] = {}
    for _, _, sent, acked in history.exchanges(Sent, Acked):
        first = keys.setdefault((sent.chat_id, acked.sequence), sent.client_message_id)
        if first != sent.client_message_id:
            found = f"{first} and {sent.client_message_id} both got sequence {acked.sequence}"
            yield sent.chat_id, found


def check_counter_is_last_allocated(history: History, final: FinalState) -> Iterator[Found]:
    last_acked = _last_acked(history)
    for chat_id, counter in final.counters.items():
        highest = max(final.head(chat_id), last_acked(chat_id, len(history.entries)))
        if counter < highest:
            yield chat_id, f"the counter is {counter}, but {highest} was given out"
        elif counter > highest and not _may_have_gaps(history, final, chat_id):
            yield chat_id, f"the counter is {counter}, but no more than {highest} was given out"


def check_gaps(history: History, final: FinalState) -> Iterator[Found]:
    for chat_id, messages in final.messages.items():
        if _may_have_gaps(history, final, chat_id):
            continue
        sequences = (0, *(message.sequence for message in messages))
        for before, after in pairwise(sequences):
            if after > before + 1:
                yield chat_id, f"nothing is stored between {before} and {after}"


def check_ack_implies_persistence(history: History, final: FinalState) -> Iterator[Found]:
    stored = {
        (chat_id, message.sequence): message
        for chat_id, messages in final.messages.items()
        for message in messages
    }
    for _, _, sent, acked in history.exchanges(Sent, Acked):
        message = stored.get((sent.chat_id, acked.sequence))
        if message is None:
            found = f"{acked.message_id} was acknowledged at {acked.sequence} and is gone"
            yield sent.chat_id, found
        elif (message.message_id, *_key_of(message), message.sender_id) != (
            acked.message_id,
            sent.chat_id,
            sent.client_message_id,
            sent.user_id,
        ) or not trace_entries.is_stored_as_sent(message, sent):
            found = (
                f"{acked.message_id} was acknowledged at {acked.sequence}, where "
                f"{message.message_id} is stored, or its text or author is another"
            )
            yield sent.chat_id, found


def check_refusal_stores_nothing(history: History, final: FinalState) -> Iterator[Found]:
    refused = {answer.op for _, _, _, answer in history.exchanges(Sent, Refused)}
    by_outcome: dict[bool, set[_Key]] = {True: set(), False: set()}
    for sent in history.questions(Sent):
        by_outcome[sent.op in refused].add((sent.chat_id, sent.client_message_id))
    only_refused = by_outcome[True] - by_outcome[False]
    for chat_id, messages in final.messages.items():
        for message in messages:
            if _key_of(message) in only_refused:
                found = f"every send of {message.client_message_id} was refused, but it is stored"
                yield chat_id, found


def check_events_follow_commits(history: History, final: FinalState) -> Iterator[Found]:
    last: dict[ChatId, int] = {}
    for entry in history.entries:
        if isinstance(entry, Died):
            last = {}
        elif isinstance(entry, Published):
            before = last.get(entry.chat_id, entry.prev_sequence)
            if not before == entry.prev_sequence < entry.sequence:
                found = (
                    f"the event of {entry.sequence}, whose prev_sequence is "
                    f"{entry.prev_sequence}, came after that of {before}"
                )
                yield entry.chat_id, found
            last[entry.chat_id] = entry.sequence


def check_ack_fire_and_forget(history: History, final: FinalState) -> Iterator[Found]:
    acks = {entry.request_id for entry in history.entries if isinstance(entry, AckFrameSent)}
    for entry in history.entries:
        if isinstance(entry, FrameReceived) and entry.request_id in acks:
            yield None, f"the acknowledgement {entry.request_id} got an answer"


def _key_of(message: Message) -> _Key:
    return message.chat_id, message.client_message_id


def _last_acked(history: History) -> Callable[[ChatId, int], int]:
    """A function: the highest sequence of a chat acknowledged before a place in the history."""
    ends: defaultdict[ChatId, list[int]] = defaultdict(list)
    highest: defaultdict[ChatId, list[int]] = defaultdict(lambda: [0])
    for _, ended, sent, acked in history.exchanges(Sent, Acked):
        ends[sent.chat_id].append(ended)
        highest[sent.chat_id].append(max(highest[sent.chat_id][-1], acked.sequence))

    def before(chat_id: ChatId, place: int) -> int:
        return highest[chat_id][bisect_left(ends[chat_id], place)]

    return before


def _may_have_gaps(history: History, final: FinalState, chat_id: ChatId) -> bool:
    return final.leaves_gaps or any(
        isinstance(entry, CounterJumped) and entry.chat_id in {None, chat_id}
        for entry in history.entries
    )


CHECKS: Final[dict[str, Check]] = {
    "idempotency_guarantee": check_idempotency_guarantee,
    "sync_completeness": check_sync_completeness,
    "allocation_monotonicity": check_allocation_monotonicity,
    "counter_is_last_allocated": check_counter_is_last_allocated,
    "ack_implies_persistence": check_ack_implies_persistence,
    "gap_is_allocation_without_persistence": check_gaps,
    "add_operation_atomicity": check_add_operation_atomicity,
    "watermark_monotonic": trace_delivery.check_watermark_monotonic,
    "ack_cumulative": trace_delivery.check_ack_cumulative,
    "delivered_implies_persisted": trace_delivery.check_delivered_implies_persisted,
    "conditional_write_prevents_regression": trace_delivery.check_conditional_write,
    "multi_device_highest_wins": trace_delivery.check_highest_wins,
    "delivery_state_independent_of_membership": trace_delivery.check_positions_outlive,
    "sync_position_from_watermark": check_sync_position,
    "ack_fire_and_forget": check_ack_fire_and_forget,
    "delivery_query_authorization": trace_delivery.check_query_authorization,
    "group_delivered_requires_all_members": trace_delivery.check_group_delivered,
    "refusal_stores_nothing": check_refusal_stores_nothing,
    "membership_holds": trace_delivery.check_membership_holds,
    "boundary_never_falls": trace_delivery.check_boundary_never_falls,
    "events_follow_commits": check_events_follow_commits,
    "deleted_is_not_read": trace_entries.check_deleted_is_not_read,
}
"""One function for every TRACE invariant."""
