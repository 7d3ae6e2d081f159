"""One store that lives and dies again and again on a machine whose power can be cut.

A life: open, load, and at a random operation on the disk the end, be it in the middle of the
opening, of a commit, of a checkpoint or of an orderly close. Then the files are what the power cut
has left. They are opened with the ordinary file system and held against the ledger, in a copy; the
next life begins with the files as they were left, so that the recovery is under threat as well.
Some lives end by a kill instead: the process is gone, but the machine, and so everything that was
written, synced or not, goes on.
"""

import asyncio
import shutil
import threading
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Final

import apsw

from tests.crash.power import Lie, Machine, never, write_files
from tests.support.crash_ledger import Ledger, Promise, read_snapshot, state_faults
from tests.support.crash_load import START_MS, Cast, Load, establish, make_cast
from tests.support.crash_records import Record, Sent, content_of
from tidewire.domain.errors import StoreUnusable, TidewireError, Unavailable
from tidewire.domain.ids import UlidSource
from tidewire.domain.messages import Appended, SendMessage
from tidewire.engines.sqlite import SqliteStorage
from tidewire.engines.sqlite.database import SqliteOptions
from tidewire.ingest.options import IngestOptions
from tidewire.ingest.service import IngestService
from tidewire.runtime.clock import SystemClock
from tidewire.runtime.supervise import TaskSupervisor

SMALL: Final = SqliteOptions(checkpoint_bytes=40_000, wal_bytes_max=160_000, readers=1)
"""Logs so small that a short life has checkpoints, restarts and truncates."""

SENDERS: Final = 6
OPERATIONS_MAX: Final = 2_000
"""What a life lasts at most, if the trap that was set for it does not snap."""

RARE_ACTS: Final = (
    "database write",
    "database sync",
    "wal sync",
    "wal truncate",
    "wal create",
    "wal delete",
    "journal write",
)


@dataclass(slots=True)
class Story:
    """What has happened so far, over all lives."""

    cuts: int = 0
    kills: int = 0
    restarts: int = 0
    found: int = 0
    """Sends without an answer that were stored after all."""
    hits: Counter[str] = field(default_factory=Counter)


class Lives:
    """A store and its lives. `seed` decides everything but how the threads interleave."""

    def __init__(
        self,
        directory: Path,
        seed: str,
        *,
        options: SqliteOptions = SMALL,
        lie: Lie = never,
        story: Story | None = None,
    ) -> None:
        self.ledger = Ledger()
        self.story = story or Story()
        self._directory = directory
        self._seed = seed
        self._options = options
        self._lie = lie
        self._cast: Cast = make_cast(SENDERS)
        self._number = 0
        self._machine: Machine | None = None

    def live_and_die(self) -> list[str]:
        """One life and its end; in what the store has not kept its promises."""
        self._number += 1
        random = Random(f"{self._seed}/{self._number}")
        machine = self._machine or self._new_machine()
        self._machine = None
        _set_trap(machine, random)
        asyncio.run(self._live(machine, random))
        machine.stop()
        leaked = [name for thread in threading.enumerate() if "tidewire" in (name := thread.name)]
        assert not leaked, f"threads that outlive their store: {leaked}"
        self.story.hits[machine.hit or "after the close"] += 1
        if random.random() < 0.15:
            return self._killed(machine)
        return self._cut(machine, random)

    def end(self) -> None:
        """Let go of everything."""
        if self._machine is not None:
            self._machine.close()

    def _new_machine(self) -> Machine:
        home = self._home(self._number)
        home.mkdir(exist_ok=True)
        return Machine(home, lie=self._lie)

    def _home(self, number: int) -> Path:
        return self._directory / f"life-{number}"

    # Living.

    async def _live(self, machine: Machine, random: Random) -> None:
        loop, dead = asyncio.get_running_loop(), asyncio.Event()

        def on_fatal(why: str) -> None:
            assert machine.hit is not None, why
            loop.call_soon_threadsafe(dead.set)

        options = replace(self._options, vfs=machine.vfs)
        try:
            storage = await SqliteStorage.open(
                machine.directory, options=options, on_fatal=on_fatal
            )
        except (TidewireError, apsw.Error):
            if machine.hit is None:
                raise
            return
        machine.phase = "run"
        tasks = TaskSupervisor(on_death=lambda name, error: dead.set())
        ingest = IngestService(
            store=storage,
            clock=SystemClock(),
            ids=UlidSource(random.getrandbits),
            tasks=tasks,
            options=IngestOptions(),
        )
        try:
            await self._load(machine, storage, ingest, dead, random)
        finally:
            await tasks.close()
            self.story.restarts += storage.checkpointer.restarts
            await _close(machine, storage)

    async def _load(
        self,
        machine: Machine,
        storage: SqliteStorage,
        ingest: IngestService,
        dead: asyncio.Event,
        random: Random,
    ) -> None:
        """Run until the store is dead, or, in some lives, until it is time to end in order."""
        length = random.randint(50, 500) if random.random() < 0.2 else OPERATIONS_MAX
        load = Load(
            storage,
            ingest,
            self._cast,
            life=f"{self._seed}-{self._number}",
            report=self.ledger.feed,
            pause_s=0.001,
        )

        async def work() -> None:
            await establish(storage, self._cast)
            await load.run(self.ledger.sends(self.ledger.open))

        working = asyncio.create_task(work())
        while not dead.is_set() and not working.done() and machine.operations < length:
            await asyncio.wait([working], timeout=0.002)
        if dead.is_set() or machine.hit is not None:
            # The process would be gone by now. A moment more, to see that nothing is acked.
            await asyncio.wait([working], timeout=0.01)
            working.cancel()
        else:
            machine.phase = "close"
            machine.cut_at(random.randint(1, 80))
            load.stop()
        try:
            await working
            await ingest.drain()
        except (Unavailable, StoreUnusable, asyncio.CancelledError):
            if machine.hit is None:
                raise

    # Dying.

    def _killed(self, machine: Machine) -> list[str]:
        self.story.kills += 1
        faults = machine.faults()
        machine.go_on()
        self._machine = machine
        return [f"the model of the disk is wrong about {name}" for name in faults]

    def _cut(self, machine: Machine, random: Random) -> list[str]:
        self.story.cuts += 1
        files = machine.left_by_cut(random)
        machine.close()
        next_home, copy = self._home(self._number + 1), self._directory / "copy"
        write_files(next_home, files)
        write_files(copy, files)
        faults = asyncio.run(self._faults_in(copy))
        if not faults:
            shutil.rmtree(copy)
            shutil.rmtree(machine.directory)
        return faults

    async def _faults_in(self, copy: Path) -> list[str]:
        """Open the files as a server would, and hold them against what was promised."""
        try:
            storage = await SqliteStorage.open(copy)
        except TidewireError as error:
            return [f"cannot be opened: {error}"]
        try:
            snapshot = read_snapshot(copy, is_thorough=True)
            faults = self.ledger.faults_in(snapshot) + state_faults(copy)
            if not faults:
                places = {stored.key: stored.place for stored in snapshot.messages}
                self.story.found += self.ledger.settle(snapshot)
                for sent in self.ledger.open.values():
                    faults += await _retry_faults(storage, sent, places.get(sent.key))
        finally:
            await storage.close()
        return faults


async def _retry_faults(storage: SqliteStorage, sent: Sent, place: Promise | None) -> list[str]:
    """A retry is answered with what is stored, or stores it now; the guest may be out by now."""
    send = SendMessage(
        chat_id=sent.chat_id,
        sender_id=sent.sender_id,
        client_message_id=sent.key,
        content=content_of(sent),
        message_id=UlidSource(Random(sent.key).getrandbits).message_id(START_MS),
    )
    [outcome] = await storage.append([send], now_ms=START_MS)
    if place is None:
        return []
    if not isinstance(outcome, Appended) or not outcome.deduplicated:
        return [f"{sent.key} is stored at {place}, but a retry gets {outcome!r}"]
    told = (outcome.message_id, outcome.sequence, outcome.prev_sequence, outcome.created_at_ms)
    stored = (place.message_id, place.sequence, place.prev_sequence, place.created_at_ms)
    return [] if told == stored else [f"{sent.key} is stored at {place}, a retry gets {outcome}"]


async def _close(machine: Machine, storage: SqliteStorage) -> None:
    try:
        await storage.close()
    except apsw.Error:
        # The disk is gone. A real file system would not have told, but ours raises.
        if machine.hit is None:
            raise


def _set_trap(machine: Machine, random: Random) -> None:
    """Any operation, or one of a kind that is rare, and then a little after the first one."""
    if random.random() < 0.5:
        machine.cut_at(random.randint(1, 600))
    else:
        machine.cut_at(random.randint(1, 12), random.choice(RARE_ACTS))
