"""Mixes of `tidewire bench units` on the servers of the tests. Holds no test."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cluster.running import Endpoints
from tests.e2e.commands import EVERY_OPTION
from tidewire_bench.mixes import Bar, Mix
from tidewire_bench.run import as_variables
from tidewire_bench.unit_run import measure_units

REACHED = {
    # Nine; and now and then a counter or an own position moves. That goes by the clock, so on a
    # slow machine it happens after fewer messages.
    "append": Bar(writes=9.3, reads=1, requests=2.2),
    # 124 of it are two moves of each recipient.
    "quiet-group": Bar(dollars=131.5),
}
"""What a mix may cost if its own bar is not reached, or not exactly."""
PATIENT = {"dynamodb.attempt_ms": "4000", "dynamodb.budget_ms": "4900"}


def no_bar(stage: str, done: int, total: int | None) -> None:
    """A progress callback that shows nothing."""


async def hold_to_bars(
    mixes: Sequence[Mix], directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Assert that each of the mixes costs no more than its bar, or than REACHED allows."""
    settings = {
        "dynamodb.region": "local",
        "dynamodb.access_key": "local",
        "dynamodb.secret_key": "local",
        **{name: str(value) for name, value in Endpoints.of_stack().settings().items()},
    }
    for name in list(os.environ):
        if name.startswith("TIDEWIRE_"):
            monkeypatch.delenv(name)
    for name, value in as_variables(settings).items():
        monkeypatch.setenv(name, value)
    costs = await measure_units(
        mixes, directory, no_bar, settings=PATIENT, command=(*EVERY_OPTION, "serve")
    )
    assert [cost.mix for cost in costs] == [mix.name for mix in mixes]
    faults = [line for cost in costs for line in cost.above(REACHED.get(cost.mix, cost.bar))]
    assert not faults, [faults, costs]
