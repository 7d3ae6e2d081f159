"""Each script by itself: what it writes, what it answers, and what it leaves alone."""

from collections.abc import AsyncIterator
from dataclasses import replace
from importlib.resources import files
from typing import Any

import pytest

from tests.support.redis import Net
from tidewire.engines.redis.link import Link, RedisLost, script

LIFE_MS = 5_000
INCARNATION = "i1"


class Bench:
    """Scripts, and plain commands to see what they did."""

    def __init__(self, net: Net, link: Link) -> None:
        self.net = net
        self.link = link
        self._batches = 0

    async def opens(self, gateway: str, incarnation: str = INCARNATION, before: str = "") -> None:
        await self.link.run("open", gateway, incarnation, before, LIFE_MS)

    async def registers(self, gateway: str, *routes: tuple[str, str, str]) -> list[Any]:
        words = [word for route in routes for word in route]
        return await self.link.run("register", gateway, INCARNATION, LIFE_MS, 100, *words)

    async def asserts(self, gateway: str, *routes: tuple[str, str, str]) -> list[Any]:
        words = [word for route in routes for word in route]
        return await self.link.run("assert", gateway, INCARNATION, LIFE_MS, "", *words)

    async def pushes(self, *words: str | int, batch: int | None = None) -> list[Any]:
        self._batches += 1
        number = self._batches if batch is None else batch
        return await self.link.run("push", "r1", number, 100, LIFE_MS, *words)

    async def entries(self, gateway: str, incarnation: str = INCARNATION) -> list[list[str]]:
        found: Any = await self.net.redis.xrange(self.net.key(f"stream:{gateway}:{incarnation}"))
        return [[value.decode() for value in fields.values()][:5] for _, fields in found]

    async def counter(self, gateway: str) -> bytes | None:
        found: Any = await self.net.redis.hget(self.net.key(f"gateway:{gateway}"), "counter")
        return found  # type: ignore[no-any-return]


@pytest.fixture
async def bench(net: Net) -> AsyncIterator[Bench]:
    link = Link(replace(net.options, timeout_ms=5_000))
    yield Bench(net, link)
    await link.close()


def test_every_script_is_tested_here() -> None:
    folder = files("tidewire.engines.redis").joinpath("scripts")
    names = {one.name.removesuffix(".lua") for one in folder.iterdir()} - {"common"}
    assert names == {
        "assert",
        "hand",
        "lease",
        "leave",
        "limits",
        "open",
        "presence",
        "push",
        "register",
        "unregister",
    }


async def test_open_makes_a_gateway_known_for_its_life(bench: Bench) -> None:
    await bench.opens("g1")
    assert await bench.counter("g1") == b"0"
    for name in ("gateway:g1",):
        assert 0 < await bench.net.redis.pttl(bench.net.key(name)) <= LIFE_MS
    assert await bench.net.redis.zcard(bench.net.key("gateways")) == 1


async def test_open_again_changes_nothing_of_the_same_incarnation(bench: Bench) -> None:
    await bench.opens("g1")
    await bench.pushes("lost", "", "", "", -1)
    await bench.opens("g1")
    assert await bench.counter("g1") == b"1"
    assert len(await bench.entries("g1")) == 1


async def test_open_drops_the_stream_of_the_incarnation_before(bench: Bench) -> None:
    await bench.opens("g1", "i0")
    await bench.pushes("lost", "", "", "", -1)
    await bench.opens("g1", "i1", before="i0")
    assert await bench.entries("g1", "i0") == []
    assert await bench.counter("g1") == b"0"


async def test_leave_leaves_nothing(bench: Bench) -> None:
    await bench.opens("g1")
    await bench.pushes("lost", "", "", "", -1)
    await bench.link.run("leave", "g1", INCARNATION)
    left = await bench.net.redis.keys(bench.net.key("*"))
    assert left == [bench.net.key("router:r1").encode()]


async def test_register_counts_others_and_closes_the_same_device(bench: Bench) -> None:
    await bench.opens("g1")
    await bench.opens("g2")
    assert await bench.registers("g1", ("ann", "c1", "phone"), ("ann", "c2", "tv")) == [1, 0, 0]
    assert await bench.registers("g2", ("ann", "c3", "phone")) == [1, 1]
    assert await bench.entries("g1") == [["1", "duplicate", "", "", "c1"]]
    assert 0 < await bench.net.redis.pttl(bench.net.key("route:ann")) <= LIFE_MS


async def test_register_tells_a_gateway_that_it_is_not_known(bench: Bench) -> None:
    assert await bench.registers("g1", ("ann", "c1", "phone")) == [0, 0]


async def test_unregister_forgets_one_connection(bench: Bench) -> None:
    await bench.opens("g1")
    await bench.registers("g1", ("ann", "c1", "phone"), ("ann", "c2", "tv"))
    await bench.link.run("unregister", "ann", "c1", "ben", "c9")
    assert await bench.link.run("presence", "ann", "ben") == [1, 0]


async def test_assert_brings_missing_routes_back_and_names_them(bench: Bench) -> None:
    await bench.opens("g1")
    await bench.registers("g1", ("ann", "c1", "phone"))
    both = ("ann", "c1", "phone"), ("ben", "c2", "phone")
    assert await bench.asserts("g1", *both) == [1, 0, b"c2"]
    assert await bench.asserts("g1", *both) == [1, 0]
    assert await bench.link.run("presence", "ann", "ben") == [1, 1]


async def test_assert_counts_an_expired_route_as_missing(bench: Bench) -> None:
    await bench.opens("g1")
    await bench.registers("g1", ("ann", "c1", "phone"))
    await bench.net.redis.hset(bench.net.key("route:ann"), "c1", "g1 1 phone")
    assert await bench.link.run("presence", "ann") == [0]
    assert await bench.asserts("g1", ("ann", "c1", "phone")) == [1, 0, b"c1"]


async def test_expired_routes_do_not_pile_up(bench: Bench) -> None:
    await bench.opens("g1")
    await bench.registers("g1", ("ann", "c1", "phone"))
    await bench.net.redis.hset(bench.net.key("route:ann"), "c9", "crashed 1 tv")
    await bench.pushes("push", "", "body", "", 1, "ann")
    assert await bench.net.redis.hkeys(bench.net.key("route:ann")) == [b"c1"]


async def test_assert_does_nothing_for_a_gateway_that_is_not_known(bench: Bench) -> None:
    await bench.opens("g1", "another")
    assert await bench.asserts("g1", ("ann", "c1", "phone")) == [0, 0]
    assert await bench.link.run("presence", "ann") == [0]
    await bench.opens("g1")
    await bench.net.redis.delete(bench.net.key("gateways"))
    assert await bench.asserts("g1") == [0, 0]


async def test_assert_frees_what_was_drained_and_tells_the_counter(bench: Bench) -> None:
    await bench.opens("g1")
    for _ in range(3):
        await bench.pushes("lost", "", "", "", -1)
    stream = bench.net.key(f"stream:g1:{INCARNATION}")
    entries: Any = await bench.net.redis.xrange(stream)
    drained = entries[1][0]
    answer = await bench.link.run("assert", "g1", INCARNATION, LIFE_MS, drained)
    assert answer == [1, 3]
    assert await bench.net.redis.xlen(stream) == 2


async def test_push_appends_one_numbered_entry_a_gateway(bench: Bench) -> None:
    for gateway in ("g1", "g2", "g3"):
        await bench.opens(gateway)
    await bench.registers("g1", ("ann", "c1", "phone"), ("ann", "c2", "tv"), ("ben", "c3", "tv"))
    await bench.registers("g2", ("ben", "c4", "phone"))
    words = (
        *("push", "c1", "body", "", 3, "ann", "ben", "nobody"),
        *("push", "", "two", "", 1, "ben"),
    )
    assert await bench.pushes(*words) == [4, 0]
    assert await bench.entries("g1") == [
        ["1", "push", "ann ben", "c1", "body"],
        ["2", "push", "ben", "", "two"],
    ]
    assert await bench.entries("g2") == [
        ["1", "push", "ben", "c1", "body"],
        ["2", "push", "ben", "", "two"],
    ]
    assert await bench.entries("g3") == []
    assert await bench.counter("g1") == b"2"


async def test_push_fails_for_a_gateway_whose_keys_are_gone(bench: Bench) -> None:
    await bench.opens("g1")
    await bench.opens("g2")
    await bench.registers("g1", ("ann", "c1", "phone"))
    await bench.registers("g2", ("ann", "c2", "tv"))
    await bench.net.redis.delete(bench.net.key("gateway:g1"))
    assert await bench.pushes("push", "", "body", "", 1, "ann") == [1, 1]
    assert await bench.entries("g1") == []
    assert await bench.net.redis.exists(bench.net.key("gateway:g1")) == 0


async def test_push_caps_the_stream(bench: Bench) -> None:
    await bench.opens("g1")
    words: list[str | int] = ["lost", "", "", "", -1] * 150
    assert await bench.pushes(*words) == [150, 0]
    entries = await bench.entries("g1")
    assert [entry[0] for entry in entries] == [str(number) for number in range(51, 151)]


async def test_push_to_every_gateway_leaves_out_those_that_expired(bench: Bench) -> None:
    await bench.opens("g1")
    await bench.net.redis.zadd(bench.net.key("gateways"), {"gone": 1})
    assert await bench.pushes("revoke", "", "s1 s2", "", -1) == [1, 0]
    assert await bench.net.redis.zrange(bench.net.key("gateways"), 0, -1) == [b"g1"]


async def test_batch_that_was_pushed_is_not_pushed_again(bench: Bench) -> None:
    await bench.opens("g1")
    assert await bench.pushes("lost", "", "", "", -1, batch=7) == [1, 0]
    assert await bench.pushes("lost", "", "", "", -1, batch=7) == [0, 0]
    assert await bench.pushes("lost", "", "", "", -1, batch=8) == [1, 0]


async def test_presence_counts_live_routes(bench: Bench) -> None:
    await bench.opens("g1")
    await bench.registers("g1", ("ann", "c1", "phone"), ("ann", "c2", "tv"))
    await bench.net.redis.hset(bench.net.key("route:ann"), "c3", "g9 1 old")
    assert await bench.link.run("presence", "ann", "ben") == [2, 0]


async def test_limits_add_up_and_are_given_back(bench: Bench) -> None:
    second_us = 1_000_000
    [left] = await bench.link.run("limits", "k", second_us, 3)
    assert left == 3 * second_us
    [left] = await bench.link.run("limits", "k", second_us, 2)
    assert 4 * second_us < left <= 5 * second_us
    [asked] = await bench.link.run("limits", "k", second_us, 0)
    assert 4 * second_us < asked <= left
    assert await bench.link.run("limits", "k", second_us, -9, "new", second_us, 0) == [0, 0]
    assert await bench.net.redis.keys(bench.net.key("limit:*")) == []


async def test_script_is_known_again_after_it_was_forgotten(bench: Bench) -> None:
    await bench.link.run("presence", "ann")
    await bench.net.redis.script_flush()
    assert await bench.link.run("presence", "ann") == [0]


async def test_script_that_fails_is_told_with_its_name(bench: Bench) -> None:
    with pytest.raises(RedisLost, match="limits"):
        await bench.link.run("limits", "k", "not a number", 1)
    assert script("limits").sha != script("push").sha


async def test_news_go_to_other_gateways_that_know_them(bench: Bench) -> None:
    for gateway in ("r1", "g1", "g2"):
        await bench.opens(gateway)
        await bench.registers(gateway, ("ann", f"c_{gateway}", f"d_{gateway}"))
    # An older one, which would take them for a loss.
    await bench.net.redis.hdel(bench.net.key("gateway:g2"), "news")
    assert await bench.pushes("news", "", "body", "", 1, "ann") == [1, 0]
    assert await bench.entries("g1") == [["1", "news", "", "", "body"]]
    assert await bench.entries("r1") == await bench.entries("g2") == []


# Leases, and what gateways tell each other.


async def test_lease_goes_to_the_first_who_asks_and_stays_while_asked_for(bench: Bench) -> None:
    await bench.opens("g1")
    await bench.opens("g2")
    assert await bench.link.run("lease", "g1", LIFE_MS, "c1", "", "c2", "") == [b"g1", b"g1"]
    key = bench.net.key("lease:c1")
    await bench.net.redis.pexpire(key, 10)
    # Who else asks does not make it last longer; who has it does.
    assert await bench.link.run("lease", "g2", LIFE_MS, "c1", "", "c3", "") == [b"g1", b"g2"]
    assert await bench.net.redis.pttl(key) <= 10
    await bench.link.run("lease", "g2", LIFE_MS, "c2", "")
    assert await bench.link.run("lease", "g1", LIFE_MS, "c2", "") == [b"g1"]
    assert 10 < await bench.net.redis.pttl(bench.net.key("lease:c2")) <= LIFE_MS


async def test_lease_is_taken_from_who_is_gone_or_was_named(bench: Bench) -> None:
    for name in ("g1", "g2", "g3"):
        await bench.opens(name)
    await bench.link.run("lease", "g1", LIFE_MS, "c1", "")
    assert await bench.link.run("lease", "g2", LIFE_MS, "c1", "g3") == [b"g1"]
    assert await bench.link.run("lease", "g2", LIFE_MS, "c1", "g1") == [b"g2"]
    # The one that it was taken from hears of it.
    assert await bench.link.run("lease", "g1", LIFE_MS, "c1", "") == [b"g2"]
    await bench.link.run("leave", "g2", INCARNATION)
    assert await bench.link.run("lease", "g3", LIFE_MS, "c1", "") == [b"g3"]


async def test_hand_tells_one_gateway_that_is_there(bench: Bench) -> None:
    await bench.opens("g1")
    await bench.opens("g2")
    assert await bench.link.run("hand", "g1", 100, LIFE_MS, "forward", "body") == [1]
    assert await bench.entries("g1") == [["1", "forward", "", "", "body"]]
    assert await bench.entries("g2") == []
    assert await bench.link.run("hand", "g9", 100, LIFE_MS, "forward", "body") == [0]
    assert not await bench.net.redis.exists(bench.net.key("gateway:g9"))


async def test_hand_leaves_so_many_entries_in_a_stream(bench: Bench) -> None:
    await bench.opens("g1")
    for number in range(5):
        await bench.link.run("hand", "g1", 3, LIFE_MS, "forward", str(number))
    assert [entry[4] for entry in await bench.entries("g1")] == ["2", "3", "4"]
