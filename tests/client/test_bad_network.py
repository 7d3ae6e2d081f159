"""Two people talk through networks that break all the time: nothing is lost, doubled or out of
order, and the ticks end at the truth.

Goal: what the conformance kit sees with a played server holds with the real one. Method: each
client has a proxy of its own to a real server; between two batches of messages one network breaks:
it is cut, also in the middle of frames, becomes half-open, slow, late or refuses. `make test` sends
2000 messages over 40 faults; NETWORK_FAULTS=200 sends 10 000 over 200. Slow: that is the point.
"""

import asyncio
import os
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.e2e.chatting import PASSWORD, Site
from tests.support.proxy import FaultyProxy
from tidewire.client import (
    Chat,
    Client,
    ClientOptions,
    MessageReceived,
    MessageStored,
    Sent,
    Tick,
    TicksMoved,
)
from tidewire.wire.rest_models import ChatView, Envelope

FAULTS = int(os.environ.get("NETWORK_FAULTS", "40"))
MESSAGES_PER_FAULT = 25
"""Of each of the two, between two faults."""
FAULT_S = 0.15
OPTIONS = ClientOptions(backoff_ms=20, backoff_ms_max=200, ack_ms=200)
SETTLED_S = 120.0


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    # A dead connection is noticed after two intervals.
    with Site(tmp_path / "site", gateway__heartbeat_interval_ms=400) as running:
        yield running
        assert running.complaints() == []


class Talker:
    """One side: writes, listens, and notes what it is shown."""

    def __init__(self, client: Client, chat_id: str, name: str, proxy: FaultyProxy) -> None:
        self.client = client
        self.chat = Chat(client, chat_id)
        self.name = name
        self.proxy = proxy
        self.sent: list[Sent] = []
        self.told: list[int] = []
        """Sequences of messages in the order in which the application was told of them."""
        self.faults: list[str] = []
        self._delivered = 0
        self._read = 0

    async def write(self, count: int) -> None:
        for _ in range(count):
            self.sent.append(await self.chat.send(f"{self.name} {len(self.sent)}"))

    async def listen(self) -> None:
        async for event in self.client.events():
            if isinstance(event, MessageReceived | MessageStored):
                self.told.append(event.message.sequence)
            elif isinstance(event, TicksMoved):
                self._look_at_ticks()

    def _look_at_ticks(self) -> None:
        replica = self.client.driver.core.replicas[self.chat.chat_id]
        if replica.others_delivered < self._delivered or replica.others_read < self._read:
            self.faults.append("ticks went back")
        self._delivered, self._read = replica.others_delivered, replica.others_read

    async def shown(self) -> list[tuple[int, str]]:
        messages = await self.chat.messages(limit=1_000_000)
        return [(message.sequence, message.text) for message in messages]

    async def standing(self) -> tuple[int, int, int]:
        """The server's truth: its head, and how far this user has got and read."""
        path = f"/chats/{self.chat.chat_id}"
        view = (await self.client.rest.call(Envelope[ChatView], "GET", path)).data
        mine = view.my_membership
        return view.current_sequence, mine.last_acked_sequence, mine.last_read_sequence

    async def settled(self, count: int) -> None:
        """Wait until everything is sent and here."""
        for sent in self.sent:
            await sent.stored()
        await until(lambda: len(self.told) >= count)

    async def all_read(self) -> None:
        await self.chat.read()
        for sent in (self.sent[0], self.sent[-1]):
            await sent.read()
        assert {sent.tick for sent in self.sent} == {Tick.READ}


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 - what the application was told has no event of its own
        await asyncio.sleep(0.02)


def faults(rng: random.Random) -> dict[str, Callable[[FaultyProxy], None]]:
    def late(proxy: FaultyProxy) -> None:
        proxy.latency_s = rng.uniform(0.005, 0.05)

    def slow(proxy: FaultyProxy) -> None:
        proxy.bytes_per_second = rng.randrange(5_000, 50_000)

    def refuse(proxy: FaultyProxy) -> None:
        proxy.is_refusing = True
        proxy.cut()

    return {
        "cut": FaultyProxy.cut,
        "cut inside a frame": lambda proxy: proxy.cut_after(rng.randrange(1, 2_000)),
        "half-open": FaultyProxy.half_open,
        "late": late,
        "slow": slow,
        "refusing": refuse,
    }


async def made_pair(site: Site, folder: Path, proxies: list[FaultyProxy]) -> list[Client]:
    clients = []
    for name, proxy in zip(("ann", "bob"), proxies, strict=True):
        client = await Client.register(
            proxy.url, name, PASSWORD, store=folder / f"{name}.db", options=OPTIONS
        )
        clients.append(client)
    return clients


@pytest.mark.slow
@pytest.mark.timeout(180 + 3 * FAULTS)
async def test_bad_networks_lose_double_and_disorder_nothing(site: Site, tmp_path: Path) -> None:
    rng = random.Random("network")
    async with FaultyProxy(site.port) as one, FaultyProxy(site.port) as other:
        ann, bob = await made_pair(site, tmp_path, [one, other])
        async with ann, bob:
            chat_id = (await ann.direct("bob")).chat_id
            talkers = [Talker(ann, chat_id, "ann", one), Talker(bob, chat_id, "bob", other)]
            listening = [asyncio.create_task(talker.listen()) for talker in talkers]
            kinds = faults(rng)
            for number in range(FAULTS):
                kind = list(kinds)[number % len(kinds)]
                victim = rng.choice(talkers)
                writing = [asyncio.create_task(t.write(MESSAGES_PER_FAULT)) for t in talkers]
                await asyncio.sleep(rng.uniform(0, FAULT_S / 3))
                kinds[kind](victim.proxy)
                await asyncio.gather(*writing)
                await asyncio.sleep(FAULT_S)
                victim.proxy.heal()
            count = 2 * FAULTS * MESSAGES_PER_FAULT
            async with asyncio.timeout(SETTLED_S + FAULTS):
                await asyncio.gather(*(talker.settled(count) for talker in talkers))
                await asyncio.gather(*(talker.all_read() for talker in talkers))
            shown = [await talker.shown() for talker in talkers]
            assert [complaint for talker in talkers for complaint in talker.faults] == []
            assert complaints(shown, [talker.told for talker in talkers], count) == []
            # The server leaves no holes, so it has these and no others.
            assert [sequence for sequence, _ in shown[0]] == list(range(1, count + 1))
            for talker in talkers:
                assert await talker.standing() == (count, count, count)
                # What was acked is there under its number, in the order in which it was written.
                own = [(sent.sequence, sent.text) for sent in talker.sent]
                assert own == [one for one in shown[0] if one[1].startswith(talker.name)]
            for task in listening:
                task.cancel()
            await asyncio.wait(listening)
    assert min(one.cuts, other.cuts) > 0


def complaints(
    shown: Sequence[Sequence[tuple[int, str]]], told: Sequence[Sequence[int]], count: int
) -> list[str]:
    """What is wrong with what the two were shown, and with what their applications were told of."""
    found = []
    if shown[0] != shown[1]:
        found.append("the two are shown different things")
    for history, events in zip(shown, told, strict=True):
        sequences = [sequence for sequence, _ in history]
        if len(history) != count:
            found.append(f"{len(history)} messages are shown, not {count}")
        if sequences != sorted(set(sequences)):
            found.append("messages are shown twice, or out of order")
        if list(events) != sequences:
            found.append("the application was not told of each message once, in order")
    return found


def test_complaints_finds_each_kind() -> None:
    good = [(1, "a"), (3, "b")]
    assert complaints([good, good], [[1, 3], [1, 3]], 2) == []
    assert complaints([good, good[:1]], [[1, 3], [1]], 2) != []
    assert complaints([good[:1], good[:1]], [[1], [1]], 2) != []
    assert complaints([good[::-1], good[::-1]], [[3, 1], [3, 1]], 2) != []
    assert complaints([[*good, good[1]]] * 2, [[1, 3, 3]] * 2, 3) != []
    assert complaints([good, good], [[1, 3], [1, 3, 3]], 2) != []
    assert complaints([good, good], [[1, 3], [3, 1]], 2) != []
