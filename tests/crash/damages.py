"""Damaged logs by the hundred: `python -m tests.crash.damages --damages 300 [--seed S]`.

Goal: every damage of one byte with at least three commits after it is noticed before SQLite reads
the log, and what is recovered from the log is right. Method: the real engine runs under load, with
small logs, so that checkpoints run and logs restart all the time, and is killed at a random
operation. Then one byte of a copy of its log is changed, in a frame or in the header.

Every third time a whole sector is garbage instead: then something may be missing afterwards, and
must be listed. These are not counted.

A damaged header is not counted if the database has everything that the log has: SQLite then loses
nothing, which is checked instead.
"""

import argparse
import asyncio
import logging
import secrets
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from tests.crash.lives import Lives
from tests.support.crash_snapshot import read_snapshot, state_faults
from tests.support.trace_entries import is_shown_as_stored
from tidewire.domain.errors import StoreUnusable
from tidewire.domain.messages import Message
from tidewire.engines.sqlite import DATABASE_NAME, SqliteOptions, SqliteStorage
from tidewire.engines.sqlite.log_look import LogDamaged, judge_log, size_bytes, wal_of
from tidewire.engines.sqlite.wal import HEADER_BYTES, read_header, walk
from tidewire.ops.recover_log import LogRecovery, recover_log

DAMAGES_EACH: Final = 6
"""How often a log is damaged, each time in a fresh copy."""
OPERATIONS: Final = (150, 3_500)
OPTIONS: Final = SqliteOptions(checkpoint_bytes=100_000, wal_bytes_max=400_000, readers=1)
"""Logs of a dozen commits, which are checkpointed meanwhile, and restarted often."""
SECTOR_BYTES: Final = 512
COMMITS_BEHIND: Final = 3


@dataclass(slots=True)
class Tally:
    """Counts of what has happened so far."""

    damages: int = 0
    logs: int = 0
    restarted: int = 0
    """Logs that had been restarted: old frames lie behind the new ones."""
    checkpointed: int = 0
    """Logs of which the database had some pages already, but not all."""
    headers: int = 0
    """Damages that hit the header."""
    harmless: int = 0
    """Damaged headers of logs whose content was in the database; not among the damages."""
    sectors: int = 0
    """Sectors of garbage that were noticed; not among the damages."""
    kept: Counter[str] = field(default_factory=Counter)
    """Which state was kept, and whether messages were missing."""

    def __str__(self) -> str:
        kept = "\n".join(f"{times:6} {name}" for name, times in self.kept.most_common())
        return (
            f"{self.damages} damages noticed ({self.headers} of headers) in {self.logs} logs, "
            f"{self.restarted} of them restarted, {self.checkpointed} copied in part; "
            f"{self.sectors} bad sectors noticed; {self.harmless} harmless ones opened; "
            f"kept:\n{kept}\n"
        )


@dataclass(frozen=True, slots=True)
class KilledLog:
    """A directory that a kill has left, and the part of its log that can be damaged."""

    directory: Path
    log: bytes
    messages: list[Message]
    frame_bytes: int
    frames: int
    """Frames with enough commits after them."""

    def wound(self, random: Random, *, is_sector: bool) -> tuple[int, bytes]:
        """Where to damage the log, and the bytes to write there."""
        end = HEADER_BYTES + self.frames * self.frame_bytes
        if is_sector:
            place = random.randrange(end // SECTOR_BYTES) * SECTOR_BYTES
            return place, random.randbytes(SECTOR_BYTES)
        is_header = random.random() < 0.1
        place = random.randrange(HEADER_BYTES) if is_header else random.randrange(HEADER_BYTES, end)
        return place, bytes([self.log[place] ^ random.randrange(1, 256)])


def look_at(directory: Path, tally: Tally) -> KilledLog | None:
    """Read what a kill has left; None if the log is too short to be damaged."""
    path = directory / DATABASE_NAME
    if size_bytes(wal_of(path)) == 0:
        return None
    log, database = wal_of(path).read_bytes(), path.read_bytes()
    header = read_header(log)
    if header is None:
        return None
    frames = list(walk(lambda offset, size: log[offset : offset + size], header))
    commits = [frame.number for frame in frames if frame.commits]
    if len(commits) <= COMMITS_BEHIND:
        return None
    tally.logs += 1
    tally.restarted += any(not frame.is_ours for frame in frames)
    last = {frame.page: frame.number for frame in frames if frame.number <= commits[-1]}
    is_copied = {
        log[(at := HEADER_BYTES + (number - 1) * header.frame_bytes + 24) : at + header.page_bytes]
        == database[(page - 1) * header.page_bytes : page * header.page_bytes]
        for page, number in last.items()
    }
    tally.checkpointed += is_copied == {True, False}
    messages = read_snapshot(directory).messages
    return KilledLog(directory, log, messages, header.frame_bytes, commits[-COMMITS_BEHIND] - 1)


def damage(
    log: KilledLog, home: Path, random: Random, tally: Tally, *, is_sector: bool
) -> list[str]:
    """Change a byte or a sector in a copy; return what went wrong."""
    place, garbage = log.wound(random, is_sector=is_sector)
    home.mkdir()
    path = home / DATABASE_NAME
    shutil.copyfile(log.directory / path.name, path)
    wal_of(path).write_bytes(log.log[:place] + garbage + log.log[place + len(garbage) :])
    what = (
        f"{len(garbage)} bytes at {place} (frame {(place - HEADER_BYTES) // log.frame_bytes + 1})"
    )
    before = {file.name: file.read_bytes() for file in home.iterdir()}
    is_harmless = place < HEADER_BYTES and not judge_log(path).verdict.is_damage
    refusal = asyncio.run(_opened(home))
    if is_harmless:
        tally.harmless += 1
        faults = [] if refusal is None else [f"refused without need: {refusal}"]
        if read_snapshot(home).messages != log.messages:
            faults.append("a message is lost, and it was not noticed")
        return [f"{what}: {fault}" for fault in faults]
    if refusal is None:
        return [f"{what}: was not noticed"]
    if {name: (home / name).read_bytes() for name in before} != before:
        return [f"{what}: the refusal has changed the files"]
    if not state_faults(home):
        return [f"{what}: verify has not noticed it"]
    tally.sectors += is_sector
    tally.damages += not is_sector
    tally.headers += place < HEADER_BYTES
    try:
        done = recover_log(home)
    except StoreUnusable as nothing:
        tally.kept["nothing that is whole"] += 1
        kept_as_it_was = all((home / name).read_bytes() == data for name, data in before.items())
        is_told = "restore the last backup" in str(nothing)
        return [] if kept_as_it_was and is_told else [f"{what}: {nothing}"]
    return [f"{what}: {fault}" for fault in _recovery_faults(done, home, log, tally)]


async def _opened(home: Path) -> str | None:
    """Open a store as a server does; return why it was refused, None if it was opened."""
    try:
        storage = await SqliteStorage.open(home)
    except LogDamaged as damaged:
        return str(damaged)
    await storage.close()
    return None


def _recovery_faults(done: LogRecovery, home: Path, log: KilledLog, tally: Tally) -> list[str]:
    """Check that nothing is invented or out of order, and that what is missing is listed."""
    assert done.kept is not None
    faults = state_faults(home)
    saved = read_snapshot(home).messages
    known = {message.message_id: message for message in log.messages}
    # The recovered state may be from before a deletion, which is then listed as missing.
    faults += [
        f"{one.message_id} is another"
        for one in saved
        if not is_shown_as_stored(one, known.get(one.message_id))
    ]
    heads: Counter[str] = Counter()
    for message in log.messages:
        heads[message.chat_id] = max(heads[message.chat_id], message.sequence)
    for message in saved:
        if heads[message.chat_id] == message.sequence:
            del heads[message.chat_id]
    listed = {one.chat_id for one in done.missing}
    faults += [f"{chat} lacks messages and is not listed" for chat in heads if chat not in listed]
    name = done.kept.name.replace(" 1 ", " a ")
    tally.kept[f"{name}{', some missing' if len(saved) < len(known) else ', complete'}"] += 1
    return faults


def damage_logs(
    directory: Path, seed: str, damages: int, *, told: Callable[[Tally], None] = lambda tally: None
) -> tuple[Tally, list[str]]:
    """Damage logs until so many damages were noticed, or one was not; return the faults."""
    tally = Tally()
    number = 0
    # Go on until each kind of log was among them.
    while tally.damages < damages or not (tally.restarted and tally.checkpointed):
        number += 1
        home = directory / f"store-{number}"
        home.mkdir()
        random = Random(f"{seed}/{number}")
        lives = Lives(home, f"{seed}/{number}", options=OPTIONS)
        log = look_at(lives.die_by_kill(random.randint(*OPERATIONS)), tally)
        for hit in range(DAMAGES_EACH if log is not None else 0):
            assert log is not None
            where = home / f"damaged-{hit}"
            if faults := damage(log, where, random, tally, is_sector=hit % 3 == 2):
                return tally, [f"store {number}, damage {hit}: {fault}" for fault in faults]
            shutil.rmtree(where)
            told(tally)
        shutil.rmtree(home)
    return tally, []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--damages", type=int, default=300)
    parser.add_argument("--seed", default=secrets.token_hex(4))
    given = parser.parse_args()
    # A store that dies logs it every time; here that is expected.
    logging.disable()
    directory = Path(tempfile.mkdtemp(prefix="tidewire-damages-"))
    sys.stdout.write(f"seed {given.seed}, files in {directory}\n")
    began = time.monotonic()

    def progress(tally: Tally) -> None:
        sys.stdout.write(f"\r{tally.damages} damages, {time.monotonic() - began:.0f} s ")
        sys.stdout.flush()

    tally, faults = damage_logs(directory, given.seed, given.damages, told=progress)
    sys.stdout.write(f"\n{tally}")
    for fault in faults:
        sys.stdout.write(f"FAULT {fault}\n")
    if not faults:
        shutil.rmtree(directory)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
