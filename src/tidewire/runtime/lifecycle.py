"""The order in which a server starts and stops.

Stopping: report "not ready", take no new clients, tell all clients to come back later, store and
answer what was taken in, write positions, close sockets, close the store. It takes under 10 s: a
peer that does not read and a disk that does not answer do not delay it for longer. Even if a step
is cut off, everything that was acknowledged is on the disk.
"""

import asyncio
import gc
import logging
import os
import signal
import threading
from collections.abc import Awaitable
from typing import Final

from tidewire.domain.errors import Unavailable
from tidewire.ports.runtime import RequestKind
from tidewire.runtime.bootstrap import Server
from tidewire.runtime.clock import SystemClock
from tidewire.runtime.token_keys import SecretUnusable

STORE_S_MAX: Final = 6.0
"""How long a stop waits until what was taken in is stored."""
SOCKETS_S_MAX: Final = 1.5
"""How long a stop waits for peers to answer their close frames, and for open HTTP requests."""
ROUTES_S_MAX: Final = 1.0
"""How long a stop waits for a Redis that may be gone."""
STOP_S_MAX: Final = 9.5
"""After this time the process ends, even if something hangs."""
HOUSE_S: Final = 60.0
"""The pause between two rounds of housekeeping."""

EXIT_DONE: Final = 0
EXIT_BROKEN: Final = 70
"""A part died (EX_SOFTWARE): the service manager may start the server again."""

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
GARBAGE_OBJECTS: Final = 10_000
"""After how many new objects the garbage collector looks for reference cycles."""

_logger: Final = logging.getLogger(__name__)


async def start(server: Server) -> None:
    """Serve from now on. Raises PortUnavailable; then the server has to be stopped."""
    if server.control is not None:
        await server.control.start()
    server.lag.start()
    if server.backbone is not None:
        await server.backbone.start(server.tasks)
        await _tend_keys(server)
    server.tasks.start_service("accounts-house", _keep_house(server))
    server.tasks.start_service("accounts-erasure", _erase_accounts(server))
    if server.port is not None:
        await server.edge.start()
    # Modules, tables and planes stay until the end: the collector need not scan them again and
    # again. That saves a few per cent of the processor time of a message.
    gc.collect()
    gc.freeze()
    # Nor need it run after every 700 new objects: one connection alone makes a few hundred.
    gc.set_threshold(GARBAGE_OBJECTS)
    server.readiness.is_ready = True


async def stop(server: Server, *, is_started: bool = True) -> None:
    """End in order. Safe for a server that could not start."""
    last_resort = threading.Timer(STOP_S_MAX, _give_up)
    last_resort.daemon = True
    last_resort.start()
    try:
        server.readiness.is_ready = False
        if is_started and server.port is not None:
            await server.edge.stop_accepting()
        server.planes.hub.shutdown()
        await _within(STORE_S_MAX, _drain(server), "storing what was taken in")
        await _within(SOCKETS_S_MAX, server.planes.hub.empty(), "closing connections")
        if is_started and server.port is not None:
            await _within(SOCKETS_S_MAX, server.edge.stop(), "ending requests")
        if server.backbone is not None and is_started:
            await _within(ROUTES_S_MAX, server.backbone.stop_pushing(), "saying that it goes")
        if server.control is not None:
            await server.control.stop()
        server.lag.stop()
        server.planes.hub.close()
        await server.tasks.close()
        if server.backbone is not None:
            await server.backbone.close()
        # Before the store is closed: it holds the lock of the directory that both write to.
        await asyncio.to_thread(server.trail.close)
        await server.planes.store.close()
    finally:
        last_resort.cancel()


async def _drain(server: Server) -> None:
    await server.planes.ingest.drain()
    # Devices may have acknowledged the last messages meanwhile.
    await server.planes.delivery.drain()
    if server.backbone is not None:
        await server.backbone.publish_rest()


async def _within(seconds: float, work: Awaitable[None], what: str) -> None:
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        _logger.warning("stopping goes on without %s: it took too long", what)


async def _keep_house(server: Server) -> None:
    while True:
        server.trail.tell_floods()
        # If it fails, nothing is lost but the exact time of a session's last use.
        work = server.planes.accounts.admin.keep_house()
        await _try(
            server, work, "the housekeeping of accounts failed and is tried again in a minute"
        )
        await _tend_keys(server)
        for act in () if server.backbone is None else server.backbone.rounds:
            act()
        await asyncio.sleep(HOUSE_S)


async def _erase_accounts(server: Server) -> None:
    """Erase messages of deleted accounts. Not in `_keep_house`, because it may take long."""
    while True:
        work = server.planes.accounts.deletion.resume_erasures()
        await _try(
            server,
            work,
            "messages that are to be erased are still there; it is tried again in a minute",
        )
        await asyncio.sleep(HOUSE_S)


async def _try(server: Server, work: Awaitable[object], failure: str) -> None:
    """Do a round of housekeeping. After a failure the next round tries again."""
    try:
        await work
    except Unavailable as error:
        _logger.warning("%s: %s", failure, error)
    except Exception as error:  # noqa: BLE001 - the next round tries again
        server.tasks.request_failed(RequestKind.HOUSEKEEPING, error)


async def _tend_keys(server: Server) -> None:
    """Load a new key that was put into the file, and tell the other gateways when it signs."""
    try:
        if server.keys.file is not None and await asyncio.to_thread(server.keys.file.reread):
            _logger.info("the keys for tokens were read again")
        server.key_watch.look()
        if server.backbone is not None:
            from tidewire.runtime.backbone import tend_keys

            now_ms = SystemClock().wall_ms()
            await tend_keys(server.backbone.store, server.keys.ring, now_ms)
    except SecretUnusable as error:
        _logger.error("tokens of other gateways are refused here: %s", error)  # noqa: TRY400
    except Unavailable as error:
        _logger.warning("the other gateways could not be asked about their key: %s", error)


def _give_up() -> None:
    """End the process. Runs on a thread of its own, because the event loop may hang."""
    _logger.critical("stopping took over %s s; ending now", STOP_S_MAX)
    os._exit(EXIT_BROKEN)


class Stop:
    """Collects reasons to shut down: signals, and tasks that failed. Waits for the first.

    A second signal ends the process at once: everything that was acknowledged is on the disk
    already.
    """

    def __init__(self) -> None:
        """Must be made on the event loop."""
        self.exit_code = EXIT_DONE
        self._wanted = asyncio.Event()

    @property
    def is_wanted(self) -> bool:
        return self._wanted.is_set()

    async def wait(self) -> None:
        await self._wanted.wait()

    def ask(self, why: str) -> None:
        if not self.is_wanted:
            _logger.info("stopping", extra={"why": why})
            self._wanted.set()

    def died(self, name: str, error: BaseException) -> None:
        """A task died (`TaskSupervisor.on_death`): end in order, with the exit code for that."""
        self.exit_code = EXIT_BROKEN
        self.ask(f"the task {name} died")

    def listen(self) -> None:
        """Handle the signals from now on."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._signalled, number)

    def ignore(self) -> None:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    def _signalled(self, number: signal.Signals) -> None:
        if self.is_wanted:
            _logger.warning("stopped at once by a second signal")
            os._exit(128 + number)
        self.ask(number.name)
