"""The router of a cluster: brings pushes to the gateways at which users are connected.

Pushes are queued here and brought to the gateways' streams a batch at a time; the next batch forms
while one is under way. If Redis does not answer, the batch is tried again for a while; then all
that waits is dropped, and every gateway is told so before anything else when Redis answers again.
If one server of a Redis Cluster does not answer, the others go on: users whose routes it has are
looked for at every gateway, and a gateway whose stream it has is told later that it missed
something.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from tidewire.domain.errors import Unavailable
from tidewire.domain.ids import ChatId, SessionId, UserId
from tidewire.domain.news import ChatNews
from tidewire.domain.resync import ResyncReason
from tidewire.engines.redis.entries import FIELDS, Words, appending_words, entries_by_gateway
from tidewire.engines.redis.keys import gateway_named, route_tag
from tidewire.engines.redis.link import Call, LinkedTask, RedisLost
from tidewire.engines.redis.options import RedisOptions
from tidewire.engines.redis.push_queue import LOST, Batch, Kind, Parcel, PushQueue
from tidewire.ports.router import Push, Router
from tidewire.ports.runtime import Tasks
from tidewire.wire.chat_news import encode_news

PRESENCE_USERS_MAX: Final = 2_000
"""How many users are looked up in one call."""
SESSIONS_MAX: Final = 500
"""How many sessions one entry names."""

_logger = logging.getLogger(__name__)


class RouterCounters:
    """Counts so far: `failures` are calls that Redis did not answer, `entries` those appended to
    streams, one for each push and gateway, `everywhere` users who were looked for at every
    gateway."""

    pushes = batches = entries = failures = everywhere = 0


class _Plan(NamedTuple):
    """The part of a batch that is still to be appended. It is kept until that is done, without a
    new lookup: the connection of a route made known after the lookup reads its digest later still,
    so it misses nothing."""

    number: int
    entries: dict[str, Words]


class RedisRouter(LinkedTask):
    """Satisfies `ports.router.Router` for every process of a cluster."""

    def __init__(self, options: RedisOptions, *, router_id: str, tasks: Tasks) -> None:
        """`router_id` is new at each start. Must be made on the event loop that it is to serve."""
        super().__init__("redis-router", options, tasks)
        self.counters = RouterCounters()
        self._router_id = router_id
        self._plan: _Plan | None = None
        # Gateways that missed something, and when they are to be told next.
        self._owed: set[str] = set()
        self._pay_at_s = 0.0
        self.queue = PushQueue(options)
        self._wake = asyncio.Event()
        self._progress = asyncio.Event()
        self._is_closing = False

    async def stop(self) -> None:
        """Push what waits if Redis answers, and end. Call it when nothing is pushed any more."""
        self._is_closing = True
        self._wake.set()
        await self._wait_for_end()

    # `ports.router.Router`.

    def push(self, push: Push) -> None:
        if push.user_ids:
            self.counters.pushes += 1
            news = b"" if push.news is None else encode_news(push.news)
            self._put(Parcel(Kind.PUSH, push.user_ids, push.framed, push.except_connection, news))

    def resync(self, user_ids: Sequence[UserId] | None, reason: ResyncReason) -> None:
        self._put(Parcel(Kind.RESYNC, user_ids, reason.encode()))

    async def presence(self, user_ids: Sequence[UserId]) -> dict[UserId, int]:
        found: dict[UserId, int] = {}
        unique = list(dict.fromkeys(user_ids))
        for start in range(0, len(unique), PRESENCE_USERS_MAX):
            asked = unique[start : start + PRESENCE_USERS_MAX]
            try:
                counts = await self._ask("presence", asked)
            except RedisLost as error:
                self.counters.failures += 1
                raise Unavailable(f"Redis does not say who is connected: {error}") from error
            if None in counts.values():
                self.counters.failures += 1
                raise Unavailable("a server of the Redis Cluster does not say who is connected")
            found |= {one: count for one, count in counts.items() if count}
        return found

    async def settled(self) -> None:
        queue = self.queue
        target = queue.put_count
        # Only this process knows of a notice that it owes: callers must wait until it is sent.
        while queue.done_count < target or queue.owes_word:
            self._progress.clear()
            await self._progress.wait()

    # Besides pushes: what every gateway has to know.

    def revoke(self, session_ids: Sequence[SessionId]) -> None:
        """These sessions have ended: have every gateway close their connections."""
        for start in range(0, len(session_ids), SESSIONS_MAX):
            named = session_ids[start : start + SESSIONS_MAX]
            self._put(Parcel(Kind.REVOKE, None, " ".join(named).encode()))

    def forget_roster(self, chat_id: ChatId) -> None:
        """The members of a chat changed in a way that no event tells of."""
        self._put(Parcel(Kind.FORGET_ROSTER, None, chat_id.encode()))

    def spread(self, news: ChatNews, user_ids: Sequence[UserId]) -> None:
        """Tell the other gateways at which these users are connected."""
        self._put(Parcel(Kind.NEWS, user_ids, encode_news(news)))

    # Inside.

    def _put(self, parcel: Parcel) -> None:
        self.queue.put(parcel)
        self._wake.set()

    async def _run(self) -> None:
        """Push what waits, also what came before the start."""
        while True:
            await self._pay_debts()
            batch = self.queue.take()
            if batch is not None:
                is_pushed = await self._push(batch)
                self._progress.set()
                if not is_pushed:
                    if self._is_closing and self.queue.owes_word:
                        return
                    await asyncio.sleep(self._options.retry_ms / 1000)
            elif self._is_closing:
                return
            else:
                self._wake.clear()
                await self._rest()

    async def _rest(self) -> None:
        """Wait until there is something to push, or a gateway to be told."""
        try:
            async with asyncio.timeout(self._options.assert_ms / 1000 if self._owed else None):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _push(self, batch: Batch) -> bool:
        counters = self.counters
        try:
            if self._plan is None or self._plan.number != batch.number:
                self._plan = await self._made(batch)
            await self._carry_out(self._plan)
        except RedisLost as error:
            counters.failures += 1
            losses = self.queue.losses
            owed_word = self.queue.owes_word
            self.queue.failed()
            if self.queue.losses > losses and not owed_word:
                _logger.warning("pushes were dropped, all clients will sync again: %s", error)
            return False
        self._plan = None
        counters.batches += 1
        self.queue.done()
        return True

    async def _made(self, batch: Batch) -> _Plan:
        """Look up where the users of a batch are. Raises RedisLost."""
        users = {one: None for parcel in batch.parcels for one in parcel.user_ids or ()}
        homes: dict[UserId, Sequence[str] | None] = {}
        # Most users are at one of a few gateways, so equal answers are parsed only once.
        known: dict[bytes | None, list[str] | None] = {None: None}
        for user_id, told in (await self._ask("lookup", list(users))).items():
            if told not in known:
                known[told] = _gateways_in(told)
            homes[user_id] = known[told]
            if homes[user_id] is None:
                self.counters.everywhere += 1
        is_for_all = None in homes.values() or any(one.user_ids is None for one in batch.parcels)
        everybody = await self._gateways() if is_for_all else []
        entries = entries_by_gateway(batch.parcels, homes, everybody, own_id=self._router_id)
        return _Plan(batch.number, entries)

    async def _ask(self, name: str, user_ids: Sequence[UserId]) -> Mapping[UserId, Any]:
        """What a script answers for each user; None where a server of a cluster did not answer.
        Raises RedisLost as `Link.run_each` does, and if a single Redis lost one of the calls."""
        if not user_ids:
            return {}
        keys = await self._link.keys()
        groups = keys.groups(user_ids, route_tag)
        calls = [Call([keys.route(one) for one in group]) for group in groups]
        answers = await self._link.run_each(name, calls)
        lost = [answer for answer in answers if isinstance(answer, RedisLost)]
        if lost:
            if not keys.is_tagged:
                raise lost[0]
            self.counters.failures += len(lost)
        found: dict[UserId, Any] = {}
        for group, answer in zip(groups, answers, strict=True):
            is_lost = isinstance(answer, RedisLost)
            found.update(zip(group, [None] * len(group) if is_lost else answer, strict=True))
        return found

    async def _gateways(self) -> list[str]:
        """Every gateway on any list; most lists have to answer. A gateway on too few of them finds
        out and tells its clients. Raises RedisLost."""
        keys = await self._link.keys()
        answers = await self._link.run_each("gateways", [Call([key]) for key in keys.lists()])
        found = [answer for answer in answers if not isinstance(answer, RedisLost)]
        if len(found) < keys.lists_min:
            raise RedisLost("the lists of gateways cannot be reached")
        named = (gateway_named(one) for names in found for one in names)
        return list(dict.fromkeys(name for name in named if name is not None))

    async def _carry_out(self, plan: _Plan) -> None:
        """Append what is left of a plan. Raises RedisLost if a single Redis did not answer; in a
        cluster a gateway that cannot be reached is told later, and the others go on."""
        entries = plan.entries
        lost: RedisLost | None = None
        for attempt in range(self._options.attempts_max):
            if attempt:
                await asyncio.sleep(self._options.retry_ms / 1000)
            # Gateways that missed something before sync anyway: nothing waits for them.
            for gateway in self._owed.intersection(entries):
                del entries[gateway]
            if not entries:
                return
            lost = await self._append(plan.number, entries)
            if lost is None:
                return
            if not (await self._link.keys()).is_tagged:
                raise lost
            self.counters.failures += 1
        _logger.warning("gateways will be told that they missed pushes: %s", lost)
        self._owed.update(entries)
        entries.clear()

    async def _append(self, number: int, entries: dict[str, Words]) -> RedisLost | None:
        """Append to each gateway; remove from `entries` those that have it, or are gone."""
        options, keys = self._options, await self._link.keys()
        head = appending_words(keys, number, options)
        # In a cluster each gateway has a tag of its own.
        groups = [[one] for one in entries] if keys.is_tagged else [list(entries)]
        calls = []
        for group in groups:
            names: list[str] = []
            words = [*head]
            for gateway in group:
                names += keys.appending(gateway, self._router_id)
                words.append(len(entries[gateway]) // FIELDS)
                words += entries[gateway]
            calls.append(Call(names, words))
        lost = None
        for group, answer in zip(groups, await self._link.run_each("append", calls), strict=True):
            if isinstance(answer, RedisLost):
                lost = answer
                continue
            for gateway, count in zip(group, answer, strict=True):
                del entries[gateway]
                self.counters.entries += max(0, count)
        return lost

    async def _pay_debts(self) -> None:
        """Tell the gateways that can be reached by now that they missed something."""
        now_s = asyncio.get_running_loop().time()
        if not self._owed or now_s < self._pay_at_s:
            return
        self._pay_at_s = now_s + self._options.assert_ms / 1000
        word: Words = [LOST.kind.value, "", "", b"", b""]
        entries = dict.fromkeys(self._owed, word)
        try:
            await self._append(0, entries)
        except RedisLost:
            return
        self._owed.intersection_update(entries)


def _gateways_in(told: bytes) -> list[str] | None:
    """The gateways of a user; None if one cannot be read: then it may be any."""
    names = [gateway_named(one) for one in told.split()]
    known = [name for name in names if name is not None]
    return known if len(known) == len(names) else None


_CONFORMS: type[Router] = RedisRouter
