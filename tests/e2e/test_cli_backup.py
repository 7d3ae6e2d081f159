"""`tidewire backup` and `restore` as an operator runs them. Slow: each starts the program."""

from pathlib import Path

import pytest

from tests.e2e.commands import edited, make_store, one, tidewire
from tidewire.domain.limits import RESTORE_SEQUENCE_JUMP

pytestmark = pytest.mark.slow

EPOCH = "SELECT value FROM store_meta WHERE key = 'epoch'"


def test_backup_comes_back_as_a_new_life(tmp_path: Path) -> None:
    data_dir, file, restored = tmp_path / "data", tmp_path / "backup.db", tmp_path / "restored"
    group = make_store(data_dir)
    done = tidewire("backup", data_dir, file)
    assert done.exit_code == 0
    assert done.out.startswith(f"{file}: ")

    done = tidewire("restore", file, restored)
    assert done.exit_code == 0
    assert one(restored, EPOCH) in done.out
    assert one(restored, EPOCH) != one(data_dir, EPOCH)
    counter = "SELECT sequence_counter FROM chat_counters WHERE chat_id = ?"
    assert one(restored, counter, group) == 25 + RESTORE_SEQUENCE_JUMP
    assert tidewire("verify", restored).exit_code == 0


def test_backup_overwrites_nothing(tmp_path: Path) -> None:
    make_store(tmp_path / "data")
    file = tmp_path / "letter.txt"
    file.write_text("Dear diary")
    done = tidewire("backup", tmp_path / "data", file)
    assert (done.exit_code, done.out) == (2, "")
    assert str(file) in done.err
    assert file.read_text() == "Dear diary"


def test_backup_of_nothing_is_an_error(tmp_path: Path) -> None:
    done = tidewire("backup", tmp_path / "data", tmp_path / "backup.db")
    assert (done.exit_code, done.out) == (2, "")
    assert "there is no database" in done.err
    assert not (tmp_path / "backup.db").exists()


def test_restore_overwrites_nothing(tmp_path: Path) -> None:
    make_store(tmp_path / "data")
    assert tidewire("backup", tmp_path / "data", tmp_path / "backup.db").exit_code == 0
    before = one(tmp_path / "data", EPOCH)
    done = tidewire("restore", tmp_path / "backup.db", tmp_path / "data")
    assert (done.exit_code, done.out) == (2, "")
    assert "has a database already" in done.err
    assert one(tmp_path / "data", EPOCH) == before


def test_restore_of_something_else_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "letter.txt"
    file.write_text("Dear diary " * 1_000)
    done = tidewire("restore", file, tmp_path / "data")
    assert (done.exit_code, done.out) == (2, "")
    assert done.err.startswith("tidewire: error: ")


def test_restore_of_nothing_is_an_error(tmp_path: Path) -> None:
    done = tidewire("restore", tmp_path / "nowhere.db", tmp_path / "data")
    assert (done.exit_code, done.out) == (2, "")
    assert "nowhere.db" in done.err


def test_backup_into_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    make_store(tmp_path / "data")
    done = tidewire("backup", tmp_path / "data", tmp_path / "no" / "such" / "backup.db")
    assert (done.exit_code, done.out) == (2, "")
    assert done.err.startswith("tidewire: error: ")


def test_backup_holds_what_verify_finds(tmp_path: Path) -> None:
    """A backup is a copy: it does not make a bad store good."""
    group = make_store(tmp_path / "data")
    with edited(tmp_path / "data") as database:
        database.execute("UPDATE chats SET member_count = 9 WHERE chat_id = ?", (group,))
    assert tidewire("backup", tmp_path / "data", tmp_path / "backup.db").exit_code == 0
    assert tidewire("verify", tmp_path / "backup.db").exit_code == 1
