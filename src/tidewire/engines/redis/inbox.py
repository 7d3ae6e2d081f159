"""A gateway's own end of the cluster: makes its routes known, and takes what is pushed to it.

Lossless or told: if anything may have been lost on the way, in Redis or here, the connections that
may have missed it get `resync`. If it is not known which (a stream with a hole, another
incarnation, a Redis that did not answer), these are all clients here: the gateway begins a new
incarnation, asserts all its routes, and then tells all clients.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final

from tidewire.domain.ids import ChatId, ConnectionId, SessionId, UserId
from tidewire.domain.news import ChatNews
from tidewire.domain.resync import ResyncReason
from tidewire.engines.redis.entries import Received, appending_words, received
from tidewire.engines.redis.keys import Keys, gateway_named, route_tag
from tidewire.engines.redis.ledger import Ledger
from tidewire.engines.redis.link import Argument, Call, Entry, Link, RedisLost
from tidewire.engines.redis.options import RedisOptions
from tidewire.engines.redis.push_queue import Kind
from tidewire.engines.redis.route_book import RouteBook
from tidewire.ports.router import LocalRouter, Push, Registrar, Route
from tidewire.ports.runtime import Clock, Tasks
from tidewire.wire.chat_news import decode_news

READ_ENTRIES_MAX: Final = 500
"""How many entries are taken before the event loop gets its turn."""
BLOCK_MS_MAX: Final = 500
"""How long a read waits for a first entry. A new incarnation may go unread for this long, and that
must not look as if its entries did not come."""
READ_PATIENCE_MS: Final = 2_000
"""How much later than that the answer may come, in addition to the timeout of any call."""
SECOND_LOOK_MS: Final = 250
"""Late entries are checked again after this: when the event loop has stalled, all seem late."""
_START: Final = b"0-0"
_TYPE: Final = b'"type":"'

_logger = logging.getLogger(__name__)


class InboxCounters:
    """Counts so far: `losses` says how often all clients here had to sync again, `routes_missing`
    how many connections had to because their route was gone or not sure, `failures` how many calls
    Redis did not answer."""

    entries = losses = routes_missing = failures = 0


@dataclass(eq=False)
class Inbox:
    """Satisfies `ports.router.Registrar`."""

    options: RedisOptions
    _: KW_ONLY
    local: LocalRouter
    gateway_id: str
    """New at each start; only letters, digits and underscores."""
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
    """Pushes and news for these users may have missed this gateway for a moment."""
    on_lost: Callable[[], None]
    """Called when entries may have been lost. They may include revocations and changed rosters, so
    sessions must be checked again and rosters forgotten."""

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
        # Why all clients have to sync again; None while nothing is lost.
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
        """Redis does not answer, or the gateway has not recovered from a loss yet."""
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
        """Leave the cluster, and stop taking pushes. Call it when its connections have gone."""
        self._is_closing = True
        self._wake.set()
        self._recovered.set()
        await self._ended.wait()
        self._answer_all()
        try:
            await self._link.run("leave", self._own_keys(await self._link.keys()))
            await self._list(life_ms=0)
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

    # Routes: one call at a time, so that calls take effect in their order.

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
                    # New connections go on without a route: they sync again with all others.
                    self._give_up_registrations()
                    await asyncio.sleep(self.options.retry_ms / 1000)
                else:
                    await self._rest()
        finally:
            self._end_one()

    async def _rest(self) -> None:
        """Wait until there is something to do."""
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
        """Begin a new incarnation, assert all routes, then tell all clients. Raises RedisLost."""
        loss, noted = self._loss, self._losses_noted
        await self._open()
        await self._assert_all(is_telling=False)
        if self._losses_noted != noted:
            # Something else was lost meanwhile: the caller recovers once more.
            return
        self._loss = None
        self._recovered.set()
        self.counters.losses += 1
        _logger.warning("pushes may have been lost, all clients here sync again: %s", loss)
        self.local.resync(None, ResyncReason.PUSHES_LOST)
        self.on_lost()

    async def _open(self) -> None:
        before, self._incarnation = self._incarnation, self.random_hex(8)
        self._drained = _START
        self._ledger.begin()
        life_ms, keys = self.options.life_ms, await self._link.keys()
        # The stream before it as well: it may exist even if making it was not answered.
        names = [*self._own_keys(keys), keys.stream(self.gateway_id, before)]
        await self._link.run("open", names, self._incarnation, life_ms)
        await self._list(life_ms=life_ms)

    def _own_keys(self, keys: Keys) -> list[str]:
        own_id = self.gateway_id
        return [keys.gateway(own_id), keys.stream(own_id, self._incarnation)]

    async def _list(self, *, life_ms: int) -> bool:
        """Put this gateway on the lists of gateways, or take it off (`life_ms` 0). Answers if it
        was on enough of them for every process to know of it. Raises RedisLost if too few lists can
        be reached."""
        keys = await self._link.keys()
        words: list[Argument] = [self.gateway_id, life_ms]
        answers = await self._link.run_each("list", [Call([key], words) for key in keys.lists()])
        told = [answer for answer in answers if not isinstance(answer, RedisLost)]
        if len(told) < keys.lists_min:
            raise RedisLost("the lists of gateways cannot be reached")
        return bool(sum(told) >= keys.lists_min)

    async def _grant_wishes(self) -> None:
        options, book = self.options, self._book
        while book.has_wishes:
            forgotten = book.take_to_unregister(options.assert_chunk)
            if forgotten:
                keys = await self._link.keys()
                calls = [
                    Call(_routes_of(keys, group), [one.connection_id for one in group])
                    for group in keys.groups(forgotten, _tag_of)
                ]
                # Routes that a server did not delete expire by themselves.
                await self._link.run_each("unregister", calls)
            routes = book.take_to_register(options.assert_chunk)
            if routes:
                await self._register(routes)

    async def _put(self, name: str, routes: list[Route]) -> list[tuple[Sequence[Route], Any]]:
        """Send routes to a script; its answer for each group, or RedisLost in its place. Raises
        RedisLost as `Link.run_each` does."""
        keys = await self._link.keys()
        groups = keys.groups(routes, _tag_of)
        calls = [
            Call(
                _routes_of(keys, group),
                [
                    self.gateway_id,
                    self.options.life_ms,
                    *(word for one in group for word in (one.connection_id, one.device_id)),
                ],
            )
            for group in groups
        ]
        answers = await self._link.run_each(name, calls)
        return list(zip(groups, answers, strict=True))

    async def _register(self, routes: list[Route]) -> None:
        try:
            answers = await self._put("register", routes)
            # Nothing is pushed to a gateway whose keys are gone, even if its routes are known.
            is_own, _ = await self._live()
        except RedisLost:
            self._not_registered(routes)
            raise
        duplicates: list[tuple[str, bytes]] = []
        for group, answer in answers:
            if isinstance(answer, RedisLost):
                self.counters.failures += 1
                self._not_registered(group)
                continue
            self._book.registered(group, self.clock.monotonic_ms())
            for route, (elsewhere, *same_device) in zip(group, answer, strict=True):
                names = [gateway_named(one) for one in same_device[::2]]
                duplicates += [
                    # If the name is damaged, no gateway can be told to close it: it stays open.
                    (name, connection)
                    for name, connection in zip(names, same_device[1::2], strict=True)
                    if name is not None
                ]
                self._answer(route, elsewhere)
        if not is_own:
            self._note_loss("the gateway's own keys were gone")
        await self._close_duplicates(duplicates)

    def _not_registered(self, routes: Sequence[Route]) -> None:
        self._book.not_registered(routes)
        for route in routes:
            self._answer(route, 0)

    async def _close_duplicates(self, connections: Sequence[tuple[str, bytes]]) -> None:
        """Have other gateways close these; a gateway that cannot be reached keeps it open."""
        keys = await self._link.keys()
        head = [*appending_words(keys, 0, self.options), 1]
        calls = []
        for gateway, connection in connections:
            names = keys.appending(gateway, self.gateway_id)
            calls.append(Call(names, [*head, Kind.DUPLICATE.value, "", "", connection, ""]))
        if calls:
            await self._link.run_each("append", calls)

    async def _live(self) -> tuple[bool, int]:
        """Renew the gateway's own keys; answers whether they still exist, and its counter."""
        drained = b"" if self._drained == _START else self._drained
        names = self._own_keys(await self._link.keys())
        is_own, counter = await self._link.run(
            "live", names, self._incarnation, self.options.life_ms, drained
        )
        return bool(is_own), counter

    async def _assert_all(self, *, is_telling: bool) -> None:
        """Renew the gateway's own keys, and assert all its routes. Connections whose routes were
        missing sync again, unless all clients are about to (`is_telling` is False)."""
        options = self.options
        asked_at = self._ledger.number
        is_own, counter = await self._live()
        if not is_own or not await self._list(life_ms=options.life_ms):
            self._note_loss("the gateway's own keys were gone")
            return
        now_ms = self.clock.monotonic_ms()
        if not self._ledger.counted(counter, asked_at=asked_at, now_ms=now_ms):
            self._note_loss("the counter went back")
            return
        # In a Redis Cluster in the order of tags: each tag of a chunk is a call of its own.
        order = route_tag if (await self._link.keys()).is_tagged else None
        for chunk in self._book.chunks(options.assert_chunk, order):
            routes = self._book.still_known(chunk)
            if routes:
                await self._assert(routes, is_telling=is_telling)
            if is_telling:
                await self._grant_wishes()
        self._next_assert_at_ms = self.clock.monotonic_ms() + options.assert_ms

    async def _assert(self, routes: list[Route], *, is_telling: bool) -> None:
        told: list[ConnectionId] = []
        for group, missing in await self._put("assert", routes):
            if isinstance(missing, RedisLost):
                # One server of several: pushes may miss these routes until it is back.
                self.counters.failures += 1
                self._book.not_asserted(group)
                continue
            lacking = {ConnectionId(one.decode()) for one in missing}
            told += self._book.asserted(group, lacking, self.clock.monotonic_ms())
        self._tell_unrouted()
        if is_telling and told:
            is_own, _ = await self._live()
            if not is_own:
                # Everything was lost during the call: all clients sync again.
                self._note_loss("the gateway's own keys were gone")
                return
            self.counters.routes_missing += len(told)
            _logger.warning("%d routes were missing", len(told))
            self.local.resync_connections(told, ResyncReason.PUSHES_LOST)

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
        """Note that all clients have to sync again; `_keep_routes` recovers and tells them."""
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
                    keys = await self._reading_link.keys()
                    entries = await self._reading_link.read(
                        keys.stream(self.gateway_id, incarnation),
                        after=self._drained,
                        count=READ_ENTRIES_MAX,
                        block_ms=self._block_ms,
                    )
                except RedisLost as error:
                    self.counters.failures += 1
                    # If the incarnation is a new one, the recovery is already under way.
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
            entry = received(fields)
            if entry is None or not self._ledger.step(entry.number):
                is_whole = entry is not None
                self._note_loss("the stream has a hole" if is_whole else "an entry cannot be read")
                return
            self._drained = entry_id
            self.counters.entries += 1
            self._act(entry)

    def _act(self, entry: Received) -> None:
        local, user_ids, body = self.local, entry.user_ids, entry.body
        match entry.kind:
            case Kind.PUSH:
                self._hear(entry.news)
                local.push(Push(user_ids, _frame_type(body), body, entry.except_connection))
            case Kind.RESYNC:
                local.resync(user_ids or None, _reason(entry.text))
            case Kind.LOST:
                local.resync(None, ResyncReason.PUSHES_LOST)
                self.on_lost()
            case Kind.REVOKE:
                self.on_revoked([SessionId(one) for one in entry.text.split()])
            case Kind.DUPLICATE:
                local.close_duplicate(ConnectionId(entry.text))
            case Kind.FORGET_ROSTER:
                self.on_roster_changed(ChatId(entry.text))
            case Kind.NEWS:
                self._hear(body)
            case Kind.FORWARD:
                self.on_forward(body)
            case unknown:
                # From a newer server, during an upgrade: its meaning is not known here.
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


def _tag_of(route: Route) -> int:
    return route_tag(route.user_id)


def _routes_of(keys: Keys, group: Sequence[Route]) -> list[str]:
    return [keys.route(route.user_id) for route in group]


def _frame_type(framed: bytes) -> str:
    """The type of a frame that a server encoded: the first field in it."""
    name, has_end, _ = framed.partition(_TYPE)[2].partition(b'"')
    return name.decode(errors="replace") if has_end else "unknown"


def _reason(text: str) -> ResyncReason:
    """A newer server may send a reason not known here: clients sync again all the same."""
    return ResyncReason(text) if text in set(ResyncReason) else ResyncReason.PUSHES_LOST


_CONFORMS: type[Registrar] = Inbox
