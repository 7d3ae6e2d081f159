"""The engines under test, each with the back doors that a test needs.

To add an engine, write one harness and put it into ENGINES: the contract suite and the model test
then run over it. Every harness starts empty; tests run in parallel processes and use the same ids,
so two harnesses must not share data.
"""

import socket
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

import apsw

from tests.support import stack
from tests.support.dynamodb import LocalTables, a_backdoor, watch
from tests.support.memory import MemoryStorage, MemoryTables
from tidewire.domain.events import Event
from tidewire.domain.ids import ChatId
from tidewire.domain.messages import Message
from tidewire.domain.rows import entry_of_row
from tidewire.engines.dynamodb import rows
from tidewire.engines.dynamodb.entries import entry_of
from tidewire.engines.dynamodb.storage import DynamoStorage
from tidewire.engines.sqlite import DATABASE_NAME, SqliteStorage
from tidewire.ports.storage import Storage
from tidewire.processes.link import Link
from tidewire.processes.remote import CALLS, reach_store
from tidewire.runtime.supervise import TaskSupervisor

BUSY_TIMEOUT_MS: Final = 10_000


class EngineHarness(ABC):
    """Opens one engine on its own data, and listens to its commits."""

    name: ClassVar[str]
    leaves_gaps: ClassVar[bool]
    """True if a lost race may use up a sequence (ADR-004's two phases)."""

    def __init__(self, directory: Path) -> None:
        """The directory is this harness's own, and empty."""
        self.directory = directory
        self.commits: list[tuple[Event, ...]] = []
        """The events that the listener got, one entry for each call."""
        self._storage: Storage | None = None

    @property
    def storage(self) -> Storage:
        assert self._storage is not None, "open the engine first"
        return self._storage

    @property
    def events(self) -> list[Event]:
        return [event for commit in self.commits for event in commit]

    async def open(self) -> Storage:
        assert self._storage is None, "it is open already"
        self._storage = await self._open()
        return self._storage

    async def close(self) -> None:
        if self._storage is not None:
            storage, self._storage = self._storage, None
            await storage.close()

    async def reopen(self) -> Storage:
        """Close the store and open it again on the same data."""
        await self.close()
        return await self.open()

    def _listen(self, events: Sequence[Event]) -> None:
        self.commits.append(tuple(events))

    @abstractmethod
    async def _open(self) -> Storage:
        """Open the store, with `_listen` as its listener."""

    @abstractmethod
    async def counter(self, chat_id: ChatId) -> int | None:
        """The last sequence given out in a chat, None if its counter is missing."""

    @abstractmethod
    async def set_counter(self, chat_id: ChatId, sequence: int) -> None:
        """Set the counter as if sequences up to this one had been given out."""

    @abstractmethod
    async def drop_counter(self, chat_id: ChatId) -> None:
        """Delete the counter, as if an operator had deleted the row."""

    @abstractmethod
    async def messages(self, chat_id: ChatId) -> list[Message]:
        """Every stored message of a chat, by sequence, without a check of membership."""


class MemoryHarness(EngineHarness):
    """The tables take the place of a disk: they stay when the store is closed."""

    name = "memory"
    leaves_gaps = False

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._tables = MemoryTables()

    async def _open(self) -> Storage:
        return MemoryStorage(self._listen, tables=self._tables)

    async def counter(self, chat_id: ChatId) -> int | None:
        return self._tables.counters.get(chat_id)

    async def set_counter(self, chat_id: ChatId, sequence: int) -> None:
        assert chat_id in self._tables.counters
        self._tables.counters[chat_id] = sequence

    async def drop_counter(self, chat_id: ChatId) -> None:
        del self._tables.counters[chat_id]

    async def messages(self, chat_id: ChatId) -> list[Message]:
        return list(self._tables.chats[chat_id].messages)


class LinkedHarness(MemoryHarness):
    """The memory store at the other end of a link, as a gateway process has it."""

    name = "linked"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._ends: list[Link] = []

    async def _open(self) -> Storage:
        store = await super()._open()
        acts = {name: getattr(store, name) for name in (*CALLS, "append_nowait")}
        acts["hello"] = lambda: (store.epoch, store.appends_per_chat)
        tasks = TaskSupervisor()
        self._ends = [
            Link(one, tasks=tasks, on_lost=lambda: None, bytes_max=1 << 26) for one in (acts, {})
        ]
        for link, end in zip(self._ends, socket.socketpair(), strict=True):
            await link.connect(end)
        self._store = store
        return await reach_store(self._ends[1])

    async def close(self) -> None:
        if self._storage is None:
            return
        await super().close()
        # The call returns when everything sent before has arrived, in both directions.
        await self._ends[1].call("hello")
        await self._store.close()
        await self._ends[1].call("hello")
        for link in self._ends:
            link.cut()


class SqliteHarness(EngineHarness):
    """Works on the database file beside the engine, which must be idle meanwhile."""

    name = "sqlite"
    leaves_gaps = False

    async def _open(self) -> Storage:
        return await SqliteStorage.open(self.directory, listener=self._listen)

    async def counter(self, chat_id: ChatId) -> int | None:
        with self._database() as database:
            sequence: int | None = database.execute(
                "SELECT sequence_counter FROM chat_counters WHERE chat_id = ?", (chat_id,)
            ).get
        return sequence

    async def set_counter(self, chat_id: ChatId, sequence: int) -> None:
        with self._database() as database:
            database.execute(
                "UPDATE chat_counters SET sequence_counter = ? WHERE chat_id = ?",
                (sequence, chat_id),
            )
            assert database.changes() == 1

    async def drop_counter(self, chat_id: ChatId) -> None:
        with self._database() as database:
            database.execute("DELETE FROM chat_counters WHERE chat_id = ?", (chat_id,))
            assert database.changes() == 1

    async def messages(self, chat_id: ChatId) -> list[Message]:
        with self._database() as database:
            rows: list[tuple[Any, ...]] = database.execute(
                "SELECT chat_id, sequence, prev_sequence, message_id, sender_id,"
                " client_message_id, content, content_type, created_at, target, extra, deleted_by"
                " FROM messages WHERE chat_id = ? ORDER BY sequence",
                (chat_id,),
            ).fetchall()
        return [entry_of_row(row) for row in rows]

    @contextmanager
    def _database(self) -> Iterator[apsw.Connection]:
        path = self.directory / DATABASE_NAME
        database = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            database.set_busy_timeout(BUSY_TIMEOUT_MS)
            yield database
        finally:
            database.close()


class DynamoHarness(EngineHarness):
    """DynamoDB Local, with tables of this test process that are emptied for every harness."""

    name = "dynamodb"
    leaves_gaps = True

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.tables = LocalTables()

    async def _open(self) -> Storage:
        await self.tables.prepare()
        storage = await DynamoStorage.open(self.tables.options, listener=self._listen)
        watch(storage, self.tables.options)
        return storage

    async def counter(self, chat_id: ChatId) -> int | None:
        async with a_backdoor(self.tables.options) as database:
            row = await database.get("chat_counters", {"chat_id": chat_id})
        return None if row is None else row["sequence_counter"]

    async def set_counter(self, chat_id: ChatId, sequence: int) -> None:
        change = rows.update(
            "chat_counters",
            {"chat_id": chat_id},
            "SET #sequence_counter = :sequence REMOVE #open_above",
            condition="attribute_exists(#chat_id)",
            sequence=sequence,
        )
        async with a_backdoor(self.tables.options) as database:
            await database.write(change)
        self._forget_numbers(chat_id)

    async def drop_counter(self, chat_id: ChatId) -> None:
        drop = rows.delete(
            "chat_counters", {"chat_id": chat_id}, condition="attribute_exists(#chat_id)"
        )
        async with a_backdoor(self.tables.options) as database:
            await database.write(drop)
        self._forget_numbers(chat_id)

    def _forget_numbers(self, chat_id: ChatId) -> None:
        """The store reads a counter only now and then; these tests are about what it does when it
        reads. How late that is at most is tested in tests/engines/dynamodb."""
        if isinstance(self._storage, DynamoStorage):
            self._storage._tails.forget(chat_id)

    async def messages(self, chat_id: ChatId) -> list[Message]:
        async with a_backdoor(self.tables.options) as database:
            found = await database.query("messages", chat_id)
            found += await database.query("amendments", chat_id)
        return sorted(map(entry_of, found), key=lambda entry: entry.sequence)


IN_PROCESS_ENGINES: Final[tuple[type[EngineHarness], ...]] = (MemoryHarness, SqliteHarness)
"""The engines that are fast enough for thousands of acts."""

ENGINES: Final[tuple[type[EngineHarness], ...]] = (
    IN_PROCESS_ENGINES if stack.IS_OFF else (*IN_PROCESS_ENGINES, DynamoHarness)
)
