"""The way to Redis: scripts and streams, with one error for everything that can go wrong."""

from collections.abc import Sequence
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Any, NamedTuple

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError

from tidewire.domain.accounts import Secret

Argument = bytes | str | int


class RedisLost(Exception):
    """Redis did not answer, or not as it should. Whether it did what it was told is not known."""


class Script(NamedTuple):
    source: str
    sha: str


class Entry(NamedTuple):
    """One entry of a stream."""

    entry_id: bytes
    fields: dict[bytes, bytes]


@cache
def script(name: str) -> Script:
    """A script of the package by its file's name, with what all share before it."""
    folder = files("tidewire.engines.redis").joinpath("scripts")
    source = "\n".join(
        folder.joinpath(f"{part}.lua").read_text(encoding="utf-8") for part in ("common", name)
    )
    # Redis calls scripts by this hash; it protects nothing.
    return Script(source, sha1(source.encode(), usedforsecurity=False).hexdigest())


class Link:
    """Makes connections as they are needed. Nothing is tried twice: the callers know better."""

    def __init__(self, url: Secret, *, key_prefix: str, timeout_ms: int, block_ms: int = 0) -> None:
        """`block_ms` is how much longer than a call a read may wait for something to come."""
        self.key_prefix = key_prefix
        self._client = Redis.from_url(
            url.reveal(),
            socket_timeout=(timeout_ms + block_ms) / 1000,
            socket_connect_timeout=timeout_ms / 1000,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )

    async def run(self, name: str, *arguments: Argument) -> list[Any]:
        """What a script returns. Raises RedisLost."""
        known = script(name)
        try:
            try:
                answer = await self._client.evalsha(known.sha, 1, self.key_prefix, *arguments)
            except NoScriptError:
                # It was started or emptied since; it keeps the script when it has seen it.
                answer = await self._client.eval(known.source, 1, self.key_prefix, *arguments)
        except (RedisError, OSError, TimeoutError) as error:
            raise RedisLost(f"{name}: {type(error).__name__}: {error}") from error
        return answer if isinstance(answer, list) else [answer]

    async def read(
        self, stream: str, *, after: bytes, count: int, block_ms: int
    ) -> Sequence[Entry]:
        """The entries of a stream after one, at most so many; waits for the first. Raises
        RedisLost."""
        try:
            answer: Any = await self._client.xread({stream: after}, count=count, block=block_ms)
        except (RedisError, OSError, TimeoutError) as error:
            raise RedisLost(f"xread: {type(error).__name__}: {error}") from error
        if not answer:
            return ()
        [(_, entries)] = answer
        return [Entry(entry_id, fields) for entry_id, fields in entries]

    async def describe(self) -> dict[str, Any]:
        """What Redis says about itself (INFO). Raises RedisLost."""
        try:
            told: dict[str, Any] = await self._client.info()
        except (RedisError, OSError, TimeoutError) as error:
            raise RedisLost(f"info: {type(error).__name__}: {error}") from error
        return told

    async def close(self) -> None:
        await self._client.aclose()
