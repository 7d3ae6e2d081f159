"""Calls to Redis: scripts and streams, with one error for everything that can go wrong.

A Redis says itself whether it is part of a Redis Cluster. There a call goes to the server that has
its keys, and calls to several servers may fail in part.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from hashlib import sha1
from importlib.resources import files
from typing import Any, Final, NamedTuple

from redis.asyncio import Redis
from redis.asyncio.cluster import ClusterNode, PipelineCommand, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AskError,
    MovedError,
    NoScriptError,
    RedisError,
    ResponseError,
    TryAgainError,
)

from tidewire.domain.accounts import Secret
from tidewire.engines.redis.keys import Keys
from tidewire.engines.redis.options import RedisOptions
from tidewire.ports.runtime import Tasks

RENEW_S: Final = 1.0
"""While a server does not answer, a cluster is asked at most this often which server has what."""

ALONE: Final = "Redis"
"""The name of a Redis that is not part of a Redis Cluster."""

Argument = bytes | str | int


class RedisLost(Exception):
    """Redis did not answer, or not as it should. It may have done what it was asked, or not."""


class Script(NamedTuple):
    source: str
    sha: str


class Call(NamedTuple):
    """The keys and arguments of one run of a script; in a cluster the keys have one tag."""

    keys: Sequence[str]
    arguments: Sequence[Argument] = ()


class Entry(NamedTuple):
    """One entry of a stream."""

    entry_id: bytes
    fields: dict[bytes, bytes]


@cache
def script(name: str) -> Script:
    """A script of the package by its file's name, after the code that all scripts share."""
    folder = files("tidewire.engines.redis").joinpath("scripts")
    source = "\n".join(
        folder.joinpath(f"{part}.lua").read_text(encoding="utf-8") for part in ("common", name)
    )
    # Redis identifies scripts by this hash; it protects nothing.
    return Script(source, sha1(source.encode(), usedforsecurity=False).hexdigest())


FAULTS: Final = (RedisError, OSError, TimeoutError)


def _lost(what: str, error: BaseException) -> RedisLost:
    lost = RedisLost(f"{what}: {type(error).__name__}: {error}")
    lost.__cause__ = error
    return lost


@contextmanager
def _asking(what: str) -> Iterator[None]:
    try:
        yield
    except FAULTS as error:
        raise _lost(what, error) from error


class Link:
    """Opens connections as they are needed. Retries nothing: the callers know better when to."""

    def __init__(self, options: RedisOptions, *, block_ms: int = 0) -> None:
        """`block_ms` is how much longer than other calls a read may take, to wait for an entry.
        Raises ValueError if the URL is no address of a Redis."""
        self._url = (options.url or Secret("")).reveal()
        self._settings: dict[str, Any] = {
            "socket_timeout": (options.timeout_ms + block_ms) / 1000,
            "socket_connect_timeout": options.timeout_ms / 1000,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
        }
        self._client = Redis.from_url(self._url, **self._settings)
        self._cluster: RedisCluster | None = None
        self._prefix = options.key_prefix
        self._keys: Keys | None = None
        self._renewed_s = 0.0

    async def keys(self) -> Keys:
        """The names of keys here. Raises RedisLost if not known yet whether it is a cluster."""
        if self._keys is None:
            with _asking("info"):
                try:
                    told: dict[str, Any] = await self._client.info("cluster")
                except ResponseError:
                    # The user may not ask: it is taken for a single Redis.
                    told = {}
            is_cluster = bool(told.get("cluster_enabled"))
            if is_cluster:
                # If some of the servers are gone, the others are asked all the same.
                self._cluster = RedisCluster.from_url(
                    self._url, require_full_coverage=False, **self._settings
                )
            self._keys = Keys(self._prefix, is_cluster)
        return self._keys

    async def run(self, name: str, keys: Sequence[str], *arguments: Argument) -> Any:
        """What a script returns. Raises RedisLost."""
        [answer] = await self.run_each(name, [Call(keys, arguments)])
        if isinstance(answer, RedisLost):
            raise answer
        return answer

    async def run_each(self, name: str, calls: Sequence[Call]) -> list[Any]:
        """What a script returns for each call, or RedisLost in its place. A server runs its calls
        one after the other, several servers at the same time. Raises RedisLost if a single Redis
        does not answer, or no server of a cluster says which server has what."""
        if not (await self.keys()).is_tagged:
            with _asking(name):
                return await _run_at(partial(_send, self._client), name, calls)
        cluster = await self._known_cluster(name)
        answers: list[Any] = [None] * len(calls)
        at_nodes: dict[ClusterNode, list[int]] = {}
        for index, call in enumerate(calls):
            try:
                node = cluster.get_node_from_key(call.keys[0])
            except FAULTS as error:
                # No server has its slot.
                answers[index] = _lost(name, error)
            else:
                assert node is not None
                at_nodes.setdefault(node, []).append(index)

        async def ask(node: ClusterNode, indexes: list[int]) -> None:
            try:
                sending = partial(_send_to_node, cluster, node)
                found = await _run_at(sending, name, [calls[index] for index in indexes])
            except FAULTS as error:
                found = [_lost(name, error)] * len(indexes)
            for index, answer in zip(indexes, found, strict=True):
                answers[index] = answer

        await asyncio.gather(*(ask(node, indexes) for node, indexes in at_nodes.items()))
        if any(isinstance(answer, RedisLost) for answer in answers):
            await self._renew()
        return answers

    async def read(
        self, stream: str, *, after: bytes, count: int, block_ms: int
    ) -> Sequence[Entry]:
        """At most `count` entries of a stream after the entry `after`; waits `block_ms` for the
        first. Raises RedisLost."""
        command = ("XREAD", "COUNT", count, "BLOCK", block_ms, "STREAMS", stream, after)
        answer: Any
        if not (await self.keys()).is_tagged:
            single: Any = self._client
            with _asking("xread"):
                answer = await single.execute_command(*command)
        else:
            cluster = await self._known_cluster("xread")
            try:
                with _asking("xread"):
                    # Without a node, the client would each time ask a server for the right one.
                    node = cluster.get_node_from_key(stream)
                    answer = await cluster.execute_command(*command, target_nodes=node)
            except RedisLost:
                await self._renew()
                raise
        if not answer:
            return ()
        [(_, entries)] = answer
        return [Entry(entry_id, fields) for entry_id, fields in entries]

    async def describe(self) -> dict[str, "dict[str, Any] | RedisLost"]:
        """What each server says about itself (INFO), by its address; in a Redis Cluster only the
        servers that have keys. Raises RedisLost if none answers."""
        if not (await self.keys()).is_tagged:
            with _asking("info"):
                return {ALONE: await self._client.info()}
        cluster = await self._known_cluster("info")
        found: dict[str, dict[str, Any] | RedisLost] = {}
        for node in cluster.get_primaries():
            try:
                found[node.name] = await cluster.info(target_nodes=node)
            except FAULTS as error:
                found[node.name] = _lost("info", error)
        return found

    async def close(self) -> None:
        await self._client.aclose()
        if self._cluster is not None:
            await self._disconnect(self._cluster)

    async def _known_cluster(self, what: str) -> RedisCluster:
        assert self._cluster is not None
        with _asking(what):
            _ = await self._cluster.initialize()
        return self._cluster

    async def _renew(self) -> None:
        """Have the next call ask first which server has what: another may have taken over."""
        assert self._cluster is not None
        now_s = time.monotonic()
        if now_s - self._renewed_s >= RENEW_S:
            self._renewed_s = now_s
            await self._disconnect(self._cluster)

    @staticmethod
    async def _disconnect(cluster: RedisCluster) -> None:
        with suppress(*FAULTS):
            await cluster.aclose()
            # The first call does nothing if the client itself has found that it must ask again.
            await cluster.nodes_manager.aclose()
            await cluster.nodes_manager.aclose("startup_nodes")


Command = tuple[Argument, ...]
Sending = Callable[[Sequence[Command]], Awaitable[list[Any]]]
"""Sends commands together; the error of a command is in the place of its answer."""


async def _run_at(send: Sending, name: str, calls: Sequence[Call]) -> list[Any]:
    """Run calls at one server. Raises the errors of the vendor's client."""
    known = script(name)
    answers = await send([_command("EVALSHA", known.sha, call) for call in calls])
    unknown = [index for index, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
    if unknown:
        # The server was restarted or flushed since; after this it has the script in its cache.
        again = await send([_command("EVAL", known.source, calls[one]) for one in unknown])
        for index, answer in zip(unknown, again, strict=True):
            answers[index] = answer
    return [_lost(name, one) if isinstance(one, FAULTS) else one for one in answers]


def _command(kind: str, which: str, call: Call) -> Command:
    return (kind, which, len(call.keys), *call.keys, *call.arguments)


async def _send(client: Any, commands: Sequence[Command]) -> list[Any]:
    if len(commands) == 1:
        try:
            return [await client.execute_command(*commands[0])]
        except ResponseError as error:
            # This is an answer, too.
            return [error]
    pipe = client.pipeline(transaction=False)
    for command in commands:
        pipe.execute_command(*command)
    found: list[Any] = await pipe.execute(raise_on_error=False)
    return found


async def _send_to_node(
    cluster: RedisCluster, node: ClusterNode, commands: Sequence[Command]
) -> list[Any]:
    """Bypasses the vendor's pipeline, which asks all servers or fails, and parses each command."""
    sent = [PipelineCommand(position, *command) for position, command in enumerate(commands)]
    await node.execute_pipeline(sent)
    for one in sent:
        if isinstance(one.result, (AskError, MovedError, TryAgainError)):
            # The slot has moved to another server: the vendor's client finds it.
            try:
                one.result = await cluster.execute_command(*one.args)
            except FAULTS as error:
                one.result = error
    return [one.result for one in sent]


class LinkedTask:
    """A task with a link of its own: `_run`, from `start` until it ends by itself."""

    def __init__(self, name: str, options: RedisOptions, tasks: Tasks) -> None:
        self._name = name
        self._options = options
        self._tasks = tasks
        self._link = Link(options)
        self._ended = asyncio.Event()
        self._ended.set()

    def start(self) -> None:
        self._ended.clear()
        self._tasks.start_service(self._name, self._run_to_end())

    async def _run(self) -> None:
        raise NotImplementedError

    async def _run_to_end(self) -> None:
        try:
            await self._run()
        finally:
            self._ended.set()

    async def _wait_for_end(self) -> None:
        await self._ended.wait()
        await self._link.close()
