"""The writer: many callers share a commit, and none of them feels the others' misfortune.

Method: a first act is held inside the writer's thread, others queue up behind it, then it is let
go; so what shares a commit is decided by the test and not by the machine.
"""

import asyncio
import gc
import logging
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from tests.engines.sqlite.store import Stores, pair_in
from tests.support.outcomes import describe
from tests.support.world import taken
from tidewire.domain.chats import Role
from tidewire.domain.delivery import Positions
from tidewire.domain.errors import (
    NotAMember,
    Overloaded,
    StoreDamaged,
    StoreUnavailable,
    StoreUnusable,
    UserNotFound,
)
from tidewire.domain.events import Event, PositionsAdvanced
from tidewire.domain.ids import ChatId, UserId
from tidewire.engines.sqlite.database import SqliteOptions, connect
from tidewire.engines.sqlite.readers import Readers
from tidewire.engines.sqlite.writer import Act, Writer
from tidewire.ports.event_log import CommitListener


class Desk:
    """A writer on a table of notes, whose first act can be held."""

    def __init__(self, path: Path, options: SqliteOptions, listener: CommitListener) -> None:
        self.database = connect(path, options, cache_kib=options.writer_cache_kib)
        self.database.execute("PRAGMA journal_mode = WAL")
        self.database.execute("CREATE TABLE notes (note TEXT UNIQUE)")
        self.commits = 0
        self.doubts: list[str] = []
        self.database.trace_v2(apsw.SQLITE_TRACE_STMT, self._trace)
        self.writer = Writer(
            self.database, options=options, listener=listener, on_fatal=self.doubts.append
        )
        self._held = threading.Event()
        self._let_go = threading.Event()

    def _trace(self, traced: dict[str, Any]) -> None:
        self.commits += traced["sql"] == "COMMIT"

    def submit(self, act: Act[str]) -> "asyncio.Task[str]":
        return asyncio.create_task(self.writer.write(act))

    async def hold(self) -> None:
        """Keep the writer's thread busy until `let_go`."""

        def act(database: apsw.Connection) -> tuple[str, Sequence[Event]]:
            self._held.set()
            assert self._let_go.wait(30)
            return "held", ()

        self.first = self.submit(act)
        await asyncio.to_thread(self._held.wait, 10)

    def let_go(self) -> None:
        self._let_go.set()

    async def submit_all(self, acts: Sequence[Act[str]]) -> "list[asyncio.Task[str]]":
        """Queue these behind the act that is held, in this order."""
        tasks = [self.submit(act) for act in acts]
        # One turn of the loop: every task has begun and stands in the queue.
        await asyncio.sleep(0)
        return tasks

    def notes(self) -> list[str]:
        return [note for (note,) in self.database.execute("SELECT note FROM notes ORDER BY rowid")]


@asynccontextmanager
async def desk_in(
    directory: Path,
    options: SqliteOptions | None = None,
    listener: CommitListener | None = None,
) -> AsyncIterator[Desk]:
    desk = Desk(
        directory / "notes.db", options or SqliteOptions(), listener or (lambda events: None)
    )
    try:
        yield desk
    finally:
        desk.let_go()
        await desk.writer.close()
        desk.database.close()


def note(text: str) -> Act[str]:
    """Writes one note, and tells of it in an event."""

    def act(database: apsw.Connection) -> tuple[str, Sequence[Event]]:
        database.execute("INSERT INTO notes VALUES (?)", (text,))
        return text, [PositionsAdvanced(ChatId("chat_1"), UserId(text), Positions(0, 0))]

    return act


def note_then_raise(text: str, error: Exception) -> Act[str]:
    def act(database: apsw.Connection) -> tuple[str, Sequence[Event]]:
        database.execute("INSERT INTO notes VALUES (?)", (text,))
        raise error

    return act


def refuse(database: apsw.Connection) -> tuple[str, Sequence[Event]]:
    raise NotAMember


def names(events: Sequence[Event]) -> list[str]:
    return [event.user_id for event in events if isinstance(event, PositionsAdvanced)]


async def test_counters_tell_of_commits_and_what_was_in_them(tmp_path: Path) -> None:
    async with desk_in(tmp_path) as desk:
        counters = desk.writer.counters
        assert (counters.commits, counters.writes, counters.seconds_total) == (0, 0, 0)
        await desk.hold()
        tasks = await desk.submit_all([note("a"), note("b"), refuse])
        desk.let_go()
        await asyncio.gather(*tasks, return_exceptions=True)
        # A write that was refused was in the transaction all the same.
        assert (counters.commits, counters.writes, counters.last_writes) == (2, 4, 3)
        assert 0 < counters.last_seconds < counters.seconds_total
        total = counters.seconds_total
        await desk.submit(note("c"))
        assert (counters.commits, counters.writes, counters.last_writes) == (3, 5, 1)
        assert counters.seconds_total == total + counters.last_seconds


async def test_writes_that_wait_share_one_commit(tmp_path: Path) -> None:
    async with desk_in(tmp_path) as desk:
        await desk.hold()
        tasks = await desk.submit_all([note(f"note {index}") for index in range(100)])
        desk.let_go()
        assert await asyncio.gather(*tasks) == [f"note {index}" for index in range(100)]
        assert desk.commits == 2, "one for the act that was held, one for all that came meanwhile"


async def test_writes_that_wait_are_split_when_they_are_more_than_a_commit_takes(
    tmp_path: Path,
) -> None:
    async with desk_in(tmp_path, SqliteOptions(commit_writes_max=30)) as desk:
        await desk.hold()
        tasks = await desk.submit_all([note(f"note {index}") for index in range(100)])
        desk.let_go()
        await asyncio.gather(*tasks)
        assert desk.commits == 1 + 4
        assert desk.notes() == [f"note {index}" for index in range(100)]


@pytest.mark.parametrize(
    "error",
    [RuntimeError("a bug"), apsw.ConstraintError("a bug in a statement")],
    ids=lambda error: type(error).__name__,
)
async def test_an_act_that_raises_takes_only_itself_along(tmp_path: Path, error: Exception) -> None:
    heard: list[list[str]] = []
    async with desk_in(tmp_path, listener=lambda events: heard.append(names(events))) as desk:
        await desk.hold()
        first, bad, last = await desk.submit_all(
            [note("first"), note_then_raise("bad", error), note("last")]
        )
        desk.let_go()
        assert await first == "first"
        assert await last == "last"
        with pytest.raises(type(error)):
            await bad
        assert desk.commits == 2
        assert desk.notes() == ["first", "last"]
        assert heard == [["first", "last"]]
        assert desk.doubts == []


async def test_a_real_violation_takes_only_itself_along(tmp_path: Path) -> None:
    async with desk_in(tmp_path) as desk:
        await desk.hold()
        first, again, last = await desk.submit_all([note("same"), note("same"), note("other")])
        desk.let_go()
        assert [await first, await last] == ["same", "other"]
        with pytest.raises(apsw.ConstraintError):
            await again
        assert desk.notes() == ["same", "other"]


async def test_an_act_that_raises_alone_leaves_nothing_behind(tmp_path: Path) -> None:
    async with desk_in(tmp_path) as desk:
        with pytest.raises(RuntimeError, match="a bug"):
            await desk.writer.write(note_then_raise("bad", RuntimeError("a bug")))
        assert desk.notes() == []
        assert await desk.writer.write(note("next")) == "next"


async def test_a_database_that_fails_in_one_act_fails_the_whole_commit(tmp_path: Path) -> None:
    async with desk_in(tmp_path) as desk:
        await desk.hold()
        tasks = await desk.submit_all(
            [note("first"), note_then_raise("bad", apsw.NoMemError("no memory")), note("last")]
        )
        desk.let_go()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 3
        assert desk.notes() == []
        assert await desk.writer.write(note("next")) == "next"


@pytest.mark.parametrize("error", [apsw.ConstraintError("no index row"), ZeroDivisionError()])
async def test_half_that_fails_in_its_own_way_keeps_what_the_other_half_committed(
    tmp_path: Path, error: Exception
) -> None:
    """Of many writes one meets damage, so they are committed apart; then another one raises what
    is no damage by its name. What is in the database is answered and told of."""
    heard: list[str] = []

    def act(database: apsw.Connection, items: Sequence[str]) -> tuple[list[object], list[Event]]:
        results: list[object] = []
        events: list[Event] = []
        if "damaged" in items:
            raise apsw.CorruptError("a page")
        for item in items:
            result, more = note(item)(database)
            if item == "odd":
                raise error
            results.append(result)
            events += more
        return results, events

    async with desk_in(tmp_path, listener=lambda events: heard.extend(names(events))) as desk:
        outcomes = await desk.writer.write_many(["one", "two", "odd", "damaged", "three"], act, str)
        assert [one if isinstance(one, str) else type(one) for one in outcomes] == [
            *("one", "two", StoreDamaged, StoreDamaged, "three")
        ]
        assert desk.notes() == heard == ["one", "two", "three"]
        assert desk.doubts == []


async def test_a_refusal_is_answered_and_the_others_are_stored(tmp_path: Path) -> None:
    async with desk_in(tmp_path) as desk:
        await desk.hold()
        first, refused, last = await desk.submit_all([note("first"), refuse, note("last")])
        desk.let_go()
        assert [await first, await last] == ["first", "last"]
        with pytest.raises(NotAMember):
            await refused
        assert desk.commits == 2
        with pytest.raises(NotAMember):
            await desk.writer.write(refuse)
        assert desk.notes() == ["first", "last"]


async def test_writes_wait_only_so_long_for_another_program(tmp_path: Path) -> None:
    async with desk_in(tmp_path, SqliteOptions(busy_ms_max=20)) as desk:
        other = apsw.Connection(str(tmp_path / "notes.db"))
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="another program holds the database"):
            await desk.writer.write(note("blocked"))
        other.execute("ROLLBACK")
        other.close()
        assert await desk.writer.write(note("free")) == "free"
        assert desk.notes() == ["free"]
        assert desk.doubts == []


async def test_writer_is_in_doubt_when_a_rollback_fails(tmp_path: Path) -> None:
    async with desk_in(tmp_path) as desk:
        desk.database.authorizer = lambda code, first, *more: (
            apsw.SQLITE_DENY
            if (code, first) == (apsw.SQLITE_TRANSACTION, "ROLLBACK")
            else apsw.SQLITE_OK
        )
        with pytest.raises(StoreUnusable, match="a rollback failed"):
            await desk.writer.write(note_then_raise("bad", RuntimeError("a bug")))
        [doubt] = desk.doubts
        assert "a rollback failed" in doubt
        with pytest.raises(StoreUnusable, match="a rollback failed"):
            await desk.writer.write(note("next"))


async def test_refusals_do_not_disturb_the_others(stores: Stores) -> None:
    world = await stores.open()
    chat, one, other = await pair_in(world)
    outsider = await world.person()
    drafts = [world.draft(chat, sender) for sender in (one, outsider, other)]
    appends = [world.append(draft) for draft in drafts]
    bad_change = world.storage.add_member(
        one, chat, world.stranger(), Role.MEMBER, members_max=5, now_ms=world.now()
    )
    results = await asyncio.gather(*appends, bad_change, return_exceptions=True)
    described = [describe(result) for result in results if isinstance(result, list)]
    assert described == [["stored 1 after 0"], ["NotAMember"], ["stored 2 after 1"]]
    assert isinstance(results[-1], Exception)
    with pytest.raises(UserNotFound):
        await world.group(one, world.stranger())


async def test_listener_hears_commits_in_their_order(tmp_path: Path) -> None:
    heard: list[str] = []
    options = SqliteOptions(commit_writes_max=7)
    async with desk_in(tmp_path, options, lambda events: heard.extend(names(events))) as desk:
        wishes = [note(f"note {index}") for index in range(200)]
        await asyncio.gather(*await desk.submit_all(wishes))
        assert heard == desk.notes()
        assert len(heard) == 200


async def test_listener_hears_of_a_commit_before_its_callers_do(tmp_path: Path) -> None:
    story: list[str] = []
    async with desk_in(tmp_path, listener=lambda events: story.append("listener")) as desk:
        task = desk.submit(note("note"))
        task.add_done_callback(lambda done: story.append("caller"))
        await task
        await asyncio.sleep(0)
        assert story == ["listener", "caller"]


async def test_listener_that_raises_leaves_nobody_waiting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def listener(events: Sequence[Event]) -> None:
        raise RuntimeError("a bug in the listener")

    async with desk_in(tmp_path, listener=listener) as desk:
        with caplog.at_level(logging.CRITICAL, "asyncio"), loop_errors() as errors:
            await desk.hold()
            tasks = await desk.submit_all([note("one"), note("two")])
            desk.let_go()
            assert await asyncio.gather(*tasks) == ["one", "two"]
            assert await desk.writer.write(note("three")) == "three"
        assert [str(error) for error in errors] == ["a bug in the listener"] * 2


@contextmanager
def loop_errors() -> Iterator[list[BaseException | None]]:
    """What callbacks of the running loop raise meanwhile."""
    errors: list[BaseException | None] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: errors.append(context.get("exception")))
    yield errors
    loop.set_exception_handler(None)


async def test_a_cancelled_caller_does_not_disturb_the_others(tmp_path: Path) -> None:
    async with desk_in(tmp_path, SqliteOptions(writes_waiting_max=4)) as desk:
        await desk.hold()
        first, gone, last = await desk.submit_all([note("first"), note("gone"), note("last")])
        gone.cancel()
        desk.let_go()
        assert [await desk.first, await first, await last] == ["held", "first", "last"]
        with pytest.raises(asyncio.CancelledError):
            await gone
        # It was taken in, so it happened; and its place in the queue is free again.
        assert desk.notes() == ["first", "gone", "last"]
        tasks = await desk.submit_all([note(f"next {index}") for index in range(4)])
        assert len(await asyncio.gather(*tasks)) == 4


async def test_a_write_is_refused_at_once_when_too_many_wait(tmp_path: Path) -> None:
    async with desk_in(tmp_path, SqliteOptions(writes_waiting_max=4)) as desk:
        await desk.hold()
        below = await desk.submit_all([note(f"note {index}") for index in range(3)])
        # The writer's thread still stands: whoever is answered now is answered at once.
        with pytest.raises(Overloaded, match="4 writes are waiting"):
            await desk.writer.write(note("one too many"))
        desk.let_go()
        assert len(await asyncio.gather(*below)) == 3
        assert await desk.writer.write(note("later")) == "later"
        assert "one too many" not in desk.notes()


async def test_writer_commits_what_it_has_taken_in_when_it_is_closed(tmp_path: Path) -> None:
    async with desk_in(tmp_path, SqliteOptions(commit_writes_max=3)) as desk:
        await desk.hold()
        tasks = await desk.submit_all([note(f"note {index}") for index in range(10)])
        closing = asyncio.create_task(desk.writer.close())
        await asyncio.sleep(0)
        with pytest.raises(StoreUnavailable, match="the store is closing"):
            await desk.writer.write(note("too late"))
        assert not closing.done()
        desk.let_go()
        await closing
        assert all(task.done() for task in tasks)
        assert await asyncio.gather(*tasks) == desk.notes() == [f"note {n}" for n in range(10)]


async def test_a_read_is_refused_at_once_when_too_many_wait(tmp_path: Path) -> None:
    options = SqliteOptions(readers=1, reads_waiting_max=4, read_ms_max=10_000)
    async with desk_in(tmp_path, options) as desk:
        readers = Readers(tmp_path / "notes.db", options)
        begun, let_go = threading.Event(), threading.Event()

        def query(database: apsw.Connection) -> str:
            begun.set()
            assert let_go.wait(30)
            return "read"

        try:
            held = asyncio.create_task(readers.read(query))
            await asyncio.to_thread(begun.wait, 10)
            below = [asyncio.create_task(readers.read(lambda _: "read")) for _ in range(3)]
            await asyncio.sleep(0)
            with pytest.raises(Overloaded, match="4 reads are waiting"):
                await readers.read(lambda _: "one too many")
            assert not held.done()
            let_go.set()
            assert await asyncio.gather(held, *below) == ["read"] * 4
            assert await readers.read(lambda _: "later") == "later"
            assert desk.doubts == []
        finally:
            let_go.set()
            await readers.close()


async def test_reads_go_on_when_the_file_can_be_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.write_text("not a database" * 999)
    readers = Readers(path, SqliteOptions(readers=1))

    def ask(database: apsw.Connection) -> int:
        return len(database.execute("SELECT 1 FROM sqlite_schema").fetchall())

    try:
        with pytest.raises(StoreUnusable, match="is damaged"):
            await readers.read(ask)
        path.unlink()
        assert await readers.read(ask) == 0
    finally:
        await readers.close()


async def test_sequences_grow_when_the_clock_jumps_back(stores: Stores) -> None:
    world = await stores.open()
    chat, one, _ = await pair_in(world)
    outcomes = []
    for now_ms in (2_000_000_000_000, 1_000_000_000_000, 1):
        outcomes += await world.storage.append([world.draft(chat, one)], now_ms=now_ms)
    assert describe(outcomes) == ["stored 1 after 0", "stored 2 after 1", "stored 3 after 2"]
    assert [taken(outcome).created_at_ms for outcome in outcomes][-1] == 1
    found = await world.messages(one, chat)
    assert [message.sequence for message in found] == [1, 2, 3]


def meet_damage(database: apsw.Connection) -> tuple[str, Sequence[Event]]:
    rows = database.execute("SELECT note FROM notes")
    return str([msgspec.convert(note, int) for (note,) in rows]), ()


async def test_a_write_that_met_damage_does_not_pin_the_log(tmp_path: Path) -> None:
    """Its error keeps a cursor that stands in the middle of its rows."""
    async with desk_in(tmp_path) as desk:
        desk.database.execute("INSERT INTO notes VALUES ('one'), ('two')")
        other = connect(tmp_path / "notes.db", SqliteOptions(busy_ms_max=1), cache_kib=64)
        gc.disable()
        try:
            with pytest.raises(StoreDamaged):
                await desk.writer.write(meet_damage)
            [(busy, _, _)] = other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            assert busy == 0
        finally:
            gc.enable()
            other.close()
