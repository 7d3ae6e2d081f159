"""A run on a cluster of its own: a gateway and a fan-out worker, in tables and topics of their own.

It also measures the limit of the database: a bare loop with only the two requests that an append
needs, the same rows, as many chats and batches of the same size. The loop runs before and after,
because a machine's speed varies over time. DynamoDB Local is slow until its code is compiled, so
the first loop is not counted.
"""

import asyncio
import contextlib
import os
import secrets
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from tidewire.domain.ids import ChatId, ClientMessageId, ConnectionId, MessageId, UserId
from tidewire.domain.messages import SendMessage
from tidewire.engines.dynamodb import rows, schema
from tidewire.engines.dynamodb.commit_rows import commit_writes, number
from tidewire.engines.dynamodb.database import Database
from tidewire.engines.dynamodb.numbers import Counter, move_ahead
from tidewire.engines.dynamodb.options import SENDS_PER_TRANSACTION_MAX, DynamoOptions
from tidewire.engines.dynamodb.storage import DynamoStorage
from tidewire.engines.dynamodb.tables import create_tables
from tidewire.engines.kafka.topics import create_topics, delete_topics
from tidewire.runtime.cli_options import load_settings
from tidewire.runtime.token_keys import token_key
from tidewire_bench.figures import Figures
from tidewire_bench.frames import CONTENT
from tidewire_bench.makers import StoreMaker
from tidewire_bench.rest import Rest
from tidewire_bench.run import LIMITS, as_variables
from tidewire_bench.target import Launch, OwnServer, raise_file_limit
from tidewire_bench.workload import Outcome, Progress, Timing, Workload

BARE_S: Final = 10.0
"""How long the bare loop runs each time."""
WARM_S: Final = 10.0
"""How long the first loop runs, which is not counted."""
PATIENCE_MS: Final = 10_000


class Ground:
    """Tables, topics and routes of this run's own, on the servers that the settings name."""

    def __init__(self, directory: Path) -> None:
        config = load_settings(None).config
        run = f"bench{secrets.token_hex(3)}_"
        self.dynamodb = replace(config.engines["dynamodb"], table_prefix=run)
        self.kafka = replace(
            config.engines["kafka"], topic_prefix=run, replication_factor=1, insync_replicas_min=1
        )
        key_file = directory / "token.key"
        self.secret = token_key(directory, key_file)
        self._directory = directory
        self._environment = dict(os.environ) | as_variables(
            LIMITS
            | {
                "dynamodb.table_prefix": run,
                "kafka.topic_prefix": run,
                "redis.key_prefix": run,
                "cluster.token_key_file": str(key_file),
            }
        )

    def server(
        self,
        role: str,
        name: str = "",
        settings: Mapping[str, str] | None = None,
        command: Sequence[str] | None = None,
    ) -> OwnServer:
        """A process that is yet to be started, with settings and a command of its own."""
        own = {"cluster.role": role} | dict(settings or {})
        launch = Launch(self._directory / (name or role), self._environment | as_variables(own))
        return OwnServer(launch if command is None else replace(launch, command=command))


async def run_on_cluster(
    workload: Workload,
    chats: int,
    window: int,
    directory: Path,
    timing: Timing,
    progress: Progress,
) -> Figures:
    """Measure on fresh tables, and the database before and after it. Raises LoadImpossible.

    `window` messages of each chat are outstanding, so batches have that size if they can."""
    raise_file_limit(workload.connections)
    ground = Ground(directory)
    progress("tables", 0, None)
    await asyncio.to_thread(create_topics, ground.kafka)
    try:
        # The bare loop has tables of its own: what it writes must not be published.
        async with tables(ground.dynamodb, ""), tables(ground.dynamodb, "bare_") as bare:
            storage = await DynamoStorage.open(ground.dynamodb)
            try:
                await workload.prepare(StoreMaker(storage, ground.secret, progress))
            finally:
                await storage.close()
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
        await asyncio.to_thread(delete_topics, ground.kafka)
    return msgspec.structs.replace(
        figures,
        database_limit_per_s=round(limit, 1),
        part_of_limit=round((figures.messages_per_s or 0.0) / limit, 3),
    )


def patient(options: DynamoOptions) -> DynamoOptions:
    """Options with long timeouts, for work before and after a run: a timeout would end the run."""
    return replace(options, attempt_ms=PATIENCE_MS, budget_ms=2 * PATIENCE_MS)


@contextlib.asynccontextmanager
async def tables(options: DynamoOptions, suffix: str) -> AsyncIterator[Database]:
    """Make the tables, and delete them at the end."""
    prefixed = replace(options, table_prefix=options.table_prefix + suffix)
    async with Database.connect(patient(prefixed)) as database:
        await create_tables(database)
        try:
            yield database
        finally:
            for table in schema.TABLES:
                with contextlib.suppress(Exception), database.within_budget():
                    await database.call("delete_table", TableName=database.name_of(table.name))


async def _measure(
    workload: Workload, ground: Ground, timing: Timing, progress: Progress
) -> Figures:
    gateway, fanout = ground.server("gateway"), ground.server("fanout")
    progress("starting", 0, None)
    outcome = Outcome(is_at_least_once=True)
    try:
        target, _ = await asyncio.gather(gateway.start(), fanout.start())
        before_s = fanout.process.cpu_s()
        figures = await workload.measure(target, timing, outcome, progress)
        # Over the whole run, with warm-up and draining: the messages are counted so, too.
        fanout_s = fanout.process.cpu_s() - before_s
        counted = await Rest(target.url).metrics()
    finally:
        await gateway.end()
        await fanout.end()
    stored = counted['durability_persist_total{status="stored"}']
    return msgspec.structs.replace(
        figures.with_checks(outcome.faults, outcome.errors, LIMITS),
        fanout_cpu_s_per_1000=round(1000 * fanout_s / stored, 4),
        mean_batch=round(stored / counted["durability_batches_total"], 2),
        repeated_pushes=outcome.repeats,
    )


async def bare_messages_per_s(
    database: Database, chats: int, batch: int, seconds: float = BARE_S
) -> float:
    """The database's throughput if batches are numbered and committed, and nothing else is done."""
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
    take = move_ahead(chat_id, Counter(head, head), batch, head=head, now_ms=now_ms)
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
    messages = number(sends, first=last - batch + 1, head=head, now_ms=now_ms)
    origins = [ConnectionId(f"conn_{chat_id}")] * batch
    await database.transact(commit_writes(messages, origins, membership_version=1, now_ms=now_ms))
    return last
