"""A gateway's own end of the cluster: makes its routes known, and takes what is pushed to it.

Lossless or told: whatever may have been lost on the way, in Redis or here, ends in `resync` for
those concerned. What cannot be told apart (a stream with a hole, another incarnation, a Redis that
did not answer) concerns everybody here: the gateway then begins a new incarnation, asserts all its
routes, and tells them all.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from tidewire.domain.accounts import Secret
from tidewire.domain.ids import ChatId, ConnectionId, SessionId, UserId
from tidewire.domain.resync import ResyncReason
from tidewire.engines.redis.ledger import Ledger
from tidewire.engines.redis.link import Argument, Entry, Link, RedisLost
from tidewire.engines.redis.options import RedisOptions
from tidewire.engines.redis.push_queue import Kind
from tidewire.engines.redis.route_book import RouteBook
from tidewire.ports.router import LocalRouter, Registrar, Route
from tidewire.ports.runtime import Clock, Tasks

READ_ENTRIES_MAX: Final = 500
"""How many entries are taken before the loop gets its turn."""
BLOCK_MS_MAX: Final = 500
"""How long a read waits for something to come: so long a new incarnation may go unread, and that
must not look as if entries did not come."""
READ_PATIENCE_MS: Final = 2_000
"""How much later than that its answer may come, besides what any call may take."""
SECOND_LOOK_MS: Final = 250
"""What is late is looked at twice: a loop that stood still wakes up with everything late."""
_START: Final = b"0-0"

_logger = logging.getLogger(__name__)


class InboxCounters:
    """What has happened so far, as plain numbers for whoever shows them."""

    __slots__ = ("entries", "failures", "losses", "routes_missing")

    def __init__(self) -> None:
        self.entries = 0
        self.losses = 0
        """How often everybody here had to sync again."""
        self.routes_missing = 0
        """How many connections had to sync again because their route was gone or not sure."""
        self.failures = 0
        """Calls that Redis did not answer."""


class Inbox:
    """Satisfies `ports.router.Registrar`."""

    def __init__(
        self,
        options: RedisOptions,
        *,
        local: LocalRouter,
        gateway_id: str,
        random_hex: Callable[[int], str],
        clock: Clock,
        tasks: Tasks,
        on_revoked: Callable[[Sequence[SessionId]], None],
        on_roster_changed: Callable[[ChatId], None],
        on_lost: Callable[[], None],
    ) -> None:
        """`gateway_id` is new at each start, without spaces or signs; `random_hex` is
        `secrets.token_hex`. `on_lost` is called when entries may have been lost: revocations and
        changed rosters among them, so sessions are to be checked again and rosters forgotten."""
        assert gateway_id.replace("_", "").isalnum()
        self.counters = InboxCounters()
        self._options = options
        self._local = local
        self._gateway_id = gateway_id
        self._random_hex = random_hex
        self._clock = clock
        self._tasks = tasks
        self._on_revoked = on_revoked
        self._on_roster_changed = on_roster_changed
        self._on_lost = on_lost
        self._block_ms = min(BLOCK_MS_MAX, options.drain_ms // 2 + 1)
        url, prefix = options.url or Secret(""), options.key_prefix
        self._link = Link(url, key_prefix=prefix, timeout_ms=options.timeout_ms)
        self._reading_link = Link(
            url,
            key_prefix=prefix,
            timeout_ms=options.timeout_ms,
            block_ms=self._block_ms + READ_PATIENCE_MS,
        )
        self._book = RouteBook()
        self._answers: dict[ConnectionId, asyncio.Future[int]] = {}
        self._ledger = Ledger(drain_ms=options.drain_ms)
        self._incarnation = ""
        self._drained = _START
        self._next_assert_at_ms = 0
        # Why everybody has to be told; None while all is well.
        self._loss: str | None = "start"
        self._losses_noted = 0
        self._is_closing = False
        self._wake = asyncio.Event()
        self._recovered = asyncio.Event()
        self._running = 0
        self._ended = asyncio.Event()
        self._ended.set()

    @property
    def routes_count(self) -> int:
        return len(self._book)

    @property
    def is_lost(self) -> bool:
        """Redis does not answer, or has only just begun to."""
        return self._loss is not None

    async def start(self) -> None:
        """Make the gateway known, and begin. If Redis does not answer, it is made known later."""
        try:
            await self._open()
            self._loss = None
            self._recovered.set()
        except RedisLost as error:
            self._note_loss(str(error))
        self._next_assert_at_ms = self._clock.monotonic_ms() + self._options.assert_ms
        self._running = 2
        self._ended.clear()
        self._tasks.start_service("redis-routes", self._keep_routes())
        self._tasks.start_service("redis-inbox", self._take_entries())

    async def stop(self) -> None:
        """Nothing is pushed to this gateway any more. Call it when its connections have gone."""
        self._is_closing = True
        self._wake.set()
        self._recovered.set()
        await self._ended.wait()
        self._answer_all()
        try:
            await self._link.run("leave", self._gateway_id, self._incarnation)
        except RedisLost:
            _logger.info("left without saying so: Redis does not answer")
        await self._link.close()
        await self._reading_link.close()

    # `ports.router.Registrar`.

    async def register(self, route: Route) -> int:
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._answers[route.connection_id] = answer
        self._book.register(route)
        self._wake.set()
        try:
            async with asyncio.timeout(self._options.register_ms / 1000):
                return await answer
        except TimeoutError:
            self._book.doubt(route)
            return 0
        finally:
            self._answers.pop(route.connection_id, None)

    def unregister(self, route: Route) -> None:
        self._book.unregister(route)
        self._answer(route, 0)
        self._wake.set()

    # Routes: one call at a time, so that what comes later is done later.

    async def _keep_routes(self) -> None:
        try:
            while not self._is_closing:
                try:
                    if self._loss is not None:
                        await self._recover()
                    await self._grant_wishes()
                    if self._clock.monotonic_ms() >= self._next_assert_at_ms:
                        await self._assert_all(is_telling=True)
                    await self._look_for_late_entries()
                except RedisLost as error:
                    self.counters.failures += 1
                    self._note_loss(str(error))
                    # New connections go on without: they are told with all others.
                    self._give_up_registrations()
                    await asyncio.sleep(self._options.retry_ms / 1000)
                else:
                    await self._rest()
        finally:
            self._end_one()

    async def _rest(self) -> None:
        """Until there is something to do."""
        if self._loss is not None or self._book.has_wishes:
            return
        due_at_ms = self._next_assert_at_ms
        if self._ledger.due_at_ms is not None:
            due_at_ms = min(due_at_ms, self._ledger.due_at_ms)
        wait_ms = max(0, due_at_ms - self._clock.monotonic_ms())
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()

    async def _recover(self) -> None:
        """Begin anew, with all routes known, and then tell everybody. Raises RedisLost."""
        loss, noted = self._loss, self._losses_noted
        await self._open()
        await self._assert_all(is_telling=False)
        if self._losses_noted != noted:
            # Something else was lost meanwhile: once more.
            return
        self._loss = None
        self._recovered.set()
        self.counters.losses += 1
        _logger.warning("pushes may have been lost, everybody here syncs again: %s", loss)
        self._local.resync(None, ResyncReason.PUSHES_LOST)
        self._on_lost()

    async def _open(self) -> None:
        before, incarnation = self._incarnation, self._random_hex(8)
        # Known from here on, so that also an incarnation whose making was not answered is deleted.
        self._incarnation = incarnation
        self._drained = _START
        self._ledger.begin()
        await self._link.run("open", self._gateway_id, incarnation, before, self._options.life_ms)

    async def _grant_wishes(self) -> None:
        options, book = self._options, self._book
        while book.has_wishes:
            forgotten = book.take_to_unregister(options.assert_chunk)
            if forgotten:
                pairs = [word for route in forgotten for word in (route.user_id, route[0])]
                await self._link.run("unregister", *pairs)
            routes = book.take_to_register(options.assert_chunk)
            if routes:
                await self._register(routes)

    async def _register(self, routes: list[Route]) -> None:
        options = self._options
        try:
            is_own, *elsewhere = await self._link.run(
                "register",
                self._gateway_id,
                self._incarnation,
                options.life_ms,
                options.stream_entries_max,
                *_flat(routes),
            )
        except RedisLost:
            self._book.not_registered(routes)
            for route in routes:
                self._answer(route, 0)
            raise
        self._book.registered(routes)
        for route, count in zip(routes, elsewhere, strict=True):
            self._answer(route, count)
        if not is_own:
            self._note_loss("the gateway's own keys were gone")

    async def _assert_all(self, *, is_telling: bool) -> None:
        """Say which routes there are. Whoever was missed is told, unless everybody will be."""
        options = self._options
        # At least one chunk, if need be an empty one: the gateway itself lives on by it.
        for chunk in self._book.chunks(options.assert_chunk) or [[]]:
            routes = self._book.still_known(chunk)
            drained = b"" if self._drained == _START else self._drained
            asked_at = self._ledger.number
            is_own, counter, *missing = await self._link.run(
                "assert",
                self._gateway_id,
                self._incarnation,
                options.life_ms,
                drained,
                *_flat(routes),
            )
            if not is_own:
                self._note_loss("the gateway's own keys were gone")
                return
            now_ms = self._clock.monotonic_ms()
            if not self._ledger.counted(counter, asked_at=asked_at, now_ms=now_ms):
                self._note_loss("the counter went back")
                return
            told = self._book.asserted(routes, {ConnectionId(one.decode()) for one in missing})
            if is_telling and told:
                self.counters.routes_missing += len(told)
                _logger.warning("%d routes were missing", len(told))
                self._local.resync_connections(told, ResyncReason.PUSHES_LOST)
            if is_telling:
                await self._grant_wishes()
        self._next_assert_at_ms = self._clock.monotonic_ms() + options.assert_ms

    async def _look_for_late_entries(self) -> None:
        if not self._ledger.is_overdue(self._clock.monotonic_ms()):
            return
        number, incarnation = self._ledger.number, self._incarnation
        await asyncio.sleep(SECOND_LOOK_MS / 1000)
        is_late = self._ledger.is_overdue(self._clock.monotonic_ms())
        if is_late and (number, incarnation) == (self._ledger.number, self._incarnation):
            self._note_loss("entries did not come")

    def _give_up_registrations(self) -> None:
        while routes := self._book.take_to_register(self._options.assert_chunk):
            self._book.not_registered(routes)
            for route in routes:
                self._answer(route, 0)

    def _answer(self, route: Route, count: int) -> None:
        answer = self._answers.pop(route.connection_id, None)
        if answer is not None and not answer.done():
            answer.set_result(count)

    def _answer_all(self) -> None:
        for answer in self._answers.values():
            if not answer.done():
                answer.set_result(0)
        self._answers.clear()

    def _note_loss(self, why: str) -> None:
        """Everybody has to be told; `_keep_routes` sees to it."""
        self._loss = why
        self._losses_noted += 1
        self._recovered.clear()
        self._wake.set()

    # Entries.

    async def _take_entries(self) -> None:
        try:
            while not self._is_closing:
                if self._loss is not None:
                    await self._recovered.wait()
                    continue
                incarnation = self._incarnation
                try:
                    entries = await self._reading_link.read(
                        f"{self._options.key_prefix}stream:{self._gateway_id}:{incarnation}",
                        after=self._drained,
                        count=READ_ENTRIES_MAX,
                        block_ms=self._block_ms,
                    )
                except RedisLost as error:
                    self.counters.failures += 1
                    # While it is being recovered there is a new incarnation already.
                    if incarnation == self._incarnation:
                        self._note_loss(str(error))
                    await asyncio.sleep(self._options.retry_ms / 1000)
                    continue
                if incarnation == self._incarnation:
                    self._take(entries)
        finally:
            self._end_one()

    def _take(self, entries: Sequence[Entry]) -> None:
        for entry_id, fields in entries:
            if not self._ledger.step(int(fields[b"n"])):
                self._note_loss("the stream has a hole")
                return
            self._drained = entry_id
            self.counters.entries += 1
            self._act(fields)

    def _act(self, fields: dict[bytes, bytes]) -> None:
        local = self._local
        body = fields[b"f"]
        user_ids = [UserId(one) for one in fields[b"u"].decode().split()]
        match fields[b"k"].decode():
            case Kind.PUSH:
                excepted = fields[b"x"].decode()
                local.push(
                    user_ids, body, except_connection=ConnectionId(excepted) if excepted else None
                )
            case Kind.RESYNC:
                local.resync(user_ids or None, _reason(body.decode()))
            case Kind.LOST:
                local.resync(None, ResyncReason.PUSHES_LOST)
                self._on_lost()
            case Kind.REVOKE:
                self._on_revoked([SessionId(one) for one in body.decode().split()])
            case Kind.CLOSE_USER:
                local.close_user(UserId(body.decode()))
            case Kind.DUPLICATE:
                local.close_duplicate(ConnectionId(body.decode()))
            case Kind.FORGET_ROSTER:
                self._on_roster_changed(ChatId(body.decode()))
            case unknown:
                # A newer server's, during an upgrade: nobody can say what it was about.
                self._note_loss(f"an entry of kind {unknown[:20]!r}")

    def _end_one(self) -> None:
        self._running -= 1
        if self._running == 0:
            self._ended.set()


def _reason(text: str) -> ResyncReason:
    """A newer server may have one that is not known here: it changes nothing."""
    return ResyncReason(text) if text in set(ResyncReason) else ResyncReason.PUSHES_LOST


def _flat(routes: Sequence[Route]) -> list[Argument]:
    return [
        word for route in routes for word in (route.user_id, route.connection_id, route.device_id)
    ]


_CONFORMS: type[Registrar] = Inbox
