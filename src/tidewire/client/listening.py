"""The stream of events: read from the store in stored order, confirmed by going on."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidewire.client import model
from tidewire.client.connection import CLOSED
from tidewire.client.errors import ClientError
from tidewire.domain.ids import ChatId

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidewire.client.chat import Chat
    from tidewire.client.driver import Driver
    from tidewire.client.people import People
    from tidewire.client.tables import EventRow, Tables
    from tidewire.domain.fold import MessageNow

CHUNK: Final = 100
_KINDS: Final[dict[str, type[Any]]] = {"refused": model.MessageRefused, "chat": model.ChatUpdated}


class Events:
    """`async for event in client.events()`. Going on to the next event confirms the last one.

    An event that is not confirmed comes again in the next run, marked `redelivered`. The stream
    ends when the application closes the client, and raises ClientClosed if anything else does.
    """

    def __init__(
        self,
        driver: Driver,
        confirmations: Confirmations,
        people: People,
        chat: Callable[[str], Chat],
    ) -> None:
        self._driver = driver
        self._people = people
        self._chat = chat
        self._confirmations = confirmations
        self._ready: deque[model.Event] = deque()
        self._read_through: int | None = None
        self._last: model.Event | None = None
        self._is_over = False

    def __aiter__(self) -> Events:
        return self

    async def __anext__(self) -> model.Event:
        if self._last is not None:
            self._confirmations.confirm(self._last)
            self._last = None
        while not self._ready:
            driver = self._driver
            driver.news.clear()
            self._ready.extend(await self._stored())
            if not self._ready:
                self._ready.extend(driver.fleeting.take())
            if not self._ready:
                if driver.status.state is CLOSED:
                    if driver.status.reason == "closed":
                        raise StopAsyncIteration
                    driver.check_open()
                await driver.news.wait()
        event = self._last = self._ready.popleft()
        if isinstance(event, model.MessageReceived | model.MessageStored):
            self._seen(event.message.chat_id, event.message.sequence)
        elif isinstance(event, model.MessageChanged):
            self._seen(event.chat_id, event.change.sequence)
        return event

    def _seen(self, chat_id: str, sequence: int) -> None:
        replica = self._driver.core.replicas.get(ChatId(chat_id))
        if replica is not None:
            replica.seen = max(replica.seen, sequence)

    async def _stored(self) -> list[model.Event]:
        driver = self._driver
        if self._read_through is None:
            self._read_through = await self._confirmations.load()
        if driver.store.last_position <= self._read_through:
            return []
        after = self._read_through
        try:
            rows, offered = await driver.store.do(lambda tables: tables.next_events(after, CHUNK))
        except ClientError:
            driver.check_open()
            raise
        if rows:
            self._read_through = rows[-1].position
            entries = [row.entry if isinstance(row, model.ChangeRow) else row for row in rows]
            await self._people.know(row for row in entries if isinstance(row, model.MessageRow))
        return [self._event(row, redelivered=row.position <= offered) for row in rows]

    def _event(
        self, row: model.MessageRow | model.ChangeRow | EventRow, *, redelivered: bool
    ) -> model.Event:
        if isinstance(row, model.MessageRow):
            kind = model.MessageStored if row.is_own else model.MessageReceived
            message = self._message(row)
            return kind(position=row.position, redelivered=redelivered, message=message)
        if isinstance(row, model.ChangeRow):
            held, change = row.message, model.change_of(row.entry, self._people.names)
            assert change is not None
            return model.MessageChanged(
                position=row.position,
                redelivered=redelivered,
                chat_id=row.entry.chat_id,
                target=change.target,
                change=change,
                before=None if held is None else self._message(held, row.before),
                after=None if held is None else self._message(held, row.after),
            )
        event: model.Event = msgspec.json.decode(row.body, type=_KINDS[row.kind])
        return msgspec.structs.replace(event, position=row.position, redelivered=redelivered)

    def _message(self, row: model.MessageRow, now: MessageNow | None = None) -> model.Message:
        replica = self._driver.core.replicas.get(row.chat_id)
        chat = self._chat(row.chat_id)
        return model.message_of(row, replica, self._people.names, acts=chat, now=now)


class Confirmations:
    """How far the application has confirmed events. Saved with the next job of the store."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._confirmed: int | None = None
        self._is_due = False

    async def load(self) -> int:
        """The last position that was confirmed."""
        if self._confirmed is None:
            found = await self._driver.store.do(lambda tables: tables.meta("confirmed"))
            self._confirmed = int(found or 0)
        return self._confirmed

    def confirm(self, event: model.Event) -> None:
        """Everything up to this event is done. Fleeting events need no confirmation."""
        if event.position != model.FLEETING and event.position > (self._confirmed or 0):
            self._confirmed = event.position
            if not self._is_due:
                self._is_due = True
                self._driver.write(self._write)

    def _write(self, tables: Tables) -> None:
        """Runs on the store's thread and saves the latest position. A position that is confirmed
        after this has read finds `_is_due` unset, and starts another write."""
        self._is_due = False
        tables.confirm(self._confirmed or 0)
