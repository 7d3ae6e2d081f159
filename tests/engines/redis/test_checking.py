"""What an operator is told about his Redis."""

from typing import Any

import pytest

from tests.support.redis import OwnRedis
from tidewire.domain.accounts import Secret
from tidewire.engines.redis.checking import check_redis, problems
from tidewire.engines.redis.options import RedisOptions

GOOD: dict[str, Any] = {
    "redis_version": "7.0.15",
    "redis_mode": "standalone",
    "role": "master",
    "maxmemory": 2**31,
    "maxmemory_policy": "volatile-ttl",
}


def test_good_redis_has_no_problems() -> None:
    assert problems(GOOD) == []


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"redis_version": "6.0.16"}, "too old"),
        ({"role": "slave"}, "replica"),
        ({"maxmemory_policy": "allkeys-lru"}, "allkeys-lru"),
        ({"maxmemory": 0}, "maxmemory is not set"),
    ],
)
def test_each_problem_is_a_sentence(changed: dict[str, Any], word: str) -> None:
    [sentence] = problems(GOOD | changed)
    assert word in sentence


async def test_real_redis_is_asked(own: OwnRedis) -> None:
    options = RedisOptions(url=own.url)
    assert await check_redis(options) == [
        "maxmemory is not set: Redis may take all the memory of its machine"
    ]
    own.kill()
    [sentence] = await check_redis(options)
    assert sentence.startswith("Redis does not answer")


async def test_address_that_is_none_is_told_without_repeating_it() -> None:
    [sentence] = await check_redis(RedisOptions(url=Secret("http://:hidden@host")))
    assert "redis.url" in sentence
    assert "hidden" not in sentence
    assert await check_redis(RedisOptions()) == ["redis.url is not set"]
