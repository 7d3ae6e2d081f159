"""Redis' entry in the registry of engines: the routes and shared limits of a cluster."""

import asyncio
from typing import Any, Final

from tidewire.engines.redis.options import RedisOptions
from tidewire.ports.engine import Engine, Part, SharedInbox, SharedRouter
from tidewire.ports.forwarding import Between

_ROUTER_METRICS: Final = """
counter redis_pushes counters.pushes : Pushes handed to Redis.
counter redis_entries counters.entries : Entries in the streams of gateways.
counter redis_push_failures counters.failures : Calls that Redis did not answer.
counter redis_users_everywhere counters.everywhere
  : Users looked for at every gateway, because a server of the Redis Cluster did not answer.
gauge redis_push_queue_bytes queue.bytes_count : Pushes that wait.
counter redis_pushes_dropped queue.losses
  : How often all pushes that waited were dropped, and all clients told.
"""

_INBOX_METRICS: Final = """
gauge redis_routes routes_count : Routes of this gateway.
gauge redis_lost is_lost : 1 while Redis does not answer.
counter redis_entries_taken counters.entries : Entries read.
counter redis_losses counters.losses : How often all clients here had to sync again.
counter redis_routes_missing counters.routes_missing
  : Connections that had to sync again because their route was gone.
"""


def _router(options: RedisOptions, **arguments: Any) -> SharedRouter:
    from tidewire.engines.redis.router import RedisRouter

    return RedisRouter(options, **arguments)


def _inbox(options: RedisOptions, **arguments: Any) -> SharedInbox:
    from tidewire.engines.redis.inbox import Inbox

    return Inbox(options, **arguments)


def _between(options: RedisOptions, **arguments: Any) -> Between:
    from tidewire.engines.redis.between import RedisBetween

    return RedisBetween(options, **arguments)


def _limits(options: RedisOptions, **arguments: Any) -> Part:
    from tidewire.engines.redis.limits import LimitExchange

    return LimitExchange(options, **arguments)


def _check(options: RedisOptions) -> list[str]:
    from tidewire.engines.redis.checking import check_redis

    if options.url is None:
        return ["redis.url is not set, so Redis cannot be checked"]
    return asyncio.run(check_redis(options))


ENGINE: Final = Engine(
    name="redis",
    options=RedisOptions,
    settings="url key_prefix assert_ms life_ms",
    is_shared=True,
    vendor="redis",
    needs=lambda options: ("redis.url",) if options.url is None else (),
    metrics={"router": _ROUTER_METRICS, "inbox": _INBOX_METRICS},
    router=_router,
    inbox=_inbox,
    between=_between,
    limits=_limits,
    check=_check,
)
