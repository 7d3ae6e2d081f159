"""Wires a whole server: every plane, the engines behind its ports, and the edge before them.

The one place where everybody meets. Nothing is decided here but who knows whom; in which order it
starts and stops stands in `lifecycle`. Tests build the same server on a store of their own.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from tidewire.accounts.assembly import Accounts, assemble_accounts
from tidewire.accounts.keys import KeyRing
from tidewire.accounts.options import ExternalOptions
from tidewire.accounts.recheck import SessionRecheck
from tidewire.chats.service import ChatService
from tidewire.delivery.service import DeliveryService
from tidewire.domain.accounts import Secret
from tidewire.domain.events import Event
from tidewire.domain.ids import ChatId, ConnectionId, SessionId, UserId
from tidewire.edge.insiders import Insiders
from tidewire.edge.proxies import TrustedProxies
from tidewire.edge.rest.app import build_rest_app
from tidewire.edge.rest.counters import RestCounters
from tidewire.edge.rest.services import RestServices
from tidewire.edge.server import EdgeServer
from tidewire.engines.sqlite.storage import SqliteStorage
from tidewire.fanout.options import FanoutOptions
from tidewire.fanout.worker import FanoutWorker
from tidewire.gateway.hub import Hub
from tidewire.gateway.limits import SendLimiter
from tidewire.gateway.service import Gateway, send_limiter
from tidewire.ingest.options import IngestOptions
from tidewire.ingest.service import IngestService
from tidewire.ports.event_log import CommitListener, ignore_commits
from tidewire.ports.router import Router
from tidewire.ports.runtime import Clock, IdSource, Tasks
from tidewire.ports.storage import Storage
from tidewire.runtime.audit import AuditRecorder
from tidewire.runtime.clock import SystemClock
from tidewire.runtime.config import Config, IdentityOptions
from tidewire.runtime.control import ControlServer
from tidewire.runtime.id_source import id_source
from tidewire.runtime.jwks import JwksSource
from tidewire.runtime.key_acts import key_acts
from tidewire.runtime.key_watch import KeyWatch
from tidewire.runtime.lag import LoopLag
from tidewire.runtime.metrics import Metrics, Sources
from tidewire.runtime.operations import Operations
from tidewire.runtime.readiness import Readiness
from tidewire.runtime.revocations import Revocations, nobody_else
from tidewire.runtime.secret_files import KeyFile
from tidewire.runtime.supervise import TaskSupervisor
from tidewire.runtime.threads import run_blocking

if TYPE_CHECKING:
    from tidewire.runtime.backbone import Backbone

OpenStore = Callable[[Config, CommitListener], Awaitable[Storage]]


class Machine(NamedTuple):
    """What everybody needs of the machine."""

    clock: Clock
    ids: IdSource
    tasks: Tasks
    trail: AuditRecorder


class Keys(NamedTuple):
    """What signs tokens, and the file it comes from, if it does."""

    ring: KeyRing
    file: KeyFile | None


class CommitRelay:
    """The store's listener from its first moment on, before the fan-out, which needs the store,
    can be there. Nothing is committed in between: nobody has the store yet."""

    def __init__(self) -> None:
        self.listener: CommitListener = ignore_commits

    def __call__(self, events: Sequence[Event]) -> None:
        self.listener(events)


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
    trail: AuditRecorder
    edge: EdgeServer
    control: ControlServer
    keys: "Keys"
    key_watch: KeyWatch
    backbone: "Backbone | None"
    """None: it is the only process."""


async def open_sqlite(config: Config, listener: CommitListener) -> Storage:
    return await SqliteStorage.open(config.data_dir, listener=listener, options=config.sqlite)


async def build_server(
    config: Config,
    *,
    key: Secret | KeyFile,
    tasks: TaskSupervisor,
    open_store: OpenStore = open_sqlite,
) -> Server:
    """Open the store and wire everything to it. `key` signs tokens; keys in a file can be rotated.
    Raises StoreUnusable."""
    keys = Keys(key.ring, key) if isinstance(key, KeyFile) else Keys(KeyRing.of(key), None)
    relay = CommitRelay()
    clock = SystemClock()
    trail = AuditRecorder(config.data_dir, clock=clock, options=config.audit)
    machine = Machine(clock, id_source(), tasks, trail)
    backbone = None
    if config.cluster.role.is_clustered:
        # The vendors of a cluster are not installed everywhere.
        from tidewire.runtime.backbone import open_backbone

        backbone = await open_backbone(
            config, relay, keys=keys.ring, clock=machine.clock, tasks=tasks
        )
    store = await open_store(config, relay) if backbone is None else backbone.store
    try:
        return _wire(config, store, relay, keys, machine, tasks, backbone)
    except BaseException:
        if backbone is not None:
            await backbone.close()
        await store.close()
        raise


def _wire(
    config: Config,
    store: Storage,
    relay: CommitRelay,
    keys: "Keys",
    machine: Machine,
    tasks: TaskSupervisor,
    backbone: "Backbone | None",
) -> Server:
    planes = _wire_planes(config, store, keys.ring, machine, backbone)
    relay.listener = planes.fanout.committed
    if backbone is not None:
        relay.listener = _wire_cluster(config, planes, machine, backbone)
    sqlite = store if isinstance(store, SqliteStorage) else None
    lag, readiness, rest = LoopLag(), Readiness(store), RestCounters()
    metrics = Metrics(
        Sources(
            hub=planes.hub,
            ingest=planes.ingest,
            delivery=planes.delivery,
            fanout=planes.fanout,
            sqlite=sqlite,
            backbone=backbone,
            lag=lag,
            rest=rest,
            tasks_count=lambda: len(asyncio.all_tasks()),
            failures_by_kind=tasks.failures_by_kind,
            revocations_count=lambda: planes.revocations.count,
            trail=machine.trail,
        )
    )
    key_watch = KeyWatch(keys.ring, end_tokens=planes.hub.end_tokens, clock=machine.clock)
    operations = Operations(
        admin=planes.accounts.admin,
        chats=planes.chats,
        ingest=planes.ingest,
        sqlite=sqlite,
        data_dir=config.data_dir,
        clock=machine.clock,
        trail=machine.trail,
        keys=None if keys.file is None else key_acts(config, keys.file, machine.clock),
        on_keys_read=key_watch.look,
    )
    services = _rest_services(config, planes, machine, readiness, metrics)
    app = build_rest_app(replace(services, counters=rest), config.rest, is_described=True)
    return Server(
        config=config,
        tasks=tasks,
        planes=planes,
        readiness=readiness,
        operations=operations,
        lag=lag,
        trail=machine.trail,
        keys=keys,
        key_watch=key_watch,
        edge=EdgeServer(app, gateway=planes.gateway, tasks=tasks, options=config.server),
        control=ControlServer(config.data_dir, operations, tasks),
        backbone=backbone,
    )


def _wire_cluster(
    config: Config, planes: Planes, machine: Machine, backbone: "Backbone"
) -> CommitListener:
    """Tie this process's planes to the others; who is to be told of its commits."""
    from tidewire.engines.redis.limits import LimitExchange
    from tidewire.runtime.backbone import add_fanout_parts, add_gateway_parts, add_inbox

    clock, _, tasks, _ = machine
    hub, authenticator = planes.hub, planes.accounts.authenticator

    def ended(session_ids: Sequence[SessionId]) -> None:
        """Sessions were revoked at another process."""
        authenticator.revoked(session_ids)
        hub.close_session(session_ids)

    recheck = backbone.recheck = SessionRecheck(
        store=planes.store,
        clock=clock,
        tasks=tasks,
        connected=lambda: hub.sessions,
        on_ended=ended,
    )

    def lost() -> None:
        """Word of others may have been lost: what was learned from it is learned anew."""
        planes.fanout.rosters_changed()
        authenticator.forget()
        recheck()

    add_inbox(
        backbone,
        config,
        hub=hub,
        on_revoked=ended,
        on_roster_changed=planes.fanout.roster_changed,
        on_lost=lost,
        clock=clock,
        tasks=tasks,
    )
    backbone.limits = LimitExchange(
        config.redis,
        views=planes.sends.share()
        | planes.gateway.share_limits()
        | planes.accounts.service.share_limits()
        | planes.chats.share_limits(),
        clock=clock,
        tasks=tasks,
    )
    if config.cluster.role.fans_out:
        add_fanout_parts(backbone, config, clock=clock, tasks=tasks)
    publisher = add_gateway_parts(
        backbone, config, on_positions=planes.fanout.committed, clock=clock
    )
    return publisher.committed


class Others(NamedTuple):
    """What the other processes of a cluster make different for the planes of this one."""

    router: Router
    revoke: Callable[[Sequence[SessionId]], None]
    forget_roster: Callable[[ChatId], None]
    ingest: IngestOptions
    fanout: FanoutOptions


def _others(config: Config, hub: Hub, backbone: "Backbone | None") -> Others:
    if backbone is None:
        return Others(hub, nobody_else, nobody_else, config.ingest, config.fanout)

    from tidewire.runtime.backbone import fit_fanout, fit_ingest

    router = backbone.router
    ingest, fanout = fit_ingest(config.ingest), fit_fanout(config.fanout)
    return Others(router, router.revoke, router.forget_roster, ingest, fanout)


def _wire_planes(
    config: Config,
    store: Storage,
    key: KeyRing,
    machine: Machine,
    backbone: "Backbone | None",
) -> Planes:
    clock, ids, tasks, trail = machine
    hub = Hub(clock=clock, options=config.gateway)
    others = _others(config, hub, backbone)
    fanout = FanoutWorker(
        chats=store,
        positions=store,
        router=others.router,
        clock=clock,
        tasks=tasks,
        options=others.fanout,
    )

    def heal_status(chat_id: ChatId, user_id: UserId) -> None:
        fanout.tell_status(chat_id, user_id, is_forced=True)

    def roster_changed(chat_id: ChatId) -> None:
        fanout.roster_changed(chat_id)
        others.forget_roster(chat_id)

    hub.tell_status = heal_status
    ingest = IngestService(store=store, clock=clock, ids=ids, tasks=tasks, options=others.ingest)
    delivery: DeliveryService[ConnectionId] = DeliveryService(
        store=store,
        clock=clock,
        tasks=tasks,
        options=config.delivery,
        on_advanced=hub.on_advanced,
    )
    revocations = Revocations(hub, others.revoke)
    chats = ChatService(store=store, clock=clock, ids=ids, options=config.chats, trail=trail)
    accounts = _wire_accounts(config, store, key, machine, chats, revocations, roster_changed)
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
        chats=chats,
        accounts=accounts,
        gateway=gateway,
        sends=sends,
        revocations=revocations,
    )


def _wire_accounts(
    config: Config,
    store: Storage,
    key: KeyRing,
    machine: Machine,
    chats: ChatService,
    revocations: Revocations,
    roster_changed: Callable[[ChatId], None],
) -> Accounts:
    return assemble_accounts(
        store=store,
        secret=key,
        clock=machine.clock,
        ids=machine.ids,
        random_bytes=secrets.token_bytes,
        run_blocking=run_blocking,
        options=config.accounts,
        external=_external(config.identity),
        on_revoked=revocations,
        on_roster_changed=roster_changed,
        depart=chats.depart,
        trail=machine.trail,
    )


def _rest_services(
    config: Config, planes: Planes, machine: Machine, readiness: Readiness, metrics: Metrics
) -> RestServices:
    proxies = TrustedProxies(config.server.trusted_proxies)
    return RestServices(
        authenticator=planes.accounts.authenticator,
        accounts=planes.accounts.service,
        people=planes.accounts.people,
        chats=planes.chats,
        delivery=planes.delivery,
        ingest=planes.ingest,
        store=planes.store,
        sends=planes.sends,
        tasks=machine.tasks,
        clock=machine.clock,
        ids=machine.ids,
        random_bytes=secrets.token_bytes,
        check_ready=readiness.check,
        metrics=metrics.render,
        group_members_max=config.chats.group_members_max,
        proxies=proxies,
        insiders=Insiders(proxies, config.server.probe_token),
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
