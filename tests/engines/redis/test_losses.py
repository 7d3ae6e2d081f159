"""Whatever is lost on the way ends in a resync for exactly those concerned, also if nothing is
pushed afterwards.

slow: the faults are real and take their time: a Redis or a gateway that stands still.
"""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.support.proxy import FaultyProxy
from tests.support.pushing import give
from tests.support.redis import PATIENCE_S, Net, Node, OwnCluster, OwnRedis, net_on
from tidewire.domain.accounts import Secret
from tidewire.domain.errors import Unavailable
from tidewire.domain.ids import ChatId, SessionId, UserId
from tidewire.domain.resync import ResyncReason
from tidewire.engines.redis.router import RedisRouter

ANN, BEN, CEM = UserId("ann"), UserId("ben"), UserId("cem")


@pytest.fixture
async def pair(net: Net) -> tuple[Node, Node]:
    """Ann at gateway a, Ben at gateway b."""
    a, b = await net.node("a"), await net.node("b")
    await a.connect(ANN)
    await b.connect(BEN)
    return a, b


async def until(holds: Callable[[], Awaitable[object]]) -> None:
    """Ask the other side again and again: it tells nobody."""
    async with asyncio.timeout(PATIENCE_S):
        while not await holds():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def _holds(value: bool) -> bool:
    return value


async def _is_gone(net: Net, name: str) -> bool:
    return bool(await net.redis.exists(name) == 0)


async def delivers(net: Net, node: Node, user_id: UserId, body: bytes) -> None:
    """All is well again: a push arrives, and nobody is told anything more."""
    told = node.local.resyncs_count
    give(net.router, [user_id], body)
    await node.local.until(lambda: body in node.local.bodies)
    assert node.local.resyncs_count == told


async def lose_an_entry(net: Net, node: Node, user_id: UserId) -> None:
    """Push, and drop it before anybody can have read it."""
    assert await net.append(node.gateway_id, "push", user_id, "", b"lost", b"", trimming=True) == 1


async def test_trimmed_stream_means_resync_for_that_gateway(
    net: Net, pair: tuple[Node, Node]
) -> None:
    a, b = pair
    await lose_an_entry(net, a, ANN)
    # Nothing is pushed after it: only the counter tells.
    await a.local.until(lambda: a.local.resynced == [None])
    assert a.local.pushed == []
    assert a.local.lost == 1
    await delivers(net, a, ANN, b"after")
    assert b.local.resyncs_count == 0


async def test_hole_in_the_stream_is_seen_with_the_next_push(url: Secret) -> None:
    # Nothing is asserted for so long that only the number of the next entry can tell.
    async with net_on(url, assert_ms=60_000, life_ms=120_000, drain_ms=60_000) as net:
        a = await net.node("a")
        await a.connect(ANN)
        await delivers(net, a, ANN, b"before")
        await lose_an_entry(net, a, ANN)
        give(net.router, [ANN], b"next")
        await a.local.until(lambda: a.local.resynced == [None])
        # What comes after a hole may not be shown before what is missing has been fetched.
        assert a.local.bodies == [b"before"]


async def test_stalled_gateway_whose_stream_was_trimmed_resyncs(url: Secret) -> None:
    async with net_on(url, stream_entries_max=10, batch_pushes_max=100) as net:
        a, b = await net.node("a"), await net.node("b")
        await a.connect(ANN)
        await b.connect(BEN)
        # All in one call: more than the stream holds, and no gateway can read in between.
        for number in range(30):
            give(net.router, [ANN], str(number).encode())
        await a.local.until(lambda: a.local.resynced == [None])
        assert a.local.pushed == []
        assert net.router.counters.entries == 30
        assert b.local.resyncs_count == 0
        await delivers(net, a, ANN, b"after")


async def test_evicted_routes_mean_resync_for_exactly_those_connections(
    net: Net, pair: tuple[Node, Node]
) -> None:
    a, b = pair
    there = await b.connect(ANN, "laptop")
    await a.connect(CEM)
    await net.forget(net.keys.route(ANN))
    give(net.router, [ANN], b"lost")
    await a.local.until(lambda: bool(a.local.resynced_connections))
    await b.local.until(lambda: bool(b.local.resynced_connections))
    assert a.local.resynced_connections == [f"conn_{a.gateway_id}_{ANN}_phone"]
    assert b.local.resynced_connections == [there.connection_id]
    assert a.local.resynced == b.local.resynced == []
    await delivers(net, a, ANN, b"after")


async def test_evicted_route_is_noticed_without_any_push(net: Net, pair: tuple[Node, Node]) -> None:
    a, b = pair
    route = await a.connect(CEM)
    await net.forget(net.keys.route(CEM))
    await a.local.until(lambda: bool(a.local.resynced_connections))
    assert a.local.resynced_connections == [route.connection_id]
    assert a.local.resynced == []
    assert b.local.resyncs_count == 0


@pytest.mark.parametrize("has_later_push", [False, True])
async def test_emptied_redis_means_resync_for_everybody(
    own: OwnRedis, *, has_later_push: bool
) -> None:
    async with net_on(own.url) as net:
        a, b = await net.node("a"), await net.node("b")
        await a.connect(ANN)
        await b.connect(BEN)
        await net.redis.flushall()
        if has_later_push:
            give(net.router, [ANN, BEN], b"lost")
        for node in (a, b):
            await node.local.until(lambda node=node: node.local.lost == 1)  # type: ignore[misc]
            assert node.local.resynced == [None]
            assert node.local.resynced_connections == []
        await delivers(net, a, ANN, b"after")
        await delivers(net, b, BEN, b"after")


@pytest.mark.parametrize("has_later_push", [False, True])
async def test_another_incarnation_means_resync_for_that_gateway(
    net: Net, pair: tuple[Node, Node], *, has_later_push: bool
) -> None:
    a, b = pair
    await net.redis.hset(net.own_key(a), "incarnation", "another")
    if has_later_push:
        give(net.router, [ANN], b"lost")
    await a.local.until(lambda: a.local.lost == 1)
    assert a.local.resynced == [None]
    assert b.local.resyncs_count == 0
    await delivers(net, a, ANN, b"after")


@pytest.mark.parametrize("is_list", [False, True])
async def test_evicted_key_of_the_gateway_means_resync(
    net: Net, pair: tuple[Node, Node], *, is_list: bool
) -> None:
    a, _ = pair
    names = net.keys.lists()[-2:] if is_list else [net.own_key(a)]
    await net.forget(*names)
    # A list that is put back before the next is gone: then none had missed anything.
    while not a.local.lost and any([await net.redis.exists(name) for name in names]):
        await net.forget(*names)
    give(net.router, [ANN], b"lost")
    # What every gateway has to know went past this one.
    net.router.revoke([SessionId("s1")])
    await a.local.until(lambda: a.local.lost == 1)
    assert a.local.resynced == [None]
    await delivers(net, a, ANN, b"after")


async def test_one_evicted_list_of_three_hides_nobody(shared_cluster: OwnCluster) -> None:
    async with net_on(shared_cluster.url) as net:
        await _loses_a_list(net, await net.node("a"), await net.node("b"))


async def _loses_a_list(net: Net, a: Node, b: Node) -> None:
    await net.forget(net.keys.lists()[0])
    net.router.revoke([SessionId("s1")])
    for local in (a.local, b.local):
        await local.until(lambda local=local: local.revoked == ["s1"])  # type: ignore[misc]
    # The next assertion puts it right.
    first = net.keys.lists()[0]
    await until(lambda: _is_two(net.redis.zcard(first)))
    assert a.local.resyncs_count == b.local.resyncs_count == 0


async def _is_two(count: Awaitable[int]) -> bool:
    return await count == 2


async def test_evicted_stream_means_resync(net: Net, pair: tuple[Node, Node]) -> None:
    a, b = pair
    await lose_an_entry(net, a, ANN)
    await net.forget(net.keys.stream(a.gateway_id, await net.incarnation_of(a)))
    await a.local.until(lambda: a.local.lost == 1)
    assert b.local.resyncs_count == 0


async def test_counter_that_went_back_means_resync(net: Net, pair: tuple[Node, Node]) -> None:
    """As after a failover to a replica that had not heard of the last entries."""
    a, _ = pair
    await delivers(net, a, ANN, b"before")
    await net.redis.hset(net.own_key(a), "counter", 0)
    await a.local.until(lambda: a.local.lost == 1)
    await delivers(net, a, ANN, b"after")


async def test_new_connection_registers_with_a_gateway_whose_keys_are_gone(url: Secret) -> None:
    async with net_on(url, assert_ms=60_000, life_ms=120_000) as net:
        a = await net.node("a")
        await a.connect(ANN)
        await net.forget(net.own_key(a))
        await a.connect(BEN)
        await a.local.until(lambda: a.local.lost == 1)
        await delivers(net, a, BEN, b"after")


@pytest.mark.slow
async def test_stopped_redis_means_resync_for_everybody_after_it(own: OwnRedis) -> None:
    async with net_on(own.url, timeout_ms=300, attempts_max=2, register_ms=200) as net:
        a, b = await net.node("a"), await net.node("b")
        await a.connect(ANN)
        await b.connect(BEN)
        own.pause()
        give(net.router, [ANN, BEN], b"dropped")
        net.router.revoke([SessionId("s1")])
        await until(lambda: _holds(net.router.queue.losses == 1))
        # Somebody connects meanwhile: he is let in.
        await a.connect(CEM)
        with pytest.raises(Unavailable, match="Redis"):
            await net.router.presence([ANN])
        await until(lambda: _holds(a.inbox.is_lost and b.inbox.is_lost))
        own.go_on()
        for node in (a, b):
            await node.local.until(lambda node=node: node.local.lost >= 1)  # type: ignore[misc]
            assert None in node.local.resynced
        await settles(net, a, CEM)
        await settles(net, b, BEN)


@pytest.mark.slow
async def test_redis_that_was_killed_and_restarted_means_resync_for_everybody(
    own: OwnRedis,
) -> None:
    async with net_on(own.url, timeout_ms=300, attempts_max=2) as net:
        a, b = await net.node("a"), await net.node("b")
        await a.connect(ANN)
        await b.connect(BEN)
        own.kill()
        give(net.router, [ANN, BEN], b"dropped")
        net.router.forget_roster(ChatId("chat_1"))
        await until(lambda: _holds(net.router.queue.losses >= 1))
        await own.start()
        for node in (a, b):
            await node.local.until(lambda node=node: node.local.lost >= 1)  # type: ignore[misc]
            assert None in node.local.resynced
        await settles(net, a, ANN)
        await settles(net, b, BEN)


async def settles(net: Net, node: Node, user_id: UserId) -> None:
    """After an outage the gateway and the router each may tell everybody; then pushes arrive."""
    async with asyncio.timeout(PATIENCE_S):
        number = 0
        while not any(body.startswith(b"try") for body in node.local.bodies):
            number += 1
            give(net.router, [user_id], f"try {number}".encode())
            await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_router_that_alone_lost_redis_tells_every_gateway_when_it_is_back(
    own: OwnRedis,
) -> None:
    async with net_on(own.url) as net, FaultyProxy(own.port) as proxy:
        a, b = await net.node("a"), await net.node("b")
        await a.connect(ANN)
        await b.connect(BEN)
        address = Secret(proxy.url.replace("http", "redis"))
        options = replace(net.options, url=address, timeout_ms=300, attempts_max=2)
        router = RedisRouter(options, router_id="alone", tasks=net.tasks)
        router.start()
        give(router, [ANN], b"before")
        await a.local.until(lambda: a.local.bodies == [b"before"])
        proxy.is_refusing = True
        proxy.cut()
        give(router, [ANN], b"dropped")
        router.revoke([SessionId("s1")])
        settling = asyncio.create_task(router.settled())
        await until(lambda: _holds(router.queue.losses == 1))
        assert router.queue.bytes_count == 0
        # Nobody may forget what was dropped before everybody was told of it.
        assert not settling.done()
        assert a.local.resyncs_count == b.local.resyncs_count == 0
        proxy.heal()
        for local in (a.local, b.local):
            # Before anything else, and without anything else.
            await local.until(lambda local=local: local.lost == 1)  # type: ignore[misc]
            assert local.resynced == [None]
        await settling
        give(router, [ANN], b"after")
        await a.local.until(lambda: b"after" in a.local.bodies)
        assert a.local.bodies == [b"before", b"after"]
        await router.stop()


async def test_queue_at_its_bound_means_resync_for_everybody(url: Secret) -> None:
    async with net_on(url, queue_bytes_max=10_000) as net:
        a, b = await net.node("a"), await net.node("b")
        await a.connect(ANN)
        # In one turn of the loop: nothing can be brought away in between.
        for _ in range(100):
            give(net.router, [ANN], b"x" * 1_000)
        await net.router.settled()
        for local in (a.local, b.local):
            await local.until(lambda local=local: local.lost == 1)  # type: ignore[misc]
        await delivers(net, a, ANN, b"after")


@pytest.mark.slow
async def test_redis_that_is_slow_for_a_moment_costs_no_resync(own: OwnRedis) -> None:
    async with net_on(own.url, drain_ms=200) as net:
        a = await net.node("a")
        await a.connect(ANN)
        own.pause()
        give(net.router, [ANN], b"later")
        await asyncio.sleep(0.5)
        own.go_on()
        await a.local.until(lambda: a.local.bodies == [b"later"])
        assert a.local.resyncs_count == 0
        assert net.router.queue.losses == 0


@pytest.mark.slow
async def test_connection_that_could_not_wait_for_its_route_is_told_later(own: OwnRedis) -> None:
    # Long enough for a busy machine to register the first one in time.
    async with net_on(own.url, register_ms=1_000) as net:
        a = await net.node("a")
        await a.connect(ANN)
        own.pause()
        late = await a.connect(BEN)
        own.go_on()
        # The route was made known after all, but maybe after a push that went past it.
        await a.local.until(lambda: bool(a.local.resynced_connections))
        assert a.local.resynced_connections == [late.connection_id]
        assert a.local.resynced == []


async def test_entry_that_nobody_here_understands_means_resync(
    net: Net, pair: tuple[Node, Node]
) -> None:
    a, b = pair
    incarnation = await net.incarnation_of(a)
    for kind, body in (("resync", b"a_reason_of_tomorrow"), ("a_kind_of_tomorrow", b"")):
        # As a newer server would, in the middle of an upgrade.
        assert await net.append(a.gateway_id, kind, ANN, "", body, b"") == 1
    await a.local.until(lambda: a.local.lost == 1)
    assert a.local.resynced == [[ANN], None]
    assert a.local.reasons == [ResyncReason.PUSHES_LOST] * 2
    assert await net.incarnation_of(a) != incarnation
    assert b.local.resyncs_count == 0


@pytest.mark.parametrize(
    ("kind", "user", "body"),
    [
        ("push", b"\xff", b"{}"),
        ("revoke", "", b"\xff"),
        ("\xff", "", b""),
        ("news", "", b"\x91\xa1\xff"),
    ],
    ids=["users", "sessions", "kind", "news"],
)
async def test_entry_that_cannot_be_read_means_resync(
    net: Net, pair: tuple[Node, Node], kind: str, user: str | bytes, body: bytes
) -> None:
    a, b = pair
    await net.append(a.gateway_id, kind.encode("latin-1"), user, "", body, b"")
    await a.local.until(lambda: a.local.lost == 1)
    assert a.local.reasons == [ResyncReason.PUSHES_LOST]
    assert b.local.resyncs_count == 0
    await settles(net, a, ANN)


NO_NAMES = [b"gw\xff", b"}", b"gw\x00"]
"""Of gateways. The second would end the tag of a key."""


async def damage_routes(net: Net, name: bytes) -> None:
    key = net.keys.route(ANN)
    for connection, route in (await net.redis.hgetall(key)).items():
        await net.redis.hset(key, connection, name + b" " + route.partition(b" ")[2])


@pytest.mark.parametrize("name", NO_NAMES)
async def test_push_goes_everywhere_if_a_route_cannot_be_read(
    net: Net, pair: tuple[Node, Node], name: bytes
) -> None:
    a, _ = pair
    await damage_routes(net, name)
    give(net.router, [ANN], b"hello")
    await a.local.until(lambda: b"hello" in a.local.bodies)
    assert net.deaths == []


@pytest.mark.parametrize("name", NO_NAMES)
async def test_device_is_registered_beside_a_route_that_cannot_be_read(
    net: Net, pair: tuple[Node, Node], name: bytes
) -> None:
    """Nobody can be told to close the older connection of the device."""
    _, b = pair
    await damage_routes(net, name)
    await b.connect(ANN)
    await settles(net, b, ANN)
    assert net.deaths == []


@pytest.mark.parametrize("name", NO_NAMES)
async def test_list_of_gateways_is_read_around_a_name_that_is_none(
    net: Net, pair: tuple[Node, Node], name: bytes
) -> None:
    for key in net.keys.lists():
        await net.redis.zadd(key, {name: 9e15})
    net.router.resync(None, ResyncReason.PUSHES_LOST)
    a, b = pair
    await a.local.until(lambda: bool(a.local.reasons))
    await b.local.until(lambda: bool(b.local.reasons))
    assert net.deaths == []


async def test_gateway_that_starts_without_redis_is_known_later(own: OwnRedis) -> None:
    async with net_on(own.url, timeout_ms=300) as net:
        own.kill()
        a = await net.node("a")
        await a.connect(ANN)
        assert a.inbox.is_lost
        await own.start()
        await a.local.until(lambda: a.local.lost == 1)
        await settles(net, a, ANN)


@pytest.mark.slow
@pytest.mark.parametrize("has_push", [True, False])
async def test_gateway_that_was_stopped_beyond_its_life_resyncs_when_it_wakes(
    net: Net, url: Secret, *, has_push: bool
) -> None:
    life_ms = 1_000
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.engines.redis.child",
        *(url.reveal(), net.options.key_prefix, str(life_ms), ANN),
        cwd=Path(__file__).resolve().parents[3],
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            assert await child.stdout.readline() == b"ready\n"
            give(net.router, [ANN], b"before")
            assert await child.stdout.readline() == b"push before\n"
            child.send_signal(signal.SIGSTOP)
            for gone in (net.keys.gateway("gw_child"), net.keys.route(ANN)):
                await until(partial(_is_gone, net, gone))
            if has_push:
                give(net.router, [ANN], b"lost")
                await net.router.settled()
            child.send_signal(signal.SIGCONT)
            assert await child.stdout.readline() == b"resync everybody\n"
            await until(lambda: net.router.presence([ANN]))
            give(net.router, [ANN], b"after")
            assert await child.stdout.readline() == b"push after\n"
    finally:
        child.kill()
        await child.wait()
