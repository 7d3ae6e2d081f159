"""A gateway's own end of the cluster: makes its routes known, and takes what is pushed to it.

Lossless or told: whatever may have been lost on the way, in Redis or here, ends in `resync` for
those concerned. What cannot be told apart (a stream with a hole, another incarnation, a Redis that
did not answer) concerns all clients here: the gateway then begins a new incarnation, asserts all
its routes, and tells them all.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Final

from tidewire.domain.ids import ChatId, ConnectionId, SessionId, UserId
from tidewire.domain.news import ChatNews
from tidewire.domain.resync import ResyncReason
from tidewire.engines.redis.ledger import Ledger
from tidewire.engines.redis.link import Argument, Entry, Link, RedisLost
from tidewire.engines.redis.options import RedisOptions
from tidewire.engines.redis.push_queue import Kind
from tidewire.engines.redis.route_book import RouteBook
from tidewire.ports.router import LocalRouter, Push, Registrar, Route
from tidewire.ports.runtime import Clock, Tasks
from tidewire.wire.chat_news import decode_news

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
_TYPE: Final = b'"type":"'

_logger = logging.getLogger(__name__)


class InboxCounters:
    """What has happened so far: `losses` says how often all clients here had to sync again,
    `routes_missing` how many connections because their route was gone or not sure, `failures` how
    many calls Redis did not answer."""

    entries = losses = routes_missing = failures = 0


@dataclass(eq=False)
class Inbox:
    """Satisfies `ports.router.Registrar`."""

    options: RedisOptions
    _: KW_ONLY
    local: LocalRouter
    gateway_id: str
    """New at each start, without spaces or signs."""
    random_hex: Callable[[int], str]
    """`secrets.token_hex`."""
    clock: Clock
    tasks: Tasks
    on_revoked: Callable[[Sequence[SessionId]], None]
    on_roster_changed: Callable[[ChatId], None]
    on_news: Callable[[ChatNews], None]
    on_forward: Callable[[bytes], None]
    """Another gateway tells something about sends (`ports.forwarding`)."""
    on_unrouted: Callable[[Sequence[UserId]], None]
    """What concerns these users may have gone past this gateway for a moment."""
    on_lost: Callable[[], None]
    """Is called when entries may have been lost: revocations and changed rosters among them, so
    sessions are to be checked again and rosters forgotten."""

    def __post_init__(self) -> None:
        assert self.gateway_id.replace("_", "").isalnum()
        self.counters = InboxCounters()
        self._block_ms = min(BLOCK_MS_MAX, self.options.drain_ms // 2 + 1)
        self._link = Link(self.options)
        self._reading_link = Link(self.options, block_ms=self._block_ms + READ_PATIENCE_MS)
        self._book = RouteBook()
        self._answers: dict[ConnectionId, asyncio.Future[int]] = {}
        self._ledger = Ledger(drain_ms=self.options.drain_ms)
        self._incarnation = ""
        self._drained = _START
        self._next_assert_at_ms = 0
        # Why all clients have to be told; None while all is well.
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

    def routed_at_ms(self, user_id: UserId) -> int | None:
        return None if self._loss is not None else self._book.routed_at_ms(user_id)

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
        self._next_assert_at_ms = self.clock.monotonic_ms() + self.options.assert_ms
        self._running = 2
        self._ended.clear()
        self.tasks.start_service("redis-routes", self._keep_routes())
        self.tasks.start_service("redis-inbox", self._take_entries())

    async def stop(self) -> None:
        """Nothing is pushed to this gateway any more. Call it when its connections have gone."""
        self._is_closing = True
        self._wake.set()
        self._recovered.set()
        await self._ended.wait()
        self._answer_all()
        try:
            await self._link.run("leave", self.gateway_id, self._incarnation)
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
            async with asyncio.timeout(self.options.register_ms / 1000):
                return await answer
        except TimeoutError:
            self._book.doubt(route)
            self._tell_unrouted()
            return 0
        finally:
            self._answers.pop(route.connection_id, None)

    def unregister(self, route: Route) -> None:
        self._book.unregister(route)
        self._tell_unrouted()
        self._answer(route, 0)
        self._wake.set()

    def _tell_unrouted(self) -> None:
        interrupted = self._book.take_interrupted()
        if interrupted:
            self.on_unrouted(interrupted)

    # Routes: one call at a time, so that what comes later is done later.

    async def _keep_routes(self) -> None:
        try:
            while not self._is_closing:
                try:
                    if self._loss is not None:
                        await self._recover()
                    await self._grant_wishes()
                    if self.clock.monotonic_ms() >= self._next_assert_at_ms:
                        await self._assert_all(is_telling=True)
                    await self._look_for_late_entries()
                except RedisLost as error:
                    self.counters.failures += 1
                    self._note_loss(str(error))
                    # New connections go on without: they are told with all others.
                    self._give_up_registrations()
                    await asyncio.sleep(self.options.retry_ms / 1000)
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
        wait_ms = max(0, due_at_ms - self.clock.monotonic_ms())
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()

    async def _recover(self) -> None:
        """Begin anew, with all routes known, and then tell all clients. Raises RedisLost."""
        loss, noted = self._loss, self._losses_noted
        await self._open()
        await self._assert_all(is_telling=False)
        if self._losses_noted != noted:
            # Something else was lost meanwhile: once more.
            return
        self._loss = None
        self._recovered.set()
        self.counters.losses += 1
        _logger.warning("pushes may have been lost, all clients here sync again: %s", loss)
        self.local.resync(None, ResyncReason.PUSHES_LOST)
        self.on_lost()

    async def _open(self) -> None:
        before, incarnation = self._incarnation, self.random_hex(8)
        # Known from here on, so that also an incarnation whose making was not answered is deleted.
        self._incarnation = incarnation
        self._drained = _START
        self._ledger.begin()
        await self._link.run("open", self.gateway_id, incarnation, before, self.options.life_ms)

    async def _grant_wishes(self) -> None:
        options, book = self.options, self._book
        while book.has_wishes:
            forgotten = book.take_to_unregister(options.assert_chunk)
            if forgotten:
                pairs = [word for route in forgotten for word in (route.user_id, route[0])]
                await self._link.run("unregister", *pairs)
            routes = book.take_to_register(options.assert_chunk)
            if routes:
                await self._register(routes)

    async def _register(self, routes: list[Route]) -> None:
        options = self.options
        try:
            is_own, *elsewhere = await self._link.run(
                "register",
                self.gateway_id,
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
        self._book.registered(routes, self.clock.monotonic_ms())
        for route, count in zip(routes, elsewhere, strict=True):
            self._answer(route, count)
        if not is_own:
            self._note_loss("the gateway's own keys were gone")

    async def _assert_all(self, *, is_telling: bool) -> None:
        """Say which routes there are. Those that were missed are told, unless all will be."""
        options = self.options
        # At least one chunk, if need be an empty one: the gateway itself lives on by it.
        for chunk in self._book.chunks(options.assert_chunk) or [[]]:
            routes = self._book.still_known(chunk)
            drained = b"" if self._drained == _START else self._drained
            asked_at = self._ledger.number
            is_own, counter, *missing = await self._link.run(
                "assert",
                self.gateway_id,
                self._incarnation,
                options.life_ms,
                drained,
                *_flat(routes),
            )
            if not is_own:
                self._note_loss("the gateway's own keys were gone")
                return
            now_ms = self.clock.monotonic_ms()
            if not self._ledger.counted(counter, asked_at=asked_at, now_ms=now_ms):
                self._note_loss("the counter went back")
                return
            lacking = {ConnectionId(one.decode()) for one in missing}
            told = self._book.asserted(routes, lacking, now_ms)
            self._tell_unrouted()
            if is_telling and told:
                self.counters.routes_missing += len(told)
                _logger.warning("%d routes were missing", len(told))
                self.local.resync_connections(told, ResyncReason.PUSHES_LOST)
            if is_telling:
                await self._grant_wishes()
        self._next_assert_at_ms = self.clock.monotonic_ms() + options.assert_ms

    async def _look_for_late_entries(self) -> None:
        if not self._ledger.is_overdue(self.clock.monotonic_ms()):
            return
        number, incarnation = self._ledger.number, self._incarnation
        await asyncio.sleep(SECOND_LOOK_MS / 1000)
        is_late = self._ledger.is_overdue(self.clock.monotonic_ms())
        if is_late and (number, incarnation) == (self._ledger.number, self._incarnation):
            self._note_loss("entries did not come")

    def _give_up_registrations(self) -> None:
        while routes := self._book.take_to_register(self.options.assert_chunk):
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
        """All clients have to be told; `_keep_routes` sees to it."""
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
                        f"{self.options.key_prefix}stream:{self.gateway_id}:{incarnation}",
                        after=self._drained,
                        count=READ_ENTRIES_MAX,
                        block_ms=self._block_ms,
                    )
                except RedisLost as error:
                    self.counters.failures += 1
                    # While it is being recovered there is a new incarnation already.
                    if incarnation == self._incarnation:
                        self._note_loss(str(error))
                    await asyncio.sleep(self.options.retry_ms / 1000)
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
        local = self.local
        body = fields[b"f"]
        user_ids = [UserId(one) for one in fields[b"u"].decode().split()]
        match fields[b"k"].decode():
            case Kind.PUSH:
                excepted = fields[b"x"].decode()
                except_connection = ConnectionId(excepted) if excepted else None
                self._hear(fields.get(b"w", b""))
                local.push(Push(user_ids, _frame_type(body), body, except_connection))
            case Kind.RESYNC:
                local.resync(user_ids or None, _reason(body.decode()))
            case Kind.LOST:
                local.resync(None, ResyncReason.PUSHES_LOST)
                self.on_lost()
            case Kind.REVOKE:
                self.on_revoked([SessionId(one) for one in body.decode().split()])
            case Kind.DUPLICATE:
                local.close_duplicate(ConnectionId(body.decode()))
            case Kind.FORGET_ROSTER:
                self.on_roster_changed(ChatId(body.decode()))
            case Kind.NEWS:
                self._hear(body)
            case Kind.FORWARD:
                self.on_forward(body)
            case unknown:
                # A newer server's, during an upgrade: it is not known what it was about.
                self._note_loss(f"an entry of kind {unknown[:20]!r}")

    def _hear(self, body: bytes) -> None:
        if not body:
            return
        news = decode_news(body)
        if news is None:
            self._note_loss("news that cannot be read")
        else:
            self.on_news(news)

    def _end_one(self) -> None:
        self._running -= 1
        if self._running == 0:
            self._ended.set()


def _frame_type(framed: bytes) -> str:
    """The type of a frame that a server encoded: it is the first thing in it."""
    name, has_end, _ = framed.partition(_TYPE)[2].partition(b'"')
    return name.decode(errors="replace") if has_end else "unknown"


def _reason(text: str) -> ResyncReason:
    """A newer server may have one that is not known here: it changes nothing."""
    return ResyncReason(text) if text in set(ResyncReason) else ResyncReason.PUSHES_LOST


def _flat(routes: Sequence[Route]) -> list[Argument]:
    return [
        word for route in routes for word in (route.user_id, route.connection_id, route.device_id)
    ]


_CONFORMS: type[Registrar] = Inbox
