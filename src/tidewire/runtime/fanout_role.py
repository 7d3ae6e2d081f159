"""A process that reads the event log and pushes. It serves no clients, only probes."""

from dataclasses import dataclass

from tidewire.edge.peers import Insiders, TrustedProxies
from tidewire.edge.probes import NoGateway, Probes
from tidewire.edge.server import EdgeServer
from tidewire.ports.event_log import ignore_commits
from tidewire.runtime.backbone import Backbone, add_fanout_parts, open_backbone
from tidewire.runtime.clock import SystemClock
from tidewire.runtime.config import Config
from tidewire.runtime.metrics import TABLES, LoopLag, Metrics, ProcessNumbers
from tidewire.runtime.readiness import Readiness
from tidewire.runtime.supervise import TaskSupervisor


@dataclass(frozen=True, slots=True, kw_only=True)
class FanoutServer:
    config: Config
    tasks: TaskSupervisor
    backbone: Backbone
    readiness: Readiness
    lag: LoopLag
    edge: EdgeServer

    async def start(self) -> None:
        """Raises PortUnavailable; then the server has to be stopped."""
        self.lag.start()
        await self.edge.start()
        await self.backbone.start(self.tasks)
        self.readiness.is_ready = True

    async def stop(self, *, is_started: bool) -> None:
        """Stop without waiting for unfinished batches: another worker reads them again."""
        self.readiness.is_ready = False
        if is_started:
            await self.edge.stop_accepting()
            await self.edge.stop()
            await self.backbone.stop_pushing()
        self.lag.stop()
        await self.tasks.close()
        await self.backbone.close()
        await self.backbone.store.close()


async def build_fanout(config: Config, *, tasks: TaskSupervisor) -> FanoutServer:
    """Open everything that is shared, and wire a worker. Raises StoreUnusable, NotACluster."""
    clock = SystemClock()
    backbone = await open_backbone(config, ignore_commits, keys=None, clock=clock, tasks=tasks)
    worker = add_fanout_parts(backbone, config, clock=clock, tasks=tasks)
    lag, readiness = LoopLag(), Readiness(backbone.store)
    metrics = Metrics(
        [
            (TABLES["process"], ProcessNumbers(lag, tasks.failures_by_kind)),
            (TABLES["fanout"], worker),
            *backbone.metric_sources(),
        ]
    )
    proxies = TrustedProxies(config.server.trusted_proxies)
    probes = Probes(
        check_ready=readiness.check,
        metrics=metrics.render,
        insiders=Insiders(proxies, config.server.probe_token),
    )
    return FanoutServer(
        config=config,
        tasks=tasks,
        backbone=backbone,
        readiness=readiness,
        lag=lag,
        edge=EdgeServer(probes, gateway=NoGateway(), tasks=tasks, options=config.server),
    )
