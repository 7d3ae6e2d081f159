"""One run from beginning to end: make what is needed, start the server, measure, check, stop."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tidewire.engines.sqlite import SqliteStorage
from tidewire.runtime.token_keys import token_key
from tidewire_bench.figures import Figures
from tidewire_bench.makers import RestMaker, StoreMaker
from tidewire_bench.target import Launch, OwnServer, Target, raise_file_limit
from tidewire_bench.workload import Outcome, Progress, Timing, Workload

PREFIX: Final = "TIDEWIRE_"
PROCESSES: Final = "TIDEWIRE_SERVER_PROCESSES"
LIMITS: Final = {
    "gateway.send_chat_rate_per_second": "1000000",
    "gateway.send_chat_burst": "1000000",
    "gateway.send_user_rate_per_second": "1000000",
    "gateway.send_user_burst": "1000000",
    "gateway.requests_waiting_max": "1000",
    "gateway.page_bytes_per_second": "1000000000",
    "gateway.ip_connects_per_minute": "10000000",
    "gateway.user_connects_per_minute": "10000",
    "server.address_connections_max": "1000000",
    "server.address_http_connections_max": "10000",
    "server.http_connections_max": "100000",
    "server.inbound_bytes_per_second": "1000000000",
    "log.level": "warning",
}
"""Settings of a server that we start: its limiters stay in the path, but are never reached."""


def bare_environment() -> dict[str, str]:
    """Our environment, without settings of a server: all settings of a measured server are known,
    except for the number of its processes."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(PREFIX) or name == PROCESSES
    }


def as_variables(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings as a server takes them from its environment."""
    return {PREFIX + name.replace(".", "_").upper(): text for name, text in settings.items()}


def own_launch(directory: Path, limits: Mapping[str, str] = LIMITS) -> Launch:
    """A server with these settings and no others, in a fresh directory."""
    return Launch(directory / "data", bare_environment() | as_variables(limits))


async def run_on_own_server(
    workload: Workload, directory: Path, timing: Timing, progress: Progress
) -> Figures:
    """Measure on a fresh server in a fresh data directory. Raises LoadImpossible."""
    raise_file_limit(workload.connections)
    launch = own_launch(directory)
    storage = await SqliteStorage.open(launch.data_dir)
    try:
        await workload.prepare(StoreMaker(storage, token_key(launch.data_dir), progress))
    finally:
        await storage.close()
    server = OwnServer(launch)
    progress("starting", 0, None)
    outcome = Outcome()
    try:
        target = await server.start()
        figures = await workload.measure(target, timing, outcome, progress)
    finally:
        await server.end()
    return figures.with_checks(outcome.faults, outcome.errors, LIMITS)


async def run_on_url(workload: Workload, url: str, timing: Timing, progress: Progress) -> Figures:
    """Measure on a server that is running already. Raises LoadImpossible."""
    raise_file_limit(workload.connections)
    await workload.prepare(RestMaker(url, progress))
    outcome = Outcome()
    figures = await workload.measure(Target(url), timing, outcome, progress)
    return figures.with_checks(outcome.faults, outcome.errors, {})
