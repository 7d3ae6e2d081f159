"""The workload `idle`: what a quiet connection costs the server."""

import asyncio
import random
from time import perf_counter
from typing import Final

from tidewire_bench.client import Client
from tidewire_bench.crowd import Neighbourhood, connect_crowd
from tidewire_bench.figures import Figures
from tidewire_bench.target import Target
from tidewire_bench.workload import Maker, Outcome, Progress, Timing

CHATS_EACH: Final = 3


class IdleLoad:
    """N people, logged in, each in three chats and with its digest; then quiet."""

    def __init__(self, count: int) -> None:
        self.name = f"idle {count}"
        self.connections = count

    async def prepare(self, maker: Maker) -> None:
        self._where = await Neighbourhood.make(maker, self.connections)

    async def measure(
        self, target: Target, timing: Timing, outcome: Outcome, progress: Progress
    ) -> Figures:
        people = self._where.people[: self.connections]
        clients = [Client(person, outcome.errors) for person in people]
        before_bytes = target.rss_bytes()
        started_s, cpu_s = perf_counter(), target.cpu_s()
        await connect_crowd(clients, target, progress, chance=random.Random())
        took_s = perf_counter() - started_s
        for second in range(int(timing.measured_s)):
            progress("quiet", second, int(timing.measured_s))
            await asyncio.sleep(1)
        after_bytes = target.rss_bytes()
        self._check(clients, outcome)
        for client in clients:
            client.drop()
        figures = Figures(
            workload=self.name,
            durability=target.durability,
            seconds=round(took_s, 3),
            connections=len(clients),
            connections_per_s=round(len(clients) / took_s, 1),
        )
        if before_bytes is not None and after_bytes is not None:
            growth = (after_bytes - before_bytes) / len(clients)
            figures.server_rss_kb_per_connection = round(growth / 1024, 2)
            figures.server_rss_mb = round(after_bytes / 1e6, 1)
        if cpu_s is not None:
            figures.server_cpu_s = round((target.cpu_s() or 0.0) - cpu_s, 2)
        return figures

    def _check(self, clients: list[Client], outcome: Outcome) -> None:
        for number, client in enumerate(clients):
            if client.transport is None:
                outcome.faults.add(f"client {number} was not left connected")
            elif len(client.heads) != CHATS_EACH:
                outcome.faults.add(
                    f"the digest of client {number} has {len(client.heads)} chats, not {CHATS_EACH}"
                )
