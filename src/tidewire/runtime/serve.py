"""Runs a server until it is told to stop."""

import asyncio
import logging
import resource
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec
import uvloop

from tidewire import __version__
from tidewire.accounts.options import Registration
from tidewire.edge.server import reserve_port
from tidewire.runtime import lifecycle
from tidewire.runtime.bootstrap import OpenStore, build_server
from tidewire.runtime.config import DATA_DIR_DEFAULT, Config
from tidewire.runtime.logs import is_json_log, start_logging
from tidewire.runtime.parent import Forked, Parent
from tidewire.runtime.parts import processes_of, works_of
from tidewire.runtime.supervise import TaskSupervisor
from tidewire.runtime.token_keys import KeyFile

_OTHERS: Final = 0o007
_GROUP_WRITES: Final = 0o020

_logger: Final = logging.getLogger(__name__)


def run(config: Config, greet: Callable[[str], None]) -> int:
    """Serve until a signal comes; the exit code. Raises TidewireError if it cannot start."""
    start_logging(config.log)
    take_precautions(config)
    count = processes_of(config)
    if count > 1:
        parent = Parent(config, count, works_of(config, count))
        try:
            return parent.run(
                lambda word: _is_up(config, parent.url, greet, has_users=word == b"1")
            )
        except Forked as child:
            work = child.work
        return work()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        start = serve if config.cluster.role.serves else fan_out
        return runner.run(start(config, greet))


async def serve(
    config: Config, greet: Callable[[str], None], *, open_store: OpenStore | None = None
) -> int:
    """As `run`, for one process, on the running event loop."""
    stop = lifecycle.Stop()
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
        users = await server.planes.accounts.admin.list_users(count_max=1)
        _is_up(config, server.edge.url, greet, has_users=bool(users))
        await stop.wait()
    finally:
        await lifecycle.stop(server, is_started=is_started)
    _logger.info("stopped")
    return stop.exit_code


async def fan_out(config: Config, greet: Callable[[str], None]) -> int:
    """As `serve`, for a process that only reads the event log and pushes."""
    from tidewire.runtime.fanout_role import build_fanout

    stop = lifecycle.Stop()
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


def _is_up(config: Config, url: str, greet: Callable[[str], None], *, has_users: bool) -> None:
    _logger.info(
        "listening",
        extra={
            "address": url,
            "version": __version__,
            "registration": str(config.accounts.registration),
        },
    )
    greet(greeting(config, url, has_users=has_users))


def is_for_people(config: Config) -> bool:
    """Whether a person reads what is printed. If not, it may end up among the lines of the log, and
    has to be JSON if these are."""
    return sys.stdout.isatty() or not is_json_log(config.log)


def greeting(config: Config, url: str, *, has_users: bool) -> str:
    """What to print once the server is up: where it is, and on a first start what to do next."""
    if not is_for_people(config):
        return _address_as_json(url)
    lines = [
        f"Tidewire {__version__} listens on {url}",
        "Open that in a browser to chat",
        _place(config),
        _REGISTRATION[config.accounts.registration],
    ]
    if not has_users:
        command = _own_command()
        data_dir = config.data_dir
        place = "" if data_dir == DATA_DIR_DEFAULT else f" --data-dir {shlex.quote(str(data_dir))}"
        lines += [
            "",
            "There is no account yet: the page makes the first. Or, in another terminal, make one",
            "(and one more, bob), and say hello:",
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
    """How this program was called, as a command that can be entered again from here."""
    name = Path(sys.argv[0]).name
    if name == "__main__.py":
        return f"{Path(sys.executable).name} -m tidewire"
    if shutil.which(name) is not None:
        return name
    path = Path(sys.argv[0]).absolute()
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def take_precautions(config: Config) -> None:
    """Warn of what an operator should fix, and allow as many open files as the machine does."""
    for sentence in doubts(config):
        _logger.warning(sentence)
    raise_file_limit()


def doubts(config: Config) -> Iterator[str]:
    """What people may read or change who should not; a sentence each."""
    key = config.server.tls_key
    if key is not None and _mode(key) & _OTHERS:
        yield f"{key} can be read by every user of this machine; 'chmod 600 {key}' mends it"
    data_dir = config.data_dir
    if _mode(data_dir) & (_OTHERS | _GROUP_WRITES):
        yield f"{data_dir} is open to others on this machine; 'chmod 700 {data_dir}' mends it"
    if config.identity.jwks_url.startswith("http://"):
        yield (
            "identity.jwks_url begins with http://: who can change what comes over that network "
            "can sign tokens"
        )


def raise_file_limit() -> None:
    """Raise the soft limit, often 1024, to the machine's hard limit: each connection is a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        _logger.warning("at most %s files can be open: %s", soft, error)


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except OSError:
        # The file does not exist yet, or the code that needs it reports the error.
        return 0
