"""The stream of events: read from the store in stored order, confirmed by going on."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidewire.client.connection import CLOSED
from tidewire.client.errors import ClientError
from tidewire.client.model import (
    FLEETING,
    ChatUpdated,
    Event,
    Kept,
    MessageReceived,
    MessageRefused,
    MessageStored,
    message_of,
)

if TYPE_CHECKING:
    from tidewire.client.driver import Driver
    from tidewire.client.people import People
    from tidewire.client.tables import Happening, Tables

CHUNK: Final = 100
_KINDS: Final[dict[str, type[Any]]] = {"refused": MessageRefused, "chat": ChatUpdated}


class Events:
    """`async for event in client.events()`. Going on to the next event confirms the last one.

    What is not confirmed comes again in the next life, marked `redelivered`. It ends when the
    client is closed by the application, and raises ClientClosed if it is closed for a reason.
    """

    def __init__(self, driver: Driver, confirmations: Confirmations, people: People) -> None:
        self._driver = driver
        self._people = people
        self._confirmations = confirmations
        self._ready: deque[Event] = deque()
        self._read_through: int | None = None
        self._last: Event | None = None
        self._is_over = False

    def __aiter__(self) -> Events:
        return self

    async def __anext__(self) -> Event:
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
        if isinstance(event, MessageReceived | MessageStored):
            place = event.message.place
            if place is not None:
                place.seen = max(place.seen, event.message.sequence)
        return event

    async def _stored(self) -> list[Event]:
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
            await self._people.know(row for row in rows if isinstance(row, Kept))
        return [self._event(row, redelivered=row.position <= offered) for row in rows]

    def _event(self, row: Kept | Happening, *, redelivered: bool) -> Event:
        if isinstance(row, Kept):
            place = self._driver.core.places.get(row.chat_id)  # type: ignore[call-overload]
            kind = MessageStored if row.is_own else MessageReceived
            message = message_of(row, place, self._people.names)
            return kind(position=row.position, redelivered=redelivered, message=message)
        event: Event = msgspec.json.decode(row.body, type=_KINDS[row.kind])
        return msgspec.structs.replace(event, position=row.position, redelivered=redelivered)


class Confirmations:
    """How far the application is done. Written with whatever is written next."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._confirmed: int | None = None
        self._is_writing = False
        self._written = 0

    async def load(self) -> int:
        """The last position that was confirmed."""
        if self._confirmed is None:
            found = await self._driver.store.do(lambda tables: tables.meta("confirmed"))
            self._confirmed = self._written = int(found or 0)
        return self._confirmed

    def confirm(self, event: Event) -> None:
        """Everything up to this event is done. Fleeting events need no confirmation."""
        if event.position == FLEETING or event.position <= (self._confirmed or 0):
            return
        self._confirmed = event.position
        self._write()

    def _write(self) -> None:
        """One write at a time; it takes whatever is the latest when it is its turn."""
        if self._is_writing or self._confirmed is None or self._confirmed <= self._written:
            return
        self._is_writing = True

        def write(tables: Tables) -> int:
            confirmed = self._confirmed or 0
            tables.confirm(confirmed)
            return confirmed

        self._driver.store.do(write).add_done_callback(self._done)

    def _done(self, done: Any) -> None:
        self._is_writing = False
        if not done.cancelled() and done.exception() is None:
            self._written = done.result()
            self._write()
