"""How fast messages are stored for good, beside the least that any program could do for it.

Two systems take turns on the same file system: the product (ingest service, batcher, group commit)
under senders that each keep one message outstanding, and the ceiling: the same SQL statements in a
bare loop that commits batches of exactly that many messages, with nothing around them.
"""

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import apsw
import msgspec

from tidewire.domain.chats import CreateDirect
from tidewire.domain.ids import ChatId, ClientMessageId, UlidSource, UserId
from tidewire.domain.messages import Appended, AppendOutcome
from tidewire.domain.users import User
from tidewire.engines.sqlite import SqliteOptions, SqliteStorage
from tidewire.engines.sqlite.append import (
    FIND_AUTHORS,
    FIND_KEYS,
    INSERT_MESSAGES,
    MOVE_COUNTERS,
)
from tidewire.engines.sqlite.bulk import execute_rows
from tidewire.engines.sqlite.database import DATABASE_NAME, connect
from tidewire.engines.sqlite.positions import MOVE_POSITIONS
from tidewire.ingest.options import IngestOptions
from tidewire.ingest.service import IngestService
from tidewire.ports.runtime import Clock, Tasks

SENDERS: Final = (1, 8, 64, 256)
CONTENT: Final = "Hello, world! " * 6
"""84 bytes, as in every workload of ours."""
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
class Machine:
    """What the bench takes from the room that knows everything."""

    clock: Clock
    tasks: Tasks
    ids: UlidSource


@dataclass(frozen=True, slots=True)
class Pair:
    """One conversation: who writes, and where."""

    chat_id: ChatId
    author_id: UserId


class Samples:
    """Latencies of a measured stretch of time, and what it cost."""

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
    directory: Path,
    machine: Machine,
    *,
    seconds: float,
    rounds: int = 3,
    progress: Callable[[str], None],
) -> list[Level]:
    """Alternate product and ceiling, `seconds` each, `rounds` times, at every number of senders."""
    levels = []
    for senders in SENDERS:
        product, ceiling = [], []
        for number in range(1, rounds + 1):
            where = directory / f"{senders}-senders-round-{number}"
            progress(f"{senders} senders, round {number} of {rounds}: ceiling")
            pairs = await make_chats(where / "ceiling", machine, senders)
            ceiling.append(await asyncio.to_thread(_run_ceiling, where / "ceiling", pairs, seconds))
            progress(f"{senders} senders, round {number} of {rounds}: product")
            pairs = await make_chats(where / "product", machine, senders)
            product.append(await _run_product(where / "product", pairs, machine, seconds))
        levels.append(Level(senders=senders, product=_medians(product), ceiling=_medians(ceiling)))
    return levels


def client_message_id(sender: int, number: int) -> ClientMessageId:
    """A UUID that costs nothing to make, so that the bench does not measure its own randomness."""
    return ClientMessageId(f"{sender:08x}-0000-4000-8000-{number:012x}")


# The ceiling.


def _run_ceiling(data_dir: Path, pairs: Sequence[Pair], seconds: float) -> Figures:
    """The bare loop. Sequences are known beforehand, so it only asks and writes."""
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
    keys = [(pair.chat_id, client_message_id(i, number)) for i, pair in enumerate(pairs)]
    authors = [(pair.chat_id, pair.author_id) for pair in pairs]
    rows = [
        (
            *(chat, number, number - 1, f"msg_{i:09}{number:017}", author, key),
            *(CONTENT, "text/plain", 1, 1 << 32),
        )
        for i, ((chat, author), (_, key)) in enumerate(zip(authors, keys, strict=True))
    ]
    database.execute("BEGIN IMMEDIATE")
    database.execute(FIND_KEYS, (msgspec.json.encode(keys).decode(),)).fetchall()
    database.execute(FIND_AUTHORS, (msgspec.json.encode(authors).decode(),)).fetchall()
    execute_rows(database, INSERT_MESSAGES, rows)
    execute_rows(database, MOVE_COUNTERS, [(chat, number, 1) for chat, _ in authors])
    execute_rows(
        database, MOVE_POSITIONS, [(user, chat, number, number, 1) for chat, user in authors]
    )
    database.execute("COMMIT")


# The product.


async def _run_product(
    data_dir: Path, pairs: Sequence[Pair], machine: Machine, seconds: float
) -> Figures:
    """The ingest service on the store, as the gateway uses it: answers come by callback."""
    storage = await SqliteStorage.open(data_dir)
    service = IngestService(
        store=storage,
        clock=machine.clock,
        ids=machine.ids,
        tasks=machine.tasks,
        options=IngestOptions(),
    )
    senders = [_Sender(service, number, pair) for number, pair in enumerate(pairs)]
    try:
        for sender in senders:
            sender.send()
        await asyncio.sleep(_WARM_UP_S)
        samples = Samples()
        for sender in senders:
            sender.samples = samples
        await asyncio.sleep(seconds)
        return samples.figures()
    finally:
        # Also after Ctrl-C: what is under way then is refused, and that is no fault of the store.
        for sender in senders:
            sender.is_stopped = True
        await service.drain()
        await storage.close()


class _Sender:
    """Keeps one message outstanding: sends the next when one is acknowledged."""

    def __init__(self, service: IngestService, sender: int, pair: Pair) -> None:
        self.samples = Samples()
        self.is_stopped = False
        self._service = service
        self._sender = sender
        self._pair = pair
        self._number = 0
        self._sent_s = 0.0

    def send(self) -> None:
        self._number += 1
        self._sent_s = time.perf_counter()
        self._service.submit_nowait(
            chat_id=self._pair.chat_id,
            sender_id=self._pair.author_id,
            client_message_id=client_message_id(self._sender, self._number),
            content=CONTENT,
            done=self._done,
        )

    def _done(self, outcome: AppendOutcome) -> None:
        if self.is_stopped:
            return
        if not isinstance(outcome, Appended):
            raise outcome
        self.samples.latencies_s.append(time.perf_counter() - self._sent_s)
        self.send()


# Both.


async def make_chats(data_dir: Path, machine: Machine, count: int) -> list[Pair]:
    """A fresh store with as many direct chats."""
    storage = await SqliteStorage.open(data_dir)
    now_ms = machine.clock.wall_ms()
    pairs = []
    try:
        for number in range(count):
            author, other = machine.ids.user_id(now_ms), machine.ids.user_id(now_ms)
            for user_id, name in ((author, f"author{number}"), (other, f"other{number}")):
                await storage.add_user(
                    User(
                        user_id=user_id,
                        username=name,
                        display_name=name,
                        created_at_ms=now_ms,
                        updated_at_ms=now_ms,
                    )
                )
            command = CreateDirect(
                chat_id=machine.ids.chat_id(now_ms), actor_id=author, other_id=other
            )
            created = await storage.create_direct(command, now_ms=now_ms)
            pairs.append(Pair(created.chat.chat_id, author))
    finally:
        await storage.close()
    return pairs


def _medians(rounds: Sequence[Figures]) -> Figures:
    def median(name: str) -> float:
        return float(statistics.median(getattr(figures, name) for figures in rounds))

    return Figures(
        messages_per_s=median("messages_per_s"),
        p50_ms=median("p50_ms"),
        p99_ms=median("p99_ms"),
        cpu_us_per_message=median("cpu_us_per_message"),
    )
