"""One run from beginning to end: make what is needed, start the server, measure, check, stop."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tidewire.domain.accounts import Secret
from tidewire.domain.ids import UlidSource
from tidewire.ops.load.figures import Figures
from tidewire.ops.load.rest_maker import RestMaker
from tidewire.ops.load.store_maker import StoreMaker
from tidewire.ops.load.target import Launch, OwnServer, Target, raise_file_limit
from tidewire.ops.load.workload import Outcome, Progress, Timing, Workload
from tidewire.ports.runtime import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnGround:
    """What a server of the run's own needs."""

    launch: Launch
    token_key: Callable[[Path], Secret]
    """The secret of a data directory, made if it is not there."""
    limits: Mapping[str, str]
    """Settings that are raised: the limiters stay in the path."""
    clock: Clock
    ids: UlidSource


async def run_on_own_server(
    workload: Workload, ground: OwnGround, timing: Timing, progress: Progress
) -> Figures:
    """Measure on a fresh server in a fresh data directory. Raises LoadImpossible."""
    raise_file_limit(workload.connections)
    launch = ground.launch
    maker = await StoreMaker.open(
        launch.data_dir,
        ground.token_key(launch.data_dir),
        clock=ground.clock,
        ids=ground.ids,
        progress=progress,
    )
    try:
        await workload.prepare(maker)
    finally:
        await maker.close()
    server = OwnServer(launch)
    progress("starting", 0, None)
    try:
        await server.start()
        target = Target(f"http://127.0.0.1:{server.port}", server)
        outcome = Outcome()
        figures = await workload.measure(target, timing, outcome, progress)
    finally:
        await server.stop()
    return figures.with_checks(outcome.faults, outcome.errors, ground.limits)


async def run_on_url(workload: Workload, url: str, timing: Timing, progress: Progress) -> Figures:
    """Measure on a server that runs already. Raises LoadImpossible."""
    raise_file_limit(workload.connections)
    maker = RestMaker(url, progress)
    await workload.prepare(maker)
    outcome = Outcome()
    figures = await workload.measure(Target(url), timing, outcome, progress)
    return figures.with_checks(outcome.faults, outcome.errors, {})
