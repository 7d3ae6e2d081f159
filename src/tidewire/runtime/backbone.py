"""The parts that a process of a cluster shares with the others: database, event log, routes.

`lifecycle` says in which order they start and end; `bootstrap` says which planes use them.
"""

import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from tidewire.accounts.keys import KeyRing
from tidewire.accounts.seals import seal, unseal
from tidewire.domain.errors import StoreUnavailable, TidewireError
from tidewire.domain.ids import UserId
from tidewire.fanout.consumer import LogConsumer
from tidewire.fanout.lag_teller import LagTeller
from tidewire.fanout.local_ticks import LocalTicks
from tidewire.fanout.options import FanoutOptions
from tidewire.fanout.worker import FanoutWorker, NoTicks
from tidewire.gateway.hub import Hub
from tidewire.ingest.forwarding import Forwarding
from tidewire.ingest.options import IngestOptions
from tidewire.ingest.publisher import Publisher
from tidewire.ingest.relay import Relay
from tidewire.ports.engine import Engine, Part, SharedInbox, SharedLog, SharedRouter, SharedStore
from tidewire.ports.event_log import CommitListener
from tidewire.ports.runtime import Clock, IdSource, Result, Tasks, Work, pause
from tidewire.runtime.config import Config
from tidewire.runtime.engines import engine_for, shared_engines
from tidewire.runtime.metrics import TABLES, Source
from tidewire.runtime.token_keys import SecretUnusable

PUBLISH_MS_MAX: Final = 2_000
"""How long a stop waits for the event log; relays of other gateways publish the rest."""
ROSTER_AGE_MS_MAX: Final = 2_000
START_MS_MAX: Final = 60_000
"""How long a process that starts waits for the database."""
START_PAUSE_MS: Final = 1_000
"""How long such a process waits between two tries."""
TOKEN_KEY: Final = "token_key"  # noqa: S105 - the name of a row

_logger: Final = logging.getLogger(__name__)


class NotACluster(TidewireError):
    """The settings lack something that a cluster needs."""


@dataclass(slots=True, kw_only=True)
class Backbone:
    """The shared parts. A part that is None does not exist in this process."""

    name: str
    """New at each start, so that no process is mistaken for its predecessor."""
    config: Config
    store: SharedStore
    log: SharedLog
    router: SharedRouter
    services: dict[str, Callable[[], Work]] = field(default_factory=dict)
    """Tasks that run as long as the process does, in the order in which they start."""
    sources: list[Source] = field(default_factory=list)
    """The metrics of the parts that were added."""
    rounds: list[Callable[[], None]] = field(default_factory=list)
    """Functions that each round of housekeeping calls."""
    closers: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    """Functions that close a part; called in this order after the last task has ended."""
    publisher: Publisher | None = None
    inbox: SharedInbox | None = None
    limits: Part | None = None
    ticks: LocalTicks | None = None
    forwarding: Forwarding | None = None

    async def start(self, tasks: Tasks) -> None:
        """Start the parts. To be called before the first client, after everything is wired."""
        self.router.start()
        if self.inbox is not None:
            await self.inbox.start()
        if self.limits is not None:
            self.limits.start()
        for name, run in self.services.items():
            tasks.start_service(name, run())

    async def publish_rest(self) -> None:
        """Publish to the log what was committed. To be called after the last commit."""
        if self.publisher is not None:
            await self.publisher.drain(PUBLISH_MS_MAX)

    async def stop_pushing(self) -> None:
        """Stop ticks, limits, router and inbox. To be called after the last connection has gone."""
        if self.ticks is not None:
            self.ticks.close()
        if self.limits is not None:
            await self.limits.stop()
        await self.router.stop()
        if self.inbox is not None:
            await self.inbox.stop()

    def metric_sources(self) -> list[Source]:
        """The metrics of all parts that this process has."""
        made = {"store": self.store, "router": self.router, "inbox": self.inbox}
        return self.sources + [
            source
            for ability, part in made.items()
            for source in _engine_source(self.config, ability, part)
        ]

    async def close(self) -> None:
        """Close all but the store, which its opener closes. To be called after the last task."""
        for close in self.closers:
            await close()
        await self.log.close()


async def open_backbone(
    config: Config, listener: CommitListener, *, keys: KeyRing | None, clock: Clock, tasks: Tasks
) -> Backbone:
    """Open everything that is shared. `keys` sign tokens; None if this process signs none. Raises
    StoreUnusable, NotACluster, SecretUnusable; StoreUnavailable, if the database does not answer
    for a minute."""
    names = [name for each in shared_engines() for name in each.needs(config.engines[each.name])]
    if names:
        raise NotACluster(
            f"a cluster needs {' and '.join(names)}; "
            "'tidewire config' shows how they are called in the environment"
        )
    name = f"{config.cluster.role}_{secrets.token_hex(8)}"
    store = cast(
        "SharedStore",
        await await_database(clock, lambda: ask(config, "store", config.data_dir, listener)),
    )
    try:
        if keys is not None:
            ring = keys
            await await_database(clock, lambda: _check_keys(store, ring, clock.wall_ms()))
        return Backbone(
            name=name,
            config=config,
            store=store,
            log=ask(config, "event_log", clock=clock, producer_id=name),
            router=ask(config, "router", router_id=name, tasks=tasks),
        )
    except BaseException:
        await store.close()
        raise


async def await_database(clock: Clock, act: Callable[[], Awaitable[Result]]) -> Result:
    """Do something that needs the database, and retry while it does not answer: machines that start
    together are not ready together. Raises StoreUnavailable after `START_MS_MAX`."""
    end_ms = clock.monotonic_ms() + START_MS_MAX
    while True:
        try:
            return await act()
        except StoreUnavailable as error:
            if clock.monotonic_ms() >= end_ms:
                raise
            _logger.warning("waiting for the database: %s", error)
        await pause(START_PAUSE_MS)


def _engine_source(config: Config, ability: str, part: object) -> list[Source]:
    """The metrics of a part that an engine made; empty if the engine has none for it."""
    table = engine_of(config, ability).metrics.get(ability)
    return [] if table is None else [(table, part)]


def engine_of(config: Config, ability: str) -> Engine:
    """The engine that gives a cluster this ability, as the settings choose it."""
    return engine_for(ability, is_shared=True, options=config.engines)


def ask(config: Config, ability: str, *arguments: Any, **named: Any) -> Any:
    """Call this ability of the cluster's engine, and return the result."""
    engine = engine_of(config, ability)
    return getattr(engine, ability)(config.engines[engine.name], *arguments, **named)


async def _check_keys(store: SharedStore, keys: KeyRing, now_ms: int) -> None:
    """Check that all gateways share the signing key: a token of one must be good at all others."""
    agreed = await store.agree(TOKEN_KEY, keys.signing(now_ms).mark)
    if agreed not in [key.mark for key in keys.keys]:
        raise SecretUnusable(
            "this is not the key that the other gateways sign tokens with; give all the same "
            "cluster.token_key_file. To have a new one, stop all of them and run "
            "'tidewire cluster new-key': everybody then has to log in again"
        )


async def tend_keys(store: SharedStore, keys: KeyRing, now_ms: int) -> None:
    """Tell the others when a new key has begun to sign: a gateway without it cannot start any more.
    To be called regularly. Raises SecretUnusable if this gateway lacks the key of the others."""
    await _check_keys(store, keys, now_ms)
    mark = keys.signing(now_ms).mark
    agreed = await store.agree(TOKEN_KEY, mark)
    if agreed == mark:
        return
    marks = [key.mark for key in keys.keys]
    # Only to a newer key: another gateway's clock may be ahead of ours.
    if agreed in marks and marks.index(agreed) < marks.index(mark):
        await store.agree_anew(TOKEN_KEY, agreed, mark)


def fit_ingest(config: Config) -> IngestOptions:
    """The settings, with batches that fit into one transaction, because an append is one."""
    sends_max = config.ingest.batch_sends_max
    bound = engine_of(config, "store").append_sends_max or sends_max
    return replace(config.ingest, batch_sends_max=min(sends_max, bound))


def fit_fanout(options: FanoutOptions) -> FanoutOptions:
    """The settings, with a maximum age of rosters: not every process is told of every change, so
    none may rely on a roster for long."""
    return replace(options, roster_age_ms_max=options.roster_age_ms_max or ROSTER_AGE_MS_MAX)


def add_ticks(
    backbone: Backbone, hub: Hub, options: FanoutOptions, *, clock: Clock, tasks: Tasks
) -> LocalTicks:
    """Add the part that tells this process's connections about ticks, and the other processes which
    positions moved here. The inbox, which knows the routes, is set before the first connection."""

    def routed_at_ms(user_id: UserId) -> int | None:
        return None if backbone.inbox is None else backbone.inbox.routed_at_ms(user_id)

    backbone.ticks = LocalTicks(
        store=backbone.store,
        local=hub,
        others=backbone.router,
        routed_at_ms=routed_at_ms,
        clock=clock,
        tasks=tasks,
        options=options,
    )
    backbone.sources.append((TABLES["ticks"], backbone.ticks))
    return backbone.ticks


def add_forwarding(
    backbone: Backbone, config: Config, keys: KeyRing, *, clock: Clock, ids: IdSource, tasks: Tasks
) -> Forwarding:
    """Add the part that forwards sends to the gateway that already appends for their chat."""
    between = ask(config, "between", gateway_id=backbone.name)
    backbone.forwarding = forwarding = Forwarding(
        gateway_id=backbone.name,
        store=backbone.store,
        between=between,
        seal=lambda to, body: seal(keys, to, body, clock.wall_ms()),
        unseal=lambda to, sealed: unseal(keys, to, sealed, clock.wall_ms()),
        clock=clock,
        ids=ids,
        tasks=tasks,
    )
    backbone.services["hot-chats"] = forwarding.run
    backbone.sources.append((TABLES["forwarding"], forwarding))
    backbone.closers.append(between.close)
    backbone.store.on_overtaken = forwarding.overtaken
    return forwarding


def add_gateway_parts(
    backbone: Backbone, config: Config, *, fanout: FanoutWorker, clock: Clock
) -> Publisher:
    """Add what publishes this process's commits to the log, and what tells clients to sync while
    pushes are late. Returns the publisher."""
    publisher = Publisher(
        log=backbone.log, outbox=backbone.store, clock=clock, options=config.ingest
    )
    relay = Relay(
        relay_id=backbone.name,
        log=backbone.log,
        outbox=backbone.store,
        is_publishing=publisher.is_publishing,
        clock=clock,
        options=config.ingest,
        take_left=publisher.take_left,
        unlogged=publisher.unlogged,
    )
    lag = LagTeller(
        unlogged=publisher.unlogged.since,
        late=backbone.log.late,
        members=fanout,
        everybody=backbone.router,
        clock=clock,
    )
    backbone.publisher = publisher
    backbone.services |= {"publisher": publisher.run, "relay": relay.run, "log-lag": lag.run}
    backbone.sources += [
        (TABLES["publisher"], publisher),
        (TABLES["relay"], relay),
        (TABLES["lag"], lag),
    ]
    backbone.closers.append(relay.close)
    return publisher


def add_fanout_parts(
    backbone: Backbone, config: Config, *, clock: Clock, tasks: Tasks
) -> FanoutWorker:
    """Add what reads the log and pushes. Returns the fan-out worker."""
    worker = FanoutWorker(
        chats=backbone.store,
        positions=backbone.store,
        router=backbone.router,
        clock=clock,
        tasks=tasks,
        options=fit_fanout(config.fanout),
        ticks=NoTicks(),
        can_wait=True,
    )
    reader = ask(config, "log_reader", reader_id=backbone.name)
    consumer = LogConsumer(
        reader=reader,
        letters=backbone.log,
        worker=worker,
        pushes=backbone.router,
        clock=clock,
        options=config.fanout,
    )
    backbone.services["log-consumer"] = consumer.run
    backbone.sources.append((TABLES["consumer"], consumer))
    backbone.sources += _engine_source(config, "log_reader", reader)
    backbone.closers.append(reader.close)
    return worker
