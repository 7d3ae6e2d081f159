"""An application that is made for its first request: once, and not on the loop."""

import asyncio
import threading
from typing import Any

import pytest

from tidewire.edge.late import LateApp
from tidewire.runtime.supervise import run_blocking


class Made:
    """Counts how often it was made, and where; its first `failures` makings fail."""

    def __init__(self, failures: int = 0) -> None:
        self.threads: list[int] = []
        self.asked: list[Any] = []
        self._failures = failures

    def make(self) -> Any:
        self.threads.append(threading.get_ident())
        if len(self.threads) <= self._failures:
            raise OSError("no such file")
        return self.answer

    async def answer(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked.append((scope, receive, send))


async def test_application_is_made_once_for_all_who_ask_meanwhile() -> None:
    made = Made()
    app = LateApp(made.make, run_blocking)
    assert made.threads == []
    await asyncio.gather(*(app(n, "receive", "send") for n in range(3)))
    await app(3, "receive", "send")
    assert made.asked == [(n, "receive", "send") for n in range(4)]
    assert len(made.threads) == 1
    assert made.threads != [threading.get_ident()]


async def test_application_is_made_again_when_making_it_failed() -> None:
    made = Made(failures=1)
    app = LateApp(made.make, run_blocking)
    with pytest.raises(OSError, match="no such file"):
        await app(0, "receive", "send")
    await app(1, "receive", "send")
    assert made.asked == [(1, "receive", "send")]
