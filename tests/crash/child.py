"""The process that is killed: the real store and the real ingest service under load.

`python -m tests.crash.child DIRECTORY SEED LIFE` reads from standard input the sends that it
begins with, one record a line, and reports on standard output. Each line is written in one piece
before the next thing happens, so a kill cannot lose what was reported: the pipe is the parent's.
With `--forgetful` everything is kept only in memory, with `--retentive` a deletion leaves the texts
where they are; the parent must notice both.
"""

import asyncio
import os
import secrets
import sys
from pathlib import Path
from typing import Final

from tests.support.crash_cast import Cast, establish, make_cast
from tests.support.crash_load import Load, listener
from tests.support.crash_records import (
    Opened,
    Opening,
    Ready,
    Record,
    Restarted,
    decode_line,
    encode_line,
)
from tests.support.history import Sent
from tests.support.memory import MemoryStorage
from tidewire.domain import append
from tidewire.domain.append import note_amendment
from tidewire.domain.ids import UlidSource
from tidewire.domain.messages import EntryKind, Message
from tidewire.engines.sqlite import SqliteStorage
from tidewire.engines.sqlite.database import SqliteOptions
from tidewire.ingest.options import IngestOptions
from tidewire.ingest.service import IngestService
from tidewire.ports.storage import Storage
from tidewire.runtime.clock import SystemClock
from tidewire.runtime.supervise import TaskSupervisor

CAST: Final[Cast] = make_cast(16)
OPTIONS: Final = SqliteOptions(checkpoint_bytes=200_000, wal_bytes_max=800_000)
"""Small enough for checkpoints and restarts of the log within a life of a fraction of a second."""

PAUSE_S: Final = 0.02


def report(record: Record) -> None:
    line = encode_line(record)
    written = os.write(sys.stdout.fileno(), line)
    assert written == len(line)


async def live(
    directory: Path, seed: str, life: int, again: list[Sent], *, is_forgetful: bool
) -> None:
    """Open the store and work on it, until this process is killed."""
    report(Opening())
    sqlite = await SqliteStorage.open(directory, listener=listener(report), options=OPTIONS)
    report(Opened())
    work = load(MemoryStorage() if is_forgetful else sqlite, seed, life, again)
    running = asyncio.ensure_future(work)
    restarts = 0
    while not running.done():
        await asyncio.wait([running], timeout=0.005)
        if sqlite.checkpointer.restarts != restarts:
            restarts = sqlite.checkpointer.restarts
            report(Restarted())
    # The load is never stopped, so it ended by an error, which this raises.
    await running


async def load(storage: Storage, seed: str, life: int, again: list[Sent]) -> None:
    await establish(storage, CAST)
    ingest = IngestService(
        store=storage,
        clock=SystemClock(),
        ids=UlidSource(secrets.randbits),
        tasks=TaskSupervisor(),
        options=IngestOptions(),
    )
    report(Ready())
    senders = Load(storage, ingest, CAST, life=life, seed=seed, report=report, pause_s=PAUSE_S)
    await senders.run(again)


def note_all_but_deletions(decision: append.AppendDecision, message: Message) -> None:
    if message.kind is not EntryKind.DELETE:
        note_amendment(decision, message)


def main() -> None:
    directory, seed, life, *options = sys.argv[1:]
    records = [decode_line(line) for line in sys.stdin.buffer]
    again = [record for record in records if isinstance(record, Sent)]
    is_forgetful = options == ["--forgetful"]
    if options == ["--retentive"]:
        append.note_amendment = note_all_but_deletions
    asyncio.run(live(Path(directory), seed, int(life), again, is_forgetful=is_forgetful))
    sys.exit("the load has come to an end by itself")


if __name__ == "__main__":
    main()
