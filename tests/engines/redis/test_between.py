"""The way between gateways on a real Redis, and without one."""

import pytest

from tests.support.redis import Net, OwnRedis, net_on
from tidewire.domain.errors import Unavailable
from tidewire.domain.ids import ChatId
from tidewire.engines.redis.between import RedisBetween

CHAT = ChatId("chat_1")


async def test_what_is_handed_over_arrives_in_order_and_once(net: Net) -> None:
    ann, ben = await net.node("ann"), await net.node("ben")
    between = RedisBetween(net.options, gateway_id=ann.gateway_id)
    try:
        bodies = [bytes([number, 0, 255]) for number in range(20)]
        for body in bodies:
            assert await between.hand(ben.gateway_id, body)
        await ben.local.until(lambda: len(ben.local.forwards) == len(bodies))
        assert ben.local.forwards == bodies
        assert ann.local.forwards == []
        assert not await between.hand("gw_nobody", b"x")
    finally:
        await between.close()
    # Nothing was lost for anybody else.
    assert ben.inbox.counters.losses == 0


async def test_lease_is_one_gateways(net: Net) -> None:
    ann, ben = await net.node("ann"), await net.node("ben")
    ways = [RedisBetween(net.options, gateway_id=one.gateway_id) for one in (ann, ben)]
    try:
        other = ChatId("chat_2")
        assert await ways[0].leases([(CHAT, "")], 5_000) == [ann.gateway_id]
        found = await ways[1].leases([(CHAT, ""), (other, "")], 5_000)
        assert found == [ann.gateway_id, ben.gateway_id]
        assert await ways[1].leases([(CHAT, ann.gateway_id)], 5_000) == [ben.gateway_id]
    finally:
        for way in ways:
            await way.close()


async def test_lease_whose_holder_cannot_be_read_is_nobodys_that_is_known(net: Net) -> None:
    """Each appends by itself until it lapses."""
    between = RedisBetween(net.options, gateway_id="gw_ann")
    try:
        await net.redis.set(net.keys.lease(CHAT), b"gw\xff", px=60_000)
        assert await between.leases([(CHAT, ""), (ChatId("chat_2"), "")], 5_000) == ["", "gw_ann"]
    finally:
        await between.close()


async def test_redis_that_is_gone_is_told_as_unavailable(own: OwnRedis) -> None:
    async with net_on(own.url) as net:
        between = RedisBetween(net.options, gateway_id="gw_ann")
        own.kill()
        try:
            with pytest.raises(Unavailable):
                await between.leases([(CHAT, "")], 1_000)
            with pytest.raises(Unavailable):
                await between.hand("gw_ben", b"x")
        finally:
            await between.close()
