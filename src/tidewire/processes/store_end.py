"""The store process's end of all links: the router of the fan-out, and what gateways ask for.

It holds the one registry of connections. Every commit is pushed from here in commit order; each
gateway gets what concerns its connections. It waits for no gateway: one that does not read its link
is cut off and killed, and its clients connect to another gateway and sync.
"""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from tidewire.domain.audit import AuditRecord
from tidewire.domain.events import StatusMissed
from tidewire.domain.ids import ChatId, SessionId, UserId
from tidewire.domain.rates import Limiter, Rate
from tidewire.domain.resync import ResyncReason
from tidewire.ports.router import Push, Route, Router
from tidewire.ports.runtime import Clock, Tasks
from tidewire.ports.services import TypingRelay
from tidewire.ports.storage import Storage
from tidewire.processes.link import Acts, Link
from tidewire.processes.registry import Registry
from tidewire.processes.remote import CALLS

ASK_S_MAX: Final = 1.0
"""How long a gateway may take to answer `ask_all`."""
LIMIT_KEYS_MAX: Final = 100_000

_logger: Final = logging.getLogger(__name__)


class Fanout(TypingRelay, Protocol):
    """What gateways ask of the fan-out."""

    def roster_changed(self, chat_id: ChatId) -> None: ...
    def status_missed(self, events: Sequence[StatusMissed]) -> None: ...


class _Gateway:
    """A gateway process, as long as its link lives."""

    def __init__(self, link: Link, handle: int) -> None:
        self.link = link
        self._handle = handle

    def kill(self) -> None:
        """End the process for certain: it may be suspended and still hold its sockets."""
        try:
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        except ProcessLookupError:
            pass
        finally:
            os.close(self._handle)


class StoreEnd:
    """Must be made on the event loop; `serve` tells it what gateways may use."""

    def __init__(self, *, clock: Clock, tasks: Tasks, bytes_max: int) -> None:
        """`bytes_max` is how many bytes may wait unread in a link."""
        self._bytes_max = bytes_max
        self._clock = clock
        self._tasks = tasks
        self._registry = Registry()
        self._gateways: dict[int, _Gateway] = {}
        self._gateways_count = 0
        self._acts: Acts = {}
        self._on_lost: Callable[[int], None] = lambda number: None
        self._limiters: dict[str, Limiter[str]] = {}

    def serve(
        self,
        store: Storage,
        fanout: Fanout,
        *,
        metrics: Callable[[], Awaitable[bytes]],
        on_lost: Callable[[int], None],
        keep_record: Callable[[AuditRecord], None],
        offers: Acts,
    ) -> None:
        """Must be called before the first gateway is admitted. `on_lost` gets the number of a
        lost gateway. `offers` are the acts of other objects of this process (`remote.offer`)."""
        self._on_lost = on_lost
        self._acts = {
            **{name: getattr(store, name) for name in CALLS},
            "append_nowait": store.append_nowait,
            "hello": lambda: (store.epoch, store.appends_per_chat),
            "typing": fanout.typing,
            "roster_changed": fanout.roster_changed,
            "status_missed": fanout.status_missed,
            "share_limits": self._share_limits,
            "metrics": metrics,
            "audit": keep_record,
            **offers,
        }

    async def admit(self, end: socket.socket, handle: int) -> None:
        """Serve a gateway that has started: our end of its link, and a `pidfd` of its process."""
        self._gateways_count += 1
        number = self._gateways_count
        acts: dict[str, Callable[..., Any]] = {
            "add_route": partial(self._add_route, number),
            "drop_route": self._registry.unregister,
            "limits": partial(self._exchange, number),
        }
        link = Link(
            {**self._acts, **acts},
            tasks=self._tasks,
            on_lost=partial(self._lost, number),
            bytes_max=self._bytes_max,
        )
        self._gateways[number] = _Gateway(link, handle)
        await link.connect(end)

    # The router of the fan-out (`ports.router.Router`).

    def push(self, push: Push) -> None:
        found = self._registry.split(push.user_ids)
        for number, user_ids in found.items():
            self._gateways[number].link.tell(
                "push", msgspec.structs.replace(push, user_ids=user_ids)
            )

    def resync(self, user_ids: Sequence[UserId] | None, reason: ResyncReason) -> None:
        if user_ids is None:
            self.tell_all("resync", None, reason)
        else:
            for number, here in self._registry.split(user_ids).items():
                self._gateways[number].link.tell("resync", here, reason)

    async def presence(self, user_ids: Sequence[UserId]) -> Mapping[UserId, int]:
        return self._registry.presence(user_ids)

    async def settled(self) -> None:
        """Waits for nothing: a push is in its link when `push` returns."""

    # What all are told.

    def tell_all(self, name: str, *args: Any, except_gateway: int | None = None) -> None:
        for number, gateway in self._gateways.items():
            if number != except_gateway:
                gateway.link.tell(name, *args)

    def revoke(self, session_ids: Sequence[SessionId]) -> None:
        """These sessions have ended: end their connections, at all gateways."""
        self.tell_all("revoked", list(session_ids))

    async def ask_all(self, name: str) -> dict[int, Any]:
        """The answers of those gateways that answer in time, by their numbers."""

        async def ask(gateway: _Gateway) -> Any:
            async with asyncio.timeout(ASK_S_MAX):
                return await gateway.link.call(name)

        asked = dict(self._gateways)
        answers = await asyncio.gather(*map(ask, asked.values()), return_exceptions=True)
        return {
            number: answer
            for (number, gateway), answer in zip(asked.items(), answers, strict=True)
            # A gateway that has ended meanwhile does not count any more.
            if not isinstance(answer, BaseException) and self._gateways.get(number) is gateway
        }

    # What a gateway asks.

    def _add_route(self, number: int, route: Route) -> int:
        elsewhere, older = self._registry.register(number, route)
        for place in older:
            self._gateways[place.gateway].link.tell("close_duplicate", place.route.connection_id)
        return elsewhere

    def _share_limits(self, rates: Mapping[str, Rate]) -> None:
        """Keep the limits that gateways share; all gateways name the same ones."""
        for name, rate in rates.items():
            self._limiters.setdefault(name, Limiter(rate, keys_max=LIMIT_KEYS_MAX))

    def _exchange(
        self, number: int, used: Mapping[str, Sequence[tuple[str, int]]]
    ) -> dict[str, list[int]]:
        """Add one gateway's use of limits to that of all; returns for each key how long it takes to
        be full again. Tells the others of keys of which half is used up."""
        now_ms = self._clock.monotonic_ms()
        left: dict[str, list[int]] = {}
        for name, pairs in used.items():
            limiter = self._limiters[name]
            for key, count in pairs:
                if count:
                    limiter.spend(key, now_ms, count)
            left[name] = [limiter.used_us(key, now_ms) for key, _ in pairs]
            pressing = [
                (key, left_us)
                for (key, _), left_us in zip(pairs, left[name], strict=True)
                if 2 * left_us >= limiter.rate.capacity_us
            ]
            if pressing:
                self.tell_all("used", name, pressing, except_gateway=number)
        return left

    def _lost(self, number: int) -> None:
        """The link is lost: the process has ended, or must end now."""
        gateway = self._gateways.pop(number)
        gateway.kill()
        self._registry.lose(number)
        self._on_lost(number)


_CONFORMS: type[Router] = StoreEnd
