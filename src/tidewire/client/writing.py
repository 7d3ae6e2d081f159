"""Gathers what is to be stored in one turn of the loop, and gives it to the store as one job."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from tidewire.client.effects import Erased, Keep
from tidewire.client.errors import ClientClosed, StoreUnusable
from tidewire.client.outbox import OutboxEntry
from tidewire.client.replica import Replica
from tidewire.client.store import Store
from tidewire.client.tables import Tables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidewire.client.model import MessageRow
    from tidewire.domain.ids import ChatId

NUMBERS_DELAY_S: Final = 0.2
"""How long changed numbers of a chat wait, so that they can be stored together with other data."""


class Written(msgspec.Struct, frozen=True):
    """What one job has written to the disk."""

    keeps: Sequence[Keep]
    """Entries, one `Keep` a chat."""
    sends: Sequence[OutboxEntry]
    """New entries of the outbox."""
    ended: Sequence[OutboxEntry]
    """Entries of the outbox that have failed or were dropped."""
    known: "Mapping[str, MessageRow]"
    """Those of `sends` that the server stored in an earlier run, so they are not sent again."""
    erased: "Mapping[ChatId, Sequence[Erased]]"
    """Messages of others that were shown until now and have been deleted."""


@dataclass(eq=False, repr=False)
class Writing:
    """Everything that one client writes to its store. Create it on the event loop."""

    store: Store
    own_id: Callable[[], str]
    on_written: Callable[[Written], None]
    on_fault: Callable[[BaseException], None]

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._keeps: list[Keep] = []
        self._replicas: dict[ChatId, Replica] = {}
        self._writes: list[Callable[[Tables], None]] = []
        self._entries: list[OutboxEntry] = []
        self._ended: list[OutboxEntry] = []
        self._entered: asyncio.Future[None] | None = None
        self._handle: asyncio.Handle | None = None
        self._is_soon = False

    def keep(self, keep: Keep) -> None:
        self._keeps.append(keep)
        self._soon()

    def write(self, write: Callable[[Tables], None]) -> None:
        self._writes.append(write)
        self._soon()

    def end(self, entries: Sequence[OutboxEntry], *, is_kept: bool) -> None:
        """Write how entries of the outbox are now (`is_kept`), or delete them; `Written` names
        them when the disk has that."""
        keys = [entry.client_message_id for entry in entries]
        self._ended += entries
        if is_kept:
            self.write(lambda tables: tables.save_entries(entries))
        else:
            self.write(lambda tables: tables.drop_entries(keys))

    def replica(self, replica: Replica) -> None:
        """Numbers of a chat have changed: store them with the next job, or after a short delay."""
        self._replicas[replica.chat_id] = replica
        if self._handle is None:
            self._handle = self._loop.call_later(NUMBERS_DELAY_S, self.flush)

    def enter(self, entry: OutboxEntry) -> "asyncio.Future[None]":
        """Put an entry into the outbox; the future is done when the entry is on the disk."""
        self._entries.append(entry)
        if self._entered is None:
            self._entered = self._loop.create_future()
        self._soon()
        return self._entered

    async def flushed(self) -> None:
        """Wait until everything so far is on the disk, or the store has failed."""
        self.flush()
        try:
            await self.store.do(_nothing)
        except StoreUnusable:
            return

    def flush(self) -> None:
        """Give everything that waits to the store, as one job."""
        self._is_soon = False
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if not (self._keeps or self._replicas or self._writes or self._entries):
            return
        keeps, writes = _merged(self._keeps), self._writes
        entries, entered, ended = self._entries, self._entered, self._ended
        # Copies, because the core goes on changing the replicas while the thread writes.
        records = [replica.record() for replica in self._replicas.values()]
        own_id = self.own_id()
        self._keeps, self._replicas, self._writes = [], {}, []
        self._entries, self._entered, self._ended = [], None, []

        def write(tables: Tables) -> Written:
            tables.save_replicas(records)
            for one in writes:
                one(tables)
            # After the writes: one of them may have written what a deletion has to erase.
            erased = tables.keep(keeps, own_id)
            # After `keep`: it may have stored an entry that the application sends again.
            known = tables.put_entries(entries) if entries else {}
            return Written(keeps, entries, ended, known, erased)

        def done(future: "asyncio.Future[Written]") -> None:
            error = future.exception()
            if error is not None:
                self.on_fault(error)
                if entered is not None:
                    entered.set_exception(ClientClosed("the store failed"))
                return
            self.on_written(future.result())
            if entered is not None:
                entered.set_result(None)

        self.store.do(write).add_done_callback(done)

    def _soon(self) -> None:
        if not self._is_soon:
            self._is_soon = True
            if self._handle is not None:
                self._handle.cancel()
            self._handle = self._loop.call_soon(self.flush)


def _merged(keeps: Sequence[Keep]) -> list[Keep]:
    """One `Keep` per chat and generation: all entries in their order, and how far they reach."""
    groups: dict[tuple[ChatId, int], list[Keep]] = {}
    for keep in keeps:
        groups.setdefault((keep.replica.chat_id, keep.generation), []).append(keep)
    return [
        Keep(
            group[-1].replica,
            [item for keep in group for item in keep.items],
            group[-1].through,
            group[-1].generation,
            is_complete=any(keep.is_complete for keep in group),
            deletions=[
                sequence
                for keep in group
                # Deletions that were found for an earlier count do not apply to a later one.
                if keep.counts_told == group[-1].counts_told
                for sequence in keep.deletions
            ],
            counts_told=group[-1].counts_told,
        )
        for group in groups.values()
    ]


def _nothing(_: Tables) -> None:
    """An empty job: it is done when all jobs before it are done."""
