"""The algebra of positions: they only grow, never lie, and give everybody the right ticks."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tidewire.domain.chats import ChatType
from tidewire.domain.delivery import (
    NOWHERE,
    TICK_MARKS,
    Lowest,
    MemberDelivery,
    Positions,
    Tick,
    effective,
    lowest_of,
    positions_after_append,
    read_by_reply,
    status_of,
    status_sequence,
    summarise,
    tick,
)
from tidewire.domain.errors import SequenceAboveHead
from tidewire.domain.ids import ChatId, UserId

# Small numbers, so that equal ones and neighbours come often.
numbers = st.integers(0, 12)
users = st.sampled_from([UserId(f"user_{letter}") for letter in "abcdef"])
positions = st.builds(Positions, numbers, numbers)
ordered_positions = st.builds(
    lambda delivered, behind: Positions(delivered, max(0, delivered - behind)), numbers, numbers
)
rosters = st.dictionaries(users, numbers).map(lambda roster: list(roster.items()))

# ---------------------------------------------------------------------------------- merging


@given(positions, positions)
def test_merging_is_commutative(one: Positions, other: Positions) -> None:
    assert one.merged(other) == other.merged(one)


@given(positions, positions, positions)
def test_merging_is_associative(a: Positions, b: Positions, c: Positions) -> None:
    assert a.merged(b).merged(c) == a.merged(b.merged(c))


@given(positions)
def test_merging_is_idempotent_and_nowhere_is_neutral(one: Positions) -> None:
    assert one.merged(one) == one
    assert one.merged(NOWHERE) == one


@given(positions, positions)
def test_merging_never_falls(one: Positions, other: Positions) -> None:
    both = one.merged(other)
    assert both.delivered in (one.delivered, other.delivered)
    assert both.read in (one.read, other.read)
    assert both.delivered >= one.delivered
    assert both.read >= one.read


# ------------------------------------------------------------------------------------ ticks


@pytest.mark.parametrize(
    ("delivered", "read", "expected"),
    [(4, 4, Tick.SENT), (5, 4, Tick.DELIVERED), (9, 5, Tick.READ), (5, 5, Tick.READ)],
)
def test_tick_of_message_5(delivered: int, read: int, expected: Tick) -> None:
    assert tick(5, others_delivered=delivered, others_read=read) is expected


def test_tick_of_no_message_is_a_bug_of_the_caller() -> None:
    with pytest.raises(AssertionError):
        tick(0, others_delivered=1, others_read=1)


@given(st.integers(1, 12), positions, positions)
def test_tick_never_goes_back_when_positions_grow(
    sequence: int, before: Positions, news: Positions
) -> None:
    rank = [Tick.SENT, Tick.DELIVERED, Tick.READ].index
    after = before.merged(news)
    shown = tick(sequence, others_delivered=before.delivered, others_read=before.read)
    later = tick(sequence, others_delivered=after.delivered, others_read=after.read)
    assert rank(later) >= rank(shown)


def test_every_tick_has_a_mark() -> None:
    assert set(TICK_MARKS) == set(Tick)


# ---------------------------------------------------------------------------- after a message


@given(ordered_positions, numbers, st.none() | numbers)
def test_reply_reads_only_what_was_seen_and_acknowledged(
    before: Positions, prev_sequence: int, seen_sequence: int | None
) -> None:
    read = read_by_reply(before, prev_sequence=prev_sequence, seen_sequence=seen_sequence)
    assert read >= before.read
    if read > before.read:
        assert read <= before.delivered
        assert read <= prev_sequence
        assert seen_sequence is None or read <= seen_sequence


def test_reply_of_somebody_who_says_nothing_reads_all_that_he_acknowledged() -> None:
    assert read_by_reply(Positions(7, 2), prev_sequence=9, seen_sequence=None) == 7
    assert read_by_reply(Positions(9, 2), prev_sequence=9, seen_sequence=None) == 9


def test_reply_written_offline_does_not_turn_unseen_messages_blue() -> None:
    assert read_by_reply(Positions(9, 2), prev_sequence=9, seen_sequence=4) == 4


@given(ordered_positions, numbers, numbers, st.integers(1, 5), st.none() | numbers)
def test_positions_after_an_append_never_fall_and_never_pass(
    before: Positions,
    joined_sequence: int,
    prev_sequence: int,
    step: int,
    seen_sequence: int | None,
) -> None:
    """What grows is bounded by what was acknowledged, or is the author's own message."""
    # Nobody joins above the head, and no position passes it.
    assume(max(joined_sequence, before.delivered) <= prev_sequence)
    sequence = prev_sequence + step
    after = positions_after_append(
        before,
        joined_sequence=joined_sequence,
        prev_sequence=prev_sequence,
        sequence=sequence,
        seen_sequence=seen_sequence,
    )
    assert after.delivered >= before.delivered
    assert after.read >= before.read
    assert after.read <= after.delivered <= sequence
    was_up_to_date = effective(before.delivered, joined_sequence) == prev_sequence
    assert after.delivered == (sequence if was_up_to_date else before.delivered)
    if after.read == sequence:
        assert was_up_to_date
    else:
        assert after.read <= max(before.read, before.delivered)


@pytest.mark.parametrize(
    ("before", "joined", "prev", "seen", "after"),
    [
        # The first message of a chat.
        (Positions(0, 0), 0, 0, None, Positions(1, 1)),
        # Up to date, and all seen: stays so.
        (Positions(7, 7), 0, 7, 7, Positions(8, 8)),
        # All delivered, but the text was written before the last ones were seen.
        (Positions(7, 2), 0, 7, 4, Positions(8, 4)),
        # Something has not arrived yet: nothing jumps over it.
        (Positions(5, 2), 0, 7, None, Positions(5, 5)),
        # Has just joined: owes nothing from before.
        (Positions(0, 0), 7, 7, None, Positions(8, 8)),
        # Was here before, left, and came back at the head.
        (Positions(3, 3), 7, 7, None, Positions(8, 8)),
    ],
)
def test_positions_after_an_append(
    before: Positions, joined: int, prev: int, seen: int | None, after: Positions
) -> None:
    assert after == positions_after_append(
        before,
        joined_sequence=joined,
        prev_sequence=prev,
        sequence=prev + 1,
        seen_sequence=seen,
    )


@pytest.mark.parametrize(("prev_sequence", "sequence"), [(-1, 1), (5, 5), (6, 5)])
def test_append_that_does_not_follow_is_a_bug_of_the_caller(
    prev_sequence: int, sequence: int
) -> None:
    with pytest.raises(AssertionError):
        positions_after_append(
            NOWHERE,
            joined_sequence=0,
            prev_sequence=prev_sequence,
            sequence=sequence,
            seen_sequence=None,
        )


# ------------------------------------------------------------------------------- boundaries


@given(rosters, users, st.integers(12, 20))
def test_boundary_is_the_minimum_over_the_others(
    roster: list[tuple[UserId, int]], viewer: UserId, head: int
) -> None:
    others = [position for user, position in roster if user != viewer]
    naive = min(others) if others else head
    assert lowest_of(roster).boundary(viewer, head) == naive


@given(rosters)
def test_lowest_does_not_depend_on_the_order(roster: list[tuple[UserId, int]]) -> None:
    assert lowest_of(roster) == lowest_of(roster[::-1])


def test_lowest_of_nobody_waits_for_nobody() -> None:
    assert lowest_of([]) == Lowest(None, 0, None)
    assert lowest_of([]).boundary(UserId("user_a"), 9) == 9


@given(rosters, users, users, st.integers(12, 20))
def test_boundary_does_not_fall_when_somebody_joins_at_the_head_or_leaves(
    roster: list[tuple[UserId, int]], viewer: UserId, mover: UserId, head: int
) -> None:
    before = lowest_of(roster).boundary(viewer, head)
    without = [(user, position) for user, position in roster if user != mover]
    assume(mover != viewer)
    assert lowest_of(without).boundary(viewer, head) >= before
    assert lowest_of([*without, (mover, head)]).boundary(viewer, head) >= before


# ------------------------------------------------------------------------------- the summary


@st.composite
def memberships(draw: st.DrawFn) -> list[MemberDelivery]:
    roster = draw(st.lists(users, unique=True))
    return [
        MemberDelivery(
            user_id=user,
            joined_sequence=draw(numbers),
            positions=draw(ordered_positions),
            updated_at_ms=0,
        )
        for user in roster
    ]


@given(st.integers(1, 12), st.none() | users, memberships())
def test_delivered_and_pending_are_those_who_are_awaited(
    sequence: int, author_id: UserId | None, members: list[MemberDelivery]
) -> None:
    summary = summarise(sequence, author_id=author_id, members=members)
    awaited = [
        member
        for member in members
        if member.user_id != author_id and member.joined_sequence < sequence
    ]
    assert summary.sequence == sequence
    assert summary.delivered_count + summary.pending_count == len(awaited)
    assert summary.read_count <= summary.delivered_count
    assert summary.all_delivered == all(m.positions.delivered >= sequence for m in awaited)


@given(st.integers(1, 12), users, memberships())
def test_summary_and_tick_tell_the_author_the_same(
    sequence: int, author_id: UserId, members: list[MemberDelivery]
) -> None:
    """`all_delivered` by counting the awaited, ✓✓ by the boundary: two ways, one truth."""
    head = 20
    delivered = lowest_of(
        [(m.user_id, effective(m.positions.delivered, m.joined_sequence)) for m in members]
    )
    read = lowest_of([(m.user_id, effective(m.positions.read, m.joined_sequence)) for m in members])
    shown = tick(
        sequence,
        others_delivered=delivered.boundary(author_id, head),
        others_read=read.boundary(author_id, head),
    )
    summary = summarise(sequence, author_id=author_id, members=members)
    assert summary.all_delivered == (shown is not Tick.SENT)
    assert (summary.pending_count == 0 and summary.read_count == summary.delivered_count) == (
        shown is Tick.READ
    )


def test_status_is_of_the_last_message_unless_one_is_named() -> None:
    assert status_sequence(None, 9) == status_sequence(9, 9) == 9
    assert status_sequence(3, 9) == 3
    with pytest.raises(SequenceAboveHead):
        status_sequence(10, 9)


def test_status_counts_the_members_and_sums_up() -> None:
    anna, ben = UserId("user_a"), UserId("user_b")
    members = [
        MemberDelivery(user_id=one, joined_sequence=0, positions=Positions(3, 1), updated_at_ms=0)
        for one in (anna, ben)
    ]
    status = status_of(ChatId("chat_1"), ChatType.GROUP, 2, author_id=anna, members=members)
    assert (status.member_count, status.members) == (2, members)
    assert status.summary == summarise(2, author_id=anna, members=members)
