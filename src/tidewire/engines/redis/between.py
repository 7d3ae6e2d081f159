"""Leases of hot chats, as keys with an expiry, and what gateways hand over, by their streams."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tidewire.domain.errors import Unavailable
from tidewire.domain.ids import ChatId
from tidewire.engines.redis.entries import appending_words
from tidewire.engines.redis.keys import gateway_named
from tidewire.engines.redis.link import Call, Link, RedisLost
from tidewire.engines.redis.options import RedisOptions
from tidewire.engines.redis.push_queue import Kind
from tidewire.ports.forwarding import Between

CALL_MS_MAX: Final = 1_000
"""How long a call may take here: after that the waiting gateway has to append by itself."""


class RedisBetween:
    """Satisfies `ports.forwarding.Between`."""

    def __init__(self, options: RedisOptions, *, gateway_id: str) -> None:
        self._options = options
        self._gateway_id = gateway_id
        self._link = Link(replace(options, timeout_ms=min(options.timeout_ms, CALL_MS_MAX)))

    async def leases(self, wishes: Sequence[tuple[ChatId, str]], life_ms: int) -> list[str]:
        try:
            keys = await self._link.keys()
            calls = [
                Call([keys.lease(chat_id)], [self._gateway_id, life_ms, avoided])
                for chat_id, avoided in wishes
            ]
            holders = await self._link.run_each("lease", calls)
        except RedisLost as error:
            raise Unavailable(f"Redis does not say who writes: {error}") from error
        for holder in holders:
            if isinstance(holder, RedisLost):
                raise Unavailable(f"Redis does not say who writes: {holder}") from holder
        return [gateway_named(holder) or "" for holder in holders]

    async def hand(self, gateway_id: str, body: bytes) -> bool:
        try:
            keys = await self._link.keys()
            [count] = await self._link.run(
                "append",
                keys.appending(gateway_id, self._gateway_id),
                # No batch number: a gateway detects what it gets twice by the number in the body.
                *appending_words(keys, 0, self._options),
                1,
                *(Kind.FORWARD.value, "", "", body, ""),
            )
        except RedisLost as error:
            raise Unavailable(f"Redis does not hand it over: {error}") from error
        return bool(count > 0)

    async def close(self) -> None:
        await self._link.close()


_CONFORMS: type[Between] = RedisBetween
