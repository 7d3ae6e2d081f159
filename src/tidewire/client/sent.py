"""A message on its way: what has become of it, and how to wait for more."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidewire.client.errors import ClientError, FateUnknown, MessageFailed, closed_for
from tidewire.domain.delivery import Tick, tick

if TYPE_CHECKING:
    from tidewire.client.driver import Driver
    from tidewire.client.places import Place
    from tidewire.domain.ids import ChatId


class Sent:
    """A message that is in the outbox on the disk, or further.

    Each of the waits may be given up (`asyncio.timeout`) without taking the message back.
    """

    def __init__(self, driver: Driver, client_message_id: str, chat_id: ChatId, text: str) -> None:
        self.client_message_id = client_message_id
        self.chat_id = chat_id
        self.text = text
        self.sequence: int | None = None
        """Its place in the chat, once the server has stored it."""
        self.code: str | None = None
        self.reason: str | None = None
        """Why it failed, if it did."""
        self._driver = driver
        self._fault: ClientError | None = None
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def tick(self) -> Tick:
        if self.sequence is not None:
            place = self._place
            return tick(
                self.sequence,
                others_delivered=0 if place is None else place.others_delivered,
                others_read=0 if place is None else place.others_read,
            )
        return Tick.SENDING if self._fault is None else Tick.FAILED

    async def stored(self) -> int:
        """Wait until the server has it for good; its sequence. `chat.messages()` has it then, too.
        Raises MessageFailed, FateUnknown and ClientClosed."""
        while self.sequence is None:
            if self._fault is not None:
                raise self._fault
            self._driver.check_open()
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future
        sequence = self.sequence
        await self._driver.waits.until(self.chat_id, lambda: self._is_held(sequence))
        return sequence

    def _is_held(self, sequence: int) -> bool:
        """It is among the messages here, or will not be on this connection."""
        place = self._place
        return place is None or not place.cursor < sequence <= place.own_through

    async def delivered(self) -> None:
        """Wait until everybody's device has it."""
        sequence = await self.stored()
        await self._driver.waits.until(
            self.chat_id,
            lambda: self._place is not None and self._place.others_delivered >= sequence,
        )

    async def read(self) -> None:
        """Wait until everybody has read it."""
        sequence = await self.stored()
        await self._driver.waits.until(
            self.chat_id, lambda: self._place is not None and self._place.others_read >= sequence
        )

    async def retry(self) -> bool:
        """Send a failed one again. False: it is not one."""
        self._fault = self.code = self.reason = None
        return await self._driver.retry(self.client_message_id)

    async def drop(self) -> bool:
        """Forget it. False: it is on its way, or was, and may arrive."""
        return await self._driver.drop(self.client_message_id)

    # For the driver.

    def settle(self, sequence: int) -> None:
        self.sequence = sequence
        self._fault = None
        self._wake()

    def refuse(self, code: str | None, reason: str | None) -> None:
        self.code, self.reason = code, reason
        if code is None:
            self._fault = FateUnknown(
                "this message left days ago and was never answered: retry it, or drop it"
            )
        else:
            self._fault = MessageFailed(code, reason or "")
        self._wake()

    def end(self, reason: str) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_exception(closed_for(reason))
        self._waiting.clear()

    def _wake(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    @property
    def _place(self) -> Place | None:
        return self._driver.core.places.get(self.chat_id)

    def __repr__(self) -> str:
        return f"Sent({self.client_message_id}, {self.tick})"
