"""An event log in a list, for tests and for the simulator."""

import asyncio
from collections.abc import Sequence

from tidewire.domain.errors import LogUnavailable
from tidewire.domain.events import LoggedEvent
from tidewire.domain.messages import Message
from tidewire.ports.event_log import EventLog, PublishDone


class MemoryEventLog:
    """Satisfies `ports.event_log.EventLog`. `is_down` makes it refuse; `holds_back` keeps its
    answers, not the events, until `answer`."""

    def __init__(self) -> None:
        self.events: list[LoggedEvent] = []
        self.withdrawn: list[Message] = []
        self.is_down = False
        self.holds_back = False
        self._held: list[tuple[PublishDone, LogUnavailable | None]] = []
        self._loop = asyncio.get_running_loop()

    def publish_nowait(self, events: Sequence[LoggedEvent], done: PublishDone) -> None:
        assert events
        error = LogUnavailable("the event log is down") if self.is_down else None
        if error is None:
            self.events += events
        if self.holds_back:
            self._held.append((done, error))
        else:
            self._loop.call_soon(done, error)

    def withdraw(self, deletions: Sequence[Message]) -> None:
        """Nothing waits here, so this only records the deletions."""
        self.withdrawn += deletions

    def answer(self) -> None:
        """Give the answers that were held back."""
        held, self._held = self._held, []
        for done, error in held:
            done(error)

    async def publish(self, events: Sequence[LoggedEvent]) -> None:
        published: asyncio.Future[LogUnavailable | None] = self._loop.create_future()

        def done(error: LogUnavailable | None) -> None:
            if not published.done():
                published.set_result(error)

        self.publish_nowait(events, done)
        error = await published
        if error is not None:
            raise error


_CONFORMS: type[EventLog] = MemoryEventLog
