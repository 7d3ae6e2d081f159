"""All connections of this process: who is connected where, and pushes to many at once.

The hub is the router of one process (`ports.router`), and the registry by user, session and id. It
owns what connections share so that none needs its own: one flush per turn of the loop, one timer
for all deadlines, one timer for pages that drain. A connection that fails in one of them ends, and
the others still get their turn (`_each`).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, Generic, TypeVar

from tidewire.domain.delivery import Advanced
from tidewire.domain.errors import NotAMember, SequenceAboveHead
from tidewire.domain.events import Acknowledged, StatusMissed
from tidewire.domain.ids import ConnectionId, SessionId, UserId
from tidewire.domain.resync import ResyncReason
from tidewire.gateway.counters import GatewayCounters, add
from tidewire.gateway.driver import ConnectionDriver, Shared
from tidewire.gateway.options import GatewayOptions
from tidewire.gateway.reminders import Reminders
from tidewire.ports.event_log import Publish
from tidewire.ports.router import LocalRouter, Push, Registrar, Route
from tidewire.ports.runtime import Clock, RequestKind, Tasks
from tidewire.wire.codec import encode_plain_push
from tidewire.wire.error_table import CloseReason
from tidewire.wire.framing import frame_text, payload_of
from tidewire.wire.server_frames import ENTRY_TYPE, MESSAGE_TYPE

TICKS_PER_TURN_MAX: Final = 500
"""How many connections are ticked before the loop gets its turn: ten thousand may be due."""

_logger = logging.getLogger(__name__)

Key = TypeVar("Key")
Drivers = tuple[ConnectionDriver, ...]


Item = TypeVar("Item")

SLOT_MS: Final = 500
"""The length of a slot, and of the timer: a deadline is met at most about twice this late."""


class Wheel(Generic[Item]):
    """Many deadlines, one timer: items lie in slots of time until their slot has passed.

    When a deadline moves later, the item stays where it is: if it comes out too early, it is put in
    again. When a deadline moves earlier, the item is put in a second time; the item itself knows
    which slot is valid.
    """

    def __init__(self, now_ms: int) -> None:
        self._slots: dict[int, list[Item]] = {}
        self._next_slot = now_ms // SLOT_MS

    def put(self, item: Item, at_ms: int) -> int:
        """Keep the item until this instant has passed; return its slot."""
        slot = max(at_ms // SLOT_MS, self._next_slot)
        items = self._slots.get(slot)
        if items is None:
            self._slots[slot] = [item]
        else:
            items.append(item)
        return slot

    def take(self, now_ms: int) -> list[tuple[int, list[Item]]]:
        """Take out the slots that have fully passed, with their items, earliest first."""
        end_slot = now_ms // SLOT_MS
        taken = []
        while self._next_slot < end_slot:
            items = self._slots.pop(self._next_slot, None)
            if items is not None:
                taken.append((self._next_slot, items))
            self._next_slot += 1
        return taken


class Hub:
    """The connections of one process. Must be made on the event loop that it serves."""

    def __init__(
        self,
        *,
        clock: Clock,
        options: GatewayOptions,
        publish: Publish,
        chance: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`publish` is the commit bus's; `chance` returns a random number from 0 to 1."""
        self.counters = GatewayCounters()
        self.is_shutting_down = False
        self.token_round = 0
        """How often valid tokens became invalid (`end_tokens`)."""
        self._publish = publish
        self._chance = chance
        self._reminders = Reminders()
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

    def use_registrar(self, registrar: Registrar, tasks: Tasks) -> None:
        """Register every route with the other processes, before the digest is read. Call this
        before the first connection joins. Without a registrar this process is the only one."""
        self._registrar, self._tasks = registrar, tasks

    # The router (`ports.router.LocalRouter`).

    def push(self, push: Push) -> None:
        """Queue the bytes of a push for every connection of its users except `except_connection`;
        an entry in the form that the connection understands."""
        framed = push.framed
        frame_type = push.frame_type
        is_entry = frame_type == ENTRY_TYPE
        plain: bytes | None = None
        plain_count = 0
        except_connection = push.except_connection
        by_user = self._by_user
        marked = self._marked
        is_flush_due = not marked
        skipped = None if except_connection is None else self._by_id.get(except_connection)
        count = 0
        for user_id in push.user_ids:
            for driver in by_user.get(user_id, ()):
                if driver is skipped:
                    continue
                count += 1
                due = framed
                if is_entry and not driver.has_entries:
                    plain_count += 1
                    if plain is None:
                        plain = frame_text(encode_plain_push(payload_of(framed)))
                    due = plain
                out = driver.out
                if out is None:
                    driver.out = [due]
                    marked.append(driver)
                else:
                    out.append(due)
        if count == 0:
            return
        if is_flush_due and marked:
            self._loop.call_soon(self._flush)
        counters = self.counters
        counters.pushes += count
        add(counters.pushes_by_type, frame_type, count - plain_count)
        if plain_count:
            add(counters.pushes_by_type, MESSAGE_TYPE, plain_count)

    def resync(self, user_ids: Sequence[UserId] | None, reason: ResyncReason) -> None:
        """Tell connections to ask for a digest, spread so that they do not all do so at once.
        LOG_BEHIND is repeated while the log is behind, and told less and less often."""
        if reason is ResyncReason.LOG_BEHIND:
            self._remind(user_ids)
        elif user_ids is None:
            self._resync(list(self._by_id.values()), reason)
        else:
            by_user = self._by_user
            self._resync([one for user in user_ids for one in by_user.get(user, ())], reason)

    def _remind(self, user_ids: Sequence[UserId] | None) -> None:
        by_user = self._by_user
        here = list(by_user) if user_ids is None else [one for one in user_ids if one in by_user]
        due = self._reminders.due(here, self._clock.monotonic_ms(), self._chance)
        told = [(one, delay_ms) for user, delay_ms in due.items() for one in by_user[user]]
        delays_ms = self._return_delays_ms(len(told))
        for driver, delay_ms in told:
            again_ms = delay_ms + next(delays_ms)
            _each((driver,), partial(_tell_behind, delay_ms=again_ms))
        self.counters.resyncs += len(told)

    def resync_connections(
        self, connection_ids: Sequence[ConnectionId], reason: ResyncReason
    ) -> None:
        by_id = self._by_id
        self._resync([by_id[one] for one in connection_ids if one in by_id], reason)

    async def presence(self, user_ids: Sequence[UserId]) -> dict[UserId, int]:
        return self.counts(user_ids)

    def counts(self, user_ids: Iterable[UserId]) -> dict[UserId, int]:
        """How many connections to this process each user has; users without one are left out."""
        by_user = self._by_user
        return {user_id: len(by_user[user_id]) for user_id in user_ids if user_id in by_user}

    async def settled(self) -> None:
        """Return at once: `push` queues its bytes at the connections before it returns."""

    # Who is here.

    @property
    def connections_count(self) -> int:
        """How many connections are open, those that are being closed included."""
        return self._open_count

    @property
    def unsent_bytes(self) -> int:
        """How many bytes all connections together have not sent yet. Asks each of them."""
        return sum(driver.unsent_bytes() for driver in self._by_id.values())

    @property
    def sessions(self) -> list[tuple[UserId, SessionId]]:
        """The sessions of all connections, for the check whether they still live."""
        return [(drivers[0].core.user_id, one) for one, drivers in self._by_session.items()]

    def other_devices_count(self, user_id: UserId, device_id: str) -> int:
        """How many connections a user has on devices other than this one."""
        drivers = self._by_user.get(user_id, ())
        return sum(driver.core.device_id != device_id for driver in drivers)

    def join(self, driver: ConnectionDriver) -> None:
        """Add a new connection, or end it at once. An older one of the same device ends."""
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

    def end_tokens(self) -> None:
        """End all connections, also those that are just being made: valid tokens became invalid,
        and the hub does not know which. Clients come back with a valid one, not all at once."""
        self.token_round += 1
        self._end_all(CloseReason.TOKEN_EXPIRED)

    def end_withheld(self) -> None:
        """End the connections with withheld features, because these are possible now: the clients
        come back, not all at once, and are told of them."""
        drivers = [driver for driver in self._by_id.values() if driver.core.withheld]
        self._end(drivers, CloseReason.SERVER_SHUTDOWN)

    def close_duplicate(self, connection_id: ConnectionId) -> None:
        """End a connection whose device has connected to another process."""
        driver = self._by_id.get(connection_id)
        if driver is not None:
            _each((driver,), lambda one: one.end(CloseReason.DUPLICATE_CONNECTION))

    def shutdown(self) -> None:
        """Accept no more connections, and tell all clients to come back later, not all at once.

        A connection closes when its sent messages are answered, at the latest after its grace.
        So drain the ingest next, then wait for `empty`.
        """
        self.is_shutting_down = True
        self._end_all(CloseReason.SERVER_SHUTDOWN)

    def abandon(self) -> None:
        """End all connections, because no answer can be given any more. Pending requests get no
        refusal: the clients come back and ask again."""
        drivers = list(self._by_id.values())
        self.shutdown()
        # Tick as if the grace were over.
        late_ms = self._clock.monotonic_ms() + self._options.closing_grace_ms
        wall_ms = self._clock.wall_ms()
        _each(drivers, lambda driver: driver.tick(late_ms, wall_ms))

    async def empty(self) -> None:
        """Wait until no connection is open. Peers may be slow: wait with a timeout."""
        await self._is_empty.wait()

    def close(self) -> None:
        """Stop the timer. Do not use the hub after this."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def acknowledged(self, events: Sequence[Acknowledged]) -> None:
        """Handle acknowledgements that moved no position (a subscriber of the bus)."""
        for event in events:
            driver = self._by_id.get(event.connection_id)
            wish, outcome = event.wish, event.outcome
            if isinstance(outcome, SequenceAboveHead):
                self.counters.acks_above_head += 1
                if driver is not None:
                    _each((driver,), partial(ConnectionDriver.position_refused, refusal=outcome))
            elif isinstance(outcome, NotAMember):
                # Not told to the peer: an outsider must not learn that there is such a chat (D-12).
                self.counters.acks_not_a_member += 1
            elif (
                isinstance(outcome, Advanced)
                and driver is not None
                and driver.is_first_confirmation(wish.chat_id, is_read=wish.read > 0)
            ):
                # The client has reconnected: its earlier connection may have lost the last status,
                # so the status is sent once more.
                self._publish((StatusMissed(wish.chat_id, wish.user_id),))

    # For connections.

    def mark(self, driver: ConnectionDriver) -> None:
        """Have `flush` called once in the next turn of the loop: the driver has frames to write."""
        if not self._marked:
            self._loop.call_soon(self._flush)
        self._marked.append(driver)

    def unroute(self, driver: ConnectionDriver) -> None:
        """Stop pushes to this connection. Safe to call again."""
        if self._by_id.pop(driver.core.connection_id, None) is None:
            return
        _take_out(self._by_user, driver.core.user_id, driver)
        _take_out(self._by_session, driver.admission.session_id, driver)
        if self._registrar is not None:
            self._registrar.unregister(_route_of(driver))

    def schedule(self, driver: ConnectionDriver) -> None:
        """Have `tick` called when its next deadline has passed."""
        deadline_ms = driver.core.next_deadline_ms()
        driver.wheel_slot = -1 if deadline_ms is None else self._wheel.put(driver, deadline_ms)

    def ended(self, driver: ConnectionDriver) -> None:
        """Forget a connection whose socket is gone."""
        self._open_count -= 1
        if self._open_count == 0:
            self._is_empty.set()

    # Time.

    def tick(self) -> None:
        """Tick every connection whose deadline has passed."""
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

    # Inside.

    def _flush(self) -> None:
        marked, self._marked = self._marked, []
        shared: Shared = {}
        # Not `_each`: this is on the path of every message.
        for driver in marked:
            try:
                driver.flush(shared)
            except Exception as error:  # noqa: BLE001 - it concerns this connection alone
                _fail(driver, error)

    def _resync(self, drivers: Sequence[ConnectionDriver], reason: ResyncReason) -> None:
        delays_ms = self._return_delays_ms(len(drivers))
        _each(drivers, lambda driver: driver.resync(reason, next(delays_ms)))
        self.counters.resyncs += len(drivers)

    def _end_all(self, reason: CloseReason) -> None:
        self._end(list(self._by_id.values()), reason)

    def _end(self, drivers: Sequence[ConnectionDriver], reason: CloseReason) -> None:
        delays_ms = self._return_delays_ms(len(drivers))
        _each(drivers, lambda one: one.end(reason, delay_ms=next(delays_ms)))

    async def _register(self, driver: ConnectionDriver, registrar: Registrar) -> None:
        """Begin when the other processes know the route, so that no push is lost in between."""
        if not driver.is_connecting():
            # It ended before its route was registered.
            return
        elsewhere = await registrar.register(_route_of(driver))
        if not driver.is_connecting():
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

    def _return_delays_ms(self, count: int) -> Iterator[int]:
        """After how many ms each of `count` clients comes back, evenly spread."""
        options = self._options
        spread_ms = min(
            count * 1000 // options.return_rate_per_second, options.return_spread_ms_max
        )
        return (index * spread_ms // count for index in range(count))


def _each(drivers: Iterable[ConnectionDriver], act: Callable[[ConnectionDriver], None]) -> None:
    """Call `act` for each driver. One that fails ends; the others still get their turn."""
    for driver in drivers:
        try:
            act(driver)
        except Exception as error:  # noqa: BLE001 - it concerns this connection alone
            _fail(driver, error)


def _fail(driver: ConnectionDriver, error: Exception) -> None:
    try:
        driver.failed(error)
    except Exception:
        _logger.exception("a connection that failed could not be ended")


def _revoke(driver: ConnectionDriver) -> None:
    driver.end(CloseReason.SESSION_REVOKED)


def _tell_behind(driver: ConnectionDriver, *, delay_ms: int) -> None:
    driver.resync(ResyncReason.LOG_BEHIND, delay_ms)


def _route_of(driver: ConnectionDriver) -> Route:
    core = driver.core
    return Route(core.connection_id, core.user_id, core.device_id)


def _take_out(drivers_by_key: dict[Key, Drivers], key: Key, driver: ConnectionDriver) -> None:
    left = tuple(one for one in drivers_by_key[key] if one is not driver)
    if left:
        drivers_by_key[key] = left
    else:
        del drivers_by_key[key]


_CONFORMS: type[LocalRouter] = Hub
