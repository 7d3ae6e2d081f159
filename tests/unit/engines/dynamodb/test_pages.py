from tests.unit.engines.dynamodb.samples import a_message
from tidewire.domain.messages import Message
from tidewire.engines.dynamodb.pages import (
    Piece,
    chained_after,
    chained_before,
    cut,
    is_enough,
    merged,
)


def sequences(messages: list[Message]) -> list[int]:
    return [message.sequence for message in messages]


CHAIN = [a_message(3, 1), a_message(4, 3), a_message(9, 4)]


def test_chained_after_takes_a_whole_chain() -> None:
    assert chained_after(CHAIN, 1) == CHAIN
    assert chained_after([], 1) == []


def test_chained_after_takes_a_first_one_that_hangs_below_the_cursor() -> None:
    assert chained_after(CHAIN, 2) == CHAIN


def test_chained_after_is_empty_when_the_first_one_hangs_above_the_cursor() -> None:
    assert chained_after(CHAIN, 0) == []


def test_chained_after_stops_where_one_is_missing() -> None:
    assert sequences(chained_after([CHAIN[0], CHAIN[2]], 1)) == [3]


def test_chained_after_does_not_take_one_that_hangs_further_back() -> None:
    """Two that claim the same predecessor cannot both be right."""
    assert sequences(chained_after([CHAIN[0], a_message(4, 1)], 1)) == [3]


def test_chained_before_takes_a_whole_chain_from_the_top() -> None:
    assert chained_before(CHAIN[::-1], 9) == CHAIN[::-1]


def test_chained_before_is_empty_when_the_top_is_missing() -> None:
    assert chained_before([CHAIN[1], CHAIN[0]], 9) == []


def test_chained_before_stops_where_one_is_missing() -> None:
    assert sequences(chained_before([CHAIN[2], CHAIN[0]], 9)) == [9]


def test_cut_ends_by_count_and_by_bytes_but_has_one() -> None:
    messages = [a_message(n, n - 1, content="ä" * 50) for n in range(1, 5)]
    assert sequences(cut(messages, 3, 1000)) == [1, 2, 3]
    assert sequences(cut(messages, 9, 250)) == [1, 2]
    assert sequences(cut(messages, 9, 1)) == [1]
    assert cut([], 9, 9) == []


def test_is_enough_when_reading_on_would_not_lengthen_the_page() -> None:
    messages = [a_message(n, n - 1, content="x" * 100) for n in range(1, 4)]
    assert is_enough(messages, 3, 1000)
    assert is_enough(messages, 9, 250)
    assert not is_enough(messages, 4, 300)
    assert not is_enough([], 4, 300)


# Messages and amendments.


def piece(
    *entries: Message, between: tuple[int, int], down: bool = False, is_cut: bool = False
) -> Piece:
    return Piece(entries, between, ascending=not down, is_cut=is_cut)


def test_piece_covers_what_it_was_asked_for_or_up_to_where_it_was_cut() -> None:
    assert piece(*CHAIN, between=(2, 20)).covered == (2, 20)
    assert piece(*CHAIN, between=(2, 20), is_cut=True).covered == (2, 9)
    assert piece(*CHAIN[::-1], between=(2, 20), down=True, is_cut=True).covered == (3, 20)


def test_piece_is_closed_when_nothing_can_lie_beyond_it() -> None:
    assert piece(*CHAIN, between=(2, 9)).is_closed
    assert not piece(*CHAIN, between=(2, 10)).is_closed
    assert piece(*CHAIN, between=(2, 10), is_cut=True).is_closed
    assert not piece(between=(2, 10)).is_closed
    first = a_message(1, 0)
    assert not piece(*CHAIN[::-1], between=(1, 9), down=True).is_closed
    assert piece(*CHAIN[::-1], first, between=(1, 9), down=True).is_closed


def test_merged_is_both_tables_in_their_order_as_far_as_both_are_whole() -> None:
    messages = piece(a_message(1), a_message(4, 3), a_message(9, 8), between=(1, 20))
    amendments = [a_message(3, 1), a_message(8, 4)]
    whole = piece(*amendments, between=(1, 20))
    assert sequences(merged(messages, whole)) == [1, 3, 4, 8, 9]
    cut_short = piece(*amendments, between=(1, 20), is_cut=True)
    assert sequences(merged(messages, cut_short)) == [1, 3, 4, 8]
    back = piece(*messages.entries[::-1], between=(1, 20), down=True)
    back_cut = piece(amendments[1], between=(1, 20), down=True, is_cut=True)
    assert sequences(merged(back, back_cut)) == [9, 8]
