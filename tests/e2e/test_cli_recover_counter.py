"""`tidewire recover-counter` as an operator runs it. Slow: each test starts the program."""

from pathlib import Path

import pytest

from tests.e2e.commands import edited, make_store, one, tidewire
from tidewire.domain.ids import ChatId
from tidewire.engines.sqlite.lockfile import DataDirectoryLock

pytestmark = pytest.mark.slow

COUNTER = "SELECT sequence_counter FROM chat_counters WHERE chat_id = ?"


@pytest.fixture
def blocked(tmp_path: Path) -> ChatId:
    """A chat of 25 messages whose counter somebody has deleted; its store is in tmp_path."""
    group = make_store(tmp_path)
    with edited(tmp_path) as database:
        database.execute("DELETE FROM chat_counters WHERE chat_id = ?", (group,))
    return group


def test_lost_counter_is_found_told_and_put_back(tmp_path: Path, blocked: ChatId) -> None:
    found = tidewire("verify", tmp_path)
    assert found.exit_code == 1
    assert f"- {blocked}: no counter row; the last message is 25" in found.out

    told = tidewire("recover-counter", tmp_path, blocked)
    assert told.exit_code == 0
    assert "The counter would be put at 10025. Nothing was changed" in told.out
    assert one(tmp_path, COUNTER, blocked) is None

    done = tidewire("recover-counter", tmp_path, blocked, "--apply")
    assert done.exit_code == 0
    assert "Its counter is now 10025; the next message gets 10026." in done.out
    audit = "SELECT recovered_at > 0, recovered_from_sequence FROM chat_counters WHERE chat_id = ?"
    assert one(tmp_path, COUNTER, blocked) == 10_025
    assert one(tmp_path, audit, blocked) == (1, 25)
    assert tidewire("verify", tmp_path).exit_code == 0

    again = tidewire("recover-counter", tmp_path, blocked, "--apply")
    assert again.exit_code == 0
    assert again.out.startswith("Nothing to do: ")


def test_lost_message_is_told_by_a_position_above_it(tmp_path: Path, blocked: ChatId) -> None:
    with edited(tmp_path) as database:
        database.execute("DELETE FROM messages WHERE chat_id = ? AND sequence = 25", (blocked,))
    done = tidewire("recover-counter", tmp_path, blocked)
    assert done.exit_code == 0
    assert "last message is 24, but a member had got 25 (a message is lost)" in done.out
    assert "The counter would be put at 10025." in done.out


def test_wrong_counter_is_for_a_person(tmp_path: Path, blocked: ChatId) -> None:
    with edited(tmp_path) as database:
        database.execute("INSERT INTO chat_counters VALUES (?, 3, 1, 1, NULL, NULL)", (blocked,))
    done = tidewire("recover-counter", tmp_path, blocked, "--apply")
    assert (done.exit_code, done.out) == (2, "")
    assert "has a counter, 3, but its sequences go up to 25" in done.err
    assert "Restore the last backup" in done.err
    assert one(tmp_path, COUNTER, blocked) == 3


def test_running_server_has_to_be_stopped_first(tmp_path: Path, blocked: ChatId) -> None:
    with DataDirectoryLock(tmp_path):
        done = tidewire("recover-counter", tmp_path, blocked, "--apply")
    assert (done.exit_code, done.out) == (2, "")
    assert "is in use by process" in done.err
    assert "stop that process first" in done.err
    assert one(tmp_path, COUNTER, blocked) is None


def test_unknown_chat_is_told(tmp_path: Path, blocked: ChatId) -> None:
    done = tidewire("recover-counter", tmp_path, "chat_x", "--apply")
    assert (done.exit_code, done.out) == (2, "")
    assert "there is no chat chat_x in this store" in done.err


def test_missing_store_is_told_and_not_made(tmp_path: Path) -> None:
    done = tidewire("recover-counter", tmp_path, "chat_x", "--apply")
    assert (done.exit_code, done.out) == (2, "")
    assert list(tmp_path.iterdir()) == []
