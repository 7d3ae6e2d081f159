"""The list is complete: every INVARIANT of the specification by its name, each with a check."""

from collections import Counter

import pytest

from tests.support import trace
from tidewire.ops.invariants import BY_NAME, INVARIANTS, Invariant, Kind, names_of

# What stands after the word INVARIANT in the appendices of the three ADRs.
SPECIFIED = {
    "ADR-001": """
        sequence_monotonic
        idempotency_guarantee
        sync_completeness
        delivery_state_consistency
    """,
    "ADR-004": """
        counter_must_exist
        sequence_uniqueness
        allocation_monotonicity
        counter_is_last_allocated
        sequence_monotonicity
        counter_lower_bound
        idempotency_sequence_consistency
        ack_implies_persistence
        no_zero_sequence
        gap_is_allocation_without_persistence
        add_operation_atomicity
    """,
    "ADR-008": """
        watermark_monotonic
        ack_cumulative
        delivered_implies_persisted
        watermark_bounded_by_counter
        conditional_write_prevents_regression
        multi_device_highest_wins
        delivery_state_independent_of_membership
        sync_position_from_watermark
        ack_fire_and_forget
        delivery_query_authorization
        delivered_is_eventually_consistent
        delivered_not_causal_across_chats
        group_delivered_requires_all_members
    """,
}

# Where we hold something else than the words of the specification.
HELD_DIFFERENTLY = {
    "sync_position_from_watermark",
    "group_delivered_requires_all_members",
    "delivered_is_eventually_consistent",
    "gap_is_allocation_without_persistence",
    "idempotency_guarantee",
    "multi_device_highest_wins",
}


@pytest.mark.parametrize("source", SPECIFIED)
def test_list_has_each_invariant_of_the_specification_once(source: str) -> None:
    listed = [invariant.name for invariant in INVARIANTS if invariant.source == source]
    assert listed == SPECIFIED[source].split()


def test_specification_has_28_invariants() -> None:
    assert [len(names.split()) for names in SPECIFIED.values()] == [4, 11, 13]


def test_names_are_unique() -> None:
    counts = Counter(invariant.name for invariant in INVARIANTS)
    assert max(counts.values()) == 1
    assert list(BY_NAME) == list(counts)


@pytest.mark.parametrize("invariant", INVARIANTS, ids=lambda invariant: invariant.name)
def test_invariant_is_documented(invariant: Invariant) -> None:
    assert invariant.statement.endswith(".")
    assert invariant.instead is None or invariant.instead.endswith(".")


def test_difference_from_the_specification_is_explained() -> None:
    explained = {invariant.name for invariant in INVARIANTS if invariant.instead is not None}
    assert explained >= HELD_DIFFERENTLY


def test_every_kind_is_listed() -> None:
    by_kind = [names_of(kind) for kind in Kind]
    assert sum(len(names) for names in by_kind) == len(INVARIANTS)
    assert all(by_kind)


def test_every_trace_invariant_has_a_check() -> None:
    assert set(trace.CHECKS) == set(names_of(Kind.TRACE))
