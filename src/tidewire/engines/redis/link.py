"""The way to Redis: scripts and streams, with one error for everything that can go wrong."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Any, NamedTuple

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError

from tidewire.domain.accounts import Secret
from tidewire.engines.redis.options import RedisOptions

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


@contextmanager
def _asking(what: str) -> Iterator[None]:
    try:
        yield
    except (RedisError, OSError, TimeoutError) as error:
        raise RedisLost(f"{what}: {type(error).__name__}: {error}") from error


class Link:
    """Makes connections as they are needed. Nothing is tried twice: the callers know better."""

    def __init__(self, options: RedisOptions, *, block_ms: int = 0) -> None:
        """`block_ms` is how much longer than a call a read may wait for something to come. Raises
        ValueError if the URL is none of a Redis."""
        self.key_prefix = options.key_prefix
        self._client = Redis.from_url(
            (options.url or Secret("")).reveal(),
            socket_timeout=(options.timeout_ms + block_ms) / 1000,
            socket_connect_timeout=options.timeout_ms / 1000,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )

    async def run(self, name: str, *arguments: Argument) -> list[Any]:
        """What a script returns. Raises RedisLost."""
        known = script(name)
        with _asking(name):
            try:
                answer = await self._client.evalsha(known.sha, 1, self.key_prefix, *arguments)
            except NoScriptError:
                # It was started or emptied since; it keeps the script when it has seen it.
                answer = await self._client.eval(known.source, 1, self.key_prefix, *arguments)
        return answer if isinstance(answer, list) else [answer]

    async def read(
        self, stream: str, *, after: bytes, count: int, block_ms: int
    ) -> Sequence[Entry]:
        """The entries of a stream after one, at most so many; waits for the first. Raises
        RedisLost."""
        with _asking("xread"):
            answer: Any = await self._client.xread({stream: after}, count=count, block=block_ms)
        if not answer:
            return ()
        [(_, entries)] = answer
        return [Entry(entry_id, fields) for entry_id, fields in entries]

    async def describe(self) -> dict[str, Any]:
        """What Redis says about itself (INFO). Raises RedisLost."""
        with _asking("info"):
            told: dict[str, Any] = await self._client.info()
        return told

    async def close(self) -> None:
        await self._client.aclose()
