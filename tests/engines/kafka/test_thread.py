"""The thread that serves a loop: one thing after the other, and never in the way of the end."""

import asyncio
import threading
from functools import partial

import pytest

from tidewire.engines.kafka.consumer import LoopThread


async def test_work_is_done_in_order_and_answered() -> None:
    thread = LoopThread("test")
    done: list[int] = []

    def work(number: int) -> int:
        done.append(number)
        return number

    assert await asyncio.gather(*(thread.do(partial(work, n)) for n in range(5))) == done
    assert done == [0, 1, 2, 3, 4]
    thread.end()


async def test_error_reaches_whoever_has_asked_and_the_thread_goes_on() -> None:
    thread = LoopThread("test")

    def fail() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        await thread.do(fail)
    assert await thread.do(lambda: 3) == 3
    thread.end()


async def test_whoever_waits_may_give_up() -> None:
    thread = LoopThread("test")
    gate = threading.Event()
    waiting = asyncio.ensure_future(thread.do(gate.wait))
    await asyncio.sleep(0)
    waiting.cancel()
    gate.set()
    assert await thread.do(lambda: 3) == 3
    thread.end()
