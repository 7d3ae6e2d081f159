"""One page of metrics for several processes."""

from types import SimpleNamespace
from typing import Any

from tidewire.runtime.metric_sums import Numbers, SummedMetrics, numbers_of, summed
from tidewire.runtime.metrics import Metrics

TABLE = """
counter things{kind} by_kind : Things.
gauge waiting waiting : What waits.
gauge event_loop_lag_seconds lag : How late.
summary work_seconds count=count sum=seconds : Work.
"""


def metrics(**numbers: Any) -> Metrics:
    given = {"by_kind": {}, "waiting": 0, "lag": 0.0, "count": 0, "seconds": 0.0, **numbers}
    return Metrics([(TABLE, SimpleNamespace(**given))])


def lines(page: bytes) -> dict[str, float]:
    found = [line.rpartition(" ") for line in page.decode().splitlines() if line[0] != "#"]
    assert len({name for name, _, _ in found}) == len(found)
    return {name: float(value) for name, _, value in found if not name.startswith("process_")}


async def test_counters_and_sizes_are_summed_and_of_delays_the_worst_is_told() -> None:
    gateways = {
        1: numbers_of(metrics(by_kind={"a": 1}, waiting=2, lag=0.5, count=3, seconds=1.5)),
        2: numbers_of(metrics(by_kind={"a": 2, "b": 4}, waiting=1, lag=0.1)),
    }

    async def ask() -> dict[int, Numbers]:
        return gateways

    page = await SummedMetrics(metrics(by_kind={"b": 1}, lag=0.2, count=1), ask).page()
    assert lines(page) == {
        'things_total{kind="a"}': 3,
        'things_total{kind="b"}': 5,
        "waiting": 3,
        "event_loop_lag_seconds": 0.5,
        "work_seconds_count": 4,
        "work_seconds_sum": 1.5,
    }


async def test_counters_of_a_gateway_that_has_gone_stay_and_its_sizes_do_not() -> None:
    gateways = {1: numbers_of(metrics(by_kind={"a": 5}, waiting=7))}

    async def ask() -> dict[int, Numbers]:
        return gateways

    sums = SummedMetrics(metrics(), ask)
    await sums.page()
    gateways = {}
    sums.gone(1)
    sums.gone(2)
    found = lines(await sums.page())
    assert (found['things_total{kind="a"}'], found["waiting"]) == (5, 0)
    gateways = {3: numbers_of(metrics(by_kind={"a": 1}))}
    assert lines(await sums.page())['things_total{kind="a"}'] == 6


async def test_gateway_that_does_not_answer_is_told_as_it_last_was() -> None:
    gateways = {1: numbers_of(metrics(by_kind={"a": 5}))}

    async def ask() -> dict[int, Numbers]:
        return gateways

    sums = SummedMetrics(metrics(), ask)
    await sums.page()
    gateways = {}
    assert lines(await sums.page())['things_total{kind="a"}'] == 5


def test_nothing_sums_to_nothing() -> None:
    assert summed([]) == []
