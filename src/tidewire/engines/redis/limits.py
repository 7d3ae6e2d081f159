"""Exchanges through Redis how much of their rate limits the processes of a cluster have used.

Nothing waits for it: limits are decided at once from what is known so far. Without Redis each
process only enforces its own limits.
"""

import asyncio
import logging
from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

from tidewire.domain.rates import SharedView
from tidewire.engines.redis.keys import limit_tag
from tidewire.engines.redis.link import Argument, Call, LinkedTask, RedisLost
from tidewire.engines.redis.options import RedisOptions
from tidewire.ports.runtime import Clock, Tasks

KEYS_MAX: Final = 2_000
"""How many limits are exchanged in one call."""

_logger = logging.getLogger(__name__)


class LimitExchange(LinkedTask):
    """One per process, for all its limits."""

    def __init__(
        self,
        options: RedisOptions,
        *,
        views: Mapping[str, SharedView],
        clock: Clock,
        tasks: Tasks,
    ) -> None:
        """`views` are the limits by name; the same names mean the same limits everywhere."""
        super().__init__("redis-limits", options, tasks)
        self.failures = 0
        self._views = dict(views)
        self._clock = clock
        self._stopping = asyncio.Event()

    async def stop(self) -> None:
        self._stopping.set()
        await self._wait_for_end()

    async def exchange(self) -> None:
        """Report what was used here, and learn what all processes have used. Raises RedisLost; what
        was to be reported is then forgotten, as if Redis had lost it."""
        keys = await self._link.keys()
        lost: RedisLost | None = None
        for name, view in self._views.items():
            used = [(_name_of(name, key), key, count) for key, count in view.take_used(KEYS_MAX)]
            if not used:
                continue
            groups = keys.groups(used, lambda one: limit_tag(one[0]))
            calls = []
            for group in groups:
                words: list[Argument] = []
                for _, _, count in group:
                    words += (view.rate.interval_us, count)
                calls.append(Call([keys.limit(one[0]) for one in group], words))
            answers = await self._link.run_each("limits", calls)
            now_ms = self._clock.monotonic_ms()
            for group, left in zip(groups, answers, strict=True):
                if isinstance(left, RedisLost):
                    lost = left
                    continue
                for (_, key, _), left_us in zip(group, left, strict=True):
                    view.learn(key, left_us, now_ms)
        if lost is not None:
            raise lost

    async def _run(self) -> None:
        is_alone = False
        while not self._stopping.is_set():
            try:
                await self.exchange()
            except RedisLost as error:
                self.failures += 1
                if not is_alone:
                    _logger.info(
                        "limits count per server, not per cluster, until Redis answers: %s", error
                    )
                is_alone = True
            else:
                is_alone = False
            try:
                async with asyncio.timeout(self._options.limits_ms / 1000):
                    await self._stopping.wait()
            except TimeoutError:
                continue


def _name_of(limit: str, key: str) -> str:
    """Hashed, so that addresses and names of people stay out of Redis; it only compares names."""
    return f"{limit}:{blake2b(key.encode(), digest_size=12).hexdigest()}"
