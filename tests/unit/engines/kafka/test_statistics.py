"""What the vendor's client tells: whether it looks for brokers, and what lies behind a commit."""

import json
from typing import Any

from tidewire.engines.kafka.statistics import IDLE_S_MAX, decode_statistics

LONG = int(IDLE_S_MAX * 1_000_000) + 1


def is_given_up(statistics: bytes) -> bool:
    return decode_statistics(statistics).is_given_up


def lag_of(statistics: bytes) -> dict[tuple[str, int], int]:
    return decode_statistics(statistics).lag


def of_brokers(*brokers: tuple[str, str, int]) -> bytes:
    told = {
        str(number): {"source": source, "state": state, "stateage": age}
        for number, (source, state, age) in enumerate(brokers)
    }
    return json.dumps({"name": "x", "brokers": told}).encode()


def test_client_that_is_connected_or_tries_has_not_given_up() -> None:
    assert not is_given_up(of_brokers(("learned", "UP", LONG)))
    assert not is_given_up(of_brokers(("configured", "TRY_CONNECT", LONG)))
    assert not is_given_up(of_brokers(("configured", "INIT", LONG - 1)))
    assert not is_given_up(of_brokers(("learned", "INIT", LONG), ("learned", "UP", LONG)))


def test_client_that_has_long_tried_none_has_given_up() -> None:
    assert is_given_up(of_brokers(("learned", "INIT", LONG)))
    assert is_given_up(of_brokers(("learned", "INIT", LONG), ("logical", "TRY_CONNECT", 0)))


def test_client_that_knows_no_broker_has_given_up() -> None:
    assert is_given_up(of_brokers(("logical", "UP", 0), ("internal", "UP", 0)))
    assert is_given_up(of_brokers())
    assert is_given_up(b"{}")


def of_partition(**partition: Any) -> bytes:
    one = {"partition": 3, "desired": True, "lo_offset": 5, "hi_offset": 20} | partition
    return json.dumps({"name": "x", "topics": {"t": {"partitions": {"3": one}}}}).encode()


def test_lag_is_what_lies_behind_the_committed_offset() -> None:
    assert lag_of(of_partition(committed_offset=12)) == {("t", 3): 8}
    assert lag_of(of_partition(committed_offset=20)) == {("t", 3): 0}


def test_without_a_commit_everything_waits() -> None:
    assert lag_of(of_partition(committed_offset=-1001)) == {("t", 3): 15}


def test_partition_of_others_or_of_which_nothing_is_known_is_left_out() -> None:
    assert lag_of(of_partition(desired=False, committed_offset=12)) == {}
    assert lag_of(of_partition(hi_offset=-1001, committed_offset=12)) == {}
    assert lag_of(of_partition(lo_offset=-1001, committed_offset=-1001)) == {}
    assert lag_of(of_partition(partition=-1, committed_offset=12)) == {}
    assert lag_of(b"{}") == {}


def test_commit_ahead_of_what_is_known_to_be_there_is_no_lag() -> None:
    assert lag_of(of_partition(committed_offset=25)) == {("t", 3): 0}
