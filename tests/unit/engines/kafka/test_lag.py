"""Lag by what the vendor's client tells: what is committed against what is there."""

import json
from typing import Any

from tidewire.engines.kafka.lag import lag_of


def statistics(**partition: Any) -> bytes:
    one = {"partition": 3, "desired": True, "lo_offset": 5, "hi_offset": 20} | partition
    return json.dumps({"name": "x", "topics": {"t": {"partitions": {"3": one}}}}).encode()


def test_lag_is_what_lies_behind_the_committed_offset() -> None:
    assert lag_of(statistics(committed_offset=12)) == {("t", 3): 8}
    assert lag_of(statistics(committed_offset=20)) == {("t", 3): 0}


def test_without_a_commit_everything_waits() -> None:
    assert lag_of(statistics(committed_offset=-1001)) == {("t", 3): 15}


def test_partition_of_others_or_of_which_nothing_is_known_is_left_out() -> None:
    assert lag_of(statistics(desired=False, committed_offset=12)) == {}
    assert lag_of(statistics(hi_offset=-1001, committed_offset=12)) == {}
    assert lag_of(statistics(lo_offset=-1001, committed_offset=-1001)) == {}
    assert lag_of(statistics(partition=-1, committed_offset=12)) == {}
    assert lag_of(b"{}") == {}


def test_commit_ahead_of_what_is_known_to_be_there_is_no_lag() -> None:
    assert lag_of(statistics(committed_offset=25)) == {("t", 3): 0}
