"""A run on a cluster of its own: a gateway and a fan-out worker, in tables and topics of their own.

Beside it, the limit of the database: the two requests that an append cannot do without, the very
same rows, in a bare loop with as many chats and batches of the same size. It runs before and after,
because machines are faster at one time than at another; DynamoDB Local is slow until its code is
compiled, so at first it runs uncounted.
"""

import asyncio
import contextlib
import dataclasses
import re
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Final

import httpx
import msgspec

from tidewire.domain.accounts import Secret
from tidewire.domain.ids import (
    ChatId,
    ClientMessageId,
    ConnectionId,
    MessageId,
    UlidSource,
    UserId,
)
from tidewire.domain.messages import SendMessage
from tidewire.engines.dynamodb import rows, schema
from tidewire.engines.dynamodb.append import commit_writes, take_numbers
from tidewire.engines.dynamodb.database import Database
from tidewire.engines.dynamodb.options import SENDS_PER_TRANSACTION_MAX, DynamoOptions
from tidewire.engines.dynamodb.storage import DynamoStorage
from tidewire.engines.dynamodb.tables import create_tables
from tidewire.engines.dynamodb.verdicts import number
from tidewire.ops.load.figures import Figures
from tidewire.ops.load.frames import CONTENT
from tidewire.ops.load.store_maker import StoreMaker
from tidewire.ops.load.target import Launch, OwnServer, Target, raise_file_limit
from tidewire.ops.load.workload import Outcome, Progress, Timing, Workload
from tidewire.ports.runtime import Clock

BARE_S: Final = 10.0
"""How long the bare loop runs each time."""
WARM_S: Final = 10.0
"""How long it runs at first, uncounted."""
METRICS_S_MAX: Final = 10.0
PATIENCE_MS: Final = 10_000
_SAMPLE: Final = re.compile(r"^([^#\s]\S*) (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterGround:
    """What the processes of a cluster need. The options name tables that nobody else uses."""

    gateway: Launch
    fanout: Launch
    dynamodb: DynamoOptions
    make_topics: Callable[[], None]
    delete_topics: Callable[[], None]
    secret: Secret
    limits: Mapping[str, str]
    """Settings that are raised: the limiters stay in the path."""
    clock: Clock
    ids: UlidSource


async def run_on_cluster(
    workload: Workload,
    chats: int,
    window: int,
    ground: ClusterGround,
    timing: Timing,
    progress: Progress,
) -> Figures:
    """Measure on fresh tables, and the database before and after it. Raises LoadImpossible.

    With so many messages of a chat outstanding, batches are of that size if they can."""
    raise_file_limit(workload.connections)
    progress("tables", 0, None)
    await asyncio.to_thread(ground.make_topics)
    try:
        # The bare loop has tables of its own: what it writes is nobody's to publish.
        async with _tables(ground.dynamodb, ""), _tables(ground.dynamodb, "bare_") as bare:
            await _prepare(workload, ground, progress)
            progress("warming the database", 0, None)
            batch = min(window, SENDS_PER_TRANSACTION_MAX)
            await bare_messages_per_s(bare, chats, batch, WARM_S)
            progress("the database alone", 0, None)
            before = await bare_messages_per_s(bare, chats, batch)
            figures = await _measure(workload, ground, timing, progress)
            progress("the database alone, again", 0, None)
            after = await bare_messages_per_s(bare, chats, round(figures.mean_batch or 1))
            limit = (before + after) / 2
    finally:
        await asyncio.to_thread(ground.delete_topics)
    return msgspec.structs.replace(
        figures,
        database_limit_per_s=round(limit, 1),
        part_of_limit=round((figures.messages_per_s or 0.0) / limit, 3),
    )


@contextlib.asynccontextmanager
async def _tables(options: DynamoOptions, suffix: str) -> AsyncIterator[Database]:
    """Tables for as long as they are needed."""
    # Patient: a request that took too long would end the run.
    prefixed = dataclasses.replace(
        options,
        table_prefix=options.table_prefix + suffix,
        attempt_ms=PATIENCE_MS,
        budget_ms=2 * PATIENCE_MS,
    )
    async with Database.connect(prefixed) as database:
        await create_tables(database)
        try:
            yield database
        finally:
            for table in schema.TABLES:
                with contextlib.suppress(Exception), database.within_budget():
                    await database.call("delete_table", TableName=database.name_of(table.name))


async def _prepare(workload: Workload, ground: ClusterGround, progress: Progress) -> None:
    storage = await DynamoStorage.open(ground.dynamodb)
    maker = StoreMaker(
        storage, ground.secret, clock=ground.clock, ids=ground.ids, progress=progress
    )
    try:
        await workload.prepare(maker)
    finally:
        await maker.close()


async def _measure(
    workload: Workload, ground: ClusterGround, timing: Timing, progress: Progress
) -> Figures:
    gateway, fanout = OwnServer(ground.gateway), OwnServer(ground.fanout)
    progress("starting", 0, None)
    try:
        await asyncio.gather(gateway.start(), fanout.start())
        outcome = Outcome(is_at_least_once=True)
        target = Target(f"http://127.0.0.1:{gateway.port}", gateway)
        before_s = fanout.process.cpu_s()
        figures = await workload.measure(target, timing, outcome, progress)
        # Of the whole run, warm-up and draining included: so are the messages.
        fanout_s = fanout.process.cpu_s() - before_s
        counted = await asyncio.to_thread(read_metrics, target.url)
    finally:
        await gateway.stop()
        await fanout.stop()
    stored = counted['durability_persist_total{status="stored"}']
    return msgspec.structs.replace(
        figures.with_checks(outcome.faults, outcome.errors, ground.limits),
        fanout_cpu_s_per_1000=round(1000 * fanout_s / stored, 4),
        mean_batch=round(stored / counted["durability_batches_total"], 2),
        repeated_pushes=outcome.repeats,
    )


def read_metrics(url: str) -> dict[str, float]:
    """What a server of ours counts, by name and labels."""
    text = httpx.get(f"{url}/metrics", timeout=METRICS_S_MAX).text
    return {name: float(value) for name, value in _SAMPLE.findall(text)}


async def bare_messages_per_s(
    database: Database, chats: int, batch: int, seconds: float = BARE_S
) -> float:
    """What the database takes if nobody does anything but number and commit batches."""
    run = uuid.uuid4().hex[:8]
    stored = 0
    started_s = time.perf_counter()
    end_s = started_s + seconds

    async def append(index: int) -> None:
        nonlocal stored
        chat_id, head = ChatId(f"chat_bare_{run}_{index}"), 0
        with database.within_budget():
            counter: rows.Row = {"chat_id": chat_id, "sequence_counter": 0}
            chat: rows.Row = {"chat_id": chat_id, "last_sequence": 0, "membership_version": 1}
            await database.write(rows.put(schema.COUNTERS, counter))
            await database.write(rows.put(schema.CHATS, chat))
        while time.perf_counter() < end_s:
            with database.within_budget():
                head = await _append_bare(database, chat_id, head, batch)
            stored += batch

    await asyncio.gather(*(append(index) for index in range(chats)))
    return stored / (time.perf_counter() - started_s)


async def _append_bare(database: Database, chat_id: ChatId, head: int, batch: int) -> int:
    now_ms = int(time.time() * 1000)
    take = take_numbers(chat_id, batch, head=head, now_ms=now_ms)
    row = await database.write(take, returned="UPDATED_NEW")
    last: int = row["sequence_counter"]
    sends = [
        SendMessage(
            chat_id=chat_id,
            sender_id=UserId(f"user_{chat_id}"),
            client_message_id=ClientMessageId(str(uuid.uuid4())),
            message_id=MessageId(f"msg_{uuid.uuid4().hex[:26]}"),
            content=CONTENT,
        )
        for _ in range(batch)
    ]
    messages = number(sends, first=last - batch + 1, prev_sequence=head, now_ms=now_ms)
    origins = [ConnectionId(f"conn_{chat_id}")] * batch
    await database.transact(commit_writes(messages, origins, membership_version=1, now_ms=now_ms))
    return last
