"""Many quiet people, each in three direct chats, and what it takes to connect them all."""

import asyncio
import random
from collections.abc import Sequence
from typing import Final

from tidewire.client.options import ClientOptions, backoff_ms
from tidewire_bench.client import QUIET_BUFFER_BYTES, Client, ConnectFailed
from tidewire_bench.target import LoadImpossible, Person, Target
from tidewire_bench.workload import Maker, Progress

AT_ONCE: Final = 64
"""How many clients connect at the same time if that number is not what is tested."""
OPTIONS: Final = ClientOptions()
TRIES_MAX: Final = 10


class Backoff:
    """The backoff of the ordinary client; never shorter than the server asked for."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._failures = 0

    def delay_s(self, at_least_s: float = 0.0) -> float:
        self._failures += 1
        delay_s = backoff_ms(self._failures, self._chance, OPTIONS) / 1000
        return max(delay_s, at_least_s * self._chance.uniform(1, 1.25))


class Neighbourhood:
    """People in a ring, each with both neighbours and with the one opposite: three chats each."""

    def __init__(self, people: list[Person], opposite: list[str]) -> None:
        self.people = people
        self.opposite = opposite
        """The chats of person i with person i + half; workloads that need messages fill these."""

    @classmethod
    async def make(cls, maker: Maker, count: int) -> "Neighbourhood":
        # Three chats each need an even number of people. With fewer than four a pair has two chats.
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
    """Connect all, some at a time, with the retries of a client. Raises LoadImpossible."""
    waiting = iter(enumerate(clients))
    connected = 0

    async def connect_some() -> None:
        nonlocal connected
        for number, client in waiting:
            await _connect_patiently(client, target, number, chance)
            connected += 1
            progress("connecting", connected, len(clients))

    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(AT_ONCE, len(clients))):
                tasks.create_task(connect_some())
    except* ConnectFailed as failed:
        raise LoadImpossible(f"not all could connect: {failed.exceptions[0]}") from failed


async def _connect_patiently(
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
