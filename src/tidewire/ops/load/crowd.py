"""Many quiet people, each in three direct chats, and what it takes to connect them all."""

import asyncio
import random
from collections.abc import Sequence
from typing import Final

from tidewire.ops.load.client import QUIET_BUFFER_BYTES, Client, ConnectFailed
from tidewire.ops.load.target import Person, Target
from tidewire.ops.load.workload import Maker, Progress

AT_ONCE: Final = 64
"""How many connect at the same time when nothing is to be proved by it."""
BACKOFF_S: Final = 1.0
BACKOFF_S_MAX: Final = 30.0
JITTER: Final = 0.25
TRIES_MAX: Final = 10


class Backoff:
    """The ordinary client's: 1 s to 30 s, doubling, ±25 %; never sooner than the server asked."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._next_s = BACKOFF_S

    def delay_s(self, at_least_s: float = 0.0) -> float:
        delay_s = self._next_s
        self._next_s = min(BACKOFF_S_MAX, delay_s * 2)
        jitter = self._chance.uniform(1 - JITTER, 1 + JITTER)
        return max(delay_s * jitter, at_least_s * self._chance.uniform(1, 1 + JITTER))


class Neighbourhood:
    """People in a ring, each with both neighbours and with the one opposite: three chats each."""

    def __init__(self, people: list[Person], opposite: list[str]) -> None:
        self.people = people
        self.opposite = opposite
        """The chats across, of person i and i + half; filled by those who need messages."""

    @classmethod
    async def make(cls, maker: Maker, count: int) -> "Neighbourhood":
        # Three chats each need an even number, and four, or a pair would have two chats.
        size = max(4, count + count % 2)
        half = size // 2
        people = await maker.people(size)
        ring = [(people[i], people[(i + 1) % size]) for i in range(size)]
        across = [(people[i], people[i + half]) for i in range(half)]
        await maker.direct(ring)
        return cls(people, await maker.direct(across))

    def chat_across(self, number: int) -> str:
        return self.opposite[number % len(self.opposite)]


async def connect_crowd(
    clients: Sequence[Client], target: Target, progress: Progress, *, chance: random.Random
) -> None:
    """Connect them all, some at a time, as patiently as clients are. Raises ConnectFailed."""
    waiting = iter(enumerate(clients))
    connected = 0

    async def connect_some() -> None:
        nonlocal connected
        for number, client in waiting:
            await connect_patiently(client, target, number, chance)
            connected += 1
            progress("connecting", connected, len(clients))

    async with asyncio.TaskGroup() as tasks:
        for _ in range(min(AT_ONCE, len(clients))):
            tasks.create_task(connect_some())


async def connect_patiently(
    client: Client, target: Target, number: int, chance: random.Random
) -> None:
    backoff = Backoff(chance)
    for left in range(TRIES_MAX, 0, -1):
        try:
            await client.connect(target, number, buffer_bytes=QUIET_BUFFER_BYTES)
        except ConnectFailed as error:
            client.errors[error.kind] += 1
            if left == 1:
                raise
            await asyncio.sleep(backoff.delay_s(error.retry_after_s))
        else:
            return
