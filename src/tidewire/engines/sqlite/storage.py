"""The SQLite engine: the store of one process, one file, group commit.

This file only wires: writes go to the writer's thread, reads to the readers' threads. What each of
them does is in the modules beside this one.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any, Concatenate, Final, NoReturn, ParamSpec, TypeVar

import apsw

from tidewire.domain.delivery import Advance, AdvanceOutcome
from tidewire.domain.errors import StoreDamaged, StoreUnavailable
from tidewire.domain.events import Event
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.messages import Message, MessagePage, SendMessage
from tidewire.engines.sqlite import (
    accounts,
    amendments,
    append,
    blocks,
    chat_list,
    chats,
    positions,
    reading,
    repair,
)
from tidewire.engines.sqlite import database as db
from tidewire.engines.sqlite import users as people
from tidewire.engines.sqlite.checkpointer import Checkpointer, settle_log
from tidewire.engines.sqlite.copying import make_private
from tidewire.engines.sqlite.errors import lacks_room_for_index
from tidewire.engines.sqlite.known import Known
from tidewire.engines.sqlite.lockfile import DataDirectoryLock
from tidewire.engines.sqlite.log_look import check_log, check_unsynced_log
from tidewire.engines.sqlite.migrate import check_tables, migrate, read_epoch
from tidewire.engines.sqlite.readers import Readers, ReadGate
from tidewire.engines.sqlite.writer import FatalHandler, Writer
from tidewire.ports.event_log import CommitListener, ignore_commits
from tidewire.ports.inspection import CounterEvidence, NewCounter
from tidewire.ports.storage import EXIT_STORE_IN_DOUBT, AppendDone, ChatStore, MessageStore, Storage

_logger: Final = logging.getLogger(__name__)
DAMAGED_KNOWN_MAX: Final = 10_000
"""How many damaged messages are remembered and counted. With more, all are logged again when they
are read again, but not counted."""
_CHAT_OF: Final = attrgetter("chat_id")


def end_process(why: str) -> NoReturn:
    """Ends the process at once, without another write: for when the disk's content is not known."""
    try:
        # If there is no standard error, its descriptor may belong to another file by now.
        if sys.__stderr__ is not None:
            os.write(sys.__stderr__.fileno(), f"tidewire: {why}\n".encode())
    finally:
        # Also if the message cannot be written.
        os._exit(EXIT_STORE_IN_DOUBT)


class DamageLog:
    """Reports to the operator which messages are damaged and which requests met damage: log lines
    and counters. Used on the event loop.

    A damaged message may be read many times; it is logged once, with its chat and its sequence. Its
    text is never logged.
    """

    def __init__(self) -> None:
        self.messages_damaged = 0
        """Messages found damaged since the start; each once, up to `DAMAGED_KNOWN_MAX`."""
        self.requests_failed = 0
        """How many requests failed because of damage."""
        self._known: set[tuple[str, int]] = set()

    def note_messages(self, messages: Iterable[Message]) -> None:
        for message in messages:
            if message.is_damaged:
                self._note(message.chat_id, message.sequence)

    def note_failure(self, failure: StoreDamaged) -> None:
        self.requests_failed += 1
        _logger.error("a request failed: stored data is damaged", extra={"reason": failure.reason})

    def _note(self, chat_id: str, sequence: int) -> None:
        place = (chat_id, sequence)
        if place in self._known:
            return
        if len(self._known) >= DAMAGED_KNOWN_MAX:
            self._known.clear()
        self._known.add(place)
        # Once they do not all fit, it is not known which of them were counted.
        self.messages_damaged = max(self.messages_damaged, len(self._known))
        _logger.error(
            "a stored message is damaged; it is shown as such, without its text",
            extra={"chat_id": chat_id, "sequence": sequence},
        )


Result = TypeVar("Result")
Given = ParamSpec("Given")

# Methods of the store, made of functions that take a connection: they have the same arguments, and
# return the same result when it is awaited.


def _reads(
    query: Callable[Concatenate[apsw.Connection, Given], Result],
    note: "Callable[[SqliteStorage, Result], None] | None" = None,
) -> "Callable[Concatenate[SqliteStorage, Given], Coroutine[Any, Any, Result]]":
    """A method that runs the query in a read transaction. `note` is called with the result."""

    async def method(self: "SqliteStorage", /, *given: Given.args, **named: Given.kwargs) -> Result:
        found = await self._readers.read(lambda database: query(database, *given, **named))
        if note is not None:
            note(self, found)
        return found

    return method


def _commits(
    act: Callable[Concatenate[apsw.Connection, Given], tuple[Result, Sequence[Event]]],
) -> "Callable[Concatenate[SqliteStorage, Given], Coroutine[Any, Any, Result]]":
    """A method that does the act in the next commit; the act's events are handed on."""

    def method(
        self: "SqliteStorage", /, *given: Given.args, **named: Given.kwargs
    ) -> Coroutine[Any, Any, Result]:
        return self.writer.write(lambda database: act(database, *given, **named))

    return method


def _writes(
    act: Callable[Concatenate[apsw.Connection, Given], Result],
) -> "Callable[Concatenate[SqliteStorage, Given], Coroutine[Any, Any, Result]]":
    """The same for an act without events."""

    def method(
        self: "SqliteStorage", /, *given: Given.args, **named: Given.kwargs
    ) -> Coroutine[Any, Any, Result]:
        return self.writer.write(lambda database: (act(database, *given, **named), ()))

    return method


def _note_page(self: "SqliteStorage", page: MessagePage) -> None:
    self.damage.note_messages(page.messages)


def _note_message(self: "SqliteStorage", message: Message) -> None:
    self.damage.note_messages((message,))


class SqliteStorage(MessageStore, ChatStore):
    """Satisfies `ports.storage.Storage`. Made by `open`, used on the loop that opened it."""

    def __init__(
        self,
        path: Path,
        database: apsw.Connection,
        lock: DataDirectoryLock,
        *,
        listener: CommitListener,
        options: db.SqliteOptions,
        on_fatal: FatalHandler,
    ) -> None:
        self._database = database
        self._lock = lock
        self._epoch = read_epoch(database)
        self._known = Known(database)
        gate = ReadGate()
        self.damage = DamageLog()
        # Steps that can fail come before the first thread: a failed opening leaves none behind.
        self.checkpointer = Checkpointer(path, options, gate, on_fatal)
        self._readers = Readers(path, options, gate, self.damage.note_failure)
        self.writer = Writer(
            database,
            options=options,
            listener=listener,
            on_fatal=on_fatal,
            on_damage=self.damage.note_failure,
        )
        self.checkpointer.start(database, self.writer.between_commits)

    @classmethod
    async def open(
        cls,
        data_dir: Path,
        *,
        listener: CommitListener = ignore_commits,
        options: db.SqliteOptions | None = None,
        on_fatal: FatalHandler = end_process,
    ) -> "SqliteStorage":
        """Open the store of a data directory, making or migrating it. Raises StoreUnusable."""
        db.check_library(apsw.sqlite_lib_version())
        path, lock, database, used = await asyncio.to_thread(
            _open_database, data_dir, options or db.SqliteOptions()
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
        # An earlier failed commit does not mean that there is no room now: try one, of two pages.
        if not self.writer.has_room:
            await self.writer.write(_probe)

    @property
    def appends_per_chat(self) -> bool:
        return False

    async def close(self) -> None:
        try:
            await self._readers.close()
            await asyncio.to_thread(self.checkpointer.stop)
            await self.writer.close()
            # The last connection to close folds the log into the database and deletes it.
            await asyncio.to_thread(self._database.close)
        finally:
            self._lock.release()

    # For the operator: metrics and repairs.

    @property
    def memory_bytes(self) -> int:
        """What SQLite uses for all connections of this process; mostly page caches."""
        return apsw.memory_used()

    async def repair_counter(
        self, chat_id: ChatId, decide: Callable[[CounterEvidence], NewCounter | None]
    ) -> CounterEvidence:
        """Put a chat's missing counter back while the server runs (`ports.inspection`)."""
        return await self.writer.write(
            lambda database: (repair.repair_counter(database, chat_id, decide), ())
        )

    # Messages.

    def append_nowait(self, sends: Sequence[SendMessage], *, now_ms: int, done: AppendDone) -> None:
        self.writer.write_many_nowait(
            sends,
            lambda database, some: append.append(database, some, now_ms, self._known),
            _CHAT_OF,
            done,  # type: ignore[arg-type]
        )

    messages_after = _reads(reading.messages_after, _note_page)
    messages_before = _reads(reading.messages_before, _note_page)
    message = _reads(reading.message, _note_message)
    messages_now = _reads(amendments.messages_now)
    chats_of_author = _reads(amendments.chats_of_author)
    _some_messages_by = _reads(amendments.some_messages_by)

    async def messages_by(
        self, user_id: UserId, chat_id: ChatId, *, after: int, count_max: int
    ) -> list[int]:
        found: list[int] = []
        border: int | None = after
        while border is not None and len(found) < count_max:
            some, border = await self._some_messages_by(
                user_id, chat_id, after=border, count_max=count_max - len(found)
            )
            found += some
        return found

    # Chats.

    create_direct = _commits(chats.create_direct)
    create_group = _commits(chats.create_group)
    change_chat = _commits(chats.change_chat)
    mute = _writes(chats.mute)
    hide = _writes(chats.hide)
    access_chat = _reads(chats.access_chat)
    members = _reads(chats.list_members)
    roster = _reads(chats.roster)
    chat_list = _reads(chat_list.chat_list)
    readmit = _writes(blocks.readmit)
    refused_groups = _reads(blocks.refused_groups)
    strangers = _reads(blocks.strangers)
    share_group = _reads(blocks.share_group)

    # Positions.

    async def advance(self, advances: Sequence[Advance], *, now_ms: int) -> list[AdvanceOutcome]:
        outcomes: list[AdvanceOutcome] = await self.writer.write_many(
            advances, lambda database, some: self._advance(database, some, now_ms), _CHAT_OF
        )
        return outcomes

    def _advance(
        self, database: apsw.Connection, advances: Sequence[Advance], now_ms: int
    ) -> tuple[list[AdvanceOutcome], Sequence[Event]]:
        self._known.look()
        outcomes, moves = positions.advance(database, advances, now_ms)
        self._known.follow(moves)
        self._known.keep()
        return outcomes, moves

    floors = _reads(positions.floors)
    delivery_status = _reads(positions.delivery_status)
    digest = _reads(positions.digest)
    standing = _reads(positions.standing)
    moved_at = _reads(positions.moved_at)

    # People.

    add_user = _writes(people.add_user)
    users = _reads(people.find_users)
    user_named = _reads(people.user_named)
    users_named = _reads(people.users_named)
    list_users = _reads(people.list_users)
    set_display_name = _writes(people.set_display_name)

    # Accounts.

    register = _writes(accounts.register)
    add_invite = _writes(accounts.add_invite)
    is_invite_open = _reads(accounts.is_invite_open)
    credentials = _reads(accounts.credentials)
    credentials_of = _reads(accounts.credentials_of)
    set_password = _writes(accounts.set_password)
    external_user = _reads(accounts.external_user)
    ensure_external_user = _writes(accounts.ensure_external_user)
    disable_user = _writes(accounts.disable_user)
    enable_user = _writes(accounts.enable_user)
    begin_deletion = _writes(accounts.begin_deletion)
    erase_name = _writes(accounts.erase_name)
    pending_deletions = _reads(accounts.pending_deletions)
    finish_deletion = _writes(accounts.finish_deletion)
    open_session = _writes(accounts.open_session)
    session = _reads(accounts.session_of)
    sessions = _reads(accounts.sessions)
    rotate_refresh = _writes(accounts.rotate_refresh)
    revoke_session = _writes(accounts.revoke_session)
    revoke_sessions = _writes(accounts.revoke_sessions)
    touch_sessions = _writes(accounts.touch_sessions)
    block = _writes(blocks.block)
    unblock = _writes(blocks.unblock)
    blocked_users = _reads(blocks.blocked_users)
    claim_request = _writes(accounts.claim_request)
    finish_request = _writes(accounts.finish_request)
    release_request = _writes(accounts.release_request)
    sweep_accounts = _writes(accounts.sweep_accounts)


def _open_database(
    data_dir: Path, options: db.SqliteOptions
) -> tuple[Path, DataDirectoryLock, apsw.Connection, db.SqliteOptions]:
    path = db.check_data_dir(data_dir)
    is_synced = options.synchronous in db.SYNCED
    lock = DataDirectoryLock(data_dir, look=check_log if is_synced else check_unsynced_log)
    try:
        db.check_not_emptied(path)
        make_private(path)
        try:
            return path, lock, _open_file(path, data_dir, options), options
        except StoreUnavailable as error:
            if options.vfs is not None or not lacks_room_for_index(error.__cause__):
                raise
            # The index of the log, which SQLite keeps in a file beside it, is kept in memory, so
            # that reads go on. No other process can read the database meanwhile.
            options = replace(options, vfs="unix-excl")
            _logger.warning("the disk is full: messages are served, but none can be stored")
            return path, lock, _open_file(path, data_dir, options), options
    except BaseException:
        lock.release()
        raise


def _open_file(path: Path, data_dir: Path, options: db.SqliteOptions) -> apsw.Connection:
    database = db.connect(path, options, cache_kib=options.writer_cache_kib)
    try:
        db.check_writable(database)
        db.schema_version(database)
        db.check_complete(database, path)
        migrate(database, data_dir)
        check_tables(database)
        settle_log(database)
    except BaseException:
        database.close()
        raise
    return database


def _probe(database: apsw.Connection) -> tuple[None, Sequence[Event]]:
    """A write that changes only a value that nothing reads."""
    database.execute(
        "INSERT OR REPLACE INTO store_meta VALUES ('room_checked', strftime('%Y-%m-%dT%H:%M:%fZ'))"
    )
    return None, ()


_CONFORMS: type[Storage] = SqliteStorage
