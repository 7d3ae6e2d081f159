"""Who waits for what: for numbers of a chat, or for any change of the client."""

import asyncio
from collections.abc import Callable

from tidewire.client.errors import closed_for
from tidewire.domain.ids import ChatId

Waiter = tuple[Callable[[], bool], "asyncio.Future[None]"]


class Waits:
    def __init__(self, loop: asyncio.AbstractEventLoop, check_open: Callable[[], None]) -> None:
        """`check_open` raises ClientClosed when there is nothing more to wait for."""
        self._loop = loop
        self._check_open = check_open
        self._of_chats: dict[ChatId, list[Waiter]] = {}
        self._of_all: list[asyncio.Future[None]] = []

    async def until(self, chat_id: ChatId, is_so: Callable[[], bool]) -> None:
        """Wait until the chat's numbers are so. Raises ClientClosed."""
        while not is_so():
            self._check_open()
            waiter: Waiter = (is_so, self._loop.create_future())
            waiters = self._of_chats.setdefault(chat_id, [])
            waiters.append(waiter)
            try:
                await waiter[1]
            finally:
                if waiter in waiters:
                    waiters.remove(waiter)

    async def until_change(self, is_so: Callable[[], bool]) -> None:
        """Wait until it is so; looked at whenever the state or the outbox changes."""
        while not is_so():
            self._check_open()
            future: asyncio.Future[None] = self._loop.create_future()
            self._of_all.append(future)
            try:
                await future
            finally:
                if future in self._of_all:
                    self._of_all.remove(future)

    def chat_ids(self) -> list[ChatId]:
        """The chats that are waited for."""
        return list(self._of_chats)

    def chat_changed(self, chat_id: ChatId) -> None:
        waiters = self._of_chats.get(chat_id)
        if not waiters:
            return
        left = []
        for is_so, future in waiters:
            if future.done():
                continue
            if is_so():
                future.set_result(None)
            else:
                left.append((is_so, future))
        waiters[:] = left
        if not left:
            del self._of_chats[chat_id]

    def changed(self) -> None:
        waiting, self._of_all = self._of_all, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def fail(self, reason: str) -> None:
        """Nothing more will come."""
        for waiters in self._of_chats.values():
            for _, future in waiters:
                if not future.done():
                    future.set_exception(closed_for(reason))
        self._of_chats.clear()
        self.changed()
