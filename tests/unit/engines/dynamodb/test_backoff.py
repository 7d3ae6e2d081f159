from random import Random

import pytest

from tidewire.engines.dynamodb.backoff import PACES, Hindrance, Pace, delay_ms, hindrance_of


def test_delay_doubles_up_to_its_bound_and_is_spread() -> None:
    pace = Pace(tries=9, first_ms=100, most_ms=500)
    random = Random(1)
    for tried, bound in enumerate([100, 200, 400, 500, 500]):
        delays = {delay_ms(pace, tried, random) for _ in range(200)}
        assert bound // 2 <= min(delays) < max(delays) <= bound


def test_paces_are_those_of_the_specification() -> None:
    assert PACES[Hindrance.THROTTLED] == Pace(tries=3, first_ms=100, most_ms=5_000)
    assert PACES[Hindrance.CONFLICT] == Pace(tries=5, first_ms=50, most_ms=500)


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        (["None", "TransactionConflict"], Hindrance.CONFLICT),
        (["ThrottlingError", "TransactionConflict", "None"], Hindrance.THROTTLED),
        (["ProvisionedThroughputExceeded"], Hindrance.THROTTLED),
        (["ConditionalCheckFailed", "None"], None),
        (["ConditionalCheckFailed", "TransactionConflict"], None),
        (["ValidationError"], None),
        (["None", ""], None),
        ([], None),
    ],
)
def test_hindrance_of_a_cancelled_transaction(codes: list[str], expected: Hindrance | None) -> None:
    assert hindrance_of(codes) is expected
