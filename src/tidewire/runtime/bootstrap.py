"""Wires a whole server: every plane, the engines behind its ports, and the edge before them.

The one place where everybody meets. Nothing is decided here but who knows whom; in which order it
starts and stops stands in `lifecycle`. Tests build the same server on a store of their own.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from tidewire.accounts.assembly import Accounts, assemble_accounts
from tidewire.accounts.options import ExternalOptions
from tidewire.chats.service import ChatService
from tidewire.delivery.service import DeliveryService
from tidewire.domain.accounts import Secret
from tidewire.domain.errors import StoreUnavailable, Unavailable
from tidewire.domain.events import Event
from tidewire.domain.ids import ChatId, ConnectionId, SessionId, UserId
from tidewire.edge.proxies import TrustedProxies
from tidewire.edge.rest.app import build_rest_app
from tidewire.edge.rest.counters import RestCounters
from tidewire.edge.rest.services import RestServices
from tidewire.edge.server import EdgeServer
from tidewire.engines.sqlite.storage import SqliteStorage
from tidewire.fanout.worker import FanoutWorker
from tidewire.gateway.hub import Hub
from tidewire.gateway.limits import SendLimiter
from tidewire.gateway.service import Gateway, send_limiter
from tidewire.ingest.service import IngestService
from tidewire.ports.event_log import CommitListener, ignore_commits
from tidewire.ports.runtime import Clock, IdSource, Tasks
from tidewire.ports.storage import Storage
from tidewire.runtime.clock import SystemClock
from tidewire.runtime.config import Config, IdentityOptions
from tidewire.runtime.control import ControlServer
from tidewire.runtime.id_source import id_source
from tidewire.runtime.jwks import JwksSource
from tidewire.runtime.lag import LoopLag
from tidewire.runtime.metrics import Metrics, Sources
from tidewire.runtime.operations import Operations
from tidewire.runtime.supervise import TaskSupervisor
from tidewire.runtime.threads import run_blocking

READY_S_MAX: Final = 2.0
"""How long the store may take to show that it is there."""

OpenStore = Callable[[Config, CommitListener], Awaitable[Storage]]


class Machine(NamedTuple):
    """What everybody needs of the machine."""

    clock: Clock
    ids: IdSource
    tasks: Tasks


class CommitRelay:
    """The store's listener from its first moment on, before the fan-out, which needs the store,
    can be there. Nothing is committed in between: nobody has the store yet."""

    def __init__(self) -> None:
        self.listener: CommitListener = ignore_commits

    def __call__(self, events: Sequence[Event]) -> None:
        self.listener(events)


class Readiness:
    """Whether this server wants work (`/readyz`)."""

    def __init__(self, store: Storage) -> None:
        self.is_ready = False
        self._store = store

    async def check(self) -> None:
        """Raises Unavailable if it does not, or if the store does not answer."""
        if not self.is_ready:
            raise Unavailable("this server is starting or stopping")
        try:
            async with asyncio.timeout(READY_S_MAX):
                await self._store.user_named("ready?")
        except TimeoutError:
            raise StoreUnavailable("the store does not answer") from None


class Revocations:
    """Closes the sockets of sessions that ended, and counts them."""

    def __init__(self, hub: Hub) -> None:
        self.count = 0
        self.tell_others: Callable[[Sequence[SessionId]], None] | None = None
        """Tells the other processes of a cluster, if there are any. Set by whoever wires."""
        self._hub = hub

    def __call__(self, session_ids: Sequence[SessionId]) -> None:
        self.count += len(session_ids)
        self._hub.close_session(session_ids)
        if self.tell_others is not None:
            self.tell_others(session_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planes:
    """The planes of a server, each knowing the others it needs through their ports."""

    store: Storage
    hub: Hub
    fanout: FanoutWorker
    ingest: IngestService
    delivery: DeliveryService[ConnectionId]
    chats: ChatService
    accounts: Accounts
    gateway: Gateway
    sends: SendLimiter
    revocations: Revocations


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that is wired and not yet started."""

    config: Config
    tasks: TaskSupervisor
    planes: Planes
    readiness: Readiness
    operations: Operations
    lag: LoopLag
    edge: EdgeServer
    control: ControlServer


async def open_sqlite(config: Config, listener: CommitListener) -> Storage:
    return await SqliteStorage.open(config.data_dir, listener=listener, options=config.sqlite)


async def build_server(
    config: Config, *, key: Secret, tasks: TaskSupervisor, open_store: OpenStore = open_sqlite
) -> Server:
    """Open the store and wire everything to it. Raises StoreUnusable."""
    relay = CommitRelay()
    store = await open_store(config, relay)
    try:
        return _wire(config, store, relay, key, tasks)
    except BaseException:
        await store.close()
        raise


def _wire(
    config: Config, store: Storage, relay: CommitRelay, key: Secret, tasks: TaskSupervisor
) -> Server:
    machine = Machine(SystemClock(), id_source(), tasks)
    planes = _wire_planes(config, store, key, machine)
    relay.listener = planes.fanout.committed
    sqlite = store if isinstance(store, SqliteStorage) else None
    lag, readiness, rest = LoopLag(), Readiness(store), RestCounters()
    metrics = Metrics(
        Sources(
            hub=planes.hub,
            ingest=planes.ingest,
            delivery=planes.delivery,
            fanout=planes.fanout,
            sqlite=sqlite,
            lag=lag,
            rest=rest,
            tasks_count=lambda: len(asyncio.all_tasks()),
            revocations_count=lambda: planes.revocations.count,
        )
    )
    operations = Operations(
        admin=planes.accounts.admin,
        chats=planes.chats,
        ingest=planes.ingest,
        sqlite=sqlite,
        data_dir=config.data_dir,
        clock=machine.clock,
    )
    services = _rest_services(config, planes, machine, readiness, metrics)
    app = build_rest_app(replace(services, counters=rest), config.rest)
    return Server(
        config=config,
        tasks=tasks,
        planes=planes,
        readiness=readiness,
        operations=operations,
        lag=lag,
        edge=EdgeServer(app, gateway=planes.gateway, tasks=tasks, options=config.server),
        control=ControlServer(config.data_dir, operations, tasks),
    )


def _wire_planes(config: Config, store: Storage, key: Secret, machine: Machine) -> Planes:
    clock, ids, tasks = machine
    hub = Hub(clock=clock, options=config.gateway)
    fanout = FanoutWorker(
        chats=store, positions=store, router=hub, clock=clock, tasks=tasks, options=config.fanout
    )

    def heal_status(chat_id: ChatId, user_id: UserId) -> None:
        fanout.tell_status(chat_id, user_id, is_forced=True)

    hub.tell_status = heal_status
    ingest = IngestService(store=store, clock=clock, ids=ids, tasks=tasks, options=config.ingest)
    delivery: DeliveryService[ConnectionId] = DeliveryService(
        store=store,
        clock=clock,
        tasks=tasks,
        options=config.delivery,
        on_advanced=hub.on_advanced,
    )
    revocations = Revocations(hub)
    accounts = assemble_accounts(
        store=store,
        secret=key,
        clock=clock,
        ids=ids,
        random_bytes=secrets.token_bytes,
        run_blocking=run_blocking,
        options=config.accounts,
        external=_external(config.identity),
        on_revoked=revocations,
        on_roster_changed=fanout.roster_changed,
    )
    # One limiter for sends, whatever edge they come over.
    sends = send_limiter(config.gateway)
    gateway = Gateway(
        hub=hub,
        authenticator=accounts.authenticator,
        intake=ingest,
        acknowledger=delivery,
        typing=fanout,
        store=store,
        ids=ids,
        clock=clock,
        tasks=tasks,
        options=config.gateway,
        sends=sends,
    )
    return Planes(
        store=store,
        hub=hub,
        fanout=fanout,
        ingest=ingest,
        delivery=delivery,
        chats=ChatService(store=store, clock=clock, ids=ids, options=config.chats),
        accounts=accounts,
        gateway=gateway,
        sends=sends,
        revocations=revocations,
    )


def _rest_services(
    config: Config, planes: Planes, machine: Machine, readiness: Readiness, metrics: Metrics
) -> RestServices:
    return RestServices(
        authenticator=planes.accounts.authenticator,
        accounts=planes.accounts.service,
        people=planes.accounts.people,
        chats=planes.chats,
        delivery=planes.delivery,
        ingest=planes.ingest,
        store=planes.store,
        sends=planes.sends,
        clock=machine.clock,
        ids=machine.ids,
        random_bytes=secrets.token_bytes,
        check_ready=readiness.check,
        metrics=metrics.render,
        group_members_max=config.chats.group_members_max,
        proxies=TrustedProxies(config.server.trusted_proxies),
    )


def _external(identity: IdentityOptions) -> ExternalOptions | None:
    if not identity.issuer:
        return None
    return ExternalOptions(
        issuer=identity.issuer,
        audience=identity.audience,
        secret=identity.secret,
        fetch_keys=JwksSource(identity.jwks_url) if identity.jwks_url else None,
        username_claim=identity.username_claim,
        display_name_claim=identity.display_name_claim,
        leeway_ms=identity.leeway_ms,
        keys_cached_ms=identity.keys_cached_ms,
        keys_cooldown_ms=identity.keys_cooldown_ms,
        keys_stale_ms_max=identity.keys_stale_ms_max,
    )
