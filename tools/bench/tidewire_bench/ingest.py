"""How fast messages are stored for good, compared with the least that any program has to do.

Two systems take turns on the same file system: the product (ingest service, batcher, group commit)
under senders that each keep one message outstanding, and the ceiling: the same SQL statements in a
bare loop that commits batches of as many messages as there are senders, with nothing around them.
"""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import apsw
import msgspec

from tidewire.domain.accounts import Secret
from tidewire.domain.ids import ChatId, ClientMessageId, UserId
from tidewire.domain.messages import Appended, AppendOutcome, MessageBody
from tidewire.engines.sqlite import SqliteOptions, SqliteStorage
from tidewire.engines.sqlite.append import (
    FIND_AUTHORS,
    FIND_KEYS,
    INSERT_MESSAGES,
    MOVE_COUNTERS,
)
from tidewire.engines.sqlite.database import DATABASE_NAME, ask_rows, connect, execute_rows
from tidewire.engines.sqlite.positions import MOVE_POSITIONS
from tidewire.ingest.options import IngestOptions
from tidewire.ingest.service import IngestService
from tidewire.runtime.clock import SystemClock
from tidewire.runtime.id_source import id_source
from tidewire.runtime.supervise import TaskSupervisor
from tidewire_bench.frames import CONTENT, message_key
from tidewire_bench.makers import StoreMaker

SENDERS: Final = (1, 8, 64, 256)
_WARM_UP_S: Final = 0.3


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What one system did in one round, or the medians of several."""

    messages_per_s: float
    p50_ms: float
    p99_ms: float
    cpu_us_per_message: float


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """Product and ceiling at one number of senders: medians over the rounds."""

    senders: int
    product: Figures
    ceiling: Figures

    @property
    def share_of_ceiling(self) -> float:
        return self.product.messages_per_s / self.ceiling.messages_per_s

    @property
    def p50_ratio(self) -> float:
        return self.product.p50_ms / self.ceiling.p50_ms


@dataclass(frozen=True, slots=True)
class Pair:
    """One conversation: who writes, and where."""

    chat_id: ChatId
    author_id: UserId


class Samples:
    """Latencies of a measured period, and its processor time."""

    def __init__(self) -> None:
        self.latencies_s: list[float] = []
        self._started_s = time.perf_counter()
        self._cpu_started_s = time.process_time()

    def figures(self) -> Figures:
        spent_s = time.perf_counter() - self._started_s
        cpu_s = time.process_time() - self._cpu_started_s
        ordered = sorted(self.latencies_s)
        count = len(ordered)
        assert count > 0, "nothing was measured; give it more seconds"
        return Figures(
            messages_per_s=count / spent_s,
            p50_ms=ordered[count // 2] * 1e3,
            p99_ms=ordered[min(count - 1, count * 99 // 100)] * 1e3,
            cpu_us_per_message=cpu_s / count * 1e6,
        )


async def bench_ingest(
    directory: Path, *, seconds: float, rounds: int, progress: Callable[[str], None]
) -> list[Level]:
    """Alternate product and ceiling, `seconds` each, `rounds` times, at every number of senders."""
    levels = []
    for senders in SENDERS:
        product, ceiling = [], []
        for number in range(1, rounds + 1):
            where = directory / f"{senders}-senders-round-{number}"
            progress(f"{senders} senders, round {number} of {rounds}: ceiling")
            pairs = await make_chats(where / "ceiling", senders)
            ceiling.append(await asyncio.to_thread(_run_ceiling, where / "ceiling", pairs, seconds))
            progress(f"{senders} senders, round {number} of {rounds}: product")
            pairs = await make_chats(where / "product", senders)
            product.append(await _run_product(where / "product", pairs, seconds))
        levels.append(Level(senders=senders, product=_medians(product), ceiling=_medians(ceiling)))
    return levels


# The ceiling.


def _run_ceiling(data_dir: Path, pairs: Sequence[Pair], seconds: float) -> Figures:
    """The bare loop. Sequences are known beforehand, so it only queries and writes."""
    options = SqliteOptions()
    database = connect(data_dir / DATABASE_NAME, options, cache_kib=options.writer_cache_kib)
    # The same bound as the product's; here the checkpoint is paid for inside a commit.
    database.execute(f"PRAGMA wal_autocheckpoint = {options.wal_bytes_max // 4096}")
    samples = Samples()
    number = 0
    is_warm = False
    end_s = time.perf_counter() + _WARM_UP_S
    try:
        while True:
            number += 1
            started_s = time.perf_counter()
            if started_s >= end_s:
                if is_warm:
                    return samples.figures()
                is_warm, samples, end_s = True, Samples(), started_s + seconds
            _commit_batch(database, pairs, number)
            took_s = time.perf_counter() - started_s
            samples.latencies_s += [took_s] * len(pairs)
    finally:
        database.close()


def _commit_batch(database: apsw.Connection, pairs: Sequence[Pair], number: int) -> None:
    keys = [(pair.chat_id, message_key(i, number)) for i, pair in enumerate(pairs)]
    authors = [(pair.chat_id, pair.author_id) for pair in pairs]
    rows = [
        (
            *(chat, number, number - 1, f"msg_{i:09}{number:017}", author, key),
            *(CONTENT, "text/plain", 1, 1 << 32),
        )
        for i, ((chat, author), (_, key)) in enumerate(zip(authors, keys, strict=True))
    ]
    database.execute("BEGIN IMMEDIATE")
    ask_rows(database, FIND_KEYS, keys)
    if number == 1:
        # The product reads an author once.
        database.execute(FIND_AUTHORS, (msgspec.json.encode(authors).decode(),)).fetchall()
    execute_rows(database, INSERT_MESSAGES, rows)
    execute_rows(database, MOVE_COUNTERS, [(chat, number, 1) for chat, _ in authors])
    execute_rows(
        database, MOVE_POSITIONS, [(user, chat, number, number, 1) for chat, user in authors]
    )
    database.execute("COMMIT")


# The product.


class Sender:
    """Keeps one message outstanding, if `stored` calls `send` again each time."""

    def __init__(
        self, service: IngestService, number: int, pair: Pair, stored: "Callable[[Sender], None]"
    ) -> None:
        self.sent_s = 0.0
        self.is_stopped = False
        self._service = service
        self._number = number
        self._pair = pair
        self._stored = stored
        self._count = 0

    def send(self) -> None:
        self._count += 1
        self.sent_s = time.perf_counter()
        self._service.submit_nowait(
            MessageBody(content=CONTENT),
            chat_id=self._pair.chat_id,
            sender_id=self._pair.author_id,
            client_message_id=ClientMessageId(message_key(self._number, self._count)),
            done=self._done,
        )

    def _done(self, outcome: AppendOutcome) -> None:
        if self.is_stopped:
            return
        if not isinstance(outcome, Appended):
            raise outcome
        self._stored(self)


@asynccontextmanager
async def ingesting(
    data_dir: Path, pairs: Sequence[Pair], stored: Callable[[Sender], None]
) -> AsyncIterator[list[Sender]]:
    """The ingest service on the store, as the gateway uses it: answers come by callback."""
    tasks = TaskSupervisor()
    storage = await SqliteStorage.open(data_dir)
    service = IngestService(
        store=storage,
        clock=SystemClock(),
        ids=id_source(),
        tasks=tasks,
        options=IngestOptions(),
    )
    senders = [Sender(service, number, pair, stored) for number, pair in enumerate(pairs)]
    try:
        yield senders
    finally:
        # Also after Ctrl-C: messages under way are then refused, which is no fault of the store.
        for sender in senders:
            sender.is_stopped = True
        await service.drain()
        await storage.close()
        await tasks.close()


async def _run_product(data_dir: Path, pairs: Sequence[Pair], seconds: float) -> Figures:
    samples = Samples()

    def stored(sender: Sender) -> None:
        samples.latencies_s.append(time.perf_counter() - sender.sent_s)
        sender.send()

    async with ingesting(data_dir, pairs, stored) as senders:
        for sender in senders:
            sender.send()
        await asyncio.sleep(_WARM_UP_S)
        samples = Samples()
        await asyncio.sleep(seconds)
        return samples.figures()


# Both.


async def make_chats(data_dir: Path, count: int) -> list[Pair]:
    """Make a fresh store with so many direct chats; returns a writer of each."""
    storage = await SqliteStorage.open(data_dir)
    try:
        maker = StoreMaker(storage, Secret("no login is needed here" * 2), lambda *_: None)
        people = await maker.people(2 * count)
        chats = await maker.direct(list(zip(people[::2], people[1::2], strict=True)))
    finally:
        await storage.close()
    authors = [UserId(person.user_id) for person in people[::2]]
    return [Pair(ChatId(chat), author) for chat, author in zip(chats, authors, strict=True)]


def _medians(rounds: Sequence[Figures]) -> Figures:
    return Figures(
        **{
            name: float(statistics.median(getattr(figures, name) for figures in rounds))
            for name in Figures.__struct_fields__
        }
    )
