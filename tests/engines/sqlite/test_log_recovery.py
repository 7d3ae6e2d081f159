"""`recover-log` on stores whose log was damaged: what is kept, what is told, and that it can be
killed anywhere (A6)."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from tests.engines.sqlite.inspected import verify_file, violated
from tests.engines.sqlite.killed import FRAME_BYTES, HEADER_BYTES, Killed, copied, kill
from tests.engines.sqlite.store import Stores, TunedStore, open_beside, store_of
from tests.support.accounts import a_device, a_login, registered
from tidewire.domain.errors import StoreUnusable
from tidewire.domain.limits import RESTORE_SEQUENCE_JUMP
from tidewire.engines.sqlite import SqliteOptions, SqliteStorage, log_recovery
from tidewire.engines.sqlite.backup import backup, restore
from tidewire.engines.sqlite.copying import discard_database, sync_file
from tidewire.engines.sqlite.lockfile import DataDirectoryLock
from tidewire.engines.sqlite.log_recovery import highest_sequences
from tidewire.ops import recover_log as recover_module
from tidewire.ops.recover_log import LogRecovery, Missing, missing_sequences, recover_log

MESSAGES: Final = 60
"""Enough for some leaf pages of the table, of which all but the last are not written again."""


@pytest.fixture
async def killed(stores: Stores, tmp_path: Path) -> Killed:
    """A directory as a kill leaves it. The store that it is a copy of is closed."""
    killed = await kill(stores, tmp_path / "killed", messages=MESSAGES)
    await store_of(killed.world).close()
    return killed


async def reopened(killed: Killed) -> TunedStore:
    """The store of the directory, in the world that it was of."""
    store = TunedStore(killed.directory, SqliteOptions())
    killed.world.engine = store
    await store.open()
    return store


def last_frame_of(killed: Killed, table: str, leaf: int) -> int:
    """The number of the frame with the last version of one of a table's leaf pages."""
    look = killed.directory.parent / "look.db"
    shutil.copyfile(killed.path, look)
    shutil.copyfile(killed.wal, f"{look}-wal")
    database = open_beside(look)
    query = "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf' ORDER BY path"
    page: Any = database.execute(query, (table,)).fetchall()[leaf][0]
    database.close()
    log = killed.wal.read_bytes()
    numbers = [
        int.from_bytes(log[place : place + 4], "big")
        for place in range(HEADER_BYTES, len(log), FRAME_BYTES)
    ]
    return len(numbers) - numbers[::-1].index(page)


def scratch(killed: Killed, frame: int) -> None:
    """Damage so much of a frame that nothing of it can be put right."""
    for place in range(1000, 1500, 100):
        killed.hit_frame(frame, place)


async def test_damage_that_later_frames_cover_costs_nothing(killed: Killed) -> None:
    """The second leaf of the messages, long before its last version."""
    scratch(killed, last_frame_of(killed, "messages", 1) - 40)
    damaged = killed.files()
    done = recover_log(killed.directory)
    assert done.kept is not None
    assert done.kept.name == "everything that is legible"
    assert (done.kept.messages, done.missing) == (MESSAGES, [])
    assert done.aside is not None
    assert {path.name: path.read_bytes() for path in done.aside.iterdir()} == damaged
    await reopened(killed)
    assert len(await killed.world.messages(killed.one, killed.chat)) == MESSAGES
    await killed.world.engine.close()


async def test_what_cannot_be_saved_is_listed(killed: Killed) -> None:
    """The last version of the first leaf of messages: what came after hangs in the air."""
    scratch(killed, last_frame_of(killed, "messages", 0))
    done = recover_log(killed.directory)
    assert done.kept is not None
    assert done.kept.name == "the transactions before the damage"
    assert 0 < done.kept.messages < MESSAGES
    assert done.missing == [Missing(killed.chat, done.kept.messages + 1, MESSAGES)]
    assert [one.fault is None for one in done.tried] == [False, False, True, True]
    await reopened(killed)
    found = await killed.world.messages(killed.one, killed.chat)
    assert [message.sequence for message in found] == list(range(1, done.kept.messages + 1))
    await killed.world.engine.close()


async def test_one_word_is_put_right(killed: Killed) -> None:
    killed.hit_frame(last_frame_of(killed, "messages", 0), 1000)
    done = recover_log(killed.directory)
    assert done.kept is not None
    assert done.kept.name == "the log with 1 damaged frame put right"
    assert (done.kept.messages, done.missing) == (MESSAGES, [])


async def test_damaged_header_costs_nothing(killed: Killed) -> None:
    killed.hit(20)
    done = recover_log(killed.directory)
    assert done.damage is not None
    assert "its header is not what was written" in done.damage
    assert done.kept is not None
    assert (done.kept.messages, done.missing) == (MESSAGES, [])
    await reopened(killed)
    assert len(await killed.world.messages(killed.one, killed.chat)) == MESSAGES
    await killed.world.engine.close()


async def test_pages_that_a_checkpoint_copied_from_behind_the_damage_are_used(
    stores: Stores, tmp_path: Path
) -> None:
    """The database has everything, and the log before the damage would take it back."""
    killed = await kill(stores, tmp_path / "killed", messages=MESSAGES, is_copied=True)
    await store_of(killed.world).close()
    scratch(killed, last_frame_of(killed, "messages", 0))
    done = recover_log(killed.directory)
    assert done.kept is not None
    assert (done.kept.messages, done.missing) == (MESSAGES, [])


async def test_messages_that_were_damaged_before_are_no_reason_to_lose_the_others(
    stores: Stores, tmp_path: Path
) -> None:
    """The contents were hit in the database file; the log is damaged besides."""
    killed = await kill(
        stores, tmp_path / "killed", messages=MESSAGES, is_copied=True, messages_after=10
    )
    await store_of(killed.world).close()
    data = killed.path.read_bytes()
    database = open_beside(killed.directory.parent / "store-0" / "tidewire.db")
    first = str(database.execute("SELECT content FROM messages ORDER BY position LIMIT 1").get)
    database.close()
    killed.path.write_bytes(data.replace(first.encode(), b"#" * len(first)))
    killed.hit_frame(5)
    done = recover_log(killed.directory)
    assert done.kept is not None
    assert (done.kept.messages, done.missing) == (MESSAGES + 10, [])
    assert done.kept.readable == done.kept.messages - done.kept.damaged < done.kept.messages
    await reopened(killed)
    found = await killed.world.messages(killed.one, killed.chat)
    assert [message.is_damaged for message in found].count(True) == done.kept.damaged
    await killed.world.engine.close()


async def test_recovered_store_begins_a_new_life(killed: Killed) -> None:
    database = open_beside(killed.directory.parent / "store-0" / "tidewire.db")
    before = database.execute("SELECT value FROM store_meta WHERE key = 'epoch'").get
    database.close()
    killed.hit_frame(10)
    done = recover_log(killed.directory)
    await reopened(killed)
    world = killed.world
    assert world.storage.epoch == done.epoch != before
    assert await world.engine.counter(killed.chat) == MESSAGES + RESTORE_SEQUENCE_JUMP
    answer = await world.send(killed.chat, killed.one)
    assert answer.prev_sequence == MESSAGES
    assert answer.sequence == MESSAGES + RESTORE_SEQUENCE_JUMP + 1
    await world.engine.close()
    # Nothing is left but the store and what was damaged.
    assert done.aside is not None
    left = {path.name for path in killed.directory.iterdir()}
    assert left == {"tidewire.db", "tidewire.lock", done.aside.name}
    assert violated(verify_file(killed.path)) == []


@pytest.mark.parametrize("keep_sessions", [False, True])
async def test_sessions_end_unless_they_are_kept(
    stores: Stores, tmp_path: Path, keep_sessions: bool
) -> None:
    world = await stores.open()
    ann = await registered(world, "ann")
    login = a_login(world, ann, device=a_device(1))
    await world.storage.open_session(login, sessions_max=5, now_ms=world.now())
    for _ in range(5):
        await world.person()
    killed = Killed(tmp_path / "killed", world, world.no_chat(), ann, ann)
    copied(store_of(world).directory, killed.directory)
    await store_of(world).close()
    killed.hit(4)
    recover_log(killed.directory, keep_sessions=keep_sessions)
    await reopened(killed)
    assert len(await world.storage.sessions(ann, now_ms=world.now())) == int(keep_sessions)
    await world.engine.close()


async def test_nothing_to_do_is_told(killed: Killed) -> None:
    killed.tear()
    before = killed.files()
    assert recover_log(killed.directory) == LogRecovery()
    assert killed.files() == before
    (killed.directory.parent / "empty").mkdir()
    with pytest.raises(StoreUnusable, match="there is no database"):
        recover_log(killed.directory.parent / "empty")
    with pytest.raises(StoreUnusable, match="there is no directory"):
        recover_log(killed.directory.parent / "nowhere")


async def test_dry_run_changes_nothing(killed: Killed) -> None:
    killed.hit_frame(10)
    before = killed.files()
    done = recover_log(killed.directory, dry_run=True)
    assert done.kept is not None
    assert (done.kept.messages, done.epoch, done.aside) == (MESSAGES, None, None)
    assert killed.files() == before


async def test_server_that_runs_has_to_be_stopped_first(killed: Killed) -> None:
    killed.hit_frame(10)
    with (
        DataDirectoryLock(killed.directory, look=lambda path: None),
        pytest.raises(StoreUnusable, match="is in use by process"),
    ):
        recover_log(killed.directory)


async def test_store_of_which_no_state_is_whole_is_left_as_it_is(killed: Killed) -> None:
    """The database is damaged as well: its first page is in none of the frames that fit."""
    killed.hit_frame(10)
    data = bytearray(killed.path.read_bytes())
    data[100:120] = bytes(range(20))
    killed.path.write_bytes(data)
    log = killed.wal.read_bytes()
    for frame in range(1, killed.frames + 1):
        place = HEADER_BYTES + (frame - 1) * FRAME_BYTES
        if int.from_bytes(log[place : place + 4], "big") == 1:
            scratch(killed, frame)
    before = killed.files()
    with pytest.raises(StoreUnusable, match=r"no state .* is whole .*restore the last backup"):
        recover_log(killed.directory)
    assert killed.files() == before


async def test_full_disk_is_told(killed: Killed, monkeypatch: pytest.MonkeyPatch) -> None:
    killed.hit_frame(10)
    before = killed.files()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(StoreUnusable, match=r"cannot recover .*: No space left on device"):
        recover_log(killed.directory)
    assert killed.files() == before


# Killed in the middle.


class Kill(BaseException):
    """The process is gone; nothing is cleaned up."""


def count_steps(monkeypatch: pytest.MonkeyPatch, die_at: int | None) -> list[str]:
    """Let the recovery die at one of its steps on the disk."""
    steps: list[str] = []

    def counted(name: str, act: Callable[..., object]) -> Callable[..., object]:
        def step(*arguments: object, **named: object) -> object:
            steps.append(name)
            if len(steps) == die_at:
                raise Kill
            return act(*arguments, **named)

        return step

    monkeypatch.setattr(shutil, "copyfile", counted("copy", shutil.copyfile))
    monkeypatch.setattr(os, "replace", counted("rename", os.replace))
    monkeypatch.setattr(Path, "replace", counted("rename", Path.replace))
    monkeypatch.setattr(log_recovery, "sync_file", counted("sync", sync_file))
    for module in (log_recovery, recover_module):
        discard = counted("discard", discard_database)
        monkeypatch.setattr(module, "discard_database", discard)
    return steps


# Slow: some twenty recoveries.
@pytest.mark.slow
async def test_recovery_may_be_killed_at_each_of_its_steps(
    killed: Killed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed.hit_frame(10)
    shutil.copytree(killed.directory, tmp_path / "whole")
    with monkeypatch.context() as patch:
        steps = count_steps(patch, None)
        recover_log(tmp_path / "whole")
    assert {"copy", "rename", "sync", "discard"} <= set(steps)
    damaged = killed.files()
    for number in range(1, len(steps) + 1):
        home = tmp_path / f"killed-{number}"
        shutil.copytree(killed.directory, home)
        with monkeypatch.context() as patch:
            count_steps(patch, number)
            with pytest.raises(Kill):
                recover_log(home)
        await check_interrupted(home, is_done=number == len(steps))
        done = recover_log(home)
        assert violated(verify_file(home / "tidewire.db")) == []
        assert verify_file(home / "tidewire.db").counts.messages == MESSAGES
        [aside] = home.glob("damaged-*")
        assert {path.name: path.read_bytes() for path in aside.iterdir()} == damaged
        assert done.aside in (aside, None)


async def check_interrupted(home: Path, *, is_done: bool) -> None:
    """Until it is finished, no program opens what is there."""
    if is_done or not (home / "tidewire.db.recovered").exists():
        return
    for act in (
        lambda: verify_file(home / "tidewire.db"),
        lambda: backup(home, home.parent / "backup.db"),
        lambda: restore(home / "tidewire.db.recovered", home),
    ):
        with pytest.raises(StoreUnusable):
            act()
    with pytest.raises(StoreUnusable, match=r"a recovery of the log was interrupted .* again"):
        await SqliteStorage.open(home)
    assert recover_log(home, dry_run=True).is_resumed


# What is missing.


def test_missing_sequences_are_those_that_other_states_know_of() -> None:
    kept = {"chat_a": 10, "chat_b": 5}
    others = [kept, {"chat_a": 12, "chat_b": 3}, {"chat_a": 11, "chat_c": 2}]
    assert missing_sequences(kept, others) == [Missing("chat_a", 11, 12), Missing("chat_c", 1, 2)]
    assert missing_sequences(kept, [kept]) == []


def test_state_that_cannot_be_read_knows_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "bad.db").write_bytes(b"Dear diary,\n" * 1_000)
    assert highest_sequences(tmp_path / "bad.db") == {}
    database = open_beside(tmp_path / "other.db")
    database.execute("CREATE TABLE chat_counters (chat_id, sequence_counter)")
    database.execute("INSERT INTO chat_counters VALUES ('chat_a', 7), (1, 2), ('chat_b', 'x')")
    database.close()
    assert highest_sequences(tmp_path / "other.db") == {"chat_a": 7}
