"""The soak: mixed load for any length of time, on a server that has to stay as it was.

People talk in pairs and groups, edit, delete, react and reply, come and go, ask over REST; some
break the rules. Everything that was acknowledged has to arrive once and in order; no read may show
what was deleted before it; in the end an earlier page and the entries since then have to give what
its reader and another member are shown. Memory, files, tasks, threads, queues and the write-ahead
log are watched meanwhile. What this tool remembers is bounded, however long it runs.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import Final

import msgspec

from tidewire.engines.sqlite.database import SqliteOptions
from tidewire_bench import run
from tidewire_bench.flatness import Bounds, Line, Sample, judge
from tidewire_bench.makers import RestMaker
from tidewire_bench.scene import ACCESS_TOKEN_S, Scene
from tidewire_bench.soak_acts import acts, agree
from tidewire_bench.target import (
    Launch,
    LoadImpossible,
    OwnServer,
    Process,
    raise_file_limit,
)
from tidewire_bench.workload import Outcome, Progress

SAMPLES_MAX: Final = 1_800
SAMPLE_S_MIN: Final = 0.5
STOP_S_MAX: Final = 10.0
_QUIET_S: Final = 1.0
_SETTLE_S_MAX: Final = 60.0
"""How long it may take until mute peers have been found and their sockets closed."""
_DRAIN_S_MAX: Final = 60.0

LIMITS: Final[Mapping[str, str]] = {
    "accounts.access_token_ms": str(int(ACCESS_TOKEN_S * 1000)),
    "accounts.passwords.memory_kib": "1024",
    "accounts.throttle.register_ip_burst": "1000",
    "accounts.throttle.login_ip_burst": "100000",
    "chats.strangers_per_hour": "1000000",
    "rest.anonymous_per_minute": "1000000",
    "rest.reads_per_minute": "1000000",
    "rest.writes_per_minute": "1000000",
    "gateway.ping_interval_ms": "5000",
    "gateway.outbound_bytes_max": str(128 * 1024),
}
"""Besides those of every load: what otherwise takes minutes happens in seconds here."""


METRICS: Final[Mapping[str, str]] = {
    "connections": "gateway_connections_active",
    "tasks": "event_loop_tasks",
    "sqlite_bytes": "sqlite_memory_bytes",
    "wal_bytes": "sqlite_wal_size_bytes",
    "lag_s": "event_loop_lag_seconds",
    "sends_waiting": "durability_queue_depth",
    "writes_waiting": "durability_writes_waiting",
    "positions_waiting": "delivery_positions_waiting",
    "unsent_bytes": "gateway_buffer_size_bytes",
}
"""The server's metrics that a sample has, by the name of its field."""


class SoakFigures(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a soak has seen."""

    workload: str = "soak"
    seconds: float
    messages: int
    messages_per_s: float
    deliveries: int
    connections: int
    done: dict[str, int]
    errors: dict[str, int]
    limits: dict[str, str]
    watched: list[Line]
    complaints: list[str]
    """What grew, and what else was wrong with the server."""
    stop_s: float
    verified: str
    generator_rss_mb: float
    remembered_highest: int
    fault_count: int = 0
    faults: list[str] = []
    samples: list[Sample] = []


async def run_soak(directory: Path, seconds: float, progress: Progress) -> SoakFigures:
    """Soak a fresh server in a fresh data directory. Raises LoadImpossible."""
    raise_file_limit(200)
    limits = {**run.LIMITS, **LIMITS}
    launch = run.own_launch(directory, limits)
    server = OwnServer(launch)
    outcome = Outcome()
    try:
        target = await server.start()
        scene = await Scene.make(RestMaker(target.url, progress), target, outcome)
        soak = _Soak(scene, seconds, progress)
        await soak.go()
        begun_s = perf_counter()
        exit_code = await server.end()
        stop_s = perf_counter() - begun_s
    finally:
        server.kill()
    verdict = judge(soak.samples, soak.before, soak.after, seconds=seconds, bounds=bounds())
    complaints = list(verdict.complaints)
    if exit_code != 0 or stop_s > STOP_S_MAX:
        complaints.append(f"SIGTERM ended the server with {exit_code} after {stop_s:.1f} s")
    progress("verifying", 0, None)
    verified = await asyncio.to_thread(_verify, launch)
    if verified:
        complaints.append(f"verify: {verified}")
    return SoakFigures(
        seconds=round(soak.took_s, 1),
        messages=scene.book.acked_count,
        messages_per_s=round(scene.book.acked_count / soak.took_s, 1),
        deliveries=scene.book.taken_count,
        connections=len(scene.clients),
        done=dict(sorted(scene.done.items())),
        errors=dict(sorted(outcome.errors.items())),
        limits=limits,
        watched=verdict.lines,
        complaints=complaints,
        stop_s=round(stop_s, 2),
        verified=verified or "nothing wrong",
        generator_rss_mb=round(soak.generator_rss / 1e6, 1),
        remembered_highest=soak.remembered_highest,
        fault_count=outcome.faults.count,
        faults=list(outcome.faults.first),
        samples=soak.samples,
    )


def bounds() -> Bounds:
    """What the server's settings allow."""
    options = SqliteOptions()
    caches_kib = options.writer_cache_kib + (options.readers + 1) * options.reader_cache_kib
    return Bounds(sqlite_bytes=caches_kib * 1024, wal_bytes=options.wal_bytes_max)


def _verify(launch: Launch) -> str:
    """Run `tidewire verify` on the data of the stopped server; returns what it says if it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "tidewire", "verify", str(launch.data_dir)],
        capture_output=True,
        text=True,
        env=dict(launch.environment),
        check=False,
    )
    return "" if done.returncode == 0 else (done.stdout + done.stderr)[-2_000:].strip()


class _Soak:
    """From the first connection to the last check."""

    def __init__(self, scene: Scene, seconds: float, progress: Progress) -> None:
        self.scene = scene
        self.samples: list[Sample] = []
        self.took_s = 0.0
        self.generator_rss = 0
        self.remembered_highest = 0
        self._seconds = seconds
        self._progress = progress
        self._begun_s = perf_counter()
        assert scene.target.own is not None
        self._process = scene.target.own.process

    async def go(self) -> None:
        scene = self.scene
        await self._all_there()
        await asyncio.sleep(_QUIET_S)
        self.before = await self._quiet_level()
        self._begun_s = perf_counter()
        try:
            async with asyncio.TaskGroup() as tasks:
                for act in acts(scene):
                    tasks.create_task(act)
                tasks.create_task(self._watch())
        except* (LoadImpossible, OSError) as failed:
            raise LoadImpossible(f"the soak was broken off: {failed.exceptions[0]}") from failed
        await self._all_there()
        await self._drain()
        scene.book.check_complete()
        await agree(scene)
        self.after = await self._settled()
        for client in scene.clients:
            client.drop()

    async def _all_there(self) -> None:
        for number, client in enumerate(self.scene.clients):
            self._progress("connecting", number, len(self.scene.clients))
            await self.scene.bring(client)

    async def _watch(self) -> None:
        """Take samples until the time is up."""
        interval_s = max(SAMPLE_S_MIN, self._seconds / SAMPLES_MAX)
        while (spent_s := perf_counter() - self._begun_s) < self._seconds:
            self._progress("soaking", int(spent_s), int(self._seconds))
            self.samples.append(await self._sample())
            self.remembered_highest = max(self.remembered_highest, self.scene.book.remembered_count)
            await asyncio.sleep(interval_s)
        self.took_s = perf_counter() - self._begun_s
        self.generator_rss = Process(os.getpid()).rss_bytes()
        self.scene.is_over.set()

    async def _sample(self) -> Sample:
        """Take one sample. Raises LoadImpossible if the server lacks one of the metrics."""
        told = await self.scene.rest.metrics()
        missing = [name for name in METRICS.values() if name not in told]
        if missing:
            raise LoadImpossible(f"/metrics of the server has no {', '.join(missing)}")
        return Sample(
            at_s=round(perf_counter() - self._begun_s, 2),
            rss_bytes=self._process.rss_bytes(),
            threads=self._process.threads(),
            files=self._process.files(),
            **{field: told[name] for field, name in METRICS.items()},
        )

    async def _drain(self) -> None:
        """Wait until everything under way was acknowledged and has arrived."""
        end_s = perf_counter() + _DRAIN_S_MAX
        while perf_counter() < end_s and not self._is_all_here():
            await asyncio.sleep(0.05)
            for client in self.scene.clients:
                await self.scene.bring(client)
        for client in self.scene.clients:
            if client.under_way:
                self.scene.outcome.faults.add(f"{client.name} still waits for an ack")

    def _is_all_here(self) -> bool:
        return all(
            client.is_complete
            and not client.under_way
            and all(reader.last >= reader.chat.head for reader in client.readers.values())
            for client in self.scene.clients
        )

    async def _quiet_level(self) -> Sample:
        """The lowest of a few samples: a request that is just closing has a file and a task too."""
        taken = []
        for _ in range(5):
            await asyncio.sleep(0.2)
            taken.append(await self._sample())
        return min(taken, key=lambda sample: (sample.files, sample.tasks))

    async def _settled(self) -> Sample:
        """A sample of the quiet server, once it is back at its old level, or after a while."""
        end_s = perf_counter() + _SETTLE_S_MAX
        while True:
            self._progress("settling", 0, None)
            await self._all_there()
            level = await self._quiet_level()
            if perf_counter() > end_s or (
                level.files <= self.before.files
                and level.tasks <= self.before.tasks
                and level.connections == self.before.connections
            ):
                return level
