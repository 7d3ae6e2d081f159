"""Is this Redis fit to carry the routes of a cluster? In sentences, for an operator."""

from typing import Any, Final

from tidewire.engines.redis.link import ALONE, Link, RedisLost
from tidewire.engines.redis.options import RedisOptions

VERSION_MIN: Final = (6, 2)
"""The first version with XTRIM by id."""
ALL_KEYS: Final = "allkeys-"


async def check_redis(options: RedisOptions) -> list[str]:
    """The problems, one sentence each; empty if there are none. Changes nothing."""
    if options.url is None:
        return ["redis.url is not set"]
    try:
        link = Link(options)
    except ValueError:
        # The reason is not shown: the URL may contain a password.
        return ["redis.url is no address of a Redis: redis://host:port/0 is one"]
    try:
        described = await link.describe()
    except RedisLost as error:
        return [f"Redis does not answer: {error}"]
    finally:
        await link.close()
    found = []
    for name, told in described.items():
        if isinstance(told, RedisLost):
            found.append(f"{name} does not answer, and has keys of the Redis Cluster: {told}")
        elif name == ALONE:
            found += problems(told)
        else:
            found += [f"{name}: {sentence}" for sentence in problems(told)]
    return found


def problems(told: dict[str, Any]) -> list[str]:
    """The problems of a Redis that says this about itself (INFO)."""
    found = []
    version = str(told.get("redis_version", "0"))
    if tuple(int(part) for part in version.split(".")[:2]) < VERSION_MIN:
        found.append(f"Redis {version} is too old: 6.2 or newer is needed")
    if told.get("role") == "slave":
        found.append("this is a replica: redis.url has to name the primary")
    policy = str(told.get("maxmemory_policy", "noeviction"))
    if told.get("maxmemory") and policy.startswith(ALL_KEYS):
        found.append(
            f"maxmemory-policy is {policy}: keys in use are dropped when memory is short, and each "
            "makes clients sync again; volatile-ttl or noeviction, and more memory, are better"
        )
    if not told.get("maxmemory"):
        found.append("maxmemory is not set: Redis may take all the memory of its machine")
    return found
