"""Restore: a new life of the store in which no sequence is given out twice.

Slow where a process is killed in the middle of it.
"""

import asyncio
import shutil
import signal
import stat
from pathlib import Path

import apsw
import pytest

from tests.engines.sqlite import child
from tests.engines.sqlite.store import Stores, TunedStore, open_beside, pair_in, store_of
from tests.support.accounts import a_device, a_login, registered
from tests.support.outcomes import chained, describe
from tests.support.world import World
from tidewire.domain.errors import StoreUnusable
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.limits import RESTORE_SEQUENCE_JUMP, SEQUENCE_MAX
from tidewire.engines.sqlite import DATABASE_NAME, SqliteOptions, SqliteStorage, copying
from tidewire.engines.sqlite import backup as backup_module
from tidewire.engines.sqlite.backup import backup, restore


class Saved:
    """A store with a backup of it: one chat with ten messages, all acknowledged by the other."""

    def __init__(self, world: World, chat: ChatId, people: tuple[UserId, UserId], file: Path):
        self.world = world
        self.chat = chat
        self.one, self.other = people
        self.file = file

    @property
    def epoch(self) -> str:
        return self.world.storage.epoch

    async def open_in(self, directory: Path) -> World:
        """Open a restored store, and go on with it in this world."""
        await self.world.engine.close()
        self.world.engine = TunedStore(directory, SqliteOptions())
        await self.world.engine.open()
        return self.world


@pytest.fixture
async def saved(stores: Stores, tmp_path: Path) -> Saved:
    world = await stores.open()
    chat, one, other = await pair_in(world)
    await world.send_many(chat, one, 9)
    # So long that it has a page of its own, the last one: a file that lacks some of its end has
    # then lost text only, which no check of SQLite's would notice.
    await world.send(chat, one, "x" * 4_096)
    await world.ack(other, chat, 7)
    file = tmp_path / "backup.db"
    backup(store_of(world).directory, file)
    return Saved(world, chat, (one, other), file)


async def test_restore_begins_a_new_life_with_the_old_messages(
    saved: Saved, tmp_path: Path
) -> None:
    lost = await saved.world.send(saved.chat, saved.one, "after the backup")
    before = saved.world.storage.epoch
    backup_bytes = saved.file.read_bytes()
    epoch = restore(saved.file, tmp_path / "restored")
    world = await saved.open_in(tmp_path / "restored")
    assert world.storage.epoch == epoch != before
    assert saved.file.read_bytes() == backup_bytes
    assert await world.engine.counter(saved.chat) == 10 + RESTORE_SEQUENCE_JUMP
    entry = await world.entry(saved.other, saved.chat)
    assert (entry.head, entry.delivered) == (10, 7)
    answer = await world.send(saved.chat, saved.one)
    assert answer.prev_sequence == 10
    assert answer.sequence == 10 + RESTORE_SEQUENCE_JUMP + 1
    assert answer.sequence > lost.sequence
    found = await world.engine.messages(saved.chat)
    assert chained(found)
    assert len(found) == 11
    # A second restore of the same backup is yet another life.
    assert restore(saved.file, tmp_path / "again") not in (before, epoch)
    await world.engine.close()


@pytest.mark.parametrize("keep_sessions", [False, True])
async def test_restore_ends_all_sessions_unless_told_to_keep_them(
    stores: Stores, tmp_path: Path, keep_sessions: bool
) -> None:
    world = await stores.open()
    ann = await registered(world, "ann")
    logins = [a_login(world, ann, device=a_device(1)), a_login(world, ann, bot="bot")]
    for login in logins:
        await world.storage.open_session(login, sessions_max=5, now_ms=world.now())
    backup(store_of(world).directory, tmp_path / "backup.db")
    revoked = await world.storage.revoke_session(ann, logins[0].session.session_id)
    assert revoked
    await world.engine.close()
    restore(tmp_path / "backup.db", tmp_path / "restored", keep_sessions=keep_sessions)
    world.engine = TunedStore(tmp_path / "restored", SqliteOptions())
    await world.engine.open()
    left = await world.storage.sessions(ann, now_ms=world.now())
    assert len(left) == (2 if keep_sessions else 0)
    await world.engine.close()


async def test_restore_keeps_the_keys_of_messages(saved: Saved, tmp_path: Path) -> None:
    [first, *_] = await saved.world.engine.messages(saved.chat)
    restore(saved.file, tmp_path / "restored")
    world = await saved.open_in(tmp_path / "restored")
    again = world.draft(saved.chat, saved.one, first.content, key=first.client_message_id)
    assert describe(await world.append(again)) == ["again 1 after 0"]
    await world.engine.close()


async def test_restore_does_not_pass_the_highest_sequence(saved: Saved, tmp_path: Path) -> None:
    database = open_beside(saved.file)
    database.execute("UPDATE chat_counters SET sequence_counter = ?", (SEQUENCE_MAX - 5,))
    database.close()
    restore(saved.file, tmp_path / "restored")
    world = await saved.open_in(tmp_path / "restored")
    assert await world.engine.counter(saved.chat) == SEQUENCE_MAX
    await world.engine.close()


@pytest.mark.parametrize("ending", ["", "-wal", "-journal"])
async def test_restore_is_refused_when_there_is_a_database(
    saved: Saved, tmp_path: Path, ending: str
) -> None:
    target = tmp_path / "restored"
    target.mkdir()
    (target / f"{DATABASE_NAME}{ending}").write_text("precious")
    with pytest.raises(StoreUnusable, match="has a database already"):
        restore(saved.file, target)
    assert (target / f"{DATABASE_NAME}{ending}").read_text() == "precious"


async def test_restore_is_refused_when_a_server_holds_the_directory(saved: Saved) -> None:
    with pytest.raises(StoreUnusable, match="is in use by process"):
        restore(saved.file, store_of(saved.world).directory)


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-4])


def cut_in_half(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 8192 * 4096])


def scribble(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[4096 * 5 : 4096 * 5 + 64] = b"\xff" * 64
    file.write_bytes(content)


def put_text(file: Path) -> None:
    file.write_text("Dear diary,\n" * 1_000)


def make_empty(file: Path) -> None:
    file.write_bytes(b"")


def make_foreign(file: Path) -> None:
    file.unlink()
    database = apsw.Connection(str(file))
    database.execute("CREATE TABLE bookmarks (url)")
    database.close()


def make_newer(file: Path) -> None:
    database = apsw.Connection(str(file))
    database.execute("PRAGMA user_version = 4711")
    database.close()


def put_log_beside(file: Path) -> None:
    file.with_name(file.name + "-wal").write_text("the log of a live database")


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (Path.unlink, "there is no file"),
        (truncate, "damaged"),
        (cut_in_half, "damaged"),
        (scribble, "damaged"),
        (put_text, "not a database"),
        (make_empty, "holds no Tidewire database"),
        (make_foreign, "some other program"),
        (make_newer, "newer Tidewire"),
        (put_log_beside, "it is a database in use"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_restore_is_refused_when_the_file_is_no_whole_backup(
    saved: Saved, tmp_path: Path, spoil: "object", sentence: str
) -> None:
    assert callable(spoil)
    spoil(saved.file)
    target = tmp_path / "restored"
    with pytest.raises(StoreUnusable, match=sentence):
        restore(saved.file, target)
    left = [path.name for path in target.iterdir()] if target.exists() else []
    assert left in ([], ["tidewire.lock"])


async def test_restore_leaves_nothing_behind_when_it_is_interrupted(
    saved: Saved, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "restored"
    steps = [(backup_module, step) for step in ("begin_new_life", "set_epoch", "migrate")]
    for module, step in [*steps, (copying, "sync_file")]:
        with monkeypatch.context() as patch:
            patch.setattr(module, step, interrupt)
            with pytest.raises(KeyboardInterrupt):
                restore(saved.file, target)
        assert [path.name for path in target.iterdir()] == ["tidewire.lock"], step
    restore(saved.file, target)


def interrupt(*given: object, **named: object) -> None:
    raise KeyboardInterrupt


async def test_restore_tells_when_the_disk_is_full(
    saved: Saved, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", no_room)
    with pytest.raises(StoreUnusable, match=r"cannot restore into .*: No space left on device"):
        restore(saved.file, tmp_path / "restored")


@pytest.mark.slow
async def test_restore_leaves_no_database_when_it_is_killed(saved: Saved, tmp_path: Path) -> None:
    target = tmp_path / "restored"
    process = child.start("die-while-restoring", target, str(saved.file))
    said, _ = await asyncio.to_thread(process.communicate, timeout=50)
    assert said == ""
    assert process.returncode == -signal.SIGKILL
    assert not (target / DATABASE_NAME).exists()
    # A restore after that is as good as the first.
    epoch = restore(saved.file, target)
    world = await saved.open_in(target)
    assert world.storage.epoch == epoch
    assert len(await world.messages(saved.one, saved.chat)) == 10
    await world.engine.close()
    assert sorted(path.name for path in target.iterdir()) == [DATABASE_NAME, "tidewire.lock"]


async def test_restore_ignores_what_a_killed_one_left(
    saved: Saved, stores: Stores, tmp_path: Path
) -> None:
    # Method: a live store's files, log included, stand where the killed restore worked.
    other = await stores.open()
    chat, one, _ = await pair_in(other)
    await other.send_many(chat, one, 200)
    target = tmp_path / "restored"
    target.mkdir()
    live = store_of(other)
    for path in (live.path, live.wal_path):
        shutil.copyfile(path, target / path.name.replace(DATABASE_NAME, "tidewire.db.restoring"))
    restore(saved.file, target)
    world = await saved.open_in(target)
    assert len(await world.engine.messages(saved.chat)) == 10
    await world.engine.close()


async def test_restored_store_is_closed_and_opened_like_any_other(
    saved: Saved, tmp_path: Path
) -> None:
    epoch = restore(saved.file, tmp_path / "restored")
    for _ in range(2):
        storage = await SqliteStorage.open(tmp_path / "restored")
        assert storage.epoch == epoch
        await storage.close()
    assert stat.S_IMODE((tmp_path / "restored" / DATABASE_NAME).stat().st_mode) == 0o600
    with pytest.raises(StoreUnusable, match="has a database already"):
        restore(saved.file, tmp_path / "restored")
