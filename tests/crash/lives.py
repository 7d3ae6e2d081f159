"""One store that lives and dies again and again on a machine whose power can be cut.

A life: open, load, and the end at a random operation on the disk, perhaps in the middle of the
opening, of a commit, of a checkpoint or of an orderly close. Then the files are what the power cut
has left. A copy is opened with the ordinary file system and compared with the ledger; the next life
begins with the files as they were left, so that the recovery can be cut as well. Some lives end by
a kill instead: the process is gone, but the machine keeps running, and so everything that was
written is kept, synced or not.
"""

import asyncio
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from random import Random
from typing import Final

import apsw

from tests.crash.power import Lie, Machine, never, write_files
from tests.support.crash_cast import START_MS, Cast, establish, make_cast
from tests.support.crash_ledger import Ledger, Place, place_of
from tests.support.crash_load import Load, listener
from tests.support.crash_snapshot import page_faults, read_snapshot, state_faults
from tests.support.history import Sent
from tidewire.domain.errors import (
    EditConflict,
    InvalidMention,
    MessageDeleted,
    NotAMember,
    StoreUnusable,
    TidewireError,
    Unavailable,
)
from tidewire.domain.ids import ClientMessageId, UlidSource
from tidewire.domain.messages import Appended, SendMessage
from tidewire.engines.sqlite import DATABASE_NAME, SqliteStorage
from tidewire.engines.sqlite.database import SqliteOptions
from tidewire.engines.sqlite.log_look import judge_log
from tidewire.ingest.options import IngestOptions
from tidewire.ingest.service import IngestService
from tidewire.runtime.clock import SystemClock
from tidewire.runtime.supervise import TaskSupervisor

SMALL: Final = SqliteOptions(checkpoint_bytes=40_000, wal_bytes_max=160_000, readers=1)
"""Logs so small that a short life has checkpoints, restarts and truncates."""

SENDERS: Final = 6
LIVES_EACH: Final = 12
OPERATIONS_MAX: Final = 700
"""How many operations a life has at most, if the cut that was set for it does not happen."""

RARE_ACTS: Final = (
    "database write",
    "database sync",
    "database sync",
    "wal sync",
    "wal sync",
    "wal truncate",
    "wal restart write",
    "wal restart write",
    "wal restart sync",
)


@dataclass(slots=True)
class Story:
    """Counts of what has happened so far, over all lives."""

    cuts: int = 0
    kills: int = 0
    restarts: int = 0
    found: int = 0
    """Sends without an answer that were stored after all."""
    hits: Counter[str] = field(default_factory=Counter)
    logs: Counter[str] = field(default_factory=Counter)
    """The verdicts about the logs that the cuts have left."""


class Lives:
    """A store and its lives. `seed` decides everything except how the threads interleave."""

    def __init__(
        self,
        directory: Path,
        seed: str,
        *,
        options: SqliteOptions = SMALL,
        lie: Lie = never,
        story: Story | None = None,
    ) -> None:
        self._cast: Cast = make_cast(SENDERS)
        self.ledger = Ledger(self._cast)
        self.story = story or Story()
        self._directory = directory
        self._seed = seed
        self._options = options
        self._lie = lie
        self.number = 0
        self._machine: Machine | None = None

    def live_and_die(self) -> list[str]:
        """Run one life and its end; return the promises that the store has not kept."""
        self.number += 1
        random = Random(f"{self._seed}/{self.number}")
        is_brief = random.random() < (0.4 if self._machine else 0.05)
        machine = self._machine or self._new_machine()
        self._machine = None
        _set_trap(machine, random)
        asyncio.run(self._live(machine, random, is_brief=is_brief))
        machine.stop()
        leaked = [name for thread in threading.enumerate() if "tidewire" in (name := thread.name)]
        assert not leaked, f"threads that outlive their store: {leaked}"
        self.story.hits[machine.hit or "after the close"] += 1
        if random.random() < 0.2:
            return self._killed(machine)
        return self._cut(machine, random)

    def die_by_kill(self, operations: int) -> Path:
        """Run a life that ends with a kill at this operation; return its directory."""
        self.number += 1
        machine = self._new_machine()
        machine.cut_at(operations)
        random = Random(f"{self._seed}/{self.number}")
        asyncio.run(self._live(machine, random, length=operations))
        machine.stop()
        machine.close()
        return machine.directory

    def end(self) -> None:
        """Close the machine, if one is open."""
        if self._machine is not None:
            self._machine.close()

    def _new_machine(self) -> Machine:
        home = self._home(self.number)
        home.mkdir(exist_ok=True)
        return Machine(home, lie=self._lie)

    def _home(self, number: int) -> Path:
        return self._directory / f"life-{number}"

    # Living.

    async def _live(
        self, machine: Machine, random: Random, *, is_brief: bool = False, length: int | None = None
    ) -> None:
        """Open, load, close. A brief life only reads what the last one has left. An orderly end
        begins after `length` operations."""
        if length is None:
            length = random.randint(50, 300) if random.random() < 0.4 else OPERATIONS_MAX
        loop, dead = asyncio.get_running_loop(), asyncio.Event()

        def on_fatal(why: str) -> None:
            assert machine.hit is not None, why
            loop.call_soon_threadsafe(dead.set)

        options = replace(self._options, vfs=machine.vfs)
        try:
            storage = await SqliteStorage.open(
                machine.directory,
                listener=listener(self.ledger.feed),
                options=options,
                on_fatal=on_fatal,
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
            load = Load(
                storage,
                ingest,
                self._cast,
                life=self.number,
                seed=self._seed,
                report=self.ledger.feed,
                pause_s=0.001,
            )
            await establish(storage, self._cast)
            again = list(self.ledger.open.values())
            if is_brief:
                await load.look_back(again)
                machine.stop("run: after looking back")
            else:
                await self._run(machine, load, again, dead, random, length)
            await ingest.drain()
        except (Unavailable, StoreUnusable, asyncio.CancelledError):
            if machine.hit is None:
                raise
        finally:
            await tasks.close()
            self.story.restarts += storage.checkpointer.restarts
            await _close(machine, storage)

    async def _run(
        self,
        machine: Machine,
        load: Load,
        again: list[Sent],
        dead: asyncio.Event,
        random: Random,
        length: int,
    ) -> None:
        """Run until the store is dead, or, in some lives, until the time for an orderly end."""
        working = asyncio.create_task(load.run(again))
        while not dead.is_set() and not working.done():
            await asyncio.wait([working], timeout=0.002)
            if machine.phase == "run" and machine.hit is None and machine.operations >= length:
                machine.phase = "close"
                machine.cut_at(random.randint(1, 30))
                load.stop()
        if not working.done():
            # The process would be gone by now. Wait a moment more, to check that nothing is acked.
            await asyncio.wait([working], timeout=0.01)
            working.cancel()
        await working

    # Dying.

    def _killed(self, machine: Machine) -> list[str]:
        self.story.kills += 1
        faults = machine.faults()
        self.ledger.end_life()
        machine.go_on()
        self._machine = machine
        return [f"the model of the disk is wrong about {name}" for name in faults]

    def _cut(self, machine: Machine, random: Random) -> list[str]:
        self.story.cuts += 1
        files = machine.left_by_cut(random)
        machine.close()
        next_home, copy = self._home(self.number + 1), self._directory / "copy"
        write_files(next_home, files)
        write_files(copy, files)
        self.story.logs[judge_log(copy / DATABASE_NAME).verdict] += 1
        faults = asyncio.run(self._faults_in(copy))
        if not faults:
            shutil.rmtree(copy)
            shutil.rmtree(machine.directory)
        return faults

    async def _faults_in(self, copy: Path) -> list[str]:
        """Open the files as a server would, and compare them with what was promised."""
        try:
            storage = await SqliteStorage.open(copy, options=SMALL)
        except TidewireError as error:
            return [f"cannot be opened: {error}"]
        try:
            snapshot = read_snapshot(copy)
            faults = page_faults(copy) + self.ledger.faults_in(snapshot) + state_faults(copy)
            self.ledger.end_life()
            if not faults:
                faults = self.ledger.trace_faults(snapshot)
            if not faults:
                self.story.found += self.ledger.settle(snapshot)
                places = {
                    message.client_message_id: place_of(message) for message in snapshot.messages
                }
                faults = await _retry_faults(storage, self.ledger.open.values(), places)
        except (apsw.Error, TidewireError, ValueError) as error:
            # A disk that lies leaves pages of different times together: a column of a row may be no
            # valid text or number any more.
            faults = [f"cannot be read: {error!r}"]
        finally:
            await storage.close()
        return faults


async def _retry_faults(
    storage: SqliteStorage, sends: Iterable[Sent], places: dict[ClientMessageId, Place]
) -> list[str]:
    """Check that a retry is answered with what is stored, or is stored now. It may be refused if
    the guest is no longer a member, or if the message it is about has changed."""
    refusals = (NotAMember, MessageDeleted, EditConflict, InvalidMention)
    ids = UlidSource(Random(0).getrandbits)
    retries = [
        SendMessage(
            chat_id=sent.chat_id,
            sender_id=sent.user_id,
            client_message_id=sent.client_message_id,
            content=sent.content,
            message_id=ids.message_id(START_MS),
            reply_to=sent.reply_to,
            mentions=sent.mentions,
            amends=sent.amends,
            base=sent.base,
        )
        for sent in sends
    ]
    outcomes = await storage.append(retries, now_ms=START_MS)
    faults = []
    for retry, outcome in zip(retries, outcomes, strict=True):
        place = places.get(retry.client_message_id)
        if isinstance(outcome, Appended):
            told = Place(
                outcome.message_id, outcome.sequence, outcome.prev_sequence, outcome.created_at_ms
            )
            is_right = outcome.deduplicated == (place is not None) and told == (place or told)
        else:
            is_right = place is None and isinstance(outcome, refusals)
        if not is_right:
            faults.append(f"{retry.client_message_id} is stored at {place}, retry: {outcome!r}")
    return faults


async def _close(machine: Machine, storage: SqliteStorage) -> None:
    try:
        await storage.close()
    except apsw.Error:
        # The disk is gone. A real file system would not raise here, but ours does.
        if machine.hit is None:
            raise


def _set_trap(machine: Machine, random: Random) -> None:
    """Set the cut: at any operation, at one of the first (the opening), or one of a rare kind."""
    kind = random.random()
    if kind < 0.4:
        machine.cut_at(random.randint(1, 500))
    elif kind < 0.6:
        machine.cut_at(random.randint(1, 40))
    else:
        act = random.choice(RARE_ACTS)
        # Few lives see a second restart of the log.
        machine.cut_at(1 if "restart" in act else random.randint(1, 6), act)


def survive(
    directory: Path,
    seed: str,
    cuts: int,
    *,
    options: SqliteOptions = SMALL,
    lie: Lie = never,
    told: Callable[[Story], None] = lambda story: None,
    is_enough: Callable[[Story], bool] = lambda story: True,
) -> tuple[Story, list[str]]:
    """Let stores live until the power was cut `cuts` times and `is_enough`, or until one breaks its
    promises.

    Return the story and the faults. A store has LIVES_EACH lives, then there is a new one.
    """
    story = Story()
    for number in count(1):
        home = directory / f"store-{number}"
        home.mkdir()
        lives = Lives(home, f"{seed}/{number}", options=options, lie=lie, story=story)
        try:
            for _ in range(LIVES_EACH):
                if faults := lives.live_and_die():
                    return story, [
                        f"store {number}, life {lives.number}: {line}" for line in faults
                    ]
                told(story)
                if story.cuts >= cuts and is_enough(story):
                    return story, []
        finally:
            lives.end()
        shutil.rmtree(home)
    raise AssertionError("unreachable")
