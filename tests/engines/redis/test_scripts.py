"""Each script by itself: what it writes, what it answers, and what it leaves alone."""

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from importlib.resources import files
from typing import Any

import pytest

from tests.support.redis import Net
from tidewire.domain.ids import ChatId, UserId
from tidewire.engines.redis.link import Call, Link, RedisLost, script

LIFE_MS = 5_000
INCARNATION = "i1"
LOST = ("lost", "", "", "", "")


class Bench:
    """Scripts, and plain commands to see what they did."""

    def __init__(self, net: Net, link: Link) -> None:
        self.net = net
        self.keys = net.keys
        self.link = link
        self._batches = 0

    async def opens(self, gateway: str, incarnation: str = INCARNATION, before: str = "") -> None:
        names = [*self.own(gateway, incarnation), self.keys.stream(gateway, before)]
        await self.link.run("open", names, incarnation, LIFE_MS)

    def own(self, gateway: str, incarnation: str = INCARNATION) -> list[str]:
        return [self.keys.gateway(gateway), self.keys.stream(gateway, incarnation)]

    async def lives(self, gateway: str, drained: bytes = b"") -> Any:
        return await self.link.run("live", self.own(gateway), INCARNATION, LIFE_MS, drained)

    async def tells(self, name: str, gateway: str, user: str, *routes: tuple[str, str]) -> Any:
        """`register` or `assert` routes of a user, as connection and device."""
        words = [word for route in routes for word in route]
        keys = [self.keys.route(UserId(user))] * len(routes)
        return await self.link.run(name, keys, gateway, LIFE_MS, *words)

    async def asks(self, name: str, *users: str) -> list[Any]:
        calls = [Call([self.keys.route(UserId(one))]) for one in users]
        return [one for [one] in await self.link.run_each(name, calls)]

    async def appends(
        self, gateway: str, *entries: tuple[str, ...], batch: int | None = None
    ) -> Any:
        self._batches += 1
        number = self._batches if batch is None else batch
        words = [word for entry in entries for word in entry]
        is_named = 0 if self.keys.is_tagged else 1
        head = number, 100, LIFE_MS, is_named, len(entries)
        return await self.link.run("append", self.keys.appending(gateway, "r1"), *head, *words)

    async def entries(self, gateway: str) -> list[list[str]]:
        found: Any = await self.net.redis.xrange(self.own(gateway)[1])
        return [[value.decode() for value in fields.values()] for _, fields in found]

    async def counter(self, gateway: str) -> bytes | None:
        found: Any = await self.net.redis.hget(self.own(gateway)[0], "counter")
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
        "append",
        "assert",
        "gateways",
        "lease",
        "leave",
        "limits",
        "list",
        "live",
        "lookup",
        "open",
        "presence",
        "register",
        "unregister",
    }


def test_scripts_make_no_keys_of_their_own() -> None:
    """A key that is not given would be on another server of a Redis Cluster. What they call is
    given a key by its place, or by a local name of it."""
    folder = files("tidewire.engines.redis").joinpath("scripts")
    for one in folder.iterdir():
        source = one.read_text(encoding="utf-8")
        found = re.findall(r"redis\.call\('(\w+)',? ?([^,)]*)", source)
        for command, key in found:
            is_given = key.startswith("KEYS[") or key in {"key", "gateway", "stream", "router"}
            assert command == "TIME" or is_given, f"{one.name}: {command} {key}"


async def test_open_makes_a_gateway_known_for_its_life(bench: Bench) -> None:
    await bench.opens("g1")
    assert await bench.counter("g1") == b"0"
    assert 0 < await bench.net.redis.pttl(bench.own("g1")[0]) <= LIFE_MS


async def test_open_again_changes_nothing_of_the_same_incarnation(bench: Bench) -> None:
    await bench.opens("g1")
    await bench.appends("g1", LOST)
    await bench.opens("g1")
    assert await bench.counter("g1") == b"1"
    assert len(await bench.entries("g1")) == 1


async def test_open_drops_the_stream_of_the_incarnation_before(bench: Bench) -> None:
    await bench.opens("g1", "i0")
    await bench.appends("g1", LOST)
    await bench.opens("g1", "i1", before="i0")
    assert await bench.entries("g1") == []
    assert await bench.net.names("stream:*") == []
    assert await bench.counter("g1") == b"0"


async def test_leave_leaves_nothing(bench: Bench) -> None:
    await bench.opens("g1")
    await bench.appends("g1", LOST, batch=0)
    await bench.link.run("leave", bench.own("g1"))
    assert await bench.net.names("*") == []


async def test_list_says_whether_a_gateway_was_on_it(bench: Bench) -> None:
    key = bench.keys.lists()[0]
    assert await bench.link.run("list", [key], "g1", LIFE_MS) == 0
    assert await bench.link.run("list", [key], "g1", LIFE_MS) == 1
    assert await bench.link.run("gateways", [key]) == [b"g1"]
    assert await bench.link.run("list", [key], "g1", 0) == 1
    assert await bench.link.run("gateways", [key]) == []


async def test_gateways_leaves_out_those_that_expired(bench: Bench) -> None:
    key = bench.keys.lists()[0]
    await bench.link.run("list", [key], "g1", LIFE_MS)
    await bench.net.redis.zadd(key, {"gone": 1})
    assert await bench.link.run("gateways", [key]) == [b"g1"]
    assert await bench.net.redis.zrange(key, 0, -1) == [b"g1"]


async def test_register_counts_others_and_names_the_same_device(bench: Bench) -> None:
    answer = await bench.tells("register", "g1", "ann", ("c1", "phone"), ("c2", "tv"))
    assert answer == [[0], [0]]
    assert await bench.tells("register", "g2", "ann", ("c3", "phone")) == [[1, b"g1", b"c1"]]
    key = bench.keys.route(UserId("ann"))
    assert 0 < await bench.net.redis.pttl(key) <= LIFE_MS


async def test_unregister_forgets_one_connection(bench: Bench) -> None:
    await bench.tells("register", "g1", "ann", ("c1", "phone"), ("c2", "tv"))
    await bench.link.run("unregister", [bench.keys.route(UserId("ann"))], "c1")
    await bench.link.run("unregister", [bench.keys.route(UserId("ben"))], "c9")
    assert await bench.asks("presence", "ann", "ben") == [1, 0]


async def test_assert_brings_missing_routes_back_and_names_them(bench: Bench) -> None:
    await bench.tells("register", "g1", "ann", ("c1", "phone"))
    both = ("c1", "phone"), ("c2", "tv")
    assert await bench.tells("assert", "g1", "ann", *both) == [b"c2"]
    assert await bench.tells("assert", "g1", "ann", *both) == []
    assert await bench.asks("presence", "ann") == [2]


async def test_assert_counts_an_expired_route_as_missing(bench: Bench) -> None:
    await bench.net.redis.hset(bench.keys.route(UserId("ann")), "c1", "g1 1 phone")
    assert await bench.asks("presence", "ann") == [0]
    assert await bench.tells("assert", "g1", "ann", ("c1", "phone")) == [b"c1"]


async def test_expired_routes_do_not_pile_up(bench: Bench) -> None:
    await bench.tells("register", "g1", "ann", ("c1", "phone"))
    key = bench.keys.route(UserId("ann"))
    await bench.net.redis.hset(key, "c9", "crashed 1 tv")
    assert await bench.asks("lookup", "ann") == [b"g1"]
    assert await bench.net.redis.hkeys(key) == [b"c1"]


async def test_live_does_nothing_for_a_gateway_that_is_not_known(bench: Bench) -> None:
    assert await bench.lives("g1") == [0, 0]
    await bench.opens("g1", "another")
    assert await bench.lives("g1") == [0, 0]
    await bench.opens("g1")
    assert await bench.lives("g1") == [1, 0]


async def test_live_frees_what_was_drained_and_tells_the_counter(bench: Bench) -> None:
    await bench.opens("g1")
    for _ in range(3):
        await bench.appends("g1", LOST)
    stream = bench.own("g1")[1]
    entries: Any = await bench.net.redis.xrange(stream)
    assert await bench.lives("g1", drained=entries[1][0]) == [1, 3]
    assert await bench.net.redis.xlen(stream) == 2


async def test_lookup_names_each_gateway_once(bench: Bench) -> None:
    await bench.tells("register", "g1", "ann", ("c1", "phone"), ("c2", "tv"))
    await bench.tells("register", "g2", "ben", ("c3", "phone"))
    await bench.tells("register", "g1", "ben", ("c4", "tv"))
    await bench.tells("register", "g2", "ben", ("c5", "watch"))
    first, second, third = await bench.asks("lookup", "ann", "ben", "nobody")
    assert (first, third) == (b"g1", b"")
    assert sorted(second.split()) == [b"g1", b"g2"]


async def test_append_numbers_entries_by_the_counter(bench: Bench) -> None:
    await bench.opens("g1")
    first = ("push", "ann ben", "c1", "body", "news")
    assert await bench.appends("g1", first, ("push", "ben", "", "two", "")) == [2]
    assert await bench.appends("g1", LOST) == [1]
    assert await bench.entries("g1") == [
        ["1", "push", "ann ben", "c1", "body", "news"],
        ["2", "push", "ben", "", "two", ""],
        ["3", "lost", "", "", "", ""],
    ]
    assert await bench.counter("g1") == b"3"


async def test_append_gives_what_follows_a_lost_stream_an_id_above_all_before(bench: Bench) -> None:
    """Whatever the clock says: all of it may happen within a millisecond."""
    await bench.opens("g1")
    stream = bench.own("g1")[1]
    for number in range(1, 51):
        assert await bench.appends("g1", LOST) == [1]
        assert [one for one, _ in await bench.net.redis.xrange(stream)] == [b"%d-0" % number]
        await bench.net.forget(stream)


async def test_append_goes_on_behind_an_id_made_of_the_time(bench: Bench) -> None:
    """As servers of version 0.1.0 make them; some of them may be left during an upgrade."""
    await bench.opens("g1")
    await bench.net.redis.xadd(bench.own("g1")[1], {"n": "1", "k": "lost"})
    await bench.net.redis.hset(bench.own("g1")[0], "counter", 1)
    assert await bench.appends("g1", LOST, LOST) == [2]
    assert [entry[0] for entry in await bench.entries("g1")] == ["1", "2", "3"]


async def test_append_makes_nothing_for_a_gateway_whose_keys_are_gone(bench: Bench) -> None:
    await bench.opens("g1")
    await bench.net.forget(bench.own("g1")[0])
    assert await bench.appends("g1", LOST) == [-1]
    assert await bench.net.names("*") == []


async def test_append_caps_the_stream(bench: Bench) -> None:
    await bench.opens("g1")
    assert await bench.appends("g1", *[LOST] * 150) == [150]
    entries = await bench.entries("g1")
    assert [entry[0] for entry in entries] == [str(number) for number in range(51, 151)]


async def test_batch_that_was_appended_is_not_appended_again(bench: Bench) -> None:
    await bench.opens("g1")
    assert await bench.appends("g1", LOST, batch=7) == [1]
    assert await bench.appends("g1", LOST, batch=7) == [0]
    assert await bench.appends("g1", LOST, batch=8) == [1]
    # One without a number is not of a batch.
    assert await bench.appends("g1", LOST, batch=0) == [1]


async def test_presence_counts_live_routes(bench: Bench) -> None:
    await bench.tells("register", "g1", "ann", ("c1", "phone"), ("c2", "tv"))
    await bench.net.redis.hset(bench.keys.route(UserId("ann")), "c3", "g9 1 old")
    assert await bench.asks("presence", "ann", "ben") == [2, 0]


async def test_limits_add_up_and_are_given_back(bench: Bench) -> None:
    second_us, key = 1_000_000, bench.keys.limit("k")
    [left] = await bench.link.run("limits", [key], second_us, 3)
    assert left == 3 * second_us
    [left] = await bench.link.run("limits", [key], second_us, 2)
    assert 4 * second_us < left <= 5 * second_us
    [asked] = await bench.link.run("limits", [key], second_us, 0)
    assert 4 * second_us < asked <= left
    assert await bench.link.run("limits", [key], second_us, -9) == [0]
    assert await bench.net.names("limit:*") == []


async def test_script_is_known_again_after_it_was_forgotten(bench: Bench) -> None:
    users = [f"user_{number}" for number in range(20)]
    assert await bench.asks("presence", *users) == [0] * 20
    await bench.net.redis.script_flush()
    assert await bench.asks("presence", *users) == [0] * 20


async def test_script_that_fails_is_told_with_its_name(bench: Bench) -> None:
    with pytest.raises(RedisLost, match="limits"):
        await bench.link.run("limits", [bench.keys.limit("k")], "not a number", 1)
    assert script("limits").sha != script("append").sha


async def test_news_go_to_gateways_that_know_them(bench: Bench) -> None:
    await bench.opens("g1")
    assert await bench.appends("g1", ("news", "", "", "body", "")) == [1]
    # An older one, which would take them for a loss.
    await bench.net.redis.hdel(bench.own("g1")[0], "news")
    assert await bench.appends("g1", ("news", "", "", "body", ""), LOST) == [1]
    assert [entry[:2] for entry in await bench.entries("g1")] == [["1", "news"], ["2", "lost"]]
    assert await bench.counter("g1") == b"2"


# Leases.


async def leased(bench: Bench, gateway: str, chat: str, avoided: str = "") -> bytes:
    key = bench.keys.lease(ChatId(chat))
    found: bytes = await bench.link.run("lease", [key], gateway, LIFE_MS, avoided)
    return found


async def test_lease_goes_to_the_first_who_asks_and_stays_while_asked_for(bench: Bench) -> None:
    assert await leased(bench, "g1", "c1") == b"g1"
    assert await leased(bench, "g2", "c2") == b"g2"
    key = bench.keys.lease(ChatId("c1"))
    await bench.net.redis.pexpire(key, LIFE_MS // 2)
    # Who else asks does not make it last longer; who has it does.
    assert await leased(bench, "g2", "c1") == b"g1"
    assert await bench.net.redis.pttl(key) <= LIFE_MS // 2
    assert await leased(bench, "g1", "c1") == b"g1"
    assert LIFE_MS // 2 < await bench.net.redis.pttl(key) <= LIFE_MS


async def test_lease_is_taken_from_who_was_named(bench: Bench) -> None:
    await leased(bench, "g1", "c1")
    assert await leased(bench, "g2", "c1", avoided="g3") == b"g1"
    assert await leased(bench, "g2", "c1", avoided="g1") == b"g2"
    # The one that it was taken from hears of it.
    assert await leased(bench, "g1", "c1") == b"g2"
