"""What really came one after the other: the sweep under every check of a falling number.

The checks themselves are tested, with all the others, in test_trace.py.
"""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.trace_delivery import falls

Observation = tuple[int, int, int]


def falls_by_all_pairs(observed: list[Observation]) -> set[int]:
    """The same by looking at every pair: which values came too low."""
    return {
        value
        for began, _, value in observed
        for _, ended, other in observed
        if ended < began and other >= value
    }


def in_time(pairs: list[tuple[int, int, int]]) -> list[Observation]:
    return [(began, began + 1 + length, value) for began, length, value in pairs]


observations = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 6), st.integers(0, 8)), max_size=12
).map(in_time)


@given(observations)
def test_falls_finds_what_all_pairs_find(observed: list[Observation]) -> None:
    assert {value for _, value in falls(observed)} == falls_by_all_pairs(observed)


def test_falls_compares_only_what_was_over() -> None:
    assert list(falls([(0, 5, 9), (1, 2, 3), (6, 7, 9)])) == [(9, 9)]
    assert list(falls([(0, 5, 9), (4, 6, 3)])) == []
