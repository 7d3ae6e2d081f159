"""The workload `storm`: all clients lose their connections at once and come back.

On a server of ours the process is killed and started again; on one given by its URL the clients
drop their sockets. Each client is in three chats and behind by five messages in one of them. They
come back by the ordinary client rules: backoff with jitter, Retry-After obeyed, the digest compared
with what they hold, missing messages synced page by page.
"""

import asyncio
import random
from time import perf_counter
from typing import Final

from tidewire_bench.client import QUIET_BUFFER_BYTES, Client, ConnectFailed, Lost
from tidewire_bench.crowd import Backoff, Neighbourhood, connect_crowd
from tidewire_bench.figures import Figures
from tidewire_bench.ledger import Stream
from tidewire_bench.target import Person, Target
from tidewire_bench.workload import Maker, Outcome, Progress, Timing

BEHIND: Final = 5
CHATS_EACH: Final = 3
_STEP_S: Final = 0.05


class StormClient(Client):
    """Comes back until it holds every message."""

    def __init__(
        self, person: Person, number: int, chat_id: str, outcome: Outcome, chance: random.Random
    ) -> None:
        super().__init__(person, outcome.errors)
        self.number = number
        self.stream = Stream(f"client {number}", outcome.faults)
        self.complete_s: float | None = None
        """When it held everything."""
        self.tried_s = 0.0
        """When it began the try that succeeded."""
        self._chat_id = chat_id
        self._chance = chance

    async def come_back(self, target: Target) -> None:
        backoff = Backoff(self._chance)
        delay_s = backoff.delay_s(self.reconnect_delay_s)
        while True:
            await asyncio.sleep(delay_s)
            self.tried_s = perf_counter()
            try:
                await self.connect(target, self.number, buffer_bytes=QUIET_BUFFER_BYTES)
                await self._catch_up()
            except ConnectFailed as error:
                self.errors[error.kind] += 1
                delay_s = backoff.delay_s(error.retry_after_s)
            except Lost:
                self.errors["lost"] += 1
                delay_s = backoff.delay_s(self.reconnect_delay_s)
            else:
                self.complete_s = perf_counter()
                return

    async def _catch_up(self) -> None:
        """Sync what the digest shows to be missing. Raises Lost."""
        for chat_id, head in self.heads.items():
            cursor = self.stream.last if chat_id == self._chat_id else 0
            if cursor < head:
                async for page in self.pages(chat_id, cursor):
                    self.stream.take_all(page.messages)
                    self.ack(chat_id, page.synced_through)

    def check(self, outcome: Outcome) -> None:
        if self.complete_s is None:
            outcome.faults.add(f"client {self.number} never came back with every message")
        elif list(self.stream.numbers) != list(range(BEHIND)):
            outcome.faults.add(
                f"client {self.number} holds messages {list(self.stream.numbers)}, "
                f"not all {BEHIND} in order"
            )
        elif len(self.heads) != CHATS_EACH:
            outcome.faults.add(f"client {self.number} was told of {len(self.heads)} chats")


class StormLoad:
    """N clients that all come back at once."""

    def __init__(self, count: int) -> None:
        self.name = f"storm {count}"
        self.connections = count

    async def prepare(self, maker: Maker) -> None:
        where = self._where = await Neighbourhood.make(maker, self.connections)
        await maker.fill(list(zip(where.opposite, where.people, strict=False)), BEHIND)

    async def measure(
        self, target: Target, timing: Timing, outcome: Outcome, progress: Progress
    ) -> Figures:
        chance = random.Random()
        clients = [
            StormClient(person, number, self._where.chat_across(number), outcome, chance)
            for number, person in enumerate(self._where.people[: self.connections])
        ]
        await connect_crowd(clients, target, progress, chance=chance)
        lost_s = perf_counter()
        async with asyncio.TaskGroup() as tasks:
            returning = tasks.create_task(_all_back(clients, target, timing))
            reachable_s = await _take_away(clients, target)
            cpu_before_s = target.cpu_s()
            highest_bytes = 0
            while not returning.done():
                done = sum(client.complete_s is not None for client in clients)
                progress("coming back", done, len(clients))
                highest_bytes = max(highest_bytes, target.rss_bytes() or 0)
                await asyncio.sleep(_STEP_S)
        cpu_ms = None
        if cpu_before_s is not None:
            cpu_ms = ((target.cpu_s() or 0.0) - cpu_before_s) * 1000 / len(clients)
        if target.own is not None:
            highest_bytes = target.own.process.highest_rss_bytes()
        for client in clients:
            client.check(outcome)
            client.drop()
        complete = sorted(
            client.complete_s - reachable_s for client in clients if client.complete_s is not None
        )

        tries = sorted(
            client.complete_s - client.tried_s
            for client in clients
            if client.complete_s is not None
        )

        def until(part: float, times_s: list[float] = complete) -> float | None:
            needed = -int(-len(clients) * part // 1)
            return round(times_s[needed - 1], 3) if 0 < needed <= len(times_s) else None

        return Figures(
            workload=self.name,
            durability=target.durability,
            seconds=round(perf_counter() - lost_s, 3),
            connections=len(clients),
            unreachable_s=round(reachable_s - lost_s, 3),
            half_s=until(0.5),
            most_s=until(0.99),
            all_s=until(1.0),
            try_half_s=until(0.5, tries),
            try_most_s=until(0.99, tries),
            server_cpu_ms_per_client=None if cpu_ms is None else round(cpu_ms, 3),
            incomplete=len(clients) - len(complete),
            server_rss_mb_highest=round(highest_bytes / 1e6, 1) if highest_bytes else None,
        )


async def _take_away(clients: list[StormClient], target: Target) -> float:
    """End all connections at the same instant; returns when the server was reachable again."""
    if target.own is None:
        for client in clients:
            client.drop()
        return perf_counter()
    target.own.kill()
    await target.own.start()
    return perf_counter()


async def _all_back(clients: list[StormClient], target: Target, timing: Timing) -> None:
    """Bring back all clients, or as many as make it in time."""
    try:
        async with asyncio.timeout(timing.give_up_s):
            await asyncio.gather(*(client.come_back(target) for client in clients))
    except TimeoutError:
        return
