"""Every invariant that Tidewire is measured by, in one list. PURE.

The first three parts are those of the specification, name for name: ADR-001 appendix C, ADR-004
appendix C, ADR-008 appendix E. The fourth is what our own promises add. Each entry is
- STATE: can be seen in a store. `ops/checks.py` checks it, `tidewire verify` runs it;
- TRACE: needs a history of what was asked and answered. `ops/trace.py` checks it in tests;
- NON_CLAIM: says what is not promised, so there is nothing to check.
Where `instead` is set, the specification contradicts itself or another part of it, and that is what
we hold in its place, and why.
"""

from enum import StrEnum
from typing import Final

import msgspec


class Kind(StrEnum):
    STATE = "state"
    TRACE = "trace"
    NON_CLAIM = "non-claim"


class Invariant(msgspec.Struct, frozen=True):
    name: str
    source: str
    kind: Kind
    statement: str
    instead: str | None = None


_ADR_001: Final = "ADR-001"
_ADR_004: Final = "ADR-004"
_ADR_008: Final = "ADR-008"
_OURS: Final = "Tidewire"

_STATE: Final = Kind.STATE
_TRACE: Final = Kind.TRACE
_NON_CLAIM: Final = Kind.NON_CLAIM

_ORDERING: Final = (
    Invariant(
        "sequence_monotonic",
        _ADR_001,
        _STATE,
        "Within a chat, what was committed later has the higher sequence. Gaps are legal.",
    ),
    Invariant(
        "idempotency_guarantee",
        _ADR_001,
        _TRACE,
        "All sends of one client_message_id in a chat get the same answer, and the store has "
        "exactly one message of it.",
        "A send of the same id with another text, or by another sender, gets an error instead of "
        "the first one's answer: a success would show a tick for a text that nobody will ever see "
        "(P-07, P-08). The one message stays. What the store alone can show of this is "
        "one_message_per_key.",
    ),
    Invariant(
        "sync_completeness",
        _ADR_001,
        _TRACE,
        "A reader who has synced holds every message between the cursor he began with and the "
        "point up to which the answer says it is complete.",
    ),
    Invariant(
        "delivery_state_consistency",
        _ADR_001,
        _STATE,
        "Nobody has acknowledged more than the last stored message of the chat.",
    ),
)

_SEQUENCING: Final = (
    Invariant(
        "counter_must_exist",
        _ADR_004,
        _STATE,
        "Every chat has a counter row. Without one the chat takes no messages; "
        "'tidewire recover-counter' puts it back.",
    ),
    Invariant(
        "sequence_uniqueness",
        _ADR_004,
        _STATE,
        "No two messages of a chat have the same sequence.",
    ),
    Invariant(
        "allocation_monotonicity",
        _ADR_004,
        _TRACE,
        "A send that began after another was answered gets the higher sequence of the two.",
        "Seen from outside, an allocation is an answer. Two sends that overlap may come in either "
        "order.",
    ),
    Invariant(
        "counter_is_last_allocated",
        _ADR_004,
        _TRACE,
        "The counter is the highest sequence ever given out, stored or not.",
        "A restore and a counter recovery put it above that on purpose, so that no sequence is "
        "given out twice (P-02); after one of them it is at least that.",
    ),
    Invariant(
        "sequence_monotonicity",
        _ADR_004,
        _STATE,
        "No message has a sequence above its chat's counter.",
    ),
    Invariant(
        "counter_lower_bound",
        _ADR_004,
        _STATE,
        "A chat has no more messages than its counter says.",
    ),
    Invariant(
        "idempotency_sequence_consistency",
        _ADR_004,
        _STATE,
        "An idempotency key and its message agree: each message is found by its key, and each key "
        "leads to its message.",
    ),
    Invariant(
        "ack_implies_persistence",
        _ADR_004,
        _TRACE,
        "What was acknowledged to a sender is stored, with the sequence and id of the answer.",
    ),
    Invariant(
        "no_zero_sequence",
        _ADR_004,
        _STATE,
        "Sequences begin with 1.",
    ),
    Invariant(
        "gap_is_allocation_without_persistence",
        _ADR_004,
        _TRACE,
        "A sequence below the counter without a message was given out, but never stored.",
        "On SQLite and in memory number and message are one act, so there only a restore or a "
        "counter recovery leaves gaps. On DynamoDB a lost race or a crash between the phases does "
        "too. In every engine a number in a gap was never acknowledged to anybody.",
    ),
    Invariant(
        "add_operation_atomicity",
        _ADR_004,
        _TRACE,
        "Two sends that are different messages never get the same sequence of a chat.",
    ),
)

_DELIVERY: Final = (
    Invariant(
        "watermark_monotonic",
        _ADR_008,
        _TRACE,
        "A user's delivered and read positions, once seen, are never seen lower, and survive "
        "restarts.",
    ),
    Invariant(
        "ack_cumulative",
        _ADR_008,
        _TRACE,
        "Who has acknowledged N counts as having every message up to N.",
    ),
    Invariant(
        "delivered_implies_persisted",
        _ADR_008,
        _TRACE,
        "No position that was ever shown lies above the last stored message.",
        "A position may stand on a number in a gap: it covers the messages up to there, all of "
        "which are stored.",
    ),
    Invariant(
        "watermark_bounded_by_counter",
        _ADR_008,
        _STATE,
        "Nobody has acknowledged more than was ever given out in the chat.",
        "We hold the stricter delivery_state_consistency (D-04); this one follows from it.",
    ),
    Invariant(
        "conditional_write_prevents_regression",
        _ADR_008,
        _TRACE,
        "An acknowledgement that moved a position moved it above everything seen before.",
    ),
    Invariant(
        "multi_device_highest_wins",
        _ADR_008,
        _TRACE,
        "A user's position is the highest that one of his devices has acknowledged.",
        "His own messages move it too, if he was up to date, so it may also stand at the sequence "
        "of a message of his. It is never higher than the highest of those.",
    ),
    Invariant(
        "delivery_state_independent_of_membership",
        _ADR_008,
        _TRACE,
        "Positions outlive the membership: a removal neither deletes nor lowers them.",
    ),
    Invariant(
        "sync_position_from_watermark",
        _ADR_008,
        _TRACE,
        "A sync returns the messages after the user's stored position.",
        "A sync goes on from the cursor that the device names and from nothing else. By the stored "
        "position a tablet that is behind its owner's phone would never get what the phone has "
        "acknowledged (D-01).",
    ),
    Invariant(
        "ack_fire_and_forget",
        _ADR_008,
        _TRACE,
        "A delivery acknowledgement over the socket is never answered.",
        "One above the last message is told by an unsolicited error, which carries no request_id "
        "(D-04, D-14).",
    ),
    Invariant(
        "delivery_query_authorization",
        _ADR_008,
        _TRACE,
        "Members can ask who has a message, others get NOT_A_MEMBER.",
    ),
    Invariant(
        "delivered_is_eventually_consistent",
        _ADR_008,
        _NON_CLAIM,
        "A query right after an acknowledgement was sent need not show it yet.",
        "An acknowledgement that is on its way promises nothing. One that the store has answered "
        "is shown by every later query: see watermark_monotonic and ack_cumulative.",
    ),
    Invariant(
        "delivered_not_causal_across_chats",
        _ADR_008,
        _NON_CLAIM,
        "Deliveries in different chats are in no order to each other.",
    ),
    Invariant(
        "group_delivered_requires_all_members",
        _ADR_008,
        _TRACE,
        "A message counts as delivered to all when every current member has acknowledged it.",
        "Awaited are the current members other than its author who joined before it: delivered + "
        "pending = awaited. Waiting for a member who joined later would turn two ticks back into "
        "one, and waiting for the author himself would never end (D-05).",
    ),
)

_OWN_STATE: Final = (
    Invariant(
        "database_readable",
        _OURS,
        _STATE,
        "Every part of the store that is checked can be read.",
    ),
    Invariant(
        "prev_chain_exact",
        _OURS,
        _STATE,
        "prev_sequence of a message is the sequence of the message before it, 0 for the first: "
        "readers tell a gap from a loss by it.",
    ),
    Invariant(
        "one_message_per_key",
        _OURS,
        _STATE,
        "One client_message_id in a chat is one message.",
    ),
    Invariant(
        "message_ids_exact",
        _OURS,
        _STATE,
        "A message id is one message, and every message is found by its id.",
    ),
    Invariant(
        "sequence_fits_the_wire",
        _OURS,
        _STATE,
        "No counter is above 2^53-1, the last integer that every JSON reader keeps exact (P-14).",
    ),
    Invariant(
        "message_checksum_holds",
        _OURS,
        _STATE,
        "Every message is what was stored: it holds its checksum. One that does not is handed out "
        "as damaged, without its content.",
    ),
    Invariant(
        "read_implies_delivered",
        _OURS,
        _STATE,
        "Nobody has read more than reached him.",
    ),
    Invariant(
        "joined_bounded_by_head",
        _OURS,
        _STATE,
        "joined_sequence is the head at the instant of joining, so it is never above the head.",
    ),
    Invariant(
        "joined_sequence_consistent",
        _OURS,
        _STATE,
        "A position row repeats the joined_sequence of the membership while there is one: the "
        "effective positions are made of it.",
    ),
    Invariant(
        "member_has_positions",
        _OURS,
        _STATE,
        "Every member has a position row: one without would not hold any tick back.",
    ),
    Invariant(
        "lowest_positions_exact",
        _OURS,
        _STATE,
        "The lowest effective positions of a chat, which decide its ticks, are those of its rows.",
    ),
    Invariant(
        "member_count_exact",
        _OURS,
        _STATE,
        "A chat's member_count is the number of its members.",
    ),
    Invariant(
        "group_has_one_owner",
        _OURS,
        _STATE,
        "A group has exactly one owner.",
    ),
    Invariant(
        "closed_group_is_empty",
        _OURS,
        _STATE,
        "A group that was closed has no members, so nobody reads or writes it.",
    ),
    Invariant(
        "shown_version_sound",
        _OURS,
        _STATE,
        "The version that members are shown is the membership version without the steps of "
        "blocks: at least 1, and never above it.",
    ),
    Invariant(
        "refusal_keeps_out",
        _OURS,
        _STATE,
        "A user who has refused to be added to a group again is not a member of it.",
    ),
    Invariant(
        "hidden_bounded_by_head",
        _OURS,
        _STATE,
        "A chat is hidden up to a message that it had, so the next message shows it again.",
    ),
    Invariant(
        "direct_chat_has_two_members",
        _OURS,
        _STATE,
        "A direct chat has exactly two members.",
    ),
    Invariant(
        "direct_chat_is_indexed",
        _OURS,
        _STATE,
        "The index of direct chats leads from a pair to its chat and back, for all of them and "
        "nothing else: that is what makes it one chat per pair.",
    ),
    Invariant(
        "block_marks_exact",
        _OURS,
        _STATE,
        "A member of a direct chat is marked as blocked if, and only if, the other one blocks him: "
        "his sends are refused by the mark.",
    ),
    Invariant(
        "rows_belong_to_a_chat",
        _OURS,
        _STATE,
        "Messages, counters, members and positions are those of chats that exist.",
    ),
)

_OWN_TRACE: Final = (
    Invariant(
        "refusal_stores_nothing",
        _OURS,
        _TRACE,
        "A message of which every send was refused is not in the store.",
    ),
    Invariant(
        "membership_holds",
        _OURS,
        _TRACE,
        "Who has been removed can neither send nor read from that instant until he is added again.",
    ),
    Invariant(
        "boundary_never_falls",
        _OURS,
        _TRACE,
        "What an author has been shown as delivered to all, or read by all, stays so, whoever "
        "joins, leaves or is removed.",
    ),
    Invariant(
        "events_follow_commits",
        _OURS,
        _TRACE,
        "Within one life of the process the events of a chat come in commit order, none missing "
        "between two of them.",
    ),
)

INVARIANTS: Final = (*_ORDERING, *_SEQUENCING, *_DELIVERY, *_OWN_STATE, *_OWN_TRACE)

BY_NAME: Final = {invariant.name: invariant for invariant in INVARIANTS}

assert len(BY_NAME) == len(INVARIANTS)


def names_of(kind: Kind) -> tuple[str, ...]:
    """The names of one kind, in the order of the list."""
    return tuple(invariant.name for invariant in INVARIANTS if invariant.kind is kind)
