"""The workload `storm`: everybody loses the connection at once and comes back.

On a server of ours the process is killed and started again; on somebody else's the clients let go
of their sockets. Each client is in three chats and behind by five messages in one of them. They
come back by the ordinary client rules: backoff with jitter, Retry-After obeyed, the digest compared
with what they hold, what is missing synced page by page.
"""

import asyncio
import random
from time import perf_counter
from typing import Final

from tidewire.ops.load.client import QUIET_BUFFER_BYTES, Client, ConnectFailed, Lost
from tidewire.ops.load.crowd import Backoff, Neighbourhood, connect_crowd
from tidewire.ops.load.figures import Figures
from tidewire.ops.load.frames import number_of
from tidewire.ops.load.ledger import Stream
from tidewire.ops.load.target import LoadImpossible, Person, Target
from tidewire.ops.load.workload import Maker, Outcome, Progress, Timing

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
        self._chat_id = chat_id
        self._chance = chance

    async def come_back(self, target: Target) -> None:
        backoff = Backoff(self._chance)
        delay_s = backoff.delay_s(self.reconnect_delay_s)
        while True:
            await asyncio.sleep(delay_s)
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
            while cursor < head:
                page = await self.sync_page(chat_id, cursor)
                for item in page.messages:
                    number = number_of(item.client_message_id)
                    self.stream.take(item.sequence, item.prev_sequence, number)
                cursor = page.synced_through
                self.ack(chat_id, cursor)
                if not page.has_more:
                    break

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
        self._where: Neighbourhood | None = None

    async def prepare(self, maker: Maker) -> None:
        where = self._where = await Neighbourhood.make(maker, self.connections)
        await maker.fill(list(zip(where.opposite, where.people, strict=False)), BEHIND)

    async def measure(
        self, target: Target, timing: Timing, outcome: Outcome, progress: Progress
    ) -> Figures:
        assert self._where is not None
        chance = random.Random()
        clients = [
            StormClient(person, number, self._where.chat_across(number), outcome, chance)
            for number, person in enumerate(self._where.people[: self.connections])
        ]
        try:
            await connect_crowd(clients, target, progress, chance=chance)
        except* ConnectFailed as failed:
            raise LoadImpossible(f"not all could connect: {failed.exceptions[0]}") from failed
        lost_s = perf_counter()
        async with asyncio.TaskGroup() as tasks:
            returning = tasks.create_task(_all_back(clients, target, timing))
            reachable_s = await _take_away(clients, target)
            highest_bytes = 0
            while not returning.done():
                done = sum(client.complete_s is not None for client in clients)
                progress("coming back", done, len(clients))
                highest_bytes = max(highest_bytes, target.rss_bytes() or 0)
                await asyncio.sleep(_STEP_S)
        if target.own is not None:
            highest_bytes = target.own.process.highest_rss_bytes()
        for client in clients:
            client.check(outcome)
            client.drop()
        figures = self._figures(clients, lost_s, reachable_s, highest_bytes)
        figures.durability = target.durability
        return figures

    def _figures(
        self, clients: list[StormClient], lost_s: float, reachable_s: float, highest_bytes: int
    ) -> Figures:
        complete = sorted(
            client.complete_s - reachable_s for client in clients if client.complete_s is not None
        )

        def until(part: float) -> float | None:
            needed = -int(-len(clients) * part // 1)
            return round(complete[needed - 1], 3) if 0 < needed <= len(complete) else None

        return Figures(
            workload=self.name,
            durability="",
            seconds=round(perf_counter() - lost_s, 3),
            connections=len(clients),
            unreachable_s=round(reachable_s - lost_s, 3),
            half_s=until(0.5),
            most_s=until(0.99),
            all_s=until(1.0),
            incomplete=len(clients) - len(complete),
            server_rss_mb_highest=round(highest_bytes / 1e6, 1) if highest_bytes else None,
        )


async def _take_away(clients: list[StormClient], target: Target) -> float:
    """End all connections at the same instant; when the server could be reached again."""
    if target.own is None:
        for client in clients:
            client.drop()
        return perf_counter()
    target.own.kill()
    await target.own.start()
    return perf_counter()


async def _all_back(clients: list[StormClient], target: Target, timing: Timing) -> None:
    """Everybody, or as many as make it in time."""
    try:
        async with asyncio.timeout(timing.give_up_s):
            await asyncio.gather(*(client.come_back(target) for client in clients))
    except TimeoutError:
        return
