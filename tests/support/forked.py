"""Runs our programs as real processes that need not import everything anew. Holds no test.

A run of the tests starts some 600 processes of `tidewire`, and each would load the same modules
for half a second. Here one process, the origin, has loaded them and does nothing else; each program
is a fork of it: a real process with its own pid, files, environment and memory, which can be
killed. Tests of memory use, of start-up or of the command itself use `subprocess`.
"""

import atexit
import gc
import io
import os
import runpy
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, Final

import msgspec

LOADED: Final = (
    "tidewire.runtime.cli",
    "tidewire.runtime.serve",
    "tidewire.runtime.bootstrap",
    "tidewire.runtime.operations",
    "tidewire.engines.dynamodb.engine",
    "tidewire.engines.kafka.engine",
    "tidewire.engines.redis.engine",
    "tidewire.engines.sqlite.engine",
    "tidewire.ops.verify",
    "tidewire.terminal.scripting",
    "tests.support.every_option",
)
"""The modules that the origin imports, with all that these import."""
REQUEST_BYTES_MAX: Final = 256 * 1024
_STATUS: Final = struct.Struct("i")


class _Request(msgspec.Struct):
    """The program that a fork of the origin must become."""

    module: str
    arguments: list[str]
    environment: dict[str, str]
    directory: str
    in_session: bool


class Forked(subprocess.Popen[Any]):
    """`Popen` of a command `[..., python, "-m", module, arguments]`: the same, but not executed.

    If the command begins with `env` and its options, these take effect as `env` would do it.
    """

    def _execute_child(self, *given: Any) -> None:
        named = signature(subprocess.Popen._execute_child).bind(self, *given).arguments  # type: ignore[attr-defined]
        environment = dict(os.environ if named["env"] is None else named["env"])
        module, arguments = _parse(named["args"], environment)
        request = _Request(
            module,
            arguments,
            environment,
            os.fspath(named["cwd"] or Path.cwd()),
            bool(named["start_new_session"]),
        )
        files = [
            inherited if file == -1 else file
            for inherited, file in enumerate(
                (named["p2cread"], named["c2pwrite"], named["errwrite"])
            )
        ]
        self.pid, self._ended = _origin().fork(request, files)
        self._child_created = True
        self._close_pipe_fds(  # type: ignore[attr-defined]
            *(
                named[end]
                for end in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
            )
        )

    # The parent of the process is the origin, which reports its exit status.

    def _try_wait(self, flags: int) -> tuple[int, int]:
        with selectors.DefaultSelector() as selector:
            selector.register(self._ended, selectors.EVENT_READ)
            if not selector.select(0 if flags & os.WNOHANG else None):
                return 0, 0
        said = os.read(self._ended, _STATUS.size)
        assert said, "the origin of our programs has ended"
        os.close(self._ended)
        return self.pid, _STATUS.unpack(said)[0]

    def _internal_poll(self, *_args: object, **_named: object) -> int | None:
        lock: threading.Lock = self._waitpid_lock  # type: ignore[attr-defined]
        if self.returncode is None and lock.acquire(blocking=False):
            try:
                if self.returncode is None:
                    pid, status = self._try_wait(os.WNOHANG)
                    if pid == self.pid:
                        self._handle_exitstatus(status)  # type: ignore[attr-defined]
            finally:
                lock.release()
        return self.returncode


def run(
    command: Sequence[str | os.PathLike[str]],
    *,
    timeout: float,
    text: str = "",
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run`; `text` is the program's standard input, and it has no terminal."""
    with Forked(
        [os.fspath(word) for word in command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    ) as process:
        try:
            out, err = process.communicate(text, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def _parse(command: Sequence[str], environment: dict[str, str]) -> tuple[str, list[str]]:
    """Module and arguments of a command; what its `env` says is done to the environment."""
    words = [os.fspath(word) for word in command]
    at = words.index(sys.executable)
    assert words[at + 1] == "-m", words
    for word in words[1:at]:
        if word.startswith("--unset="):
            environment.pop(word.removeprefix("--unset="), None)
        elif not word.startswith("--"):
            name, _, value = word.partition("=")
            environment[name] = value
        else:
            assert word == "--default-signal=INT", word
    return words[at + 2], words[at + 3 :]


class _Origin:
    """The tests' side of the origin, which has all modules loaded."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.forked", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self._lock = threading.Lock()
        atexit.register(self.close)

    def fork(self, request: _Request, files: Sequence[int]) -> tuple[int, int]:
        """The new process, and the read end of a pipe that gets its exit status."""
        ended, end = os.pipe()
        try:
            with self._lock:
                socket.send_fds(self._socket, [msgspec.json.encode(request)], [*files, end])
                said = self._socket.recv(_STATUS.size)
        finally:
            os.close(end)
        assert said, "the origin of our programs has ended"
        return _STATUS.unpack(said)[0], ended

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


@cache
def _origin() -> _Origin:
    return _Origin()


# The other side.


def _await_request(asks: socket.socket) -> tuple[_Request, list[int]] | None:
    """Fork for each request. Returns in a fork with its request; in the origin None at the end."""
    ends: dict[int, int] = {}
    woken, wakes = socket.socketpair()
    for one in (woken, wakes):
        one.setblocking(False)
    signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with selectors.DefaultSelector() as selector:
        selector.register(asks, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is woken:
                    woken.recv(4096)
                    _tell_ended(ends)
                    continue
                body, files, _, _ = socket.recv_fds(asks, REQUEST_BYTES_MAX, 4)
                if not body:
                    return None
                request = msgspec.json.decode(body, type=_Request)
                pid = os.fork()
                if not pid:
                    return request, files[:3]
                ends[pid] = files[3]
                for file in files[:3]:
                    os.close(file)
                asks.send(_STATUS.pack(pid))


def _tell_ended(ends: dict[int, int]) -> None:
    while ends:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        end = ends.pop(pid)
        try:
            os.write(end, _STATUS.pack(status))
        except BrokenPipeError:
            pass  # No test waits for it.
        finally:
            os.close(end)


def _become(request: _Request, files: Sequence[int]) -> None:
    """Give this fork the state that a process has after `exec`."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if request.in_session:
        os.setsid()
    # First copy above all open files: one of the three may have a number that another must get.
    kept = [os.dup(file) for file in files]
    for place, file in enumerate(kept):
        os.dup2(file, place)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.environ.update(request.environment)
    time.tzset()
    os.chdir(request.directory)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = io.TextIOWrapper(
        open(1, "wb", closefd=False),  # noqa: SIM115
        encoding="utf-8",
        line_buffering=os.isatty(1),
    )
    sys.stderr = io.TextIOWrapper(
        open(2, "wb", closefd=False),  # noqa: SIM115
        encoding="utf-8",
        errors="backslashreplace",
        line_buffering=True,
    )
    sys.argv = [request.module, *request.arguments]


def _main() -> None:
    # Ctrl-C is for the tests, which then end this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for module in LOADED:
        import_module(module)
    # Forks share the loaded objects, and their garbage collectors need not visit them.
    gc.collect()
    gc.freeze()
    asks = socket.socket(fileno=int(sys.argv[1]))
    wanted = _await_request(asks)
    if wanted is not None:
        asks.detach()
        request, files = wanted
        _become(request, files)
        # The module must be loaded anew, as `__main__`; of a package, only its `__main__` module.
        is_package = hasattr(import_module(request.module), "__path__")
        sys.modules.pop(f"{request.module}.__main__" if is_package else request.module, None)
        runpy.run_module(request.module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
