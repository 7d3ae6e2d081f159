"""Two power cuts of one log, which a reader in another process kept from being restarted between.

The first cut tears a long transaction: frames of it are missing, its commit frame has arrived. The
reader pins the log, so the next commits are written over the front of the torn one. The second cut
tears one of those. After the first bad frame there may now be two commit frames, neither of which
was ever synced: they do not belong together, and therefore it is no damage.
"""

import asyncio
from pathlib import Path
from random import Random

import apsw
import pytest

from tests.crash.power import Machine, write_files
from tests.crash.test_restart import CAST, closed, opened, sent
from tests.support.crash_cast import START_MS, establish
from tests.support.crash_snapshot import page_faults, read_snapshot, state_faults
from tidewire.domain.errors import StoreUnusable
from tidewire.domain.ids import ClientMessageId, MessageId, encode_ulid
from tidewire.domain.messages import SendMessage
from tidewire.engines.sqlite import DATABASE_NAME, SqliteStorage, checkpointer
from tidewire.engines.sqlite.log_look import judge_log, wal_of
from tidewire.engines.sqlite.wal import Verdict, read_header, walk

FIRST_CUTS_MAX = 200
"""About one cut in ten leaves the commit frame of the torn transaction."""
STORES = 4
"""How many such stores are tried, each with many second cuts."""
SECOND_CUTS = 100
"""About two in a hundred leave the commit frame of a short commit as well, with a frame missing."""


async def tear_a_long_commit(machine: Machine) -> None:
    """Messages 1 and 2 are acknowledged; the power goes while forty more are synced as one."""
    storage = await opened(machine)
    await establish(storage, CAST)
    for number in (1, 2):
        await sent(storage, number)
    chat_id, owner, _ = CAST.directs[0]
    sends = [
        SendMessage(
            chat_id=chat_id,
            sender_id=owner,
            client_message_id=ClientMessageId(f"{number:032x}"),
            content="long " * 300,
            message_id=MessageId(f"msg_{encode_ulid(number)}"),
        )
        for number in range(1000, 1040)
    ]
    machine.cut_at(1, "wal sync")
    with pytest.raises(StoreUnusable):
        await storage.append(sends, now_ms=START_MS)
    machine.stop()
    await closed(storage)


async def tear_a_short_commit(machine: Machine) -> None:
    """The log is pinned. Messages 3 and 4 are acknowledged, the power goes with number 5."""
    reader = apsw.Connection(str(machine.directory / DATABASE_NAME), vfs=machine.vfs)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM messages").fetchall()
    storage = await opened(machine)
    for number in (3, 4):
        await sent(storage, number)
    machine.cut_at(1, "wal sync")
    with pytest.raises(StoreUnusable):
        await sent(storage, 5)
    machine.stop()
    reader.close()
    await closed(storage)


def lone_commits(path: Path) -> int:
    """The number of commit frames after the first frame that does not fit."""
    log = wal_of(path).read_bytes()
    header = read_header(log)
    assert header is not None
    frames = list(walk(lambda offset, size: log[offset : offset + size], header))
    bad = next((frame.number for frame in frames if not frame.fits), len(frames))
    return sum(frame.commits for frame in frames[bad:])


async def check(left: Path) -> None:
    storage = await SqliteStorage.open(left)
    await storage.close()
    assert page_faults(left) + state_faults(left) == []
    kept = [message.content for message in read_snapshot(left).messages]
    short = [content for content in kept if not content.startswith("long")]
    assert short in ([f"message {number}" for number in range(1, last)] for last in (5, 6))


# Slow: many stores with a cut life; some with a second life, which is cut in many ways.
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_torn_log_that_could_not_be_restarted_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = cases = 0
    write_again = checkpointer._write_again
    for seed in range(FIRST_CUTS_MAX):
        if stores >= STORES and cases:
            break
        home = tmp_path / f"first-{seed}"
        home.mkdir()
        first = Machine(home)
        asyncio.run(tear_a_long_commit(first))
        files = first.left_by_cut(Random(seed))
        first.close()
        home = tmp_path / f"second-{seed}"
        write_files(home, files)
        if lone_commits(home / DATABASE_NAME) == 0:
            continue
        stores += 1
        second = Machine(home)

        def write_and_tell(path: Path, machine: Machine = second) -> None:
            write_again(path)
            machine.written_again(path)

        monkeypatch.setattr(checkpointer, "_write_again", write_and_tell)
        asyncio.run(tear_a_short_commit(second))
        for cut in range(SECOND_CUTS):
            left = tmp_path / f"left-{seed}-{cut}"
            write_files(left, second.left_by_cut(Random(f"{seed}/{cut}")))
            assert judge_log(left / DATABASE_NAME).verdict in (Verdict.TORN, Verdict.WHOLE)
            if lone_commits(left / DATABASE_NAME) > 1:
                cases += 1
                asyncio.run(check(left))
        second.close()
    assert cases > 0, "two commit frames were never left"
