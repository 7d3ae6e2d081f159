"""Runs the mixes of `mixes` on a cluster whose database is behind a counting proxy."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final
from urllib.parse import urlsplit

from tidewire.client.acks import Acks
from tidewire.client.options import ClientOptions
from tidewire.client.replica import Replica
from tidewire.domain.chats import ChatType
from tidewire.domain.ids import ChatId
from tidewire.engines.dynamodb.storage import DynamoStorage
from tidewire.engines.kafka.topics import create_topics, delete_topics
from tidewire.wire.client_frames import AckPayload, ReadPayload
from tidewire_bench.client import Client
from tidewire_bench.cluster import Ground, patient, tables
from tidewire_bench.counting import CountingProxy
from tidewire_bench.frames import CONTENT, Frame, Push, SendAck, message_key, one_way, request
from tidewire_bench.makers import StoreMaker
from tidewire_bench.mixes import Cost, Mix
from tidewire_bench.target import LoadImpossible, Person, Target
from tidewire_bench.units import STANDING, Spent, Tally
from tidewire_bench.workload import Progress

ACK_S_MAX: Final = 20.0
SETTLE_S: Final = 2.0
"""How long to wait for background work after a message, and for connections to begin and end."""
SEED: Final = 16
GATEWAYS: Final = 2


class Device(Client):
    """One person's device in one chat, which acknowledges by the rules of our own client."""

    def __init__(
        self, person: Person, errors: Counter[str], chat_id: str, mix: Mix, random: Random
    ) -> None:
        super().__init__(person, errors)
        self._mix = mix
        self._random = random
        self._acks = Acks(ClientOptions())
        self._replica = Replica(
            chat_id=ChatId(chat_id),
            chat_type=ChatType.DIRECT if mix.members == 2 else ChatType.GROUP,
            waiting_max=1,
        )
        self._timer: asyncio.TimerHandle | None = None
        self._sent: asyncio.Future[int] | None = None

    async def say(self, sender: int, number: int) -> int:
        """Send a message and wait for its sequence. Raises TimeoutError."""
        self._sent = asyncio.get_running_loop().create_future()
        frame = request(
            "send_message",
            f"m{number}",
            client_message_id=message_key(sender, number),
            chat_id=self._replica.chat_id,
            content=CONTENT,
            seen_sequence=self._replica.read,
        )
        self.send(frame)
        return await asyncio.wait_for(self._sent, ACK_S_MAX)

    def received(self, frame: Frame) -> None:
        match frame:
            case Push(item) if item.chat_id == self._replica.chat_id:
                self._replica.others_through = item.sequence
                self._got(item.sequence)
                if self._mix.read_s is not None:
                    after_s = self._random.uniform(*self._mix.read_s)
                    asyncio.get_running_loop().call_later(after_s, self._read, item.sequence)
            case SendAck(ack) if self._sent is not None and not self._sent.done():
                self._got(ack.sequence)
                self._sent.set_result(ack.sequence)
            case _:
                super().received(frame)

    def _got(self, sequence: int) -> None:
        """A message is on this device's disk."""
        if self._mix.read_s is None:
            return
        self._replica.cursor = self._replica.stored = max(self._replica.stored, sequence)
        self._acks.stored(self._replica, 1, _now_ms())
        self._tell()

    def _read(self, sequence: int) -> None:
        if self._replica.read_through(sequence):
            self._acks.read(self._replica, _now_ms())
            self._tell()

    def _tell(self) -> None:
        """Send what is due, and set a timer for what is due next."""
        for frame in self._acks.flush(_now_ms()):
            payload = frame.payload
            if isinstance(payload, ReadPayload):
                last = {"last_read_sequence": payload.last_read_sequence}
                self.send(one_way("read", chat_id=payload.chat_id, **last))
            elif isinstance(payload, AckPayload):
                last = {"last_acked_sequence": payload.last_acked_sequence}
                self.send(one_way("ack", chat_id=payload.chat_id, **last))
        if self._timer is not None:
            self._timer.cancel()
        due_at_ms = self._acks.next_deadline_ms()
        if due_at_ms is not None and self.transport is not None:
            after_s = max(0.001, (due_at_ms - _now_ms()) / 1000)
            self._timer = asyncio.get_running_loop().call_later(after_s, self._tell)


@dataclass(slots=True)
class Stage:
    """A cluster, the chat of each mix, and what its database has done so far."""

    proxy: CountingProxy
    targets: Sequence[Target]
    chats: dict[str, tuple[str, list[Person]]]
    errors: Counter[str] = field(default_factory=Counter)

    async def run(self, mix: Mix, progress: Progress) -> Cost:
        chat_id, people = self.chats[mix.name]
        random = Random(SEED)
        devices = [
            Device(person, self.errors, chat_id, mix, random) for person in people[: mix.online]
        ]
        progress(f"{mix.name}: connecting", 0, None)
        for index, device in enumerate(devices):
            await device.connect(self.targets[index % len(self.targets)], index)
        try:
            await asyncio.sleep(SETTLE_S)
            spent = await self._measure(mix, devices, progress)
        finally:
            for device in devices:
                device.drop()
            await asyncio.sleep(SETTLE_S)
        if self.errors:
            raise LoadImpossible(f"{mix.name} went wrong: {dict(self.errors)}")
        return _cost(mix, spent)

    async def _measure(self, mix: Mix, devices: Sequence[Device], progress: Progress) -> Tally:
        if mix.is_idle:
            progress(mix.name, 0, None)
            await asyncio.sleep(mix.warm_up * mix.period_s)
            before = self.proxy.tally.copy()
            await asyncio.sleep(mix.period_s)
            return self.proxy.tally.since(before)
        before = self.proxy.tally.copy()
        count = mix.warm_up + mix.messages
        began_s = time.monotonic()
        for number in range(count):
            progress(mix.name, number, count)
            if number == mix.warm_up:
                if not mix.period_s:
                    # Background work of the messages before must not be measured.
                    await asyncio.sleep(SETTLE_S)
                before = self.proxy.tally.copy()
            author = number % len(devices)
            await devices[author].say(author, number)
            if mix.period_s:
                rest_s = began_s + (number + 1) * mix.period_s - time.monotonic()
                await asyncio.sleep(max(0.0, rest_s))
        if not mix.period_s:
            await asyncio.sleep(SETTLE_S)
        return self.proxy.tally.since(before)


async def measure_units(
    mixes: Sequence[Mix],
    directory: Path,
    progress: Progress,
    *,
    settings: Mapping[str, str] | None = None,
    command: Sequence[str] | None = None,
) -> list[Cost]:
    """What each mix costs, on a cluster of its own. Its processes may be given further settings,
    and be started by another command. Raises LoadImpossible."""
    ground = Ground(directory)
    address = urlsplit(ground.dynamodb.endpoint_url)
    if address.scheme != "http" or address.hostname != "127.0.0.1" or address.port is None:
        raise LoadImpossible(
            "units are counted in front of a DynamoDB Local on this machine; "
            "dynamodb.endpoint_url is to be http://127.0.0.1:PORT (make stack)"
        )
    progress("tables", 0, None)
    await asyncio.to_thread(create_topics, ground.kafka)
    try:
        async with tables(ground.dynamodb, ""), CountingProxy.running(address.port) as proxy:
            chats = await _chats(ground, mixes, progress)
            own = dict(settings or {}) | {"dynamodb.endpoint_url": f"http://127.0.0.1:{proxy.port}"}
            servers = [
                ground.server("gateway", f"gateway{number}", own, command)
                for number in range(GATEWAYS)
            ]
            servers.append(ground.server("fanout", "fanout", own, command))
            progress("starting", 0, None)
            try:
                targets = await asyncio.gather(*(server.start() for server in servers))
                stage = Stage(proxy, targets[:GATEWAYS], chats)
                return [await stage.run(mix, progress) for mix in mixes]
            finally:
                await asyncio.gather(*(server.end() for server in servers))
    finally:
        await asyncio.to_thread(delete_topics, ground.kafka)


async def _chats(
    ground: Ground, mixes: Sequence[Mix], progress: Progress
) -> dict[str, tuple[str, list[Person]]]:
    made = {}
    storage = await DynamoStorage.open(patient(ground.dynamodb))
    try:
        maker = StoreMaker(storage, ground.secret, progress)
        for mix in mixes:
            people = await maker.people(mix.members)
            if mix.members == 2:
                [chat_id] = await maker.direct([(people[0], people[1])])
            else:
                chat_id = await maker.group(people[0], people[1:])
            made[mix.name] = (chat_id, people)
    finally:
        await storage.close()
    return made


def _cost(mix: Mix, spent: Tally) -> Cost:
    divisor = mix.period_s if mix.is_idle else mix.messages
    total = spent.total(without=frozenset() if mix.is_idle else STANDING)
    return Cost(
        mix=mix.name,
        what=mix.what,
        writes=round(total.writes / divisor, 1),
        reads=round(total.reads / divisor, 1),
        requests=round(total.requests / divisor, 1),
        dollars=round(total.dollars / divisor, 2),
        bar=mix.bar,
        by_cause={
            f"{cause} {what}": _parts(part, divisor)
            for cause, what, part in spent.lines()
            if part != Spent()
        },
    )


def _parts(part: Spent, divisor: float) -> dict[str, float]:
    parts = {"writes": part.writes, "reads": part.reads, "requests": part.requests}
    return {name: round(count / divisor, 3) for name, count in parts.items() if count}


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
