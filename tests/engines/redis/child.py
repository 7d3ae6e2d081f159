"""A gateway in a process of its own, for tests that stop it. Prints what its connections are told.

python -m tests.engines.redis.child URL PREFIX LIFE_MS USER...
"""

import asyncio
import sys
from functools import partial

from tests.support.redis import Local, Node
from tidewire.domain.accounts import Secret
from tidewire.engines.redis.options import RedisOptions
from tidewire.runtime.supervise import TaskSupervisor


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def run(url: str, prefix: str, life_ms: int, users: list[str]) -> None:
    options = RedisOptions(
        url=Secret(url), key_prefix=prefix, assert_ms=200, life_ms=life_ms, drain_ms=100
    )
    tasks = TaskSupervisor()
    node = Node("child", options, tasks)
    await node.inbox.start()
    for user in users:
        await node.connect(user)
    say("ready")
    local: Local = node.local
    pushed = resynced = 0

    def has_news(pushed: int, resynced: int) -> bool:
        return len(local.pushed) > pushed or local.resyncs_count > resynced

    while True:
        await local.until(partial(has_news, pushed, resynced), patience_s=3_600)
        for _, body, _ in local.pushed[pushed:]:
            say(f"push {body.decode()}")
        pushed = len(local.pushed)
        if local.resyncs_count > resynced:
            say("resync everybody" if None in local.resynced else "resync some")
        resynced = local.resyncs_count


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]))
