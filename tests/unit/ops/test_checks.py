"""Every state check finds the one thing that it is there to find, whatever the chunks are.

A store is sound, then one row of it is broken, and exactly the named invariants are violated.
"""

from collections.abc import Callable

import pytest

from tests.unit.ops.fake_store import DIRECT, GROUP, FakeStore, message
from tidewire.domain.limits import SEQUENCE_MAX
from tidewire.ops.checks import Violation, differences
from tidewire.ops.invariants import Kind, names_of
from tidewire.ops.verify import verify
from tidewire.ports.inspection import EntryRow, PositionRow

Break = Callable[[FakeStore], object]


def violations(store: FakeStore) -> list[Violation]:
    report = verify(lambda: store)
    return [offender for check in report.checks for offender in check.offenders]


def drop_counter(store: FakeStore) -> None:
    store.change(GROUP, counter=None)


def lower_counter(store: FakeStore) -> None:
    store.change(GROUP, counter=8)


def count_above_counter(store: FakeStore) -> None:
    # With sequences that are unique and begin with 1 this cannot be without the others.
    store.change(DIRECT, counter=0)


def raise_counter_too_far(store: FakeStore) -> None:
    store.change(GROUP, counter=SEQUENCE_MAX + 1)


def zero_sequence(store: FakeStore) -> None:
    # On the wire of a store that does not keep commit order, so that nothing else is wrong.
    store.message_rows[DIRECT] = [(0, 0, None, "msg_z", "key_z", 11, False)]


def same_sequence_twice(store: FakeStore) -> None:
    store.message_rows[GROUP][3] = message(4, 2, 20, "b")
    store.message_rows[GROUP][4] = message(9, 4, 21, "a")


def lost_message(store: FakeStore) -> None:
    del store.message_rows[GROUP][2]
    store.key_rows[GROUP].remove(("key_c", 13))
    store.id_rows.remove(("msg_c", 13))


def first_message_lost(store: FakeStore) -> None:
    del store.message_rows[GROUP][0]
    store.key_rows[GROUP].remove(("key_e", 10))
    store.id_rows.remove(("msg_e", 10))


def committed_in_another_order(store: FakeStore) -> None:
    one, other = store.message_rows[GROUP][2:4]
    store.message_rows[GROUP][2] = (*one[:2], 20, *one[3:])
    store.message_rows[GROUP][3] = (*other[:2], 13, *other[3:])


def damaged_message(store: FakeStore) -> None:
    row = store.message_rows[GROUP][2]
    store.message_rows[GROUP][2] = (*row[:6], True)


def one_key_for_two_messages(store: FakeStore) -> None:
    row = store.message_rows[GROUP][4]
    store.message_rows[GROUP][4] = (*row[:4], "key_b", *row[5:])
    store.key_rows[GROUP] = sorted({*store.key_rows[GROUP], ("key_b", 21)} - {("key_a", 21)})


def key_leads_elsewhere(store: FakeStore) -> None:
    index = store.key_rows[GROUP].index(("key_c", 13))
    store.key_rows[GROUP][index] = ("key_c", 12)


def key_missing(store: FakeStore) -> None:
    store.key_rows[GROUP].remove(("key_c", 13))


def key_without_message(store: FakeStore) -> None:
    store.key_rows[GROUP].append(("key_zz", 99))


def message_id_missing(store: FakeStore) -> None:
    store.id_rows.remove(("msg_c", 13))


def message_ids_swapped(store: FakeStore) -> None:
    one, other = store.id_rows[0], store.id_rows[1]
    store.id_rows[:2] = [(one[0], other[1]), (other[0], one[1])]


def keys_swapped(store: FakeStore) -> None:
    one, other = store.key_rows[GROUP][0], store.key_rows[GROUP][1]
    store.key_rows[GROUP][:2] = [(one[0], other[1]), (other[0], one[1])]


def message_id_twice(store: FakeStore) -> None:
    row = store.message_rows[GROUP][4]
    store.message_rows[GROUP][4] = (*row[:3], "msg_b", *row[4:])
    store.id_rows = sorted({*store.id_rows, ("msg_b", 21)} - {("msg_a", 21)}, key=str)


def acknowledged_above_head(store: FakeStore) -> None:
    store.change_position(3, delivered=10)


def acknowledged_above_counter(store: FakeStore) -> None:
    store.change_position(3, delivered=13)


def read_above_delivered(store: FakeStore) -> None:
    store.change_position(3, read=3)


def joined_differs(store: FakeStore) -> None:
    store.change_position(2, joined_sequence=5)


def left_but_still_awaited(store: FakeStore) -> None:
    store.change_position(3, joined_sequence=0)


def joined_above_head(store: FakeStore) -> None:
    members = list(store.rows[GROUP].members)
    members[2] = ("user_3", "member", 10, 0, 0)
    store.change(GROUP, members=members)
    store.change_position(2, joined_sequence=10, membership_joined=10)


def member_without_positions(store: FakeStore) -> None:
    members = list(store.rows[GROUP].members)
    members[2] = ("user_3", "member", 7, None, None)
    store.change(GROUP, members=members)
    del store.position_rows[2]


def floor_too_high(store: FakeStore) -> None:
    store.change(GROUP, floor_delivered=7)


def floor_of_read_missing(store: FakeStore) -> None:
    store.change(GROUP, floor_read=None)


def member_count_wrong(store: FakeStore) -> None:
    store.change(GROUP, member_count=4)


def group_without_owner(store: FakeStore) -> None:
    members = list(store.rows[GROUP].members)
    members[0] = ("user_1", "admin", 0, 9, 7)
    store.change(GROUP, members=members)


def group_with_two_owners(store: FakeStore) -> None:
    members = list(store.rows[GROUP].members)
    members[1] = ("user_2", "owner", 0, 4, 4)
    store.change(GROUP, members=members)


def direct_chat_of_one(store: FakeStore) -> None:
    store.change(DIRECT, members=[("user_2", "member", 0, 0, 0)], member_count=1)


def mark_without_block(store: FakeStore) -> None:
    store.change(DIRECT, marked=["user_1"])


def block_without_mark(store: FakeStore) -> None:
    store.change(DIRECT, marked=["user_1"], blocked=["user_1", "user_2"])


def mark_in_a_group(store: FakeStore) -> None:
    store.change(GROUP, marked=["user_3"])


def direct_chat_not_indexed(store: FakeStore) -> None:
    store.change(DIRECT, pair_key=None)
    store.pair_rows = []


def direct_chat_indexed_as_another(store: FakeStore) -> None:
    store.change(DIRECT, pair_key="user_1#user_3")


def group_indexed_as_direct(store: FakeStore) -> None:
    store.change(GROUP, pair_key="user_1#user_3")


def index_leads_to_a_group(store: FakeStore) -> None:
    store.pair_rows.append(("user_1#user_3", GROUP, "group"))


def index_leads_nowhere(store: FakeStore) -> None:
    store.pair_rows.append(("user_1#user_3", GROUP, None))


def rows_without_chat(store: FakeStore) -> None:
    store.change(GROUP, chat_type=None, member_count=0)


def positions_without_chat(store: FakeStore) -> None:
    store.position_rows.append(PositionRow("user_5", GROUP, 0, 0, None, None, 0, None, False))


def damaged_messages(store: FakeStore) -> None:
    store.damaged = f"messages of {GROUP}"


def closed_group_with_members(store: FakeStore) -> None:
    store.change(GROUP, is_closed=True)


def more_blocks_than_changes(store: FakeStore) -> None:
    store.change(DIRECT, membership_version=3, block_changes=3)


def negative_blocks(store: FakeStore) -> None:
    store.change(DIRECT, membership_version=3, block_changes=-1)


def member_who_refused(store: FakeStore) -> None:
    store.change(GROUP, refusing=["user_2"])


def hidden_above_head(store: FakeStore) -> None:
    store.position_rows[0] = store.position_rows[0]._replace(hidden_through=99)


def reply_to_nothing(store: FakeStore) -> None:
    store.change_entry(2, target=None)


def text_under_a_tombstone(store: FakeStore) -> None:
    store.change_entry(2, mentions=(), found_mentions=(), deleted_by=11, deletes=9)


def edit_that_is_not_kept(store: FakeStore) -> None:
    store.change_entry(0, kept=None)


def reaction_that_is_not_kept(store: FakeStore) -> None:
    store.change_entry(1, kept=None)


def mention_that_is_not_kept(store: FakeStore) -> None:
    store.change_entry(2, found_mentions=())


def another_message_before(store: FakeStore) -> None:
    store.change_entry(1, message_before=1)


CASES: list[tuple[Break, set[str]]] = [
    (drop_counter, {"counter_must_exist"}),
    (lower_counter, {"sequence_monotonicity"}),
    (count_above_counter, {"counter_lower_bound", "sequence_monotonicity"}),
    (raise_counter_too_far, {"sequence_fits_the_wire"}),
    (zero_sequence, {"no_zero_sequence"}),
    (same_sequence_twice, {"sequence_uniqueness"}),
    (lost_message, {"prev_chain_exact"}),
    (first_message_lost, {"prev_chain_exact"}),
    (committed_in_another_order, {"sequence_monotonic"}),
    (damaged_message, {"message_checksum_holds"}),
    (one_key_for_two_messages, {"one_message_per_key"}),
    (key_leads_elsewhere, {"idempotency_sequence_consistency"}),
    (key_missing, {"idempotency_sequence_consistency"}),
    (key_without_message, {"idempotency_sequence_consistency"}),
    (message_id_missing, {"message_ids_exact"}),
    (message_ids_swapped, {"message_ids_exact"}),
    (keys_swapped, {"idempotency_sequence_consistency"}),
    (message_id_twice, {"message_ids_exact"}),
    (acknowledged_above_head, {"delivery_state_consistency"}),
    # Nothing can be above the counter that is not above the head as well.
    (acknowledged_above_counter, {"delivery_state_consistency", "watermark_bounded_by_counter"}),
    (read_above_delivered, {"read_implies_delivered"}),
    (joined_differs, {"joined_sequence_consistent"}),
    (left_but_still_awaited, {"joined_sequence_consistent"}),
    (joined_above_head, {"joined_bounded_by_head"}),
    (member_without_positions, {"member_has_positions"}),
    (floor_too_high, {"lowest_positions_exact"}),
    (floor_of_read_missing, {"lowest_positions_exact"}),
    (member_count_wrong, {"member_count_exact"}),
    (group_without_owner, {"group_has_one_owner"}),
    (group_with_two_owners, {"group_has_one_owner"}),
    (closed_group_with_members, {"closed_group_is_empty"}),
    (more_blocks_than_changes, {"shown_version_sound"}),
    (negative_blocks, {"shown_version_sound"}),
    (member_who_refused, {"refusal_keeps_out"}),
    (hidden_above_head, {"hidden_bounded_by_head"}),
    (direct_chat_of_one, {"direct_chat_has_two_members"}),
    (mark_without_block, {"block_marks_exact"}),
    (block_without_mark, {"block_marks_exact"}),
    (mark_in_a_group, {"block_marks_exact"}),
    (direct_chat_not_indexed, {"direct_chat_is_indexed"}),
    (direct_chat_indexed_as_another, {"direct_chat_is_indexed"}),
    (group_indexed_as_direct, {"direct_chat_is_indexed"}),
    (index_leads_to_a_group, {"direct_chat_is_indexed"}),
    (index_leads_nowhere, {"direct_chat_is_indexed"}),
    (rows_without_chat, {"rows_belong_to_a_chat"}),
    (positions_without_chat, {"rows_belong_to_a_chat"}),
    (damaged_messages, {"database_readable"}),
    (reply_to_nothing, {"target_is_a_message"}),
    (text_under_a_tombstone, {"deleted_is_erased"}),
    (edit_that_is_not_kept, {"edits_exact"}),
    (reaction_that_is_not_kept, {"reactions_exact"}),
    (mention_that_is_not_kept, {"mentions_exact"}),
    (another_message_before, {"message_before_exact"}),
]


@pytest.mark.parametrize("chunk_rows", [1, 2, 3, 100])
@pytest.mark.parametrize(("break_it", "expected"), CASES, ids=[case[0].__name__ for case in CASES])
def test_broken_store_violates_exactly(
    break_it: Break, expected: set[str], chunk_rows: int
) -> None:
    store = FakeStore(chunk_rows=chunk_rows)
    break_it(store)
    assert {violation.invariant for violation in violations(store)} == expected


@pytest.mark.parametrize("chunk_rows", [1, 2, 3, 100])
def test_sound_store_violates_nothing(chunk_rows: int) -> None:
    assert violations(FakeStore(chunk_rows=chunk_rows)) == []


def test_every_state_invariant_has_a_store_that_violates_it() -> None:
    assert set().union(*(expected for _, expected in CASES)) == set(names_of(Kind.STATE))


def test_violation_names_the_chat_and_the_numbers() -> None:
    store = FakeStore()
    lost_message(store)
    [violation] = violations(store)
    assert violation.chat_id == GROUP
    assert violation.found == (
        "msg_b at sequence 7 has prev_sequence 4, but the message before it is 2"
    )


def test_store_without_commit_order_is_not_blamed_for_it() -> None:
    store = FakeStore()
    for rows in store.message_rows.values():
        rows[:] = [(*row[:2], None, *row[3:]) for row in rows]
    assert violations(store) == []


# Comparing two lists that do not fit into memory.


def listing(*rows: EntryRow) -> Callable[[], list[list[EntryRow]]]:
    return lambda: [[row] for row in rows]


def test_differences_tells_which_side_an_entry_is_on() -> None:
    found = differences(listing(("a", 1), ("b", 2)), listing(("b", 2), ("c", 3)), 2)
    assert sorted(found) == [("a", 1, False), ("c", 3, True)]


def test_differences_finds_an_entry_among_many() -> None:
    rows = [(f"key_{number}", number) for number in range(5_000)]
    without = [row for row in rows if row[1] != 4_321]
    found = differences(listing(*rows), listing(*without), len(rows))
    assert list(found) == [("key_4321", 4_321, False)]


def test_differences_of_equal_lists_are_none() -> None:
    rows: list[EntryRow] = [("a", 1), ("b", 2)]
    assert list(differences(listing(*rows), listing(*reversed(rows)), 2)) == []


def test_closed_group_needs_no_owner() -> None:
    store = FakeStore()
    store.change(
        GROUP, is_closed=True, members=[], member_count=0, floor_delivered=None, floor_read=None
    )
    store.position_rows = [
        row._replace(joined_sequence=None, membership_joined=None) if row.chat_id == GROUP else row
        for row in store.position_rows
    ]
    assert violations(store) == []


@pytest.mark.parametrize("first", range(0, 3_000, 100))
def test_exchanged_entries_are_found_whatever_their_numbers(first: int) -> None:
    """Sums of plain hashes were the same for one of five pairs (E16)."""
    store = FakeStore()
    rows = [message(1, 0, first, "a"), message(2, 1, first + 1, "b")]
    store.message_rows = {GROUP: rows, DIRECT: []}
    store.key_rows = {GROUP: [("key_a", first), ("key_b", first + 1)], DIRECT: []}
    store.id_rows = [("msg_a", first + 1), ("msg_b", first)]
    report = verify(lambda: store)
    [check] = [check for check in report.checks if check.name == "message_ids_exact"]
    assert check.violations == 4
