"""A server of several processes: the parent, which starts the others, and starts them again.

It has one thread and no event loop, because it forks. It makes a listening socket for each gateway
and keeps it: clients that come while a gateway restarts wait in the socket's queue. If a gateway
dies again and again, its socket is closed for a while, so that the kernel sends its clients to the
others; the last socket stays, so that no other server can take the port.

The leash is a socket between the parent and a child. The parent says "stop", and gives the store
its end of a new gateway's link; the child says when it is up. A child whose parent is gone ends.
"""

import gc
import logging
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple, NoReturn

from tidewire.edge.server import sharing_socket, sharing_sockets, url_of
from tidewire.ports.storage import EXIT_STORE_IN_DOUBT
from tidewire.runtime.config import Config
from tidewire.runtime.lifecycle import EXIT_BROKEN, EXIT_DONE

GATEWAYS_S_MAX: Final = 8.5
"""How long a stop waits for the gateways; then they are killed."""
STOP_S_MAX: Final = 9.6
"""How long a stop waits for all processes; then they are killed."""
GONE_S_MAX: Final = 2.0
"""How long gateways may take to end when the store is gone."""
DEATHS_MAX: Final = 3
DEATHS_S: Final = 30.0
"""A part that dies `DEATHS_MAX` times within this time is in a crash loop: a gateway is started
again later, a store ends the server."""
REST_S: Final = 30.0
PAUSE_S: Final = 1.0
"""How long a gateway waits for the store, or, if it is the only one left, after a crash loop."""

_STOP, _LINK, _READY = b"s", b"l", b"r"
_STOPS: Final = (signal.SIGTERM, signal.SIGINT)
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15

_logger: Final = logging.getLogger(__name__)


class Leash:
    """A child's end of its leash."""

    def __init__(self, wire: socket.socket) -> None:
        self.wire = wire

    def ready(self, word: bytes = b"") -> None:
        self.wire.send(_READY + word)

    def take(self) -> list[int] | None:
        """Read the parent's order: None means stop, a list has the files of a new gateway. If the
        parent is gone, this process ends at once, as if killed: what was acknowledged is stored."""
        said, files, _, _ = socket.recv_fds(self.wire, 16, 2)
        if not said:
            end_now()
        return None if said == _STOP else files


class Forked(Exception):
    """Raised in a child that was forked; `work` does its job and returns its exit code."""

    def __init__(self, work: Callable[[], int]) -> None:
        super().__init__()
        self.work = work


class Works(NamedTuple):
    """The jobs of the children. Each is called with the child's leash."""

    store: Callable[[Leash], int]
    gateway: Callable[[Leash, int, socket.socket, socket.socket], int]
    """Called with the leash, the gateway's number, its listening socket, its end of the link."""


class _Child:
    def __init__(self, pid: int, leash: socket.socket, gateway: int | None) -> None:
        self.pid = pid
        self.leash = leash
        self.gateway = gateway
        """The gateway's number; None: this is the store."""
        self.is_ready = False

    @property
    def name(self) -> str:
        return "store" if self.gateway is None else f"gateway {self.gateway}"

    def say(self, word: bytes, files: Iterable[int] = ()) -> None:
        # If the child is gone, the kernel reports it in a moment.
        with suppress(OSError):
            socket.send_fds(self.leash, [word], list(files))


class Parent:
    """Runs until it is told to stop, or until the store cannot be kept running."""

    def __init__(self, config: Config, count: int, works: Works) -> None:
        """Takes the port. Raises PortUnavailable."""
        self._config = config
        self._works = works
        self._listeners = dict(enumerate(sharing_sockets(config.server, count), start=1))
        self._port = int(self._listeners[1].getsockname()[1])
        self.url = url_of(config.server, self._listeners[1])
        self._children: dict[int, _Child] = {}
        self._deaths: dict[int | None, list[float]] = {}
        # Timers by name: when each is due, and what it calls.
        self._due: dict[str, tuple[float, Callable[[], None]]] = {}
        self._exit_code: int | None = None
        self._is_up = False
        self._on_up: Callable[[bytes], None] = lambda word: None
        self._word = b""
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()

    def run(self, on_up: Callable[[bytes], None]) -> int:
        """Run to the end; returns the exit code. Calls `on_up` with the store's first word when all
        are up for the first time. Raises Forked in a child."""
        self._on_up = on_up
        self._listen_to_signals()
        # All processes share the memory of what is loaded by now.
        gc.collect()
        gc.freeze()
        self._start_store()
        while self._exit_code is None or self._children:
            self._turn()
        self._close()
        return self._exit_code

    def _turn(self) -> None:
        at = min((at for at, _ in self._due.values()), default=None)
        wait_s = None if at is None else max(0.0, at - time.monotonic())
        for key, _ in self._selector.select(wait_s):
            if key.data is None:
                self._signalled(self._woken.recv(64))
            else:
                self._heard(key.data)
        now = time.monotonic()
        for name, (at, act) in list(self._due.items()):
            if at <= now:
                del self._due[name]
                act()

    # Signals.

    def _listen_to_signals(self) -> None:
        for end in (self._woken, self._waker):
            end.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        for number in (*_STOPS, signal.SIGCHLD):
            signal.signal(number, _noted)
        self._selector.register(self._woken, selectors.EVENT_READ, None)

    def _signalled(self, numbers: bytes) -> None:
        for number in numbers:
            if number == signal.SIGCHLD:
                continue
            if self._exit_code is not None:
                _logger.warning("stopped at once by a second signal")
                self._kill(self._children.values())
                os._exit(128 + number)
            self._stop(EXIT_DONE, signal.Signals(number).name)
        self._reap()

    # Children.

    def _start_store(self) -> None:
        self._fork(None, self._works.store)

    def _start_gateway(self, number: int) -> None:
        if number not in self._listeners:
            self._listeners[number] = sharing_socket(self._config.server, self._port)
        listener = self._listeners[number]
        ours, theirs = socket.socketpair()
        child = self._fork(
            number,
            lambda leash: self._works.gateway(leash, number, listener, theirs),
            keep=(listener, theirs),
            drop=(ours,),
        )
        theirs.close()
        handle = os.pidfd_open(child.pid)
        self._store().say(_LINK, (ours.fileno(), handle))
        os.close(handle)
        ours.close()

    def _fork(
        self,
        gateway: int | None,
        work: Callable[[Leash], int],
        keep: tuple[socket.socket, ...] = (),
        drop: tuple[socket.socket, ...] = (),
    ) -> _Child:
        """Start a child. Of the parent's sockets it keeps only `keep`. It closes `drop`, the other
        ends of what was made for it: if it kept such an end, it would never see it as closed."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        parent = os.getpid()
        # If a signal goes to all processes, a new child must not report it to its parent's socket.
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
        pid = os.fork()
        if pid == 0:
            self._leave(keep, (ours, *drop))
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
            _become("tidewire-store" if gateway is None else f"tidewire-gw-{gateway}", parent)
            raise Forked(partial(work, Leash(theirs)))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
        theirs.close()
        child = _Child(pid, ours, gateway)
        self._children[pid] = child
        self._selector.register(ours, selectors.EVENT_READ, child)
        return child

    def _leave(self, keep: tuple[socket.socket, ...], drop: tuple[socket.socket, ...]) -> None:
        """In a child: release what belongs to the parent."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # A terminal or a service manager signals all processes; a child stops when its parent says.
        for number in _STOPS:
            signal.signal(number, signal.SIG_IGN)
        self._selector.close()
        held = (*drop, self._woken, self._waker, *self._listeners.values())
        for one in (*held, *(child.leash for child in self._children.values())):
            if one not in keep:
                one.close()

    def _heard(self, child: _Child) -> None:
        if child.pid not in self._children:
            return  # The child was reaped after the selector reported it.
        try:
            said = child.leash.recv(16)
        except OSError:
            said = b""
        if not said:
            self._selector.unregister(child.leash)
            return
        child.is_ready = True
        if self._exit_code is not None:
            return
        if child.gateway is None:
            self._word = said[1:]
            for number in sorted({*self._listeners, *self._resting()}):
                self._start_gateway(number)
        elif not self._is_up and all(one.is_ready for one in self._children.values()):
            self._is_up = True
            self._on_up(self._word)

    def _reap(self) -> None:
        while self._children:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            child = self._children.pop(pid, None)
            if child is not None:
                self._let_go(child)
                self._ended(child, os.waitstatus_to_exitcode(status))

    def _let_go(self, child: _Child) -> None:
        if child.leash in self._selector.get_map():
            self._selector.unregister(child.leash)
        child.leash.close()

    def _ended(self, child: _Child, code: int) -> None:
        if self._exit_code is not None:
            self._gateways_gone()
            return
        if not child.is_ready and not self._is_up:
            # The child has reported why, or was killed.
            self._stop(code if code > 0 else EXIT_BROKEN, f"the {child.name} does not start")
            return
        _logger.error("a process ended", extra={"part": child.name, "exit_code": code})
        if child.gateway is None:
            if self._note_death(None) or code == EXIT_STORE_IN_DOUBT:
                # If a disk is in doubt, an operator checks it first, as with one process.
                self._stop(code if code > 0 else EXIT_BROKEN, "the store cannot be kept up")
                return
            self._due["gone"] = (
                time.monotonic() + GONE_S_MAX,
                lambda: self._kill(self._gateways()),
            )
        elif self._has_store():
            # A gateway that ends because the store has ended does not count as a death.
            if self._note_death(child.gateway):
                self._rest(child.gateway)
            else:
                self._start_after_rest(child.gateway)
        self._store_gone()

    def _store_gone(self) -> None:
        """If the store has ended and all gateways after it, start the store again."""
        if not self._has_store() and not self._children:
            self._due.pop("gone", None)
            self._start_store()

    def _rest(self, number: int) -> None:
        """A gateway keeps dying: start it later; its clients go to the others, if there are any."""
        _logger.error("a gateway keeps ending; it is started again later", extra={"part": number})
        if len(self._listeners) > 1:
            self._listeners.pop(number).close()
            self._start_later(number, REST_S)
        else:
            self._start_later(number, PAUSE_S)

    def _start_later(self, number: int, delay_s: float) -> None:
        act = partial(self._start_after_rest, number)
        self._due[f"rest {number}"] = (time.monotonic() + delay_s, act)

    def _start_after_rest(self, number: int) -> None:
        if self._has_store() and self._store().is_ready:
            self._start_gateway(number)
        else:
            self._start_later(number, PAUSE_S)

    def _resting(self) -> list[int]:
        """Gateways whose start was put off: with a new store they start with the others instead."""
        names = [name for name in self._due if name.startswith("rest ")]
        for name in names:
            del self._due[name]
        return [int(name.removeprefix("rest ")) for name in names]

    def _note_death(self, gateway: int | None) -> bool:
        """Record a death; True if the part is in a crash loop."""
        now = time.monotonic()
        deaths = [at for at in self._deaths.get(gateway, ()) if now - at < DEATHS_S]
        self._deaths[gateway] = [*deaths, now]
        return len(deaths) + 1 >= DEATHS_MAX

    def _gateways(self) -> list[_Child]:
        return [child for child in self._children.values() if child.gateway is not None]

    def _has_store(self) -> bool:
        return any(child.gateway is None for child in self._children.values())

    def _store(self) -> _Child:
        return next(child for child in self._children.values() if child.gateway is None)

    # The end.

    def _stop(self, exit_code: int, why: str) -> None:
        _logger.info("stopping", extra={"why": why})
        self._exit_code = exit_code
        now = time.monotonic()
        # Gateways have their own copies, and close them: from then on nothing is accepted.
        for listener in self._listeners.values():
            listener.close()
        for child in self._gateways():
            child.say(_STOP)
        self._due = {
            "gateways": (now + GATEWAYS_S_MAX, lambda: self._kill(self._gateways())),
            "all": (now + STOP_S_MAX, lambda: self._kill(self._children.values())),
        }
        self._gateways_gone()

    def _gateways_gone(self) -> None:
        """Tell the store last to stop, so that what gateways have taken in is stored first."""
        if not self._gateways() and self._has_store():
            self._store().say(_STOP)

    def _kill(self, children: Iterable[_Child]) -> None:
        # These children are not reaped yet, so no other process has their pids.
        for child in children:
            os.kill(child.pid, signal.SIGKILL)

    def _close(self) -> None:
        signal.set_wakeup_fd(-1)
        for one in (self._woken, self._waker):
            one.close()
        self._selector.close()
        _logger.info("stopped")


def _noted(number: int, frame: object) -> None:
    """Does nothing: the signal's number comes through the wakeup socket."""


def _become(name: str, parent: int) -> None:
    """Set the name of this process (15 letters) for lists of processes. Have the kernel kill it
    when its parent is gone, also while it is suspended."""
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_NAME, name.encode())
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(EXIT_BROKEN)


def end_now(exit_code: int = EXIT_BROKEN) -> NoReturn:
    """End a part that cannot go on, at once."""
    logging.shutdown()
    os._exit(exit_code)
