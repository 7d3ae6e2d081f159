"""Who is there in a long mixed run, and what all of them share."""

import asyncio
import http.client
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Final

from tidewire.ops.load.book import Book
from tidewire.ops.load.client import ConnectFailed, Lost
from tidewire.ops.load.crowd import Backoff
from tidewire.ops.load.mixed_client import MixedClient
from tidewire.ops.load.rest_calls import API, Answer, Rest
from tidewire.ops.load.target import Person, Target
from tidewire.ops.load.workload import Maker, Outcome

PAIRS: Final = 20
GROUPS: Final = 3
GROUP_SIZE: Final = 8
VISITORS: Final = 4
ACCESS_TOKEN_S: Final = 120.0
"""So short that connections end by it and tokens are refreshed all the time."""


@dataclass(slots=True, kw_only=True)
class Scene:
    """People, chats, and what happens to them."""

    target: Target
    rest: Rest
    book: Book
    outcome: Outcome
    chance: random.Random
    talkers: list[MixedClient]
    talks: dict[int, list[str]]
    """The chats that each talker writes to, by its number: the own pair, then groups."""
    visitors: list[MixedClient]
    """They come into the open house and are put out again, and only read."""
    open_house: str
    host: MixedClient
    """Owns the groups, writes over REST only and never connects."""
    loud: MixedClient
    slow: MixedClient
    loud_chat: str
    vandal: MixedClient
    mute: MixedClient
    """Both break rules, and connect in their own ways only."""
    made_s: float
    """When the first of them had its first token."""
    done: Counter[str] = field(default_factory=Counter)
    """What happened how often."""
    is_over: asyncio.Event = field(default_factory=asyncio.Event)
    _refreshed_s: dict[int, float] = field(default_factory=dict)
    _refreshing: asyncio.Lock = field(default_factory=asyncio.Lock)

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
        """Again and again, about as often, one at a time."""
        while await self.pause(seconds * self.chance.uniform(0.5, 1.5)):
            await act()

    async def every_until_cut(
        self, seconds: float, act: Callable[[], Coroutine[object, object, None]]
    ) -> None:
        """The same, but the end does not wait for it."""
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
    ) -> Answer | None:
        """An answer that has to be a good one; None and a fault otherwise."""
        try:
            actor = await self.fresh(by) if isinstance(by, MixedClient) else by
            answer = await self.rest.ask(method, API + path, body, actor)
        except (OSError, http.client.HTTPException) as error:
            self.outcome.faults.add(f"{method} {path.partition('?')[0]} got no answer: {error!r}")
            return None
        if not answer.is_good:
            self.outcome.faults.add(f"{method} {path.partition('?')[0]} was refused: {answer.said}")
            return None
        return answer

    async def fresh(self, client: MixedClient) -> Person:
        """The person, with a token that is good for a while. Raises LoadImpossible."""
        async with self._refreshing:
            now_s = perf_counter()
            since_s = self._refreshed_s.setdefault(client.number, self.made_s)
            if now_s - since_s > ACCESS_TOKEN_S / 2:
                await client.refresh(self.rest)
                self._refreshed_s[client.number] = now_s
                self.done["tokens refreshed"] += 1
        return client.person

    async def bring(self, client: MixedClient) -> None:
        """Connect as patiently as clients are, with a token that is good for a while."""
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


async def make_scene(maker: Maker, target: Target, outcome: Outcome) -> Scene:
    """Register everybody and make their chats."""
    book, made_s = Book(outcome.faults), perf_counter()
    people = await maker.people(2 * PAIRS + VISITORS + 5)
    clients = [MixedClient(person, at, book, outcome) for at, person in enumerate(people)]
    talkers, visitors = clients[: 2 * PAIRS], clients[2 * PAIRS : 2 * PAIRS + VISITORS]
    loud, slow, host, vandal, mute = clients[2 * PAIRS + VISITORS :]
    slow.is_narrow = True
    pairs = [(people[at], people[at + 1]) for at in range(0, 2 * PAIRS, 2)]
    chats = await maker.direct(pairs)
    talks = {at: [chats[at // 2]] for at in range(2 * PAIRS)}
    (loud_chat,) = await maker.direct([(loud.person, slow.person)])
    open_house = ""
    for number in range(GROUPS + 1):
        members = talkers[number * GROUP_SIZE : (number + 1) * GROUP_SIZE]
        open_house = await maker.group(host.person, [one.person for one in members])
        for one in members:
            talks[one.number].append(open_house)
    return Scene(
        target=target,
        rest=Rest(target.url),
        book=book,
        outcome=outcome,
        chance=random.Random(),
        talkers=talkers,
        talks=talks,
        visitors=visitors,
        open_house=open_house,
        host=host,
        loud=loud,
        slow=slow,
        loud_chat=loud_chat,
        vandal=vandal,
        mute=mute,
        made_s=made_s,
    )
