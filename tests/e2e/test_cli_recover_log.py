"""A damaged log as an operator meets it: every command refuses, `recover-log` saves what it can.

Slow: each test starts the program.
"""

import asyncio
import re
import shutil
from pathlib import Path

import pytest

from tests.e2e.commands import one, tidewire
from tests.support.engines import SqliteHarness
from tests.support.world import World
from tidewire.engines.sqlite import DATABASE_NAME

pytestmark = pytest.mark.slow

MESSAGES = 40
FRAME_BYTES = 24 + 4096


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A data directory after a kill, with one bad sector in the middle of its log."""
    running, data_dir = tmp_path / "running", tmp_path / "data"
    asyncio.run(_talk_and_die(running, data_dir))
    log = data_dir / f"{DATABASE_NAME}-wal"
    data = bytearray(log.read_bytes())
    begin = 32 + 20 * FRAME_BYTES + 600
    data[begin : begin + 512] = b"\xaa" * 512
    log.write_bytes(data)
    return data_dir


async def _talk_and_die(running: Path, data_dir: Path) -> None:
    harness = SqliteHarness(running)
    await harness.open()
    world = World(harness)
    ann, ben = await world.person("cara"), await world.person("dave")
    chat = await world.direct(ann, ben)
    for _ in range(MESSAGES):
        await world.send(chat, ann)
    data_dir.mkdir()
    for ending in ("", "-wal"):
        name = f"{DATABASE_NAME}{ending}"
        shutil.copyfile(running / name, data_dir / name)
    await harness.close()


def test_every_command_refuses_a_damaged_log(damaged: Path, tmp_path: Path) -> None:
    files = {path.name: path.read_bytes() for path in damaged.iterdir()}
    for command in (
        ("serve", damaged, "--port", "0"),
        ("say", "cara", "dave", "hello", "--data-dir", damaged),
        ("users", "list", "--data-dir", damaged),
        ("backup", damaged, tmp_path / "backup.db"),
        ("recover-counter", damaged, "chat_x"),
        ("recover-counter", damaged, "chat_x", "--apply"),
    ):
        done = tidewire(*command)
        assert (done.exit_code, done.out) == (2, ""), command
        assert "the write-ahead log" in done.err
        assert "frame 21 of " in done.err
        assert f"'tidewire recover-log {damaged}'" in done.err
    done = tidewire("verify", damaged)
    assert done.exit_code == 1
    assert "cannot read the write-ahead log tidewire.db-wal: frame 21 of " in done.out
    assert "'tidewire recover-log'" in done.out
    assert {name: (damaged / name).read_bytes() for name in files} == files


def test_what_can_be_saved_is_saved_and_told(damaged: Path) -> None:
    before = {path.name: path.read_bytes() for path in damaged.iterdir()}
    told = tidewire("recover-log", damaged, "--dry-run")
    assert told.exit_code == 0
    assert told.out.splitlines()[-1] == "Nothing was changed (--dry-run)."
    assert {name: (damaged / name).read_bytes() for name in before} == before

    done = tidewire("recover-log", damaged)
    assert done.exit_code == 0
    assert done.out.startswith("The log was damaged: frame 21 of ")
    assert re.search(r"^Best: .*, \d+ messages\.$", done.out, re.MULTILINE)
    assert re.search(r"^(No message is known|Missing, as far)", done.out, re.MULTILINE)
    epoch = one(damaged, "SELECT value FROM store_meta WHERE key = 'epoch'")
    assert f"its epoch is {epoch}." in done.out
    assert f"The damaged files are in {damaged / f'damaged-{epoch}'};" in done.out
    assert "All sessions have ended" in done.out
    kept = {path.name: path.read_bytes() for path in (damaged / f"damaged-{epoch}").iterdir()}
    assert kept == before
    assert tidewire("verify", damaged).exit_code == 0
    assert "command=recover-log" in tidewire("audit", "--data-dir", damaged).out

    again = tidewire("recover-log", "--data-dir", damaged)
    assert again.exit_code == 0
    assert again.out == f"Nothing to do: the log in {damaged} is not damaged.\n"


def test_there_has_to_be_a_database(tmp_path: Path) -> None:
    done = tidewire("recover-log", tmp_path / "nowhere")
    assert (done.exit_code, done.out) == (2, "")
    assert "there is no directory" in done.err
