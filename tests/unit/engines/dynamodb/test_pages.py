from tests.unit.engines.dynamodb.samples import a_message
from tidewire.domain.messages import Message
from tidewire.engines.dynamodb.pages import chained_after, chained_before, cut, is_enough


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
    assert sequences(cut(messages, count_max=3, bytes_max=1000)) == [1, 2, 3]
    assert sequences(cut(messages, count_max=9, bytes_max=250)) == [1, 2]
    assert sequences(cut(messages, count_max=9, bytes_max=1)) == [1]
    assert cut([], count_max=9, bytes_max=9) == []


def test_is_enough_when_reading_on_would_not_lengthen_the_page() -> None:
    messages = [a_message(n, n - 1, content="x" * 100) for n in range(1, 4)]
    assert is_enough(messages, count_max=3, bytes_max=1000)
    assert is_enough(messages, count_max=9, bytes_max=250)
    assert not is_enough(messages, count_max=4, bytes_max=300)
    assert not is_enough([], count_max=4, bytes_max=300)
