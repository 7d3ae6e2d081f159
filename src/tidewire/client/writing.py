"""What is to be stored is gathered for a turn of the loop, and goes to the store as one job."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from tidewire.client.effects import Keep
from tidewire.client.errors import ClientClosed, StoreUnusable
from tidewire.client.model import Kept
from tidewire.client.outbox import Entry
from tidewire.client.places import Place
from tidewire.client.store import Store
from tidewire.client.tables import KeepJob, Tables

if TYPE_CHECKING:
    from tidewire.domain.ids import ChatId

NUMBERS_DELAY_S: Final = 0.2
"""How long numbers of chats may wait for other things to be stored with."""

Stored = tuple[Place, int, int, int]
"""A place, up to where it is stored, how many messages more, and for which of its lives."""


class Written:
    """What a job has put onto the disk."""

    def __init__(
        self, keeps: Sequence[Keep], entries: Sequence[Entry], known: dict[str, Kept]
    ) -> None:
        self.entries = entries
        self.known = known
        """Entries that were stored by the server in an earlier life, and so are none."""
        self._keeps = keeps

    def places(self) -> list[Stored]:
        """Per chat and life: how far, and how many messages."""
        sums: dict[tuple[ChatId, int], Stored] = {}
        for keep in self._keeps:
            key = (keep.place.chat_id, keep.life)
            known = sums.get(key)
            count = len(keep.items) + (0 if known is None else known[2])
            sums[key] = (keep.place, keep.through, count, keep.life)
        return list(sums.values())


class Writing:
    def __init__(
        self,
        store: Store,
        *,
        own_id: Callable[[], str],
        on_written: Callable[[Written], None],
        on_fault: Callable[[BaseException], None],
    ) -> None:
        self._store = store
        self._own_id = own_id
        self._on_written = on_written
        self._on_fault = on_fault
        self._loop = asyncio.get_running_loop()
        self._keeps: list[Keep] = []
        self._places: dict[ChatId, Place] = {}
        self._writes: list[Callable[[Tables], None]] = []
        self._entries: list[Entry] = []
        self._entered: asyncio.Future[None] | None = None
        self._handle: asyncio.Handle | None = None
        self._is_soon = False

    def keep(self, keep: Keep) -> None:
        self._keeps.append(keep)
        self._soon()

    def write(self, write: Callable[[Tables], None]) -> None:
        self._writes.append(write)
        self._soon()

    def place(self, place: Place) -> None:
        """Numbers have moved: they are stored with the next thing, or a little later."""
        self._places[place.chat_id] = place
        if self._handle is None:
            self._handle = self._loop.call_later(NUMBERS_DELAY_S, self.flush)

    def enter(self, entry: Entry) -> "asyncio.Future[None]":
        """Put an entry into the outbox; done when it is on the disk."""
        self._entries.append(entry)
        if self._entered is None:
            self._entered = self._loop.create_future()
        self._soon()
        return self._entered

    async def flushed(self) -> None:
        """Wait until everything so far is on the disk, or cannot be."""
        self.flush()
        try:
            await self._store.do(_nothing)
        except StoreUnusable:
            return

    def flush(self) -> None:
        """Everything that waits goes to the store as one job."""
        self._is_soon = False
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if not (self._keeps or self._places or self._writes or self._entries):
            return
        keeps, places, writes = self._keeps, self._places, self._writes
        entries, entered = self._entries, self._entered
        self._keeps, self._places, self._writes = [], {}, []
        self._entries, self._entered = [], None
        # As they are now: the core goes on while the thread writes.
        records = [place.record() for place in places.values()]
        own_id = self._own_id()
        jobs = [
            KeepJob(keep.place.chat_id, keep.items, keep.through, keep.is_complete)
            for keep in keeps
        ]

        def write(tables: Tables) -> dict[str, Kept]:
            known = tables.put_entries(entries) if entries else {}
            tables.save_places(records)
            if jobs:
                tables.keep(jobs, own_id)
            for one in writes:
                one(tables)
            return known

        def done(future: "asyncio.Future[dict[str, Kept]]") -> None:
            error = future.exception()
            if error is not None:
                self._on_fault(error)
                if entered is not None:
                    entered.set_exception(ClientClosed("the store failed"))
                return
            self._on_written(Written(keeps, entries, future.result()))
            if entered is not None:
                entered.set_result(None)

        self._store.do(write).add_done_callback(done)

    def _soon(self) -> None:
        if not self._is_soon:
            self._is_soon = True
            if self._handle is not None:
                self._handle.cancel()
            self._handle = self._loop.call_soon(self.flush)


def _nothing(_: Tables) -> None:
    """A job that is done when all before it are."""
