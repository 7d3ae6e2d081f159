"""The people in a long mixed run, and what all of them share."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from time import perf_counter
from typing import Any, Final

import httpx

from tidewire_bench.book import Book
from tidewire_bench.client import ConnectFailed, Lost
from tidewire_bench.crowd import Backoff
from tidewire_bench.mixed_client import MixedClient
from tidewire_bench.rest import API, Rest, said
from tidewire_bench.target import Person, Target
from tidewire_bench.workload import Maker, Outcome

PAIRS: Final = 20
GROUPS: Final = 3
GROUP_SIZE: Final = 8
VISITORS: Final = 4
ACCESS_TOKEN_S: Final = 120.0
"""So short that connections end when it expires and tokens are refreshed all the time."""


class Scene:
    """People, chats, and what happens to them."""

    def __init__(
        self, target: Target, outcome: Outcome, people: Sequence[Person], registered_s: float
    ) -> None:
        self.target = target
        self.outcome = outcome
        self.rest = Rest(target.url)
        self.book = Book(outcome.faults)
        self.chance = random.Random()
        self.done: Counter[str] = Counter()
        """How often each kind of act was done."""
        self.remembered: dict[str, tuple[MixedClient, Any]] = {}
        """For each chat, a client and the page of history that it read last."""
        self.is_over = asyncio.Event()
        clients = [MixedClient(one, at, self.book, outcome) for at, one in enumerate(people)]
        self.talkers = clients[: 2 * PAIRS]
        self.talks: list[list[str]] = [[] for _ in self.talkers]
        """The chats that each talker writes to, by its number: its own pair, then groups."""
        self.visitors = clients[2 * PAIRS : 2 * PAIRS + VISITORS]
        """They are added to the open house and removed again, and only read."""
        self.loud, self.slow, self.host, self.vandal, self.mute = clients[2 * PAIRS + VISITORS :]
        """The host owns the groups, writes over REST only and never connects; the last two break
        rules, and connect in their own ways only."""
        self.slow.is_narrow = True
        self.loud_chat = ""
        self.open_house = ""
        self._refreshed_s = dict.fromkeys(range(len(clients)), registered_s)
        self._refreshing = asyncio.Lock()

    @classmethod
    async def make(cls, maker: Maker, target: Target, outcome: Outcome) -> "Scene":
        """Register all people and make their chats."""
        began_s = perf_counter()
        people = await maker.people(2 * PAIRS + VISITORS + 5)
        scene = cls(target, outcome, people, began_s)
        pairs = [(people[at], people[at + 1]) for at in range(0, 2 * PAIRS, 2)]
        *chats, scene.loud_chat = await maker.direct(
            [*pairs, (scene.loud.person, scene.slow.person)]
        )
        for number, talks in enumerate(scene.talks):
            talks.append(chats[number // 2])
        for first in range(0, (GROUPS + 1) * GROUP_SIZE, GROUP_SIZE):
            members = range(first, first + GROUP_SIZE)
            scene.open_house = await maker.group(
                scene.host.person, [people[number] for number in members]
            )
            for number in members:
                scene.talks[number].append(scene.open_house)
        return scene

    @property
    def clients(self) -> list[MixedClient]:
        return [*self.talkers, *self.visitors, self.loud, self.slow]

    async def pause(self, seconds: float) -> bool:
        """Wait; False if the run is over."""
        try:
            await asyncio.wait_for(self.is_over.wait(), seconds)
        except TimeoutError:
            return True
        return False

    async def every(self, seconds: float, act: Callable[[], Awaitable[None]]) -> None:
        """Repeat an act about every so many seconds, one at a time; the first time sooner, so that
        a short run has everything in it."""
        wait_s = seconds * self.chance.uniform(0.0, 0.5)
        while await self.pause(wait_s):
            await act()
            wait_s = seconds * self.chance.uniform(0.5, 1.5)

    async def every_until_cut(
        self, seconds: float, act: Callable[[], Coroutine[object, object, None]]
    ) -> None:
        """As `every`, but the end of the run cancels an act instead of waiting for it."""
        repeating = asyncio.ensure_future(self.every(seconds, act))
        await self.is_over.wait()
        repeating.cancel()
        await asyncio.wait([repeating])
        if not repeating.cancelled():
            repeating.result()

    async def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        by: MixedClient | Person | None = None,
    ) -> Any:
        """The data of an answer that has to be a success; otherwise None, and a fault is added."""
        try:
            actor = await self.fresh(by) if isinstance(by, MixedClient) else by
            answer = await self.rest.ask(method, API + path, body, actor)
        except httpx.HTTPError as error:
            self.outcome.faults.add(f"{method} {path.partition('?')[0]} got no answer: {error!r}")
            return None
        if not answer.is_success:
            self.outcome.faults.add(
                f"{method} {path.partition('?')[0]} was refused: {said(answer)}"
            )
            return None
        return answer.json().get("data", {}) if answer.content else {}

    async def fresh(self, client: MixedClient) -> Person:
        """The person, with a token that is good for a while. Raises LoadImpossible."""
        async with self._refreshing:
            now_s = perf_counter()
            if now_s - self._refreshed_s[client.number] > ACCESS_TOKEN_S / 2:
                await client.refresh(self.rest)
                self._refreshed_s[client.number] = now_s
                self.done["tokens refreshed"] += 1
        return client.person

    async def bring(self, client: MixedClient) -> None:
        """Connect with a client's retries and a token that is good for a while."""
        backoff = Backoff(self.chance)
        while client.transport is None:
            await self.fresh(client)
            try:
                await client.arrive(self.target)
                self.done["connections"] += 1
            except ConnectFailed as error:
                client.errors[error.kind] += 1
                await asyncio.sleep(backoff.delay_s(error.retry_after_s))
            except Lost as error:
                client.errors[f"lost {error}"] += 1
                client.drop()
                await client.ended()
