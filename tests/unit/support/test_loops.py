"""The loop of the tests sees what asyncio's debug mode would see."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.loops import CheckingLoop

ASKED: list[Callable[[asyncio.AbstractEventLoop, Any], object]] = [
    lambda loop, callback: loop.call_soon(callback),
    lambda loop, callback: loop.call_later(1, callback),
    lambda loop, callback: loop.call_at(loop.time() + 1, callback),
]


async def nothing() -> None: ...


@pytest.mark.parametrize("ask", ASKED, ids=["soon", "later", "at"])
async def test_loop_refuses_a_callback_from_another_thread(
    ask: Callable[[asyncio.AbstractEventLoop, Any], object],
) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, CheckingLoop)
    refused: list[str] = []

    def ask_from_elsewhere() -> None:
        try:
            ask(loop, lambda: None)
        except RuntimeError as error:
            refused.append(str(error))

    thread = threading.Thread(target=ask_from_elsewhere)
    thread.start()
    thread.join()
    assert len(refused) == 1
    assert refused[0].startswith("Non-thread-safe operation")


@pytest.mark.parametrize("ask", ASKED, ids=["soon", "later", "at"])
async def test_loop_refuses_a_coroutine_function_as_a_callback(
    ask: Callable[[asyncio.AbstractEventLoop, Any], object],
) -> None:
    with pytest.raises(TypeError, match="coroutines cannot be used"):
        ask(asyncio.get_running_loop(), nothing)


async def test_loop_takes_a_callback_from_another_thread_that_asks_safely() -> None:
    loop = asyncio.get_running_loop()
    is_called = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.call_soon_threadsafe(is_called.set))
    thread.start()
    async with asyncio.timeout(10):
        await is_called.wait()
    thread.join()
