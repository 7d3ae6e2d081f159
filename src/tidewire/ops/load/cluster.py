"""A run on a cluster of its own: a gateway and a fan-out worker, in tables and topics of their own.

Beside it, the limit of the database: the two calls that an append cannot do without, in a bare loop
with as many chats and batches of the same size.
"""

import asyncio
import contextlib
import re
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import httpx
import msgspec

from tidewire.domain.accounts import Secret
from tidewire.domain.ids import UlidSource
from tidewire.engines.dynamodb import rows, schema
from tidewire.engines.dynamodb.database import Database
from tidewire.engines.dynamodb.options import DynamoOptions
from tidewire.engines.dynamodb.storage import DynamoStorage
from tidewire.engines.dynamodb.tables import create_tables
from tidewire.ops.load.figures import Figures
from tidewire.ops.load.frames import CONTENT
from tidewire.ops.load.store_maker import StoreMaker
from tidewire.ops.load.target import Launch, OwnServer, Target, raise_file_limit
from tidewire.ops.load.workload import Outcome, Progress, Timing, Workload
from tidewire.ports.runtime import Clock

BARE_S: Final = 5.0
"""How long the bare loop runs."""
METRICS_S_MAX: Final = 10.0
_SAMPLE: Final = re.compile(r"^([^#\s]\S*) (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterGround:
    """What the processes of a cluster need. The options name tables that nobody else uses."""

    gateway: Launch
    fanout: Launch
    dynamodb: DynamoOptions
    make_topics: Callable[[], None]
    secret: Secret
    limits: Mapping[str, str]
    """Settings that are raised: the limiters stay in the path."""
    clock: Clock
    ids: UlidSource


async def run_on_cluster(
    workload: Workload, chats: int, ground: ClusterGround, timing: Timing, progress: Progress
) -> Figures:
    """Measure on fresh tables, and the database after it. Raises LoadImpossible."""
    raise_file_limit(workload.connections)
    progress("tables", 0, None)
    await asyncio.to_thread(ground.make_topics)
    async with Database.connect(ground.dynamodb) as database:
        await create_tables(database)
        try:
            await _prepare(workload, ground, progress)
            figures = await _measure(workload, ground, timing, progress)
            progress("the database alone", 0, None)
            limit = await bare_messages_per_s(database, chats, round(figures.mean_batch or 1))
        finally:
            await _drop_tables(database)
    return msgspec.structs.replace(
        figures,
        database_limit_per_s=round(limit, 1),
        part_of_limit=round((figures.messages_per_s or 0.0) / limit, 3),
    )


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

    async def append(number: int) -> None:
        nonlocal stored
        chat_id, head = f"chat_bare_{run}_{number}", 0
        with database.within_budget():
            counter: rows.Row = {"chat_id": chat_id, "sequence_counter": 0}
            chat: rows.Row = {"chat_id": chat_id, "last_sequence": 0, "membership_version": 1}
            await database.write(rows.put(schema.COUNTERS, counter))
            await database.write(rows.put(schema.CHATS, chat))
        while time.perf_counter() < end_s:
            with database.within_budget():
                head = await _append_bare(database, chat_id, head, batch, shard=number % 64)
            stored += batch

    await asyncio.gather(*(append(number) for number in range(chats)))
    return stored / (time.perf_counter() - started_s)


async def _append_bare(
    database: Database, chat_id: str, head: int, batch: int, *, shard: int
) -> int:
    row = await database.write(
        rows.update(
            schema.COUNTERS,
            {"chat_id": chat_id},
            "ADD #sequence_counter :count",
            condition="attribute_exists(#sequence_counter)",
            count=batch,
        ),
        returned="UPDATED_NEW",
    )
    last: int = row["sequence_counter"]
    sequences = range(last - batch + 1, last + 1)
    fence = rows.update(
        schema.CHATS,
        {"chat_id": chat_id},
        "SET #last_sequence = :last",
        condition="#last_sequence = :head AND #membership_version = :version",
        last=last,
        head=head,
        version=1,
    )
    outbox: rows.Row = {"shard": shard, "row": f"{chat_id}#s#{last:016d}", "chat_id": chat_id}
    writes = [fence, rows.put_new(schema.OUTBOX, outbox)]
    for sequence in sequences:
        key = str(uuid.uuid4())
        writes += [
            rows.put(
                schema.KEYS,
                {"chat_id": chat_id, "client_message_id": key, "sequence": sequence},
                condition="attribute_not_exists(#chat_id)",
            ),
            rows.put_new(
                schema.MESSAGES,
                {
                    "chat_id": chat_id,
                    "sequence": sequence,
                    "prev_sequence": sequence - 1,
                    "client_message_id": key,
                    "message_id": key,
                    "content": CONTENT,
                },
            ),
        ]
    await database.transact(writes)
    return last


async def _drop_tables(database: Database) -> None:
    for table in schema.TABLES:
        with contextlib.suppress(Exception), database.within_budget():
            await database.call("delete_table", TableName=database.name_of(table.name))
