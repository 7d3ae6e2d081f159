"""What entries cost the store, compared with plain messages: processor time, the two in turns.

An edit, a reaction and a deletion are each measured next to the messages that they amend: a stretch
of messages, then a stretch of amendments of just these, one each, in batches of the same size
through the same append. A page of a hundred messages is read with their current state, with ten
reactions on each and with none: from the store alone, and by requests to a server. Only the ratio
of two neighbouring measurements means something, so the medians and quartiles of ratios are shown,
each beside its bar.
"""

import statistics
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import httpx
import msgspec

from tidewire.domain.accounts import Secret
from tidewire.domain.delivery import Advance
from tidewire.domain.ids import ChatId, ClientMessageId, UserId
from tidewire.domain.messages import Amendment, Appended, EntryKind, SendMessage
from tidewire.engines.sqlite import SqliteStorage
from tidewire.runtime.clock import SystemClock
from tidewire.runtime.id_source import id_source
from tidewire.runtime.token_keys import token_key
from tidewire_bench.frames import CONTENT
from tidewire_bench.makers import StoreMaker
from tidewire_bench.rest import API, said
from tidewire_bench.run import LIMITS, own_launch
from tidewire_bench.target import LoadImpossible, OwnServer, Person

CHATS: Final = 64
BATCH: Final = 16
STRETCH: Final = 384
"""Entries that are timed together."""
WARM_UP: Final = 2
"""Rounds that do not count."""
AMENDMENT_BAR: Final = 1.5
PAGE_BAR: Final = 2.0
PAGE: Final = 100
READS: Final = 10
"""Pages that are timed together."""
REQUESTS: Final = 60
"""The same for a server, whose processor time is known only in steps of 10 ms."""
_PAGE_BYTES: Final = 1 << 20
FEW_KINDS: Final = "👍👍👍👍❤❤❤😂😂🎉"
"""The reactions of ten people, spread over few emojis as in real chats."""
TEN_KINDS: Final = "👍❤😂🎉😮😢🙏🔥👏👀"
_AMENDMENTS: Final = (EntryKind.EDIT, EntryKind.REACT, EntryKind.DELETE)

Place = tuple[ChatId, int]


class EntryCost(msgspec.Struct, frozen=True, kw_only=True):
    """One cost, and the cost it is compared with: processor time, medians over the rounds."""

    what: str
    beside: str
    cost_us: float
    beside_us: float
    low_quartile: float
    ratio: float
    high_quartile: float
    bar: float

    @property
    def is_held(self) -> bool:
        return self.ratio <= self.bar


async def bench_entries(
    directory: Path, *, rounds: int, batch: int, progress: Callable[[str], None]
) -> list[EntryCost]:
    """Measure the store, then a server. Needs two rounds or more."""
    return [
        *await _bench_store(directory / "store", rounds, batch, progress),
        *await _bench_requests(directory / "served", rounds, batch, progress),
    ]


async def _bench_store(
    directory: Path, rounds: int, batch: int, progress: Callable[[str], None]
) -> list[EntryCost]:
    storage = await SqliteStorage.open(directory)
    try:
        maker = StoreMaker(storage, Secret("no login is needed here" * 2), lambda *_: None)
        scene = Scene(storage, batch)
        await scene.fill(maker)
        return [
            *await _bench_amendments(scene, rounds, progress),
            *await _bench_pages(scene, maker, rounds, progress),
        ]
    finally:
        await storage.close()


class Scene:
    """Direct chats in which one member writes and both have read everything."""

    def __init__(self, storage: SqliteStorage, batch: int) -> None:
        self.storage = storage
        self._batch = batch
        self._clock = SystemClock()
        self._ids = id_source()
        self._pairs: dict[ChatId, tuple[UserId, UserId]] = {}

    async def fill(self, maker: StoreMaker) -> None:
        people = await maker.people(2 * CHATS)
        pairs = list(zip(people[::2], people[1::2], strict=True))
        for chat_id, (one, other) in zip(await maker.direct(pairs), pairs, strict=True):
            self._pairs[ChatId(chat_id)] = UserId(one.user_id), UserId(other.user_id)

    def messages(self) -> list[SendMessage]:
        chats = list(self._pairs)
        places = [chats[number % CHATS] for number in range(STRETCH)]
        return [self.send(chat_id, self._pairs[chat_id][0], CONTENT) for chat_id in places]

    def amendments(self, kind: EntryKind, places: Sequence[Place]) -> list[SendMessage]:
        """One amendment of each of these messages: by its author, but a reaction by the other."""
        made = []
        for chat_id, target in places:
            author, other = self._pairs[chat_id]
            is_reaction = kind is EntryKind.REACT
            emoji = FEW_KINDS[0] if is_reaction else None
            amends = Amendment(kind=kind, target=target, emoji=emoji)
            content = CONTENT if kind is EntryKind.EDIT else ""
            made.append(self.send(chat_id, other if is_reaction else author, content, amends))
        return made

    def send(
        self, chat_id: ChatId, sender: UserId, content: str, amends: Amendment | None = None
    ) -> SendMessage:
        return SendMessage(
            chat_id=chat_id,
            sender_id=sender,
            client_message_id=ClientMessageId(str(uuid.uuid4())),
            message_id=self._ids.message_id(self._clock.wall_ms()),
            content=content,
            amends=amends,
        )

    async def page_chats(self, maker: StoreMaker, people: Sequence[Person]) -> dict[str, ChatId]:
        """Groups of these people with a page of messages each, by the reactions to each message."""
        chats: dict[str, ChatId] = {}
        author, *others = [UserId(person.user_id) for person in people]
        for emoji in ("", FEW_KINDS, TEN_KINDS):
            chat_id = chats[emoji] = ChatId(await maker.group(people[0], people[1:]))
            await self.append([self.send(chat_id, author, CONTENT) for _ in range(PAGE)])
            reactions = [
                (user_id, Amendment(kind=EntryKind.REACT, target=target, emoji=one))
                for target in range(1, PAGE + 1)
                for user_id, one in zip(others, emoji, strict=False)
            ]
            await self.append([self.send(chat_id, user, "", one) for user, one in reactions])
        return chats

    async def append(self, sends: Sequence[SendMessage]) -> list[Place]:
        """Append the sends; returns where they were stored. Raises the first refusal."""
        places = []
        for at in range(0, len(sends), self._batch):
            some = sends[at : at + self._batch]
            outcomes = await self.storage.append(some, now_ms=self._clock.wall_ms())
            for send, outcome in zip(some, outcomes, strict=True):
                if not isinstance(outcome, Appended):
                    raise outcome
                places.append((send.chat_id, outcome.sequence))
        return places

    async def read_all(self, places: Sequence[Place]) -> None:
        """All members read up to here: a member who reacts has seen the message."""
        heads = dict(places)
        wishes = [
            Advance(user_id=user_id, chat_id=chat_id, read=heads[chat_id])
            for chat_id, pair in self._pairs.items()
            for user_id in pair
            if chat_id in heads
        ]
        await self.storage.advance(wishes, now_ms=self._clock.wall_ms())


async def _bench_amendments(
    scene: Scene, rounds: int, progress: Callable[[str], None]
) -> Iterator[EntryCost]:
    found: dict[EntryKind, list[tuple[float, float]]] = {kind: [] for kind in _AMENDMENTS}
    for number in range(WARM_UP + rounds):
        progress(f"amendments, round {number + 1} of {WARM_UP + rounds}")
        for kind in _AMENDMENTS:
            sends = scene.messages()
            began = time.process_time()
            places = await scene.append(sends)
            message_us = _us_since(began, STRETCH)
            await scene.read_all(places)
            sends = scene.amendments(kind, places)
            began = time.process_time()
            places = await scene.append(sends)
            amendment_us = _us_since(began, STRETCH)
            await scene.read_all(places)
            if number >= WARM_UP:
                found[kind].append((amendment_us, message_us))
    return (_cost(kind.value, "message", pairs, bar=AMENDMENT_BAR) for kind, pairs in found.items())


async def _bench_pages(
    scene: Scene, maker: StoreMaker, rounds: int, progress: Callable[[str], None]
) -> Iterator[EntryCost]:
    people = await maker.people(len(TEN_KINDS) + 1)
    members = [UserId(person.user_id) for person in people]
    found: dict[str, list[tuple[float, float]]] = {}
    chats = await scene.page_chats(maker, people)

    async def read(emoji: str) -> float:
        # The reader is a member who has reacted to each message.
        reader, chat_id = members[1], chats[emoji]
        counts: list[tuple[int, int]] = []
        began = time.process_time()
        for _ in range(READS):
            page = await scene.storage.messages_before(
                reader, chat_id, PAGE + 1, count_max=PAGE, bytes_max=_PAGE_BYTES
            )
            sequences = [message.sequence for message in page.messages]
            now = await scene.storage.messages_now(reader, chat_id, sequences)
            counts.append((len(sequences), len(now)))
        spent_us = _us_since(began, READS)
        assert counts == [(PAGE, PAGE if emoji else 0)] * READS
        return spent_us

    for number in range(WARM_UP + rounds):
        progress(f"pages, round {number + 1} of {WARM_UP + rounds}")
        for emoji in (FEW_KINDS, TEN_KINDS):
            plain_us = await read("")
            page_us = await read(emoji)
            if number >= WARM_UP:
                name = f"page, {len(set(emoji))} kinds"
                found.setdefault(name, []).append((page_us, plain_us))
    return (
        _cost(name, "page without reactions", pairs, bar=PAGE_BAR) for name, pairs in found.items()
    )


async def _bench_requests(
    directory: Path, rounds: int, batch: int, progress: Callable[[str], None]
) -> Iterator[EntryCost]:
    """The same pages as a client reads them: requests to a server, and its processor time."""
    launch = own_launch(directory, LIMITS | {"rest.reads_per_minute": "10000000"})
    storage = await SqliteStorage.open(launch.data_dir)
    try:
        maker = StoreMaker(storage, token_key(launch.data_dir), lambda *_: None)
        people = await maker.people(len(TEN_KINDS) + 1)
        chats = await Scene(storage, batch).page_chats(maker, people)
    finally:
        await storage.close()
    server = OwnServer(launch)
    found: dict[str, list[tuple[float, float]]] = {}
    try:
        target = await server.start()
        headers = {"Authorization": f"Bearer {people[1].token}"}
        async with httpx.AsyncClient(
            base_url=target.url + API, headers=headers, trust_env=False
        ) as client:

            async def read(emoji: str) -> float:
                began = server.process.cpu_s()
                for _ in range(REQUESTS):
                    answer = await client.get(
                        f"/chats/{chats[emoji]}/messages",
                        params={"limit": PAGE, "before_sequence": PAGE + 1},
                    )
                    if answer.status_code != httpx.codes.OK:
                        raise LoadImpossible(f"a page was refused: {said(answer)}")
                return (server.process.cpu_s() - began) / REQUESTS * 1e6

            for number in range(WARM_UP + rounds):
                progress(f"requests, round {number + 1} of {WARM_UP + rounds}")
                for emoji in (FEW_KINDS, TEN_KINDS):
                    plain_us, page_us = await read(""), await read(emoji)
                    if number >= WARM_UP:
                        name = f"request for a page, {len(set(emoji))} kinds"
                        found.setdefault(name, []).append((page_us, plain_us))
    finally:
        await server.end()
    return (_cost(name, "without reactions", pairs, bar=PAGE_BAR) for name, pairs in found.items())


def _us_since(began_s: float, count: int) -> float:
    return (time.process_time() - began_s) / count * 1e6


def _cost(what: str, beside: str, pairs: Sequence[tuple[float, float]], *, bar: float) -> EntryCost:
    low, median, high = statistics.quantiles([cost / base for cost, base in pairs], n=4)
    return EntryCost(
        what=what,
        beside=beside,
        cost_us=statistics.median(cost for cost, _ in pairs),
        beside_us=statistics.median(base for _, base in pairs),
        low_quartile=low,
        ratio=median,
        high_quartile=high,
        bar=bar,
    )
