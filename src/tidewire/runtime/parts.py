"""The parts of a server of several processes: what its store and its gateways do.

Decision 0022 says what runs where, and what the end of each part means.
"""

import asyncio
import logging
import socket
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, Final

import uvloop

from tidewire.processes.gateway_end import GatewayEnd
from tidewire.processes.store_end import StoreEnd
from tidewire.runtime import lifecycle
from tidewire.runtime.bootstrap import Server, build_server
from tidewire.runtime.clock import SystemClock
from tidewire.runtime.config import Config
from tidewire.runtime.logs import start_logging
from tidewire.runtime.parent import Leash, Works, end_now
from tidewire.runtime.supervise import TaskSupervisor
from tidewire.runtime.token_keys import KeyFile

CLOSING_S: Final = 0.3
"""How long a gateway that has lost the store stays, so that its last frames can be sent."""

_logger: Final = logging.getLogger(__name__)


def processes_of(config: Config) -> int:
    """How many gateway processes are wanted; 1: this process does everything."""
    return 1 if config.cluster.role.is_clustered else config.server.processes


def share_of(config: Config, count: int) -> Config:
    """The settings for one of `count` gateways: its share of the limits that all keep together."""

    def share(total: int) -> int:
        return -(-total // count)

    server, gateway = config.server, config.gateway
    return replace(
        config,
        server=replace(
            server,
            http_connections_max=share(server.http_connections_max),
            address_http_connections_max=share(server.address_http_connections_max),
            address_connections_max=share(server.address_connections_max),
        ),
        gateway=replace(
            gateway,
            connections_max=share(gateway.connections_max),
            handshakes_max=share(gateway.handshakes_max),
            return_rate_per_second=share(gateway.return_rate_per_second),
        ),
    )


def works_of(config: Config, count: int) -> Works:
    """The jobs of a parent's children."""
    # Imported before the fork, so that the processes share its memory.
    import tidewire.edge.rest.app  # noqa: F401

    def store(leash: Leash) -> int:
        return _run(config, "store", _store(config, leash))

    def gateway(leash: Leash, number: int, listener: socket.socket, link: socket.socket) -> int:
        work = _gateway(share_of(config, count), leash, listener, link)
        return _run(config, f"gateway {number}", work)

    return Works(store, gateway)


def _run(config: Config, name: str, work: Coroutine[Any, Any, int]) -> int:
    start_logging(config.log, process=name)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


async def _store(config: Config, leash: Leash) -> int:
    stop = lifecycle.Stop()
    tasks = TaskSupervisor(stop.died)
    end = StoreEnd(clock=SystemClock(), tasks=tasks, bytes_max=config.server.link_bytes_max)
    server = await build_server(
        config, key=KeyFile(config.data_dir, config.cluster.token_key_file), tasks=tasks, end=end
    )

    def pulled() -> None:
        files = leash.take()
        if files is None:
            stop.ask("the parent says so")
        else:
            link, handle = files
            tasks.start_service("admission", end.admit(socket.socket(fileno=link), handle))

    is_started = False
    try:
        await lifecycle.start(server)
        is_started = True
        has_users = bool(await server.planes.accounts.admin.list_users(count_max=1))
        asyncio.get_running_loop().add_reader(leash.wire, pulled)
        leash.ready(b"1" if has_users else b"0")
        await stop.wait()
        if stop.exit_code:
            # A task died. End as if killed: an orderly end would answer sends with refusals.
            end_now(stop.exit_code)
    finally:
        await lifecycle.stop(server, is_started=is_started)
    return stop.exit_code


async def _gateway(
    config: Config, leash: Leash, listener: socket.socket, link: socket.socket
) -> int:
    stop = lifecycle.Stop()
    tasks = TaskSupervisor(stop.died)
    loop = asyncio.get_running_loop()

    def pulled() -> None:
        leash.take()
        stop.ask("the parent says so")

    def lost() -> None:
        """Without the store nothing can be answered: all clients reconnect, and ask again."""
        _logger.error("the store process is gone")
        if server is not None:
            server.planes.hub.abandon()
        loop.call_later(CLOSING_S, end_now)

    server: Server | None = None
    end = GatewayEnd(tasks=tasks, on_lost=lost, bytes_max=config.server.link_bytes_max)
    loop.add_reader(leash.wire, pulled)
    await end.link.connect(link)
    server = await build_server(
        config, key=KeyFile(config.data_dir, config.cluster.token_key_file), tasks=tasks, end=end
    )
    server.edge.listen_on(listener)
    is_started = False
    try:
        await lifecycle.start(server)
        is_started = True
        leash.ready()
        await stop.wait()
    finally:
        await lifecycle.stop(server, is_started=is_started)
    return stop.exit_code
