"""`tidewire verify` as an operator runs it. Slow: each test starts the program."""

import asyncio
import re
from pathlib import Path

import pytest

from tests.e2e.commands import (
    COLUMNS,
    edited,
    make_store,
    one,
    tidewire,
    tidewire_on_a_terminal,
)
from tests.support.engines import SqliteHarness
from tests.support.world import World
from tidewire.engines.sqlite import DATABASE_NAME
from tidewire.ops.invariants import Kind, names_of

pytestmark = pytest.mark.slow


def test_sound_store_passes_every_check(tmp_path: Path) -> None:
    make_store(tmp_path)
    done = tidewire("verify", tmp_path)
    assert done.exit_code == 0
    assert done.err == ""
    for name in names_of(Kind.STATE):
        assert re.search(rf"^ ?{name} .* 0 *$", done.out, re.MULTILINE), name
    assert done.out.splitlines()[-1].startswith("All is well: 30 messages, 2 chats, 5 positions, ")


def test_json_says_the_same(tmp_path: Path) -> None:
    make_store(tmp_path)
    done = tidewire("verify", tmp_path, "--json")
    assert done.exit_code == 0
    assert done.json["ok"] is True
    assert done.json["database"] == str(tmp_path / DATABASE_NAME)
    assert done.json["epoch"] == one(tmp_path, "SELECT value FROM store_meta WHERE key = 'epoch'")
    assert done.json["counts"]["messages"] == 30
    assert [check["name"] for check in done.json["checks"]] == list(names_of(Kind.STATE))
    assert {check["violations"] for check in done.json["checks"]} == {0}


def test_violation_is_told_with_its_place(tmp_path: Path) -> None:
    group = make_store(tmp_path)
    with edited(tmp_path) as database:
        database.execute("DELETE FROM messages WHERE chat_id = ? AND sequence = 7", (group,))
    done = tidewire("verify", tmp_path)
    assert done.exit_code == 1
    assert f"- {group}: " in done.out
    assert "at sequence 8 has prev_sequence 7, but the message before it is 6" in done.out
    assert "FAILED: 1 violations of 1 checks" in done.out
    assert "What to do: " in done.out

    done = tidewire("verify", tmp_path, "--json")
    assert done.exit_code == 1
    assert done.json["ok"] is False
    [failed] = [check for check in done.json["checks"] if check["violations"]]
    assert (failed["name"], failed["violations"]) == ("prev_chain_exact", 1)
    assert failed["offenders"][0]["chat_id"] == group


def test_many_offenders_are_counted_and_ten_are_shown(tmp_path: Path) -> None:
    group = make_store(tmp_path)
    with edited(tmp_path) as database:
        database.execute(
            "UPDATE messages SET prev_sequence = 0 WHERE chat_id = ? AND sequence > 1", (group,)
        )
    done = tidewire("verify", tmp_path)
    assert done.exit_code == 1
    assert len(re.findall(r"has prev_sequence 0", done.out)) == 10
    assert "- and 14 more" in done.out


def test_damaged_page_is_told_with_its_place(tmp_path: Path) -> None:
    make_store(tmp_path)
    page = one(tmp_path, "SELECT rootpage FROM sqlite_schema WHERE name = 'messages_by_id'")
    with (tmp_path / DATABASE_NAME).open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)
    done = tidewire("verify", tmp_path)
    assert done.exit_code == 1
    assert "- cannot read the index of message ids: database disk image is malformed" in done.out


def test_file_that_is_no_database_is_damage(tmp_path: Path) -> None:
    (tmp_path / DATABASE_NAME).write_bytes(b"Dear diary, " * 1_000)
    done = tidewire("verify", tmp_path)
    assert done.exit_code == 1
    assert "cannot read the head of tidewire.db: file is not a database" in done.out


def test_nothing_to_verify_is_an_error(tmp_path: Path) -> None:
    done = tidewire("verify", tmp_path / "nowhere")
    assert (done.exit_code, done.out) == (2, "")
    assert done.err.startswith("tidewire: error: there is no database ")
    assert done.err.count("\n") == 1
    assert not (tmp_path / "nowhere").exists()


def test_database_of_another_program_is_an_error(tmp_path: Path) -> None:
    with edited(tmp_path) as database:
        database.execute("CREATE TABLE bookmarks (url)")
    done = tidewire("verify", tmp_path)
    assert (done.exit_code, done.out) == (2, "")
    assert "some other program" in done.err


def test_backup_file_can_be_verified(tmp_path: Path) -> None:
    make_store(tmp_path / "data")
    file = tmp_path / "backup.db"
    assert tidewire("backup", tmp_path / "data", file).exit_code == 0
    done = tidewire("verify", file)
    assert done.exit_code == 0
    assert "All is well: 30 messages" in done.out


async def test_store_of_a_running_server_can_be_verified(tmp_path: Path) -> None:
    """The store is open and taking messages all the while."""
    world = World(SqliteHarness(tmp_path))
    await world.engine.open()
    ann, bob = await world.people(2)
    chat_id = await world.direct(ann, bob)
    loop = asyncio.get_running_loop()
    running = loop.run_in_executor(None, tidewire, "verify", tmp_path, "--json")
    while not running.done():
        await world.send_many(chat_id, ann, 20)
        await world.ack(bob, chat_id, await world.send_many(chat_id, ann, 1))
    done = await running
    await world.engine.close()
    assert done.exit_code == 0
    assert done.json["counts"]["chats"] == 1


def test_terminal_shows_progress_and_lines_that_fit(tmp_path: Path) -> None:
    group = make_store(tmp_path)
    with edited(tmp_path) as database:
        database.execute("DELETE FROM messages WHERE chat_id = ? AND sequence = 7", (group,))
    done = tidewire_on_a_terminal("verify", tmp_path)
    assert done.exit_code == 1
    assert "messages " in done.out.split("check ")[0]
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", done.out)
    lines = [line for line in re.split(r"[\r\n]", shown) if line.strip()]
    assert max(map(len, lines)) <= COLUMNS
    assert any(line.startswith("FAILED: 1 violations") for line in lines)


def test_terminal_shows_an_error_in_lines_that_fit(tmp_path: Path) -> None:
    done = tidewire_on_a_terminal("recover-counter", tmp_path, "chat_x")
    assert done.exit_code == 2
    lines = done.out.splitlines()
    assert lines[0].startswith("tidewire: error: there is no database")
    # A path is never broken, so its line may be longer.
    assert all(len(line) <= COLUMNS or str(tmp_path) in line for line in lines)
