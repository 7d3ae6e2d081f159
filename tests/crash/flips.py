"""One random bit flipped in a store's files: `python -m tests.crash.flips --copies 300 [--seed S]`.

Each copy is verified, and served: everything in it is read by everyone, and a little is written.
`verify` has to end in a report. The store has to open, or to refuse with a sentence; what is then
asked of it may fail one by one, but neither ends the process nor answers with what was never said.
Some more copies are served by real server processes.
Exit code 1 and the faults if there is one; the
files are kept then.
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
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Final, TypeVar

from tests.support.engines import SqliteHarness
from tests.support.world import PLENTY, World
from tidewire.domain.delivery import Advance
from tidewire.domain.errors import TidewireError
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.messages import Appended, Message, SendMessage
from tidewire.engines.sqlite import DATABASE_NAME, SqliteStorage
from tidewire.engines.sqlite.inspect import SqliteInspector
from tidewire.ops.verify import verify

Result = TypeVar("Result")

FILES: Final = (DATABASE_NAME, f"{DATABASE_NAME}-wal", f"{DATABASE_NAME}-shm")
PAGES_MAX: Final = 100
"""No walk through a store of this size has more pages."""


@dataclass
class Truth:
    """What was stored, and by whom."""

    people: list[UserId] = field(default_factory=list)
    chats: dict[ChatId, list[UserId]] = field(default_factory=dict)
    messages: dict[ChatId, list[Message]] = field(default_factory=dict)
    first: dict[ChatId, SendMessage] = field(default_factory=dict)


@dataclass
class Tally:
    """What became of the copies."""

    copies: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


async def make_store(directory: Path) -> Truth:
    """A store as a killed process leaves it, half of it in the log, and one that was stopped."""
    truth = Truth()
    harness = SqliteHarness(directory / "living")
    await harness.open()
    world = World(harness)
    truth.people = people = await world.people(4)
    for number, one in enumerate(people):
        for other in people[number + 1 :]:
            truth.chats[await world.direct(one, other)] = [one, other]
    for size in (3, 4):
        truth.chats[await world.group(*people[:size])] = people[:size]
    await _talk(world, truth, 20)
    await harness.reopen()
    await _talk(world, truth, 12)
    for chat_id, members in truth.chats.items():
        truth.messages[chat_id] = await harness.messages(chat_id)
        head = truth.messages[chat_id][-1].sequence
        await world.read(members[0], chat_id, head // 2)
    shutil.copytree(directory / "living", directory / "killed")
    await harness.close()
    (directory / "living").rename(directory / "stopped")
    return truth


async def _talk(world: World, truth: Truth, count: int) -> None:
    for number in range(count):
        for chat_id, members in truth.chats.items():
            text = f"number {number} of {chat_id}, ebb & flow 🌊 " * (1 + number % 5)
            send = world.draft(chat_id, members[number % len(members)], text)
            await world.append(send)
            truth.first.setdefault(chat_id, send)


def flip(directory: Path, random: Random) -> str:
    """Flip one bit anywhere in one of the store's files; where."""
    path = random.choice([directory / name for name in FILES if (directory / name).exists()])
    content = bytearray(path.read_bytes())
    place = random.randrange(len(content) * 8)
    content[place // 8] ^= 1 << place % 8
    path.write_bytes(content)
    return f"{path.name} byte {place // 8} bit {place % 8}"


class Visit:
    """Everybody asks for everything, and says a word."""

    def __init__(self, storage: SqliteStorage, truth: Truth, tally: Tally, name: str) -> None:
        self._storage = storage
        self._truth = truth
        self._tally = tally
        self._name = name
        self._now_ms = 1_900_000_000_000

    async def run(self) -> None:
        for user_id in self._truth.people:
            await self._digest(user_id)
            await self._chat_list(user_id)
        for chat_id, members in self._truth.chats.items():
            for reader in members[:2]:
                await self._read(chat_id, reader)
            await self._write(chat_id, members)
        for chat_id, members in self._truth.chats.items():
            await self._read(chat_id, members[-1])

    def fault(self, what: str) -> None:
        self._tally.faults.append(f"{self._name}: {what}")

    async def ask(self, question: Awaitable[Result]) -> Result | None:
        """An answer, or a refusal in our own words."""
        try:
            return await asyncio.wait_for(question, 10)
        except TidewireError as error:
            self._tally.outcomes[type(error).__name__] += 1
        except Exception as error:  # noqa: BLE001 - this is what is looked for
            self._tally.outcomes[f"unforeseen {type(error).__name__}: {error}"[:120]] += 1
        return None

    async def _digest(self, user_id: UserId) -> None:
        after: ChatId | None = None
        for _ in range(PAGES_MAX):
            page = await self.ask(self._storage.digest(user_id, after=after, count_max=5))
            if page is None or page.next_chat_id is None:
                return
            after = page.next_chat_id
        self.fault("a digest has no end")

    async def _chat_list(self, user_id: UserId) -> None:
        cursor = None
        for _ in range(PAGES_MAX):
            page = await self.ask(self._storage.chat_list(user_id, cursor=cursor, count_max=5))
            if page is None or page.next is None:
                return
            cursor = page.next
        self.fault("a chat list has no end")

    async def _read(self, chat_id: ChatId, reader: UserId) -> None:
        storage = self._storage
        after = 0
        for _ in range(PAGES_MAX):
            page = await self.ask(
                storage.messages_after(reader, chat_id, after, count_max=7, bytes_max=PLENTY)
            )
            if page is None:
                break
            self._compare(chat_id, after, page.messages)
            after = page.synced_through
            if not page.has_more:
                break
        else:
            self.fault("a sync has no end")
        whole = await self.ask(
            storage.messages_before(reader, chat_id, None, count_max=PLENTY, bytes_max=PLENTY)
        )
        if whole is not None:
            self._compare(chat_id, None, whole.messages)
        await self.ask(storage.delivery_status(reader, chat_id, None))
        await self.ask(storage.members(reader, chat_id, after=None, count_max=PLENTY))
        await self.ask(storage.roster(chat_id))
        await self.ask(storage.floors([chat_id]))
        await self.ask(storage.standing(reader, chat_id))
        first = self._truth.messages[chat_id][0]
        await self.ask(storage.message(reader, chat_id, first.message_id))

    def _compare(self, chat_id: ChatId, after: int | None, found: Sequence[Message]) -> None:
        stored = {message.sequence: message for message in self._truth.messages[chat_id]}
        for message in found:
            self._tally.outcomes["damaged messages"] += message.is_damaged
            told = stored.get(message.sequence)
            if message.is_damaged:
                if message.content:
                    self.fault(f"{chat_id}: damaged {message.sequence} has content")
            elif told is not None and message != told:
                self.fault(f"{chat_id}: {message.sequence} is not what was stored")
            elif told is None and message.content != "after all":
                self.fault(f"{chat_id}: {message.sequence} was never said")
        for one, other in pairwise(found):
            if other.prev_sequence != one.sequence:
                self.fault(f"{chat_id}: {other.sequence} does not follow {one.sequence}")
        if found and after is not None and found[0].prev_sequence > after:
            self.fault(f"{chat_id}: {found[0].sequence} does not follow {after}")

    async def _write(self, chat_id: ChatId, members: list[UserId]) -> None:
        self._now_ms += 1
        first = self._truth.first[chat_id]
        number = len(self._tally.outcomes) + self._now_ms
        new = SendMessage(
            chat_id=chat_id,
            sender_id=members[0],
            client_message_id=f"{self._now_ms:08x}-0000-4000-8000-{secrets.token_hex(6)}",  # type: ignore[arg-type]
            content="after all",
            message_id=f"msg_{number}_{secrets.token_hex(8)}",  # type: ignore[arg-type]
        )
        outcomes = await self.ask(self._storage.append([first, new], now_ms=self._now_ms))
        if outcomes is not None:
            told = self._truth.messages[chat_id][0]
            retry = outcomes[0]
            if isinstance(retry, Appended) and retry.sequence != told.sequence:
                self.fault(f"{chat_id}: a retry of {told.sequence} is {retry.sequence}")
            for outcome in outcomes:
                self._tally.outcomes[f"send: {type(outcome).__name__}"] += 1
        wish = Advance(user_id=members[1], chat_id=chat_id, delivered=1, read=1)
        await self.ask(self._storage.advance([wish], now_ms=self._now_ms))


async def try_copy(store: Path, copy: Path, truth: Truth, random: Random, tally: Tally) -> str:
    """Flip a bit in a copy, verify it, serve it; where the bit is."""
    shutil.copytree(store, copy)
    where = flip(copy, random)
    name = f"{copy.name} ({where})"
    before = len(tally.faults)
    verified = copy.with_name(copy.name + "-verified")
    shutil.copytree(copy, verified)
    check_verify(verified, name, tally)
    shutil.rmtree(verified)
    doubts: list[str] = []
    try:
        storage = await SqliteStorage.open(copy, on_fatal=doubts.append)
    except TidewireError as error:
        tally.outcomes[f"refused: {type(error).__name__}"] += 1
    except Exception as error:  # noqa: BLE001 - this is what is looked for
        tally.faults.append(f"{name}: the start failed with {type(error).__name__}: {error}")
    else:
        tally.outcomes["served"] += 1
        try:
            await Visit(storage, truth, tally, name).run()
        finally:
            await storage.close()
    tally.faults += [f"{name}: the process would have ended: {doubt}" for doubt in doubts]
    tally.copies += 1
    if len(tally.faults) == before:
        shutil.rmtree(copy)
    return where


def check_verify(directory: Path, name: str, tally: Tally) -> None:
    """A report, or a sentence that says that there is nothing to verify."""
    try:
        report = verify(lambda: SqliteInspector(directory / DATABASE_NAME))
    except TidewireError as error:
        tally.outcomes[f"not verified: {type(error).__name__}"] += 1
    except Exception as error:  # noqa: BLE001 - this is what is looked for
        tally.faults.append(f"{name}: verify failed with {type(error).__name__}: {error}")
    else:
        tally.outcomes["verify sees it" if report.violations else "verify sees nothing"] += 1


async def try_copies(
    directory: Path, seed: str, copies: int, *, seconds_max: float = float("inf")
) -> Tally:
    """So many copies, or as many as the time allows."""
    tally = Tally()
    truth = await make_store(directory)
    began = time.monotonic()
    for number in range(copies):
        if time.monotonic() - began > seconds_max:
            break
        random = Random(f"{seed}-{number}")
        copy = directory / f"copy-{number}"
        # Most of what is there for long is in the database.
        store = directory / ("killed" if number % 5 == 0 else "stopped")
        await try_copy(store, copy, truth, random, tally)
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--copies", type=int, default=300)
    parser.add_argument("--servers", type=int, default=10, help="so many real processes as well")
    parser.add_argument("--seed", default=secrets.token_hex(4))
    given = parser.parse_args()
    logging.disable()
    directory = Path(tempfile.mkdtemp(prefix="tidewire-flips-"))
    sys.stdout.write(f"seed {given.seed}, files in {directory}\n")
    began = time.monotonic()
    tally = asyncio.run(try_copies(directory, given.seed, given.copies))
    # Needs this module.
    from tests.crash.flipped_servers import try_servers

    asyncio.run(try_servers(directory, given.seed, given.servers, tally))
    sys.stdout.write(f"{tally.copies} copies, {time.monotonic() - began:.0f} s\n")
    for outcome, count in tally.outcomes.most_common():
        sys.stdout.write(f"{count:7,} {outcome}\n")
    for fault in tally.faults:
        sys.stdout.write(f"FAULT {fault}\n")
    if not tally.faults:
        shutil.rmtree(directory)
    return 1 if tally.faults else 0


if __name__ == "__main__":
    sys.exit(main())
