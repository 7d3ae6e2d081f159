"""A handle for a message on its way: its state, and waits for the next ones."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tidewire.client.errors import ClientError, FateUnknown, closed_for, message_failed
from tidewire.domain.delivery import Tick

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidewire.client.driver import Driver
    from tidewire.client.outbox import OutboxEntry
    from tidewire.client.replica import Replica
    from tidewire.domain.ids import ChatId, UserId
    from tidewire.domain.messages import Amendment, EntryKind

Waiter = tuple["Callable[[], bool]", "asyncio.Future[None]"]

ANYTHING: Final = ""
"""The key of conditions that are checked whenever the state or the outbox changes."""


class Waits:
    """Conditions that callers wait for. Each has a key that names what it depends on, and is
    checked when that changes: the id of a chat, the id of a message, or ANYTHING."""

    def __init__(self, check_open: Callable[[], None]) -> None:
        """`check_open` raises ClientClosed if the client is closed."""
        self._check_open = check_open
        self._waiters: dict[str, list[Waiter]] = {}

    async def until(self, key: str, is_so: Callable[[], bool]) -> None:
        """Wait until `is_so` returns True. Raises ClientClosed."""
        while not is_so():
            self._check_open()
            waiter: Waiter = (is_so, asyncio.get_running_loop().create_future())
            waiters = self._waiters.setdefault(key, [])
            waiters.append(waiter)
            try:
                await waiter[1]
            finally:
                waiters.remove(waiter)
                if not waiters:
                    self._waiters.pop(key, None)

    async def until_change(self, is_so: Callable[[], bool]) -> None:
        await self.until(ANYTHING, is_so)

    def changed(self, key: str = ANYTHING) -> None:
        for is_so, future in self._waiters.get(key, ()):
            if not future.done() and is_so():
                future.set_result(None)

    def all_changed(self) -> None:
        for key in list(self._waiters):
            self.changed(key)

    def fail(self, reason: str) -> None:
        """The client is closed: check all conditions a last time, and fail the other waits."""
        self.all_changed()
        for waiters in self._waiters.values():
            for _, future in waiters:
                if not future.done():
                    future.set_exception(closed_for(reason))


class Sent:
    """A message, or a change of one, that is in the outbox on the disk, or has left it.

    A caller may give up each of the waits (`asyncio.timeout`); the message is sent all the same.
    """

    client_message_id: str
    chat_id: ChatId
    sequence: int | None
    """Its place in the chat, once the server has stored it."""
    code: str | None
    reason: str | None
    """Why it failed, if it did."""

    def __init__(self, driver: Driver, entry: OutboxEntry) -> None:
        self.client_message_id = entry.client_message_id
        self.chat_id = entry.chat_id
        self.sequence = self.code = self.reason = None
        self._driver = driver
        # The one in the outbox, which changes it: a new text, the target's sequence.
        self._entry = entry
        self._fault: ClientError | None = None

    @property
    def amends(self) -> Amendment | None:
        """What it changes, and how; None for a message. Its `target` is 0 until the sequence of the
        target is known."""
        return self._entry.amends

    @property
    def kind(self) -> EntryKind:
        """`message`, `edit`, `delete` or `react`."""
        return self._entry.kind

    @property
    def text(self) -> str:
        """The text of a message, or the new text of an edit."""
        return self._entry.body.content

    @property
    def reply_to(self) -> int | None:
        """The sequence of the message that this one answers."""
        return self._entry.body.reply_to

    @property
    def mentions(self) -> tuple[UserId, ...]:
        return self._entry.body.mentions

    @property
    def tick(self) -> Tick:
        if self.sequence is None:
            return Tick.SENDING if self._fault is None else Tick.FAILED
        replica = self._replica
        return Tick.SENT if replica is None else replica.tick(self.sequence)

    async def stored(self) -> int:
        """Wait until the server has it for good; returns its sequence. `chat.messages()` has it
        then, too. Raises MessageFailed, FateUnknown and ClientClosed."""
        waits = self._driver.waits
        await waits.until(
            self.client_message_id, lambda: self.sequence is not None or self._fault is not None
        )
        sequence = self.sequence
        if sequence is None:
            assert self._fault is not None
            raise self._fault
        await waits.until(self.chat_id, lambda: self._is_held(sequence))
        return sequence

    def _is_held(self, sequence: int) -> bool:
        """This device has the entry, or will not get it on this connection."""
        replica = self._replica
        if replica is None:
            return self.chat_id not in self._driver.core.awaited_chats
        return not replica.cursor < sequence <= replica.own_through

    async def delivered(self) -> None:
        """Wait until it is on a device of every other member."""
        await self._reached(Tick.DELIVERED, Tick.READ)

    async def read(self) -> None:
        """Wait until every other member has read it."""
        await self._reached(Tick.READ)

    async def _reached(self, *ticks: Tick) -> None:
        await self.stored()
        await self._driver.waits.until(self.chat_id, lambda: self.tick in ticks)

    async def edit(self, text: str) -> Sent:
        """Replace the text of this message: in the outbox if it surely has not left, else by an
        edit that follows it. Returns what is on its way now. Raises as `Chat.edit` does."""
        return await self._driver.sending.edit(self.chat_id, self, text)

    async def delete(self) -> Sent:
        """Take this message back: drop it from the outbox if it surely has not left, else send a
        deletion after it. Raises as `Chat.delete` does."""
        return await self._driver.sending.delete(self.chat_id, self)

    async def retry(self) -> bool:
        """Send it again, if it has failed or its fate is unknown; else False."""
        return await self._driver.sending.retry(self.client_message_id)

    async def drop(self) -> bool:
        """Remove it from the outbox. False: it is on its way, or was, and may arrive."""
        return await self._driver.sending.drop(self.client_message_id)

    # For the driver.

    def _settle(self, sequence: int) -> None:
        self.sequence = sequence
        self._fault = None

    def _requeue(self) -> None:
        self._fault = self.code = self.reason = None

    def _refuse(self, code: str | None, reason: str | None) -> None:
        self.code, self.reason = code, reason
        if code is None:
            self._fault = FateUnknown(
                "this message left days ago and was never answered: retry it, or drop it"
            )
        else:
            self._fault = message_failed(code, reason or "")

    @property
    def _replica(self) -> Replica | None:
        return self._driver.core.replicas.get(self.chat_id)

    def __repr__(self) -> str:
        return f"Sent({self.kind} {self.client_message_id}, {self.tick})"
