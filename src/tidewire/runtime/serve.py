"""Runs a server in this process until somebody wants it to end."""

import asyncio
import logging
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import uvloop

from tidewire import __version__
from tidewire.accounts.options import Registration
from tidewire.edge.server import reserve_port
from tidewire.runtime import lifecycle
from tidewire.runtime.bootstrap import OpenStore, Server, build_server, open_sqlite
from tidewire.runtime.config import DATA_DIR_DEFAULT, Config
from tidewire.runtime.logs import is_json_log, start_logging
from tidewire.runtime.precautions import take_precautions
from tidewire.runtime.secret_files import KeyFile
from tidewire.runtime.stopping import Stop
from tidewire.runtime.supervise import TaskSupervisor

_logger: Final = logging.getLogger(__name__)


def run(config: Config, greet: Callable[[str], None]) -> int:
    """Serve until a signal comes; the exit code. Raises TidewireError if it cannot start."""
    start_logging(config.log)
    take_precautions(config)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        start = serve if config.cluster.role.serves else fan_out
        return runner.run(start(config, greet))


async def serve(
    config: Config, greet: Callable[[str], None], *, open_store: OpenStore = open_sqlite
) -> int:
    """As `run`, on the loop that is there."""
    stop = Stop()
    stop.listen()
    # Before anything is made: a start that fails because the port is taken leaves nothing behind.
    port = reserve_port(config.server)
    try:
        server = await build_server(
            config,
            key=KeyFile(config.data_dir, config.cluster.token_key_file),
            tasks=TaskSupervisor(stop.died),
            open_store=open_store,
        )
    except BaseException:
        port.close()
        raise
    server.edge.listen_on(port)
    is_started = False
    try:
        await lifecycle.start(server)
        is_started = True
        _logger.info(
            "listening",
            extra={
                "address": server.edge.url,
                "version": __version__,
                "registration": str(config.accounts.registration),
            },
        )
        greet(await greeting(server))
        await stop.wait()
    finally:
        await lifecycle.stop(server, is_started=is_started)
    _logger.info("stopped")
    return stop.exit_code


async def fan_out(config: Config, greet: Callable[[str], None]) -> int:
    """As `serve`, for a process that only reads the event log and pushes."""
    from tidewire.runtime.fanout_role import build_fanout

    stop = Stop()
    stop.listen()
    server = await build_fanout(config, tasks=TaskSupervisor(stop.died))
    is_started = False
    try:
        await server.start()
        is_started = True
        _logger.info("fanning out", extra={"address": server.edge.url, "version": __version__})
        if is_for_people(config):
            greet(f"Tidewire {__version__} fans out; its health is at {server.edge.url}/readyz")
        else:
            greet(_address_as_json(server.edge.url))
        await stop.wait()
    finally:
        await server.stop(is_started=is_started)
    _logger.info("stopped")
    return stop.exit_code


def is_for_people(config: Config) -> bool:
    """A person reads what is printed. Otherwise it may end up among the lines of the log, and has
    to be JSON where these are."""
    return sys.stdout.isatty() or not is_json_log(config.log)


async def greeting(server: Server) -> str:
    """What to print once the server is up: where it is, and on a first start what to do next."""
    config = server.config
    if not is_for_people(config):
        return _address_as_json(server.edge.url)
    lines = [
        f"Tidewire {__version__} listens on {server.edge.url}",
        _place(config),
        _REGISTRATION[config.accounts.registration],
    ]
    if not await server.planes.accounts.admin.list_users(count_max=1):
        command = _own_command()
        data_dir = config.data_dir
        place = "" if data_dir == DATA_DIR_DEFAULT else f" --data-dir {shlex.quote(str(data_dir))}"
        lines += [
            "",
            "In another terminal, make an account (and one more, bob), and say hello:",
            f"  {command} users add alice{place}",
            f"  {command} say alice bob 'Hello!'{place}",
        ]
    return "\n".join([*lines, ""])


_REGISTRATION: Final = {
    Registration.OPEN: "Everybody who reaches it can make an account (accounts.registration)",
    Registration.INVITE: "To make an account one needs an invite: tidewire users invite",
    Registration.CLOSED: "Only you make accounts: tidewire users add",
}


def _address_as_json(url: str) -> str:
    return msgspec.json.encode({"event": "listening", "address": url}).decode()


def _place(config: Config) -> str:
    role = config.cluster.role
    if role.is_clustered:
        return f"It is part of a cluster ({role}); its own files are in {config.data_dir.resolve()}"
    return f"Its data is in {config.data_dir.resolve()}"


def _own_command() -> str:
    """How this program was called, as somebody else can call it from here."""
    name = Path(sys.argv[0]).name
    if name == "__main__.py":
        return f"{Path(sys.executable).name} -m tidewire"
    if shutil.which(name) is not None:
        return name
    path = Path(sys.argv[0]).absolute()
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
