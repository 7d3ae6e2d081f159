"""Leases of hot chats, and the way between gateways: keys with an expiry, and their streams."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tidewire.domain.errors import Unavailable
from tidewire.domain.ids import ChatId
from tidewire.engines.redis.link import Argument, Link, RedisLost
from tidewire.engines.redis.options import RedisOptions
from tidewire.engines.redis.push_queue import Kind
from tidewire.ports.forwarding import Between

CALL_MS_MAX: Final = 1_000
"""How long a call may take here: whoever waits for it has to append by itself after that."""


class RedisBetween:
    """Satisfies `ports.forwarding.Between`."""

    def __init__(self, options: RedisOptions, *, gateway_id: str) -> None:
        self._options = options
        self._gateway_id = gateway_id
        self._link = Link(replace(options, timeout_ms=min(options.timeout_ms, CALL_MS_MAX)))

    async def leases(self, wishes: Sequence[tuple[ChatId, str]], life_ms: int) -> list[str]:
        words: list[Argument] = [word for wish in wishes for word in wish]
        try:
            holders = await self._link.run("lease", self._gateway_id, life_ms, *words)
        except RedisLost as error:
            raise Unavailable(f"Redis does not say who writes: {error}") from error
        return [holder.decode() for holder in holders]

    async def hand(self, gateway_id: str, body: bytes) -> bool:
        options = self._options
        try:
            [is_told] = await self._link.run(
                "hand",
                gateway_id,
                options.stream_entries_max,
                options.life_ms,
                Kind.FORWARD.value,
                body,
            )
        except RedisLost as error:
            raise Unavailable(f"Redis does not hand it over: {error}") from error
        return bool(is_told)

    async def close(self) -> None:
        await self._link.close()


_CONFORMS: type[Between] = RedisBetween
