"""The router of a cluster: brings pushes to the gateways at which users are connected.

Pushes are queued here and brought to the gateways' streams a batch at a time; the next batch forms
while one is under way. If Redis does not answer, the batch is tried again for a while; then all
that waits is dropped, and every gateway is told so before anything else when Redis answers again.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from tidewire.domain.errors import Unavailable
from tidewire.domain.ids import ChatId, SessionId, UserId
from tidewire.domain.news import ChatNews
from tidewire.domain.resync import ResyncReason
from tidewire.engines.redis.link import Argument, Link, RedisLost
from tidewire.engines.redis.options import RedisOptions
from tidewire.engines.redis.push_queue import Batch, Kind, Parcel, PushQueue
from tidewire.ports.router import Push, Router
from tidewire.ports.runtime import Tasks
from tidewire.wire.chat_news import encode_news

PRESENCE_USERS_MAX: Final = 2_000
"""How many users are looked up in one call."""
SESSIONS_MAX: Final = 500
"""How many sessions one entry names."""

_logger = logging.getLogger(__name__)


class RouterCounters:
    """What has happened so far: `failures` are calls that Redis did not answer, `entries` those
    appended to streams, one a push and gateway."""

    pushes = batches = entries = failures = 0


class RedisRouter:
    """Satisfies `ports.router.Router` for every process of a cluster."""

    def __init__(self, options: RedisOptions, *, router_id: str, tasks: Tasks) -> None:
        """`router_id` is new at each start. Must be made on the event loop that it is to serve."""
        self.counters = RouterCounters()
        self._options = options
        self._router_id = router_id
        self._tasks = tasks
        self._link = Link(options)
        self.queue = PushQueue(options)
        self._wake = asyncio.Event()
        self._progress = asyncio.Event()
        self._is_closing = False
        self._ended = asyncio.Event()
        self._ended.set()

    def start(self) -> None:
        """Begin to push. What was pushed before waits until now."""
        self._ended.clear()
        self._tasks.start_service("redis-router", self._run())

    async def stop(self) -> None:
        """Push what waits if Redis answers, and end. Call it when nothing is pushed any more."""
        self._is_closing = True
        self._wake.set()
        await self._ended.wait()
        await self._link.close()

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
                counts = await self._link.run("presence", *asked)
            except RedisLost as error:
                self.counters.failures += 1
                raise Unavailable(f"Redis does not say who is connected: {error}") from error
            found |= {one: count for one, count in zip(asked, counts, strict=True) if count}
        return found

    async def settled(self) -> None:
        queue = self.queue
        target = queue.put_count
        # A word that is owed is known to this process alone: those who wait may not forget before.
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
        try:
            while True:
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
                    await self._wake.wait()
        finally:
            self._ended.set()

    async def _push(self, batch: Batch) -> bool:
        options = self._options
        arguments: list[Argument] = [
            self._router_id,
            batch.number,
            options.stream_entries_max,
            options.life_ms,
        ]
        for kind, user_ids, body, except_connection, news in batch.parcels:
            arguments += (kind.value, except_connection or "", body, news)
            if user_ids is None:
                arguments.append(-1)
            else:
                arguments.append(len(user_ids))
                arguments += user_ids
        counters = self.counters
        try:
            appended, _ = await self._link.run("push", *arguments)
        except RedisLost as error:
            counters.failures += 1
            losses = self.queue.losses
            owed_word = self.queue.owes_word
            self.queue.failed()
            if self.queue.losses > losses and not owed_word:
                _logger.warning("pushes were dropped, all clients will sync again: %s", error)
            return False
        counters.batches += 1
        counters.entries += appended
        self.queue.done()
        return True


_CONFORMS: type[Router] = RedisRouter
