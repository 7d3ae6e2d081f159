"""What a process of a cluster shares with the others: the database, the event log, the routes.

In which order it starts and ends stands in `lifecycle`; who uses it, in `bootstrap`.
"""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tidewire.accounts.keys import KeyRing
from tidewire.accounts.recheck import SessionRecheck
from tidewire.domain.errors import TidewireError
from tidewire.domain.ids import ChatId, SessionId
from tidewire.engines.dynamodb.options import SENDS_PER_TRANSACTION_MAX
from tidewire.engines.dynamodb.storage import DynamoStorage
from tidewire.engines.kafka.consumer import KafkaLogReader
from tidewire.engines.kafka.producer import KafkaEventLog
from tidewire.engines.redis.inbox import Inbox
from tidewire.engines.redis.limits import LimitExchange
from tidewire.engines.redis.router import RedisRouter
from tidewire.fanout.consumer import LogConsumer
from tidewire.fanout.options import FanoutOptions
from tidewire.fanout.worker import FanoutWorker
from tidewire.gateway.hub import Hub
from tidewire.ingest.options import IngestOptions
from tidewire.ingest.publisher import Publisher
from tidewire.ingest.relay import Relay
from tidewire.ports.event_log import CommitListener
from tidewire.ports.runtime import Clock, Tasks
from tidewire.runtime.config import Config
from tidewire.runtime.secret_files import SecretUnusable

PUBLISH_MS_MAX: Final = 2_000
"""How long a stop waits for the event log; what it has not got by then is left to other relays."""
ROSTER_AGE_MS_MAX: Final = 2_000
LARGE_STATUS_MS: Final = 2_000
TOKEN_KEY: Final = "token_key"  # noqa: S105 - the name of a row


class NotACluster(TidewireError):
    """The settings lack what a cluster rests on."""


@dataclass(slots=True, kw_only=True)
class Backbone:
    """None: this process has no such part."""

    name: str
    """New at each start, so that nobody takes a process for the one before it."""
    store: DynamoStorage
    log: KafkaEventLog
    router: RedisRouter
    publisher: Publisher | None = None
    relay: Relay | None = None
    inbox: Inbox | None = None
    reader: KafkaLogReader | None = None
    consumer: LogConsumer | None = None
    limits: LimitExchange | None = None
    recheck: SessionRecheck | None = None

    async def start(self, tasks: Tasks) -> None:
        """Before the first client, and after everything is wired."""
        self.router.start()
        if self.inbox is not None:
            await self.inbox.start()
        if self.limits is not None:
            self.limits.start()
        if self.publisher is not None:
            tasks.start_service("publisher", self.publisher.run())
        if self.relay is not None:
            tasks.start_service("relay", self.relay.run())
        if self.consumer is not None:
            tasks.start_service("log-consumer", self.consumer.run())

    async def publish_rest(self) -> None:
        """What was committed goes into the log; after the last commit."""
        if self.publisher is not None:
            await self.publisher.drain(PUBLISH_MS_MAX)

    async def stop_pushing(self) -> None:
        """After the last connection has gone."""
        if self.limits is not None:
            await self.limits.stop()
        await self.router.stop()
        if self.inbox is not None:
            await self.inbox.stop()

    async def close(self) -> None:
        """After the last task has ended. The store is closed by whoever opened it."""
        if self.relay is not None:
            await self.relay.close()
        if self.reader is not None:
            await self.reader.close()
        await self.log.close()


async def open_backbone(
    config: Config, listener: CommitListener, *, keys: KeyRing | None, clock: Clock, tasks: Tasks
) -> Backbone:
    """Reach for everything that is shared. `keys` are what this process signs tokens with, if it
    does. Raises StoreUnusable, NotACluster, SecretUnusable."""
    if not config.kafka.bootstrap_servers or config.redis.url is None:
        raise NotACluster(
            "a cluster needs kafka.bootstrap_servers and redis.url; "
            "'tidewire config' shows how they are called in the environment"
        )
    name = f"{config.cluster.role}_{secrets.token_hex(8)}"
    store = await DynamoStorage.open(config.dynamodb, listener=listener)
    try:
        if keys is not None:
            await _check_keys(store, keys, clock.wall_ms())
        return Backbone(
            name=name,
            store=store,
            log=KafkaEventLog(config.kafka, clock=clock, producer_id=name),
            router=RedisRouter(config.redis, router_id=name, tasks=tasks),
        )
    except BaseException:
        await store.close()
        raise


async def _check_keys(store: DynamoStorage, keys: KeyRing, now_ms: int) -> None:
    """A token of one gateway must be good at every other."""
    agreed = await store.agree(TOKEN_KEY, keys.signing(now_ms).mark)
    if agreed not in [key.mark for key in keys.keys]:
        raise SecretUnusable(
            "this is not the key that the other gateways sign tokens with; give all the same "
            "cluster.token_key_file. To have a new one, stop all of them and run "
            "'tidewire cluster new-key': everybody then has to log in again"
        )


async def tend_keys(store: DynamoStorage, keys: KeyRing, now_ms: int) -> None:
    """Tell the others that a new key signs by now: a gateway without it does not start any more.
    To be called now and then. Raises SecretUnusable if it is this one that lacks their key."""
    await _check_keys(store, keys, now_ms)
    mark = keys.signing(now_ms).mark
    agreed = await store.agree(TOKEN_KEY, mark)
    if agreed == mark:
        return
    marks = [key.mark for key in keys.keys]
    # Only forward: another gateway's clock may be ahead of ours.
    if agreed in marks and marks.index(agreed) < marks.index(mark):
        await store.agree_anew(TOKEN_KEY, agreed, mark)


def fit_ingest(options: IngestOptions) -> IngestOptions:
    """An append is one transaction, which has a size."""
    sends_max = min(options.batch_sends_max, SENDS_PER_TRANSACTION_MAX)
    return replace(options, batch_sends_max=sends_max)


def fit_fanout(options: FanoutOptions) -> FanoutOptions:
    """Not every process is told of every change, so none may believe a roster for long; and the
    positions of a large chat are many requests (DESIGN 8)."""
    return replace(
        options,
        roster_age_ms_max=options.roster_age_ms_max or ROSTER_AGE_MS_MAX,
        status_large_interval_ms=options.status_large_interval_ms or LARGE_STATUS_MS,
    )


def add_inbox(
    backbone: Backbone,
    config: Config,
    *,
    hub: Hub,
    on_revoked: Callable[[Sequence[SessionId]], None],
    on_roster_changed: Callable[[ChatId], None],
    on_lost: Callable[[], None],
    clock: Clock,
    tasks: Tasks,
) -> None:
    """What brings the pushes of all processes to this one's connections."""
    backbone.inbox = Inbox(
        config.redis,
        local=hub,
        gateway_id=backbone.name,
        random_hex=secrets.token_hex,
        clock=clock,
        tasks=tasks,
        on_revoked=on_revoked,
        on_roster_changed=on_roster_changed,
        on_lost=on_lost,
    )
    hub.use_registrar(backbone.inbox, tasks)


def add_gateway_parts(
    backbone: Backbone, config: Config, *, on_positions: CommitListener, clock: Clock
) -> Publisher:
    """What puts this process's commits into the log."""
    publisher = Publisher(
        log=backbone.log, outbox=backbone.store, on_positions=on_positions, options=config.ingest
    )
    backbone.publisher = publisher
    backbone.relay = Relay(
        relay_id=backbone.name,
        log=backbone.log,
        outbox=backbone.store,
        is_publishing=publisher.is_publishing,
        clock=clock,
        options=config.ingest,
    )
    return publisher


def add_fanout_parts(
    backbone: Backbone, config: Config, *, clock: Clock, tasks: Tasks
) -> FanoutWorker:
    """What reads the log and pushes."""
    worker = FanoutWorker(
        chats=backbone.store,
        positions=backbone.store,
        router=backbone.router,
        clock=clock,
        tasks=tasks,
        options=fit_fanout(config.fanout),
        can_replay=True,
    )
    backbone.reader = KafkaLogReader(config.kafka, reader_id=backbone.name)
    backbone.consumer = LogConsumer(
        reader=backbone.reader,
        letters=backbone.log,
        worker=worker,
        pushes=backbone.router,
        clock=clock,
        options=config.fanout,
    )
    return worker
