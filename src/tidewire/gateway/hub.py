"""All connections of this process: who is connected where, and pushes to many at once.

The hub is the router of one process (`ports.router`), and the registry by user, session and id. It
owns the few things that connections share so that none needs one of its own: one flush per turn of
the loop, one timer for all deadlines, one for pages that drain. A connection that fails in one of
them ends, and the others get their turn (`_each`).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from tidewire.domain.delivery import Advance, Advanced, AdvanceOutcome
from tidewire.domain.errors import NotAMember, SequenceAboveHead
from tidewire.domain.ids import ChatId, ConnectionId, SessionId, UserId
from tidewire.domain.resync import ResyncReason
from tidewire.gateway.counters import GatewayCounters, add
from tidewire.gateway.driver import ConnectionDriver, Switchboard
from tidewire.gateway.options import GatewayOptions
from tidewire.gateway.states import CONNECTING
from tidewire.gateway.wheel import SLOT_MS, Wheel
from tidewire.ports.router import LocalRouter, Registrar, Route, Router
from tidewire.ports.runtime import Clock, RequestKind, Tasks
from tidewire.wire.error_table import CloseReason

TICKS_PER_TURN_MAX: Final = 500
"""How many connections are ticked before the loop gets its turn: ten thousand may be due."""

_TYPE: Final = b'"type":"'

Key = TypeVar("Key")
Drivers = tuple[ConnectionDriver, ...]


def ignore_status(chat_id: ChatId, user_id: UserId) -> None:
    """For whoever needs nobody told."""


class Hub:
    """Must be made on the event loop that it is to serve."""

    def __init__(self, *, clock: Clock, options: GatewayOptions) -> None:
        self.counters = GatewayCounters()
        self.is_shutting_down = False
        self.token_round = 0
        """How often tokens that had been good were ended (`end_tokens`)."""
        self.tell_status: Callable[[ChatId, UserId], None] = ignore_status
        """Called when a connection's first ack or read in a chat moved nothing: the status is then
        told all the same, so that one that was lost is healed (DESIGN §8). Set by whoever wires."""
        self._clock = clock
        self._options = options
        self._registrar: Registrar | None = None
        self._tasks: Tasks | None = None
        self._loop = asyncio.get_running_loop()
        self._by_user: dict[UserId, Drivers] = {}
        self._by_session: dict[SessionId, Drivers] = {}
        self._by_id: dict[ConnectionId, ConnectionDriver] = {}
        self._open_count = 0
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        # Sessions that were revoked, oldest first, for handshakes that were under way.
        self._revoked: dict[SessionId, None] = {}
        # Connections that have something to write.
        self._marked: list[ConnectionDriver] = []
        self._wheel: Wheel[ConnectionDriver] = Wheel(clock.monotonic_ms())
        self._due: deque[ConnectionDriver] = deque()
        self._timer: asyncio.TimerHandle | None = None
        # A dict, because it keeps the order.
        self._draining: dict[ConnectionDriver, None] = {}
        self._drain_timer: asyncio.TimerHandle | None = None

    def use_registrar(self, registrar: Registrar, tasks: Tasks) -> None:
        """Have every route made known to other processes, before the digest is read. To be called
        before the first connection joins; without it this process is the only one."""
        self._registrar, self._tasks = registrar, tasks

    # The router (`ports.router.Router`, `ports.router.LocalRouter`).

    def push(
        self,
        user_ids: Sequence[UserId],
        framed: bytes,
        *,
        except_connection: ConnectionId | None = None,
    ) -> None:
        """Give these bytes to every connection of these users but one."""
        by_user = self._by_user
        marked = self._marked
        is_flush_due = not marked
        skipped = None if except_connection is None else self._by_id.get(except_connection)
        count = 0
        for user_id in user_ids:
            for driver in by_user.get(user_id, ()):
                if driver is skipped:
                    continue
                count += 1
                out = driver.out
                if out is None:
                    driver.out = [framed]
                    marked.append(driver)
                else:
                    out.append(framed)
        if count == 0:
            return
        if is_flush_due and marked:
            self._loop.call_soon(self._flush)
        counters = self.counters
        counters.pushes += count
        name = _type_of(framed)
        counters.pushes_by_type[name] = counters.pushes_by_type.get(name, 0) + count

    def resync(self, user_ids: Sequence[UserId] | None, reason: ResyncReason) -> None:
        """Tell connections to ask for a digest, spread so that they do not all do so at once."""
        if user_ids is None:
            drivers = list(self._by_id.values())
        else:
            by_user = self._by_user
            drivers = [one for user_id in user_ids for one in by_user.get(user_id, ())]
        self._resync(drivers, reason)

    def resync_connections(
        self, connection_ids: Sequence[ConnectionId], reason: ResyncReason
    ) -> None:
        by_id = self._by_id
        self._resync([by_id[one] for one in connection_ids if one in by_id], reason)

    async def presence(self, user_ids: Sequence[UserId]) -> dict[UserId, int]:
        by_user = self._by_user
        return {user_id: len(by_user[user_id]) for user_id in user_ids if user_id in by_user}

    async def settled(self) -> None:
        """Nothing waits here: a push is with its connections when `push` returns."""

    # Who is here.

    @property
    def connections_count(self) -> int:
        """How many connections are open, those that are being closed included."""
        return self._open_count

    @property
    def unsent_bytes(self) -> int:
        """What all connections together have not sent yet. Asks every one."""
        return sum(driver.unsent_bytes() for driver in self._by_id.values())

    @property
    def sessions(self) -> list[tuple[UserId, SessionId]]:
        """The sessions of all connections, for whoever has to look whether they still live."""
        return [(drivers[0].core.user_id, one) for one, drivers in self._by_session.items()]

    def other_devices_count(self, user_id: UserId, device_id: str) -> int:
        """How many connections a user has on devices other than this one."""
        drivers = self._by_user.get(user_id, ())
        return sum(driver.core.device_id != device_id for driver in drivers)

    def join(self, driver: ConnectionDriver) -> None:
        """Take a new connection in, or end it at once. An older one of its device makes room."""
        self._open_count += 1
        self._is_empty.clear()
        add(self.counters.connections_by_status, "accepted")
        self._start_timer()
        user_id, device_id = driver.core.user_id, driver.core.device_id
        if self.is_shutting_down:
            driver.end(
                CloseReason.SERVER_SHUTDOWN, delay_ms=self._options.retry_after_seconds * 1000
            )
        elif driver.admission.session_id in self._revoked:
            driver.end(CloseReason.SESSION_REVOKED)
        elif driver.admission.token_round != self.token_round:
            driver.end(CloseReason.TOKEN_EXPIRED)
        elif self.other_devices_count(user_id, device_id) >= self._options.user_connections_max:
            driver.end(CloseReason.RATE_LIMITED)
        else:
            older = [
                one for one in self._by_user.get(user_id, ()) if one.core.device_id == device_id
            ]
            self._route(driver)
            _each(older, lambda one: one.end(CloseReason.DUPLICATE_CONNECTION))
            if self._registrar is None or self._tasks is None:
                driver.begin()
            else:
                self._tasks.start_request(
                    RequestKind.REGISTRATION,
                    self._register(driver, self._registrar),
                    driver.break_off,
                )

    def close_session(self, session_ids: Iterable[SessionId]) -> None:
        """These sessions were revoked: their connections end at once, also those that are just
        being made."""
        for session_id in session_ids:
            self._revoked.pop(session_id, None)
            self._revoked[session_id] = None
            if len(self._revoked) > self._options.revoked_sessions_max:
                del self._revoked[next(iter(self._revoked))]
            _each(self._by_session.get(session_id, ()), _revoke)

    def close_user(self, user_id: UserId) -> None:
        """End all connections of a user. To keep him out, revoke his sessions."""
        _each(self._by_user.get(user_id, ()), _revoke)

    def end_tokens(self) -> None:
        """Tokens that were good are so no more, and which ones is not known here: all connections
        end, also those that are just being made, to come back with a good one, not all at once."""
        self.token_round += 1
        self._end_all(CloseReason.TOKEN_EXPIRED)

    def close_duplicate(self, connection_id: ConnectionId) -> None:
        """The same device has connected to another process."""
        driver = self._by_id.get(connection_id)
        if driver is not None:
            _each((driver,), lambda one: one.end(CloseReason.DUPLICATE_CONNECTION))

    def shutdown(self) -> None:
        """Take nobody in any more, and tell everybody to come back later, not all at once.

        A connection closes when the messages it has sent are answered, at the latest after its
        grace: so have the ingest drained next, then wait for `empty`.
        """
        self.is_shutting_down = True
        self._end_all(CloseReason.SERVER_SHUTDOWN)

    async def empty(self) -> None:
        """Wait until no connection is open. Peers may take their time: wait with a timeout."""
        await self._is_empty.wait()

    def close(self) -> None:
        """Stop the timers. Nothing may be asked of the hub after this."""
        for timer in (self._timer, self._drain_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._drain_timer = None

    def on_advanced(self, origin: ConnectionId, wish: Advance, outcome: AdvanceOutcome) -> None:
        """What became of an acknowledgement (`delivery.service.OnAdvanced`)."""
        driver = self._by_id.get(origin)
        if isinstance(outcome, Advanced):
            if driver is not None and not outcome.moved:
                is_read = wish.read > 0
                if driver.is_first_confirmation(wish.chat_id, is_read=is_read):
                    self.tell_status(wish.chat_id, wish.user_id)
        elif isinstance(outcome, SequenceAboveHead):
            self.counters.acks_above_head += 1
            if driver is not None:
                _each((driver,), lambda one: one.position_refused(outcome))
        elif isinstance(outcome, NotAMember):
            # Said to nobody: an outsider must not learn that there is such a chat (D-12).
            self.counters.acks_not_a_member += 1

    # For connections (`driver.Switchboard`).

    def mark(self, driver: ConnectionDriver) -> None:
        if not self._marked:
            self._loop.call_soon(self._flush)
        self._marked.append(driver)

    def unroute(self, driver: ConnectionDriver) -> None:
        if self._by_id.pop(driver.core.connection_id, None) is None:
            return
        _take_out(self._by_user, driver.core.user_id, driver)
        _take_out(self._by_session, driver.admission.session_id, driver)
        if self._registrar is not None:
            self._registrar.unregister(_route_of(driver))

    def schedule(self, driver: ConnectionDriver) -> None:
        deadline_ms = driver.core.next_deadline_ms()
        driver.wheel_slot = -1 if deadline_ms is None else self._wheel.put(driver, deadline_ms)

    def watch_drain(self, driver: ConnectionDriver) -> None:
        self._draining[driver] = None
        if self._drain_timer is None:
            self._drain_timer = self._loop.call_later(
                self._options.drain_check_ms / 1000, self._on_drain_timer
            )

    def ended(self, driver: ConnectionDriver) -> None:
        self._draining.pop(driver, None)
        self._open_count -= 1
        if self._open_count == 0:
            self._is_empty.set()

    # Time.

    def tick(self) -> None:
        """Look after every connection whose deadline has passed."""
        for slot, drivers in self._wheel.take(self._clock.monotonic_ms()):
            self._due.extend(driver for driver in drivers if driver.wheel_slot == slot)
        self._tick_due()

    def _tick_due(self) -> None:
        now_ms, wall_ms = self._clock.monotonic_ms(), self._clock.wall_ms()
        due = [self._due.popleft() for _ in range(min(len(self._due), TICKS_PER_TURN_MAX))]
        _each(due, lambda driver: driver.tick(now_ms, wall_ms))
        if self._due:
            self._loop.call_soon(self._tick_due)

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(SLOT_MS / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.tick()
        if self._open_count:
            self._start_timer()

    def _on_drain_timer(self) -> None:
        self._drain_timer = None

        def look(driver: ConnectionDriver) -> None:
            if driver.check_drained():
                self._draining.pop(driver, None)

        _each(list(self._draining), look)
        if self._draining:
            self.watch_drain(next(iter(self._draining)))

    # Inside.

    def _flush(self) -> None:
        marked, self._marked = self._marked, []
        _each(marked, ConnectionDriver.flush)

    def _resync(self, drivers: Sequence[ConnectionDriver], reason: ResyncReason) -> None:
        delays_ms = iter(
            [self._return_delay_ms(index, len(drivers)) for index in range(len(drivers))]
        )
        _each(drivers, lambda driver: driver.resync(reason, next(delays_ms)))
        self.counters.resyncs += len(drivers)

    def _end_all(self, reason: CloseReason) -> None:
        drivers = list(self._by_id.values())
        delays_ms = iter(
            [self._return_delay_ms(index, len(drivers)) for index in range(len(drivers))]
        )
        _each(drivers, lambda one: one.end(reason, delay_ms=next(delays_ms)))

    async def _register(self, driver: ConnectionDriver, registrar: Registrar) -> None:
        """Begin when the other processes know the route, so that nothing falls between."""
        elsewhere = await registrar.register(_route_of(driver))
        if driver.core.state is not CONNECTING:
            return
        here = self.other_devices_count(driver.core.user_id, driver.core.device_id)
        if elsewhere + here >= self._options.user_connections_max:
            driver.end(CloseReason.RATE_LIMITED)
        else:
            driver.begin()

    def _route(self, driver: ConnectionDriver) -> None:
        core = driver.core
        session_id = driver.admission.session_id
        self._by_id[core.connection_id] = driver
        self._by_user[core.user_id] = (*self._by_user.get(core.user_id, ()), driver)
        self._by_session[session_id] = (*self._by_session.get(session_id, ()), driver)

    def _return_delay_ms(self, index: int, count: int) -> int:
        """When the one with this index of so many is to come back."""
        options = self._options
        spread_ms = min(
            count * 1000 // options.return_rate_per_second, options.return_spread_ms_max
        )
        return index * spread_ms // count


def _each(drivers: Iterable[ConnectionDriver], act: Callable[[ConnectionDriver], None]) -> None:
    """Do it for all of them. One that fails ends, and keeps no other from its turn."""
    for driver in drivers:
        try:
            act(driver)
        except Exception as error:  # noqa: BLE001 - it concerns this connection alone
            driver.failed(error)


def _revoke(driver: ConnectionDriver) -> None:
    driver.end(CloseReason.SESSION_REVOKED)


def _route_of(driver: ConnectionDriver) -> Route:
    core = driver.core
    return Route(core.connection_id, core.user_id, core.device_id)


def _take_out(drivers_by_key: dict[Key, Drivers], key: Key, driver: ConnectionDriver) -> None:
    left = tuple(one for one in drivers_by_key[key] if one is not driver)
    if left:
        drivers_by_key[key] = left
    else:
        del drivers_by_key[key]


def _type_of(framed: bytes) -> bytes:
    """The type of a frame that we encoded: it is the first thing in it."""
    start = framed.find(_TYPE) + len(_TYPE)
    return framed[start : framed.find(b'"', start)]


_CONFORMS: type[Router] = Hub
_CONFORMS_TO_INBOX: type[LocalRouter] = Hub
_CONFORMS_TO_DRIVER: type[Switchboard] = Hub
