"""A gateway and its commits: store, publisher and relay, on real servers. Holds no test.

Also a program, so that a test can kill it: `python -m tests.engines.kafka.gateway SETTINGS`. It
prints a line when it has done what it was started for, and then waits for its death.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from secrets import randbits
from typing import Any, Final

from tests.support.dynamodb import a_backdoor, local_options
from tidewire.domain.accounts import Secret
from tidewire.domain.chats import CreateDirect
from tidewire.domain.events import Event
from tidewire.domain.ids import ChatId, ClientMessageId, UlidSource, UserId
from tidewire.domain.messages import Amendment, Appended, EntryKind, SendMessage
from tidewire.domain.outbox import shard_of
from tidewire.domain.users import User
from tidewire.engines.dynamodb.options import DynamoOptions
from tidewire.engines.dynamodb.storage import DynamoStorage
from tidewire.engines.dynamodb.tables import create_tables
from tidewire.engines.kafka.options import KafkaOptions, SecurityProtocol
from tidewire.engines.kafka.producer import KafkaEventLog
from tidewire.ingest.options import IngestOptions
from tidewire.ingest.publisher import Publisher
from tidewire.ingest.relay import Relay
from tidewire.ports.event_log import LOGGED, CommitBus
from tidewire.runtime.clock import SystemClock
from tidewire.runtime.supervise import TaskSupervisor

QUICK: Final = IngestOptions(
    relay_after_ms=300, relay_poll_ms=200, relay_pause_ms_max=500, lease_ms=3_000
)

PATIENCE_S: Final = 90

_ids: Final = UlidSource(randbits)
_made: Final[set[str]] = set()


async def tables(port: int) -> DynamoOptions:
    """Tables that other tests do not use: what processes that were killed have written stays."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    options = local_options(port, table_prefix=f"test_log_{worker}_")
    if options.table_prefix not in _made:
        async with a_backdoor(options) as database:
            await create_tables(database)
        _made.add(options.table_prefix)
    return options


class Gateway:
    """One process's part in the log."""

    def __init__(self, storage: DynamoStorage, log: KafkaEventLog, name: str) -> None:
        self.storage = storage
        self.log = log
        self.publisher = Publisher(log=log, outbox=storage, clock=SystemClock(), options=QUICK)
        self.relay = Relay(
            relay_id=name,
            log=log,
            outbox=storage,
            is_publishing=self.publisher.is_publishing,
            clock=SystemClock(),
            options=QUICK,
        )

    async def a_chat(self) -> tuple[ChatId, UserId]:
        now_ms = SystemClock().wall_ms()
        users = [_ids.user_id(now_ms) for _ in range(2)]
        for user_id in users:
            name = user_id.lower()
            await self.storage.add_user(
                User(
                    user_id=user_id,
                    username=name,
                    display_name=name,
                    created_at_ms=now_ms,
                    updated_at_ms=now_ms,
                )
            )
        command = CreateDirect(chat_id=_ids.chat_id(now_ms), actor_id=users[0], other_id=users[1])
        created = await self.storage.create_direct(command, now_ms=now_ms)
        return created.chat.chat_id, users[0]

    async def send(self, chat_id: ChatId, sender: UserId, count: int = 1) -> list[int]:
        return await send(self.storage, chat_id, sender, count)

    async def delete(self, chat_id: ChatId, sender: UserId, target: int) -> int:
        """The sequence of the deletion."""
        return (await send(self.storage, chat_id, sender, 1, deletes=target))[0]

    async def rows_left(self, *chat_ids: ChatId) -> int:
        left = 0
        for chat_id in chat_ids:
            rows = await self.storage.outbox_rows(shard_of(chat_id), after=None, count_max=1000)
            left += sum(row.key.row.startswith(chat_id) for row in rows)
        return left


async def send(
    storage: DynamoStorage,
    chat_id: ChatId,
    sender: UserId,
    count: int,
    *,
    deletes: int | None = None,
) -> list[int]:
    """Send messages, or a deletion, in one commit; their sequences."""
    now_ms = SystemClock().wall_ms()
    amends = None if deletes is None else Amendment(kind=EntryKind.DELETE, target=deletes)
    drafts = [
        SendMessage(
            chat_id=chat_id,
            sender_id=sender,
            client_message_id=ClientMessageId(str(uuid.uuid4())),
            message_id=_ids.message_id(now_ms),
            content="hello" if amends is None else "",
            content_type="text/plain",
            amends=amends,
        )
        for _ in range(count)
    ]
    outcomes = await storage.append(drafts, now_ms=now_ms)
    assert all(isinstance(outcome, Appended) for outcome in outcomes), outcomes
    return [outcome.sequence for outcome in outcomes if isinstance(outcome, Appended)]


@asynccontextmanager
async def a_gateway(
    dynamodb: DynamoOptions, kafka: KafkaOptions, name: str, *, runs_relay: bool = True
) -> AsyncIterator[Gateway]:
    bus = CommitBus()
    storage = await DynamoStorage.open(dynamodb, listener=bus)
    log = KafkaEventLog(kafka, clock=SystemClock(), producer_id=name)
    gateway = Gateway(storage, log, name)
    bus.subscribe(LOGGED, gateway.publisher.committed)
    tasks = TaskSupervisor()
    tasks.start_service("publisher", gateway.publisher.run())
    if runs_relay:
        tasks.start_service("relay", gateway.relay.run())
    try:
        yield gateway
    finally:
        await tasks.close()
        await gateway.relay.close()
        await log.close()
        await storage.close()


async def eventually(holds: Callable[[], bool | Awaitable[bool]]) -> None:
    """Wait for what other processes do, of which nobody tells."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            is_true = holds()
            if is_true if isinstance(is_true, bool) else await is_true:
                return
            await asyncio.sleep(0.05)


# As a program.


def start(
    act: str, dynamodb: DynamoOptions, kafka: KafkaOptions, **more: str
) -> "subprocess.Popen[str]":
    """Start a gateway process; it prints a line when it has done its act."""
    settings: dict[str, Any] = {"act": act, "kafka": asdict(kafka), "more": more}
    settings["dynamodb"] = asdict(dynamodb) | {"secret_key": "local"}
    return subprocess.Popen(
        [sys.executable, "-m", __name__, json.dumps(settings)],
        stdout=subprocess.PIPE,
        text=True,
    )


def killed(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def _die_here(events: Sequence[Event]) -> None:
    """The commit is durable, and nothing is published: the end comes here."""
    sys.stdout.write(f"committed {len(events)}\n")
    sys.stdout.flush()
    signal.pause()


async def _main(settings: dict[str, Any]) -> None:
    dynamodb = DynamoOptions(**settings["dynamodb"] | {"secret_key": Secret("local")})
    kafka_settings = settings["kafka"]
    kafka_settings["bootstrap_servers"] = tuple(kafka_settings["bootstrap_servers"])
    kafka_settings["security_protocol"] = SecurityProtocol(kafka_settings["security_protocol"])
    kafka = KafkaOptions(**kafka_settings)
    if settings["act"] == "commit":
        storage = await DynamoStorage.open(dynamodb, listener=_die_here)
        chat_id, sender = ChatId(settings["more"]["chat_id"]), UserId(settings["more"]["sender"])
        await send(storage, chat_id, sender, 3)
        return
    async with a_gateway(dynamodb, kafka, settings["more"]["name"]) as gateway:
        await eventually(lambda: bool(gateway.relay.shards))
        sys.stdout.write("leases\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(json.loads(sys.argv[1])))
