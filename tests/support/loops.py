"""The event loop of the tests: it always makes the checks of asyncio's debug mode.

The debug mode itself also records a whole stack for every future, task and callback, which takes
more time than most tests take. `--asyncio-debug` switches it on where such a stack is wanted.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import TypeVarTuple

Arguments = TypeVarTuple("Arguments")


class CheckingLoop(asyncio.SelectorEventLoop):
    """Refuses a callback from another thread, and a callback that is a coroutine."""

    # asyncio's debug mode calls these; the type stubs have neither.
    _check_thread: Callable[[], None]
    _check_callback: Callable[[Callable[..., object], str], None]

    def call_soon(
        self,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.Handle:
        self._check_thread()
        self._check_callback(callback, "call_soon")
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        self._check_thread()
        self._check_callback(callback, "call_at")
        return super().call_at(when, callback, *args, context=context)
