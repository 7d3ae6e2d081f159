"""Limits over two gateways on a real Redis."""

import asyncio

from tests.support.redis import Net, OwnRedis
from tidewire.domain.accounts import Secret
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.rates import Rate
from tidewire.engines.redis.limits import LimitExchange
from tidewire.engines.redis.link import RedisLost
from tidewire.engines.redis.options import RedisOptions
from tidewire.gateway.limits import SendLimiter
from tidewire.runtime.clock import SystemClock
from tidewire.runtime.supervise import TaskSupervisor

ANN, CHAT = UserId("ann"), ChatId("chat_1")


class Gate:
    """The send limits of one process."""

    def __init__(self, options: RedisOptions, tasks: TaskSupervisor) -> None:
        # One a minute after the burst: what is allowed here does not depend on how long it takes.
        rate = Rate(1, per_ms=60_000, burst=10)
        self.limiter = SendLimiter(per_chat=rate, per_user=rate, reactions=rate, keys_max=100)
        self.clock = SystemClock()
        self.exchange = LimitExchange(
            options, views=self.limiter.share(), clock=self.clock, tasks=tasks
        )

    def sends(self, count: int) -> int:
        """How many of so many are allowed."""
        now_ms = self.clock.monotonic_ms()
        return sum(self.limiter.take(ANN, CHAT, now_ms) == 0 for _ in range(count))


async def test_two_gateways_hold_one_limit_together(net: Net) -> None:
    one, other = Gate(net.options, net.tasks), Gate(net.options, net.tasks)
    assert one.sends(6) == 6
    await one.exchange.exchange()
    # Not heard of yet: the first send is allowed, and with its exchange the rest is known.
    assert other.sends(1) == 1
    await other.exchange.exchange()
    assert other.sends(10) == 3
    await other.exchange.exchange()
    # This one would allow four more by itself.
    assert one.sends(1) == 1
    await one.exchange.exchange()
    assert one.sends(10) == 0
    for gate in (one, other):
        await gate.exchange.stop()


async def test_keys_name_nobody_and_expire(net: Net) -> None:
    gate = Gate(net.options, net.tasks)
    gate.sends(2)
    await gate.exchange.exchange()
    keys = await net.names("limit:*")
    assert len(keys) == 2
    assert not any(b"ann" in key or b"chat_1" in key for key in keys)
    for key in keys:
        assert 0 < await net.redis.pttl(key) <= 120_000
    await gate.exchange.stop()


async def test_exchange_goes_on_by_itself(net: Net) -> None:
    one, other = Gate(net.options, net.tasks), Gate(net.options, net.tasks)
    one.exchange.start()
    other.exchange.start()
    one.sends(10)
    allowed = 0
    async with asyncio.timeout(20):
        while not other.limiter.take(ANN, CHAT, other.clock.monotonic_ms()):
            allowed += 1
            await asyncio.sleep(0.1)
    assert allowed < 10
    await one.exchange.stop()
    await other.exchange.stop()


async def test_own_limits_hold_without_redis(own: OwnRedis) -> None:
    options = RedisOptions(url=own.url, timeout_ms=200, limits_ms=10)
    own.kill()
    tasks = TaskSupervisor()
    gate = Gate(options, tasks)
    gate.exchange.start()
    assert gate.sends(20) == 10
    async with asyncio.timeout(20):
        while gate.exchange.failures < 2:
            assert gate.sends(1) == 0
            await asyncio.sleep(0.01)
    await own.start()
    fresh = Gate(options, tasks)
    await fresh.exchange.exchange()
    await fresh.exchange.stop()
    await gate.exchange.stop()
    await tasks.close()


async def test_exchange_without_redis_says_so() -> None:
    tasks = TaskSupervisor()
    gate = Gate(RedisOptions(url=Secret("redis://127.0.0.1:1/0"), timeout_ms=200), tasks)
    gate.sends(1)
    try:
        await gate.exchange.exchange()
    except RedisLost:
        pass
    else:
        raise AssertionError("there is no Redis at port 1")
    await gate.exchange.stop()
