"""Wires a whole server: every plane, the engines behind its ports, and the edge before them.

The one module that knows all parts. It only decides which part knows which other; `lifecycle` says
in which order they start and stop. Tests build the same server on a store of their own.
"""

import random
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from tidewire.accounts.assembly import Accounts
from tidewire.accounts.external import KeySet
from tidewire.accounts.keys import KeyRing
from tidewire.accounts.recheck import SessionRecheck
from tidewire.accounts.service import AccountService
from tidewire.chats.service import ChatService
from tidewire.delivery.service import DeliveryService
from tidewire.domain.accounts import Secret
from tidewire.domain.events import Acknowledged, PositionsAdvanced, StatusMissed
from tidewire.domain.ids import ChatId, SessionId
from tidewire.domain.rates import SharedView
from tidewire.edge.late import LateApp
from tidewire.edge.peers import Insiders, TrustedProxies
from tidewire.edge.rest.services import RestCounters, RestServices
from tidewire.edge.server import EdgeServer
from tidewire.edge.web import built_files
from tidewire.fanout.local_ticks import LocalTicks
from tidewire.fanout.options import FanoutOptions
from tidewire.fanout.worker import FanoutWorker
from tidewire.gateway.driver import Desk
from tidewire.gateway.hub import Hub
from tidewire.gateway.limits import SendLimiter
from tidewire.gateway.service import Gateway, send_limiter
from tidewire.ingest.forwarding import Forwarding
from tidewire.ingest.options import IngestOptions
from tidewire.ingest.service import IngestService
from tidewire.ports.engine import Engine
from tidewire.ports.event_log import LOGGED, CommitBus, CommitListener
from tidewire.ports.router import Router
from tidewire.ports.storage import Storage
from tidewire.processes.gateway_end import GatewayEnd
from tidewire.processes.link import Acts
from tidewire.processes.remote import offer, reach, reach_store
from tidewire.processes.store_end import StoreEnd
from tidewire.runtime import wiring
from tidewire.runtime.audit import AuditRecorder
from tidewire.runtime.config import Config
from tidewire.runtime.control import ControlServer
from tidewire.runtime.metric_sums import SummedMetrics, numbers_of
from tidewire.runtime.metrics import (
    TABLES,
    LoopLag,
    Metrics,
    ProcessNumbers,
    SecurityNumbers,
    Source,
)
from tidewire.runtime.operations import Operations
from tidewire.runtime.readiness import Readiness
from tidewire.runtime.supervise import TaskSupervisor, run_blocking
from tidewire.runtime.token_keys import KeyFile, KeyWatch

if TYPE_CHECKING:
    from tidewire.ingest.publisher import Publisher
    from tidewire.runtime.backbone import Backbone

OpenStore = Callable[[Config, CommitListener], Awaitable[Storage]]
End = StoreEnd | GatewayEnd
Page = Callable[[], Awaitable[bytes]]

_LOGINS: Final = "logins"
_KEYS: Final = "identity_keys"
"""The names under which the store process offers these to its gateways."""


class Keys(NamedTuple):
    """The keys that sign tokens, and the file that they come from, if there is one."""

    ring: KeyRing
    file: KeyFile | None


class Revocations:
    """Closes the sockets of sessions that ended, also at other gateways, and counts them."""

    def __init__(
        self, hub: Hub, tell_others: Callable[[Sequence[SessionId]], None] = wiring.tell_none
    ) -> None:
        self.count = 0
        self._hub = hub
        self._tell_others = tell_others

    def __call__(self, session_ids: Sequence[SessionId]) -> None:
        """This process has ended these sessions."""
        self.count += len(session_ids)
        self._hub.close_session(session_ids)
        self._tell_others(session_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planes:
    """The planes of a server, each knowing the others it needs through their ports."""

    store: Storage
    hub: Hub
    fanout: FanoutWorker
    """In a gateway process: a stand-in for the fan-out worker of the store process."""
    ingest: IngestService
    delivery: DeliveryService
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
    port: EdgeServer | None
    """None: its gateways are other processes."""
    control: ControlServer | None
    """None: its store is another process, which has the control socket."""
    keys: "Keys"
    key_watch: KeyWatch
    backbone: "Backbone | None"
    """None: it is not part of a cluster."""
    end: "End | None"
    """None: it is the only process of this server."""

    @property
    def edge(self) -> EdgeServer:
        """The edge. Only for a process that faces the network."""
        assert self.port is not None
        return self.port


async def build_server(
    config: Config,
    *,
    key: Secret | KeyFile,
    tasks: TaskSupervisor,
    open_store: OpenStore | None = None,
    end: "End | None" = None,
) -> Server:
    """Open the store and wire everything to it. `key` signs tokens; keys in a file can be rotated.
    `end` connects this process to the others of its server. Raises StoreUnusable."""
    keys = Keys(key.ring, key) if isinstance(key, KeyFile) else Keys(KeyRing.of(key), None)
    bus = CommitBus()
    hand_on = end.keep_record if isinstance(end, GatewayEnd) else None
    machine = wiring.Machine.of(config, tasks, hand_on=hand_on)
    backbone = None
    if config.cluster.role.is_clustered:
        # Imported here, because the vendors of a cluster are not installed everywhere.
        from tidewire.runtime.backbone import open_backbone

        backbone = await open_backbone(
            config, bus, keys=keys.ring, clock=machine.clock, tasks=tasks
        )
    engine: Engine | None = None
    if backbone is not None:
        store: Storage = backbone.store
    elif isinstance(end, GatewayEnd):
        store = await reach_store(end.link)
    elif open_store is not None:
        store = await open_store(config, bus)
    else:
        engine, store = await wiring.open_own_store(config, bus)
    try:
        return _wire(config, store, engine, bus, keys, machine, tasks, backbone, end)
    except BaseException:
        if backbone is not None:
            await backbone.close()
        await store.close()
        raise


def _wire(
    config: Config,
    store: Storage,
    engine: Engine | None,
    bus: CommitBus,
    keys: "Keys",
    machine: wiring.Machine,
    tasks: TaskSupervisor,
    backbone: "Backbone | None",
    end: "End | None",
) -> Server:
    planes = _wire_planes(config, store, bus, keys.ring, machine, backbone, end)
    publisher = None if backbone is None else _wire_cluster(config, planes, machine, backbone)
    _subscribe(bus, planes, publisher, None if backbone is None else backbone.ticks)
    lag, readiness, rest = LoopLag(), Readiness(store), RestCounters()
    sources: list[Source] = [
        (TABLES["process"], ProcessNumbers(lag, tasks.failures_by_kind)),
        (TABLES["gateway"], planes.hub),
        (TABLES["ingest"], planes.ingest),
        (TABLES["fanout"], None if isinstance(end, GatewayEnd) else planes.fanout),
        (TABLES["security"], SecurityNumbers(planes.hub.counters, rest, machine.trail)),
        (TABLES["revocations"], planes.revocations),
        (TABLES["delivery"], planes.delivery),
    ]
    if engine is not None and "store" in engine.metrics:
        sources.append((engine.metrics["store"], store))
    metrics = Metrics([*sources, *(backbone.metric_sources() if backbone is not None else ())])
    key_watch = KeyWatch(keys.ring, end_tokens=planes.hub.end_tokens, clock=machine.clock)

    def keys_read() -> None:
        key_watch.look()
        if isinstance(end, StoreEnd):
            end.tell_all("keys_read")

    acting = wiring.Acting(planes.ingest, planes.chats, planes.accounts)
    operations = wiring.wire_operations(
        config, store, engine, acting, machine, keys.file, on_keys_read=keys_read
    )
    page: Page = metrics.page
    if isinstance(end, StoreEnd):
        sums = SummedMetrics(metrics, partial(end.ask_all, "numbers"))
        end.serve(
            store,
            planes.fanout,
            metrics=sums.page,
            on_lost=sums.gone,
            keep_record=machine.trail.write,
            offers=_offers(planes),
        )
    elif end is not None:
        page = end.metrics
    services = replace(_rest_services(config, planes, machine, readiness, page), counters=rest)
    port = None if isinstance(end, StoreEnd) else _wire_edge(config, planes, services, tasks, end)
    server = Server(
        config=config,
        tasks=tasks,
        planes=planes,
        readiness=readiness,
        operations=operations,
        lag=lag,
        trail=machine.trail,
        keys=keys,
        key_watch=key_watch,
        port=port,
        control=None
        if isinstance(end, GatewayEnd)
        else ControlServer(config.data_dir, operations, tasks),
        backbone=backbone,
        end=end,
    )
    if isinstance(end, GatewayEnd):
        _wire_end(server, end, metrics, machine)
    return server


def _wire_edge(
    config: Config,
    planes: Planes,
    services: RestServices,
    tasks: TaskSupervisor,
    end: "GatewayEnd | None",
) -> EdgeServer:
    shared: dict[str, SharedView] | None = None if end is None else {}

    def make_rest() -> Any:
        from tidewire.edge.rest.app import build_rest_app

        known = replace(services, shared_limits=shared)
        return build_rest_app(known, config.rest, web_files=built_files())

    # Not late in a gateway process: it shares limits with the others from the start, and its parent
    # has imported REST already.
    app = LateApp(make_rest, run_blocking) if end is None else make_rest()
    edge = EdgeServer(app, gateway=planes.gateway, tasks=tasks, options=config.server)
    if end is not None and shared is not None:
        limits = shared | edge.share_limits() | _shared_limits(planes)
        end.share_limits(limits, clock=services.clock, tasks=tasks)
    return edge


def _wire_end(server: Server, end: "GatewayEnd", metrics: Metrics, machine: wiring.Machine) -> None:
    """Register what the store process may call at this gateway."""
    planes = server.planes
    hub, authenticator = planes.hub, planes.accounts.authenticator

    def ended(session_ids: Sequence[SessionId]) -> None:
        """The store process has ended sessions; any gateway may have asked for it."""
        authenticator.revoked(session_ids)
        hub.close_session(session_ids)

    def keys_read() -> None:
        if server.keys.file is not None:
            server.keys.file.reread()
        server.key_watch.look()

    end.acts.update(
        push=hub.push,
        resync=hub.resync,
        close_duplicate=hub.close_duplicate,
        revoked=ended,
        keys_read=keys_read,
        numbers=partial(numbers_of, metrics),
    )
    hub.use_registrar(end, machine.tasks)


def _offers(planes: Planes) -> Acts:
    """What the store process does for all gateways, besides the store: logins, because all gateways
    share their budgets and the queue for password hashes, and the keys of the identity provider."""
    accounts = planes.accounts
    keys = {} if accounts.identity_keys is None else offer(_KEYS, accounts.identity_keys)
    return {**offer(_LOGINS, accounts.service), **keys}


def _shared_limits(planes: Planes) -> dict[str, SharedView]:
    """The limits that several processes share."""
    return planes.sends.share() | planes.gateway.share_limits() | planes.chats.share_limits()


def _subscribe(
    bus: CommitBus, planes: Planes, publisher: "Publisher | None", ticks: LocalTicks | None
) -> None:
    """Subscribe everything that reacts to a commit, in the order in which it is called. In a
    cluster the log brings the commit to the process that pushes; positions are state and never in
    the log."""
    fanout = planes.fanout
    bus.subscribe(LOGGED, fanout.committed if publisher is None else publisher.committed)
    if ticks is not None:
        bus.subscribe(LOGGED, ticks.committed)
    bus.subscribe((PositionsAdvanced,), fanout.positions_advanced)
    bus.subscribe((Acknowledged,), planes.hub.acknowledged)
    bus.subscribe((StatusMissed,), fanout.status_missed)


def _wire_cluster(
    config: Config, planes: Planes, machine: wiring.Machine, backbone: "Backbone"
) -> "Publisher":
    """Connect this process's planes to the other processes. Returns what publishes its commits."""
    from tidewire.runtime.backbone import add_fanout_parts, add_gateway_parts, ask

    clock, _, tasks, _ = machine
    hub, authenticator, ticks = planes.hub, planes.accounts.authenticator, backbone.ticks
    forwarding = backbone.forwarding
    assert ticks is not None
    assert forwarding is not None
    forwarding.use(planes.ingest)

    def ended(session_ids: Sequence[SessionId]) -> None:
        """Sessions were revoked at another process."""
        authenticator.revoked(session_ids)
        hub.close_session(session_ids)

    recheck = SessionRecheck(
        store=planes.store,
        clock=clock,
        tasks=tasks,
        connected=lambda: hub.sessions,
        on_ended=ended,
    )

    # In each round too: a process that was killed may not have told others which sessions it ended.
    backbone.rounds.append(recheck)

    def lost() -> None:
        """News of other processes may have been lost: read again what was learned from it."""
        planes.fanout.rosters_changed()
        authenticator.forget()
        recheck()

    # The inbox brings the pushes of all processes to this one's connections.
    backbone.inbox = ask(
        config,
        "inbox",
        local=hub,
        gateway_id=backbone.name,
        random_hex=secrets.token_hex,
        on_revoked=ended,
        on_roster_changed=planes.fanout.roster_changed,
        on_news=ticks.heard,
        on_forward=forwarding.heard,
        on_unrouted=ticks.unrouted,
        on_lost=lost,
        clock=clock,
        tasks=tasks,
    )
    hub.use_registrar(backbone.inbox, tasks)
    backbone.limits = ask(
        config,
        "limits",
        views=_shared_limits(planes) | planes.accounts.service.share_limits(),
        clock=clock,
        tasks=tasks,
    )
    publisher = add_gateway_parts(backbone, config, fanout=planes.fanout, clock=clock)
    if config.cluster.role.fans_out:
        add_fanout_parts(backbone, config, clock=clock, tasks=tasks)
    return publisher


class Others(NamedTuple):
    """Parts and options of the planes that differ when there are other processes."""

    router: Router
    revoke: Callable[[Sequence[SessionId]], None]
    forget_roster: Callable[[ChatId], None]
    ingest: IngestOptions
    fanout: FanoutOptions
    ticks: LocalTicks | None = None
    """None: the fan-out pushes ticks."""
    forwarding: Forwarding | None = None
    """None: this process appends every send that it takes in."""


def _others(
    config: Config,
    hub: Hub,
    keys: KeyRing,
    backbone: "Backbone | None",
    end: "End | None",
    machine: wiring.Machine,
) -> Others:
    if backbone is None:
        return Others(
            end if isinstance(end, StoreEnd) else hub,
            end.revoke if isinstance(end, StoreEnd) else wiring.tell_none,
            wiring.tell_none,
            config.ingest,
            config.fanout,
        )

    from tidewire.runtime.backbone import add_forwarding, add_ticks, fit_fanout, fit_ingest

    router = backbone.router
    ingest, fanout = fit_ingest(config), fit_fanout(config.fanout)
    clock, ids, tasks, _ = machine
    ticks = add_ticks(backbone, hub, fanout, clock=clock, tasks=tasks)
    forwarding = add_forwarding(backbone, config, keys, clock=clock, ids=ids, tasks=tasks)
    return Others(router, router.revoke, router.forget_roster, ingest, fanout, ticks, forwarding)


def _wire_planes(
    config: Config,
    store: Storage,
    bus: CommitBus,
    key: KeyRing,
    machine: wiring.Machine,
    backbone: "Backbone | None",
    end: "End | None",
) -> Planes:
    clock, ids, tasks, _ = machine
    hub = Hub(clock=clock, options=config.gateway, publish=bus, chance=random.random)
    others = _others(config, hub, key, backbone, end, machine)
    identity_keys = wiring.keys_of_identity(config, clock)
    if isinstance(end, GatewayEnd):
        # `GatewayEnd` has every method that the planes of a gateway call on the fan-out.
        fanout = cast("FanoutWorker", end)
        identity_keys = identity_keys and reach(_KEYS, KeySet, end.link)
    else:
        fanout = FanoutWorker(
            chats=store,
            positions=store,
            router=others.router,
            clock=clock,
            tasks=tasks,
            options=others.fanout,
            ticks=others.ticks,
        )

    def roster_changed(chat_id: ChatId) -> None:
        fanout.roster_changed(chat_id)
        others.forget_roster(chat_id)

    delivery = DeliveryService(
        store=store, clock=clock, tasks=tasks, options=config.delivery, publish=bus
    )
    revocations = Revocations(hub, others.revoke)
    ingest, chats, accounts = wiring.wire_acting(
        config,
        store,
        key,
        machine,
        on_revoked=revocations,
        on_roster_changed=roster_changed,
        ingest=others.ingest,
        appends=others.forwarding,
        identity_keys=identity_keys,
    )
    if isinstance(end, GatewayEnd):
        logins = reach(
            _LOGINS, AccountService, end.link, registration=accounts.service.registration
        )
        accounts = replace(accounts, service=logins)
    # One limiter for all sends, over WebSocket and REST.
    sends = send_limiter(config.gateway)
    desk = Desk(
        hub=hub,
        intake=ingest,
        acknowledger=delivery,
        typing=fanout,
        messages=store,
        positions=store,
        clock=clock,
        tasks=tasks,
        options=config.gateway,
    )
    authenticator = accounts.authenticator
    gateway = Gateway(desk, authenticator=authenticator, ids=ids, epoch=store.epoch, sends=sends)
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


def _rest_services(
    config: Config, planes: Planes, machine: wiring.Machine, readiness: Readiness, page: Page
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
        metrics=page,
        group_members_max=config.chats.group_members_max,
        proxies=proxies,
        insiders=Insiders(proxies, config.server.probe_token),
    )
