"""The SQLite engine: the store of one process, one file, group commit.

This file only wires: writes go to the writer's thread, reads to the readers', and what each of them
does stands in the modules beside it.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Final, NoReturn

import apsw

from tidewire.domain.chat_list import ChatListCursor, ChatListPage
from tidewire.domain.chats import (
    ChatAccess,
    CreatedChat,
    CreateDirect,
    CreateGroup,
    Member,
    Role,
    Roster,
)
from tidewire.domain.delivery import (
    Advance,
    AdvanceOutcome,
    DeliveryStatus,
    DigestEntry,
    DigestPage,
    Floors,
)
from tidewire.domain.errors import StoreUnavailable
from tidewire.domain.events import Event
from tidewire.domain.ids import ChatId, MessageId, UserId
from tidewire.domain.messages import AppendOutcome, Message, MessagePage, SendMessage
from tidewire.domain.users import User
from tidewire.engines.sqlite import (
    append,
    blocks,
    chat_list,
    chats,
    groups,
    positions,
    reading,
    repair,
    users,
)
from tidewire.engines.sqlite.account_storage import SqliteAccounts
from tidewire.engines.sqlite.checkpointer import Checkpointer, settle_log
from tidewire.engines.sqlite.copying import make_private
from tidewire.engines.sqlite.damage_log import DamageLog
from tidewire.engines.sqlite.database import (
    SYNCED,
    SqliteOptions,
    check_complete,
    check_data_dir,
    check_library,
    check_not_emptied,
    check_writable,
    connect,
    schema_version,
)
from tidewire.engines.sqlite.errors import lacks_room_for_index
from tidewire.engines.sqlite.lockfile import DataDirectoryLock
from tidewire.engines.sqlite.log_look import check_log, check_unsynced_log
from tidewire.engines.sqlite.migrate import check_tables, migrate, read_epoch
from tidewire.engines.sqlite.readers import Readers, ReadGate
from tidewire.engines.sqlite.writer import CommitCounters, FatalHandler, Writer
from tidewire.ports.event_log import CommitListener, ignore_commits
from tidewire.ports.inspection import CounterEvidence, NewCounter
from tidewire.ports.storage import AppendDone, AppendsByCallback, Storage

_logger: Final = logging.getLogger(__name__)
_CHAT_OF: Final = attrgetter("chat_id")

EXIT_STORE_IN_DOUBT: Final = 74
"""The exit code of a process whose store can no longer be trusted (EX_IOERR)."""


def end_process(why: str) -> NoReturn:
    """The one way out when nobody knows what is on the disk: at once, without another write."""
    try:
        # Without standard error, its number may by now belong to any file.
        if sys.__stderr__ is not None:
            os.write(sys.__stderr__.fileno(), f"tidewire: {why}\n".encode())
    finally:
        # Also when nobody can be told any more.
        os._exit(EXIT_STORE_IN_DOUBT)


class SqliteStorage(SqliteAccounts):
    """Satisfies `ports.storage.Storage`. Made by `open`, used on the loop that opened it."""

    def __init__(
        self,
        path: Path,
        database: apsw.Connection,
        lock: DataDirectoryLock,
        *,
        listener: CommitListener,
        options: SqliteOptions,
        on_fatal: FatalHandler,
    ) -> None:
        self._database = database
        self._lock = lock
        self._epoch = read_epoch(database)
        gate = ReadGate()
        self.damage = DamageLog()
        # What can fail comes before the first thread: an opening that fails leaves none behind.
        self.checkpointer = Checkpointer(path, options, gate, on_fatal)
        super().__init__(
            readers=Readers(path, options, gate, self.damage.note_failure),
            writer=Writer(
                database,
                options=options,
                listener=listener,
                on_fatal=on_fatal,
                on_damage=self.damage.note_failure,
            ),
        )
        self.checkpointer.start(database, self._writer.between_commits)

    @classmethod
    async def open(
        cls,
        data_dir: Path,
        *,
        listener: CommitListener = ignore_commits,
        options: SqliteOptions | None = None,
        on_fatal: FatalHandler = end_process,
    ) -> "SqliteStorage":
        """Open the store of a data directory, making or migrating it. Raises StoreUnusable."""
        check_library(apsw.sqlite_lib_version())
        path, lock, database, used = await asyncio.to_thread(
            _open_database, data_dir, options or SqliteOptions()
        )
        try:
            return cls(path, database, lock, listener=listener, options=used, on_fatal=on_fatal)
        except BaseException:
            database.close()
            lock.release()
            raise

    @property
    def epoch(self) -> str:
        return self._epoch

    async def check_room(self) -> None:
        # A commit that failed says nothing about now: try one, of two pages.
        if not self._writer.has_room:
            await self._writer.write(_probe)

    @property
    def appends_per_chat(self) -> bool:
        return False

    async def close(self) -> None:
        try:
            await self._readers.close()
            await asyncio.to_thread(self.checkpointer.stop)
            await self._writer.close()
            # The last connection to close folds the log into the database and deletes it.
            await asyncio.to_thread(self._database.close)
        finally:
            self._lock.release()

    # For whoever looks after the server.

    @property
    def commits(self) -> CommitCounters:
        return self._writer.counters

    @property
    def writes_waiting_count(self) -> int:
        return self._writer.waiting_count

    @property
    def memory_bytes(self) -> int:
        """What the library holds for all connections of this process; page caches, mostly."""
        return apsw.memory_used()

    async def repair_counter(
        self, chat_id: ChatId, decide: Callable[[CounterEvidence], NewCounter | None]
    ) -> CounterEvidence:
        """Put a chat's missing counter back while the server runs (`ports.inspection`)."""
        return await self._writer.write(
            lambda database: (repair.repair_counter(database, chat_id, decide), ())
        )

    # Messages.

    async def append(self, sends: Sequence[SendMessage], *, now_ms: int) -> list[AppendOutcome]:
        outcomes: list[AppendOutcome] = await self._writer.write_many(
            sends, lambda database, some: append.append(database, some, now_ms), _CHAT_OF
        )
        return outcomes

    def append_nowait(self, sends: Sequence[SendMessage], *, now_ms: int, done: AppendDone) -> None:
        self._writer.write_many_nowait(
            sends,
            lambda database, some: append.append(database, some, now_ms),
            _CHAT_OF,
            done,  # type: ignore[arg-type]
        )

    async def messages_after(
        self, reader: UserId, chat_id: ChatId, after: int, *, count_max: int, bytes_max: int
    ) -> MessagePage:
        page = await self._read(
            reading.messages_after, reader, chat_id, after, count_max, bytes_max
        )
        self.damage.note_messages(page.messages)
        return page

    async def messages_before(
        self, reader: UserId, chat_id: ChatId, before: int | None, *, count_max: int, bytes_max: int
    ) -> MessagePage:
        page = await self._read(
            reading.messages_before, reader, chat_id, before, count_max, bytes_max
        )
        self.damage.note_messages(page.messages)
        return page

    async def message(self, reader: UserId, chat_id: ChatId, message_id: MessageId) -> Message:
        message = await self._read(reading.message, reader, chat_id, message_id)
        self.damage.note_messages((message,))
        return message

    # Chats.

    async def create_direct(self, command: CreateDirect, *, now_ms: int) -> CreatedChat:
        return await self._write(chats.create_direct, command, now_ms)

    async def create_group(
        self, command: CreateGroup, *, members_max: int, now_ms: int
    ) -> CreatedChat:
        return await self._write(chats.create_group, command, members_max, now_ms)

    async def add_member(
        self,
        actor: UserId,
        chat_id: ChatId,
        user_id: UserId,
        role: Role,
        *,
        members_max: int,
        now_ms: int,
    ) -> Member:
        return await self._write(
            chats.add_member, actor, chat_id, user_id, role, members_max, now_ms
        )

    async def remove_member(
        self, actor: UserId, chat_id: ChatId, user_id: UserId, *, now_ms: int
    ) -> None:
        await self._write(chats.remove_member, actor, chat_id, user_id, now_ms)

    async def leave(
        self, actor: UserId, chat_id: ChatId, *, for_good: bool = False, now_ms: int
    ) -> None:
        await self._write(chats.leave, actor, chat_id, for_good, now_ms)

    async def readmit(self, user_id: UserId, chat_id: ChatId) -> None:
        await self._write(blocks.readmit, user_id, chat_id)

    async def refused_groups(
        self, user_id: UserId, *, after: ChatId | None, count_max: int
    ) -> list[ChatId]:
        return await self._read(blocks.refused_groups, user_id, after, count_max)

    async def strangers(self, user_id: UserId, others: Sequence[UserId]) -> list[UserId]:
        return await self._read(blocks.strangers, user_id, others)

    async def change_role(
        self, actor: UserId, chat_id: ChatId, user_id: UserId, role: Role, *, now_ms: int
    ) -> Member:
        return await self._write(chats.change_role, actor, chat_id, user_id, role, now_ms)

    async def hand_over(
        self, actor: UserId, chat_id: ChatId, user_id: UserId, *, now_ms: int
    ) -> Member:
        return await self._write(groups.hand_over, actor, chat_id, user_id, now_ms)

    async def close_group(self, actor: UserId, chat_id: ChatId, *, now_ms: int) -> None:
        await self._write(groups.close_group, actor, chat_id, now_ms)

    async def rename(self, actor: UserId, chat_id: ChatId, name: str, *, now_ms: int) -> ChatAccess:
        return await self._write(chats.rename, actor, chat_id, name, now_ms)

    async def mute(self, actor: UserId, chat_id: ChatId, muted_until_ms: int | None) -> Member:
        return await self._write(chats.mute, actor, chat_id, muted_until_ms)

    async def hide(self, actor: UserId, chat_id: ChatId, *, wanted: bool) -> None:
        await self._write(chats.hide, actor, chat_id, wanted)

    async def access_chat(self, reader: UserId, chat_id: ChatId) -> ChatAccess:
        return await self._read(chats.access_chat, reader, chat_id)

    async def members(
        self, reader: UserId, chat_id: ChatId, *, after: UserId | None, count_max: int
    ) -> list[Member]:
        return await self._read(chats.list_members, reader, chat_id, after, count_max)

    async def roster(self, chat_id: ChatId) -> Roster | None:
        return await self._read(chats.roster, chat_id)

    async def share_group(self, one: UserId, other: UserId) -> bool:
        return await self._read(blocks.share_group, one, other)

    async def chat_list(
        self,
        reader: UserId,
        *,
        cursor: ChatListCursor | None,
        count_max: int,
        active_since_ms: int = 0,
    ) -> ChatListPage:
        return await self._read(chat_list.chat_list, reader, cursor, count_max, active_since_ms)

    # Positions.

    async def advance(self, advances: Sequence[Advance], *, now_ms: int) -> list[AdvanceOutcome]:
        outcomes: list[AdvanceOutcome] = await self._writer.write_many(
            advances, lambda database, some: positions.advance(database, some, now_ms), _CHAT_OF
        )
        return outcomes

    async def floors(self, chat_ids: Sequence[ChatId]) -> list[Floors | None]:
        return await self._read(positions.floors, chat_ids)

    async def delivery_status(
        self, reader: UserId, chat_id: ChatId, sequence: int | None
    ) -> DeliveryStatus:
        return await self._read(positions.delivery_status, reader, chat_id, sequence)

    async def digest(self, user_id: UserId, *, after: ChatId | None, count_max: int) -> DigestPage:
        return await self._read(positions.digest, user_id, after, count_max)

    async def standing(self, user_id: UserId, chat_id: ChatId) -> DigestEntry | None:
        return await self._read(positions.standing, user_id, chat_id)

    async def moved_at(self, user_id: UserId, chat_ids: Sequence[ChatId]) -> dict[ChatId, int]:
        return await self._read(positions.moved_at, user_id, chat_ids)

    # People.

    async def add_user(self, user: User) -> User:
        return await self._write(users.add_user, user)

    async def users(self, user_ids: Sequence[UserId]) -> list[User]:
        return await self._read(users.find_users, user_ids)

    async def user_named(self, username: str) -> User | None:
        return await self._read(users.user_named, username)

    async def users_named(self, usernames: Sequence[str]) -> list[User]:
        return await self._read(users.users_named, usernames)

    async def list_users(self, *, after: str | None, count_max: int) -> list[User]:
        return await self._read(users.list_users, after, count_max)

    async def set_display_name(self, user_id: UserId, display_name: str, *, now_ms: int) -> User:
        return await self._write(users.set_display_name, user_id, display_name, now_ms)


def _open_database(
    data_dir: Path, options: SqliteOptions
) -> tuple[Path, DataDirectoryLock, apsw.Connection, SqliteOptions]:
    path = check_data_dir(data_dir)
    is_synced = options.synchronous in SYNCED
    lock = DataDirectoryLock(data_dir, look=check_log if is_synced else check_unsynced_log)
    try:
        check_not_emptied(path)
        make_private(path)
        try:
            return path, lock, _open_file(path, data_dir, options), options
        except StoreUnavailable as error:
            if options.vfs is not None or not lacks_room_for_index(error.__cause__):
                raise
            # What SQLite keeps beside the log for its readers is kept in memory instead, so that
            # reads go on. No other process can read the database meanwhile.
            options = replace(options, vfs="unix-excl")
            _logger.warning("the disk is full: messages are served, but none can be stored")
            return path, lock, _open_file(path, data_dir, options), options
    except BaseException:
        lock.release()
        raise


def _open_file(path: Path, data_dir: Path, options: SqliteOptions) -> apsw.Connection:
    database = connect(path, options, cache_kib=options.writer_cache_kib)
    try:
        check_writable(database)
        schema_version(database)
        check_complete(database, path)
        migrate(database, data_dir)
        check_tables(database)
        settle_log(database)
    except BaseException:
        database.close()
        raise
    return database


def _probe(database: apsw.Connection) -> tuple[None, Sequence[Event]]:
    """A write that changes nothing for anybody."""
    database.execute(
        "INSERT OR REPLACE INTO store_meta VALUES ('room_checked', strftime('%Y-%m-%dT%H:%M:%fZ'))"
    )
    return None, ()


_CONFORMS: type[Storage] = SqliteStorage
_CONFORMS_TOO: type[AppendsByCallback] = SqliteStorage
