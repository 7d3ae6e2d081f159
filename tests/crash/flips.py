"""One random bit flipped in a store's files: `python -m tests.crash.flips --copies 300 [--seed S]`.

Each copy is verified, and served: its users read everything in it, and write a little. `verify` has
to end in a report. The store has to open, or to refuse with a sentence; single requests may then
fail, but none may end the process, or be answered with what was never said. Some more copies are
served by real server processes. If there are faults, it prints them, keeps the files, and ends with
exit code 1.
"""

import argparse
import asyncio
import logging
import secrets
import shutil
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar

import apsw

from tests.support.engines import SqliteHarness
from tests.support.trace_entries import subject_of
from tests.support.world import PLENTY, World
from tidewire.domain.delivery import Advance
from tidewire.domain.errors import TidewireError
from tidewire.domain.ids import ChatId, ClientMessageId, MessageId, UserId, encode_ulid
from tidewire.domain.limits import PAGE_MESSAGES_MAX
from tidewire.domain.messages import Amendment, Appended, EntryKind, Message, SendMessage
from tidewire.engines.sqlite import DATABASE_NAME, SqliteStorage
from tidewire.engines.sqlite.inspect import SqliteInspector
from tidewire.ops.verify import verify

Result = TypeVar("Result")

FILES: Final = (DATABASE_NAME, f"{DATABASE_NAME}-wal", f"{DATABASE_NAME}-shm")
_READ: Final = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
SAID_LATER: Final = "after all"
"""The text that is written into the damaged copies."""
CHANGES_EACH: Final = 2
"""How many messages of each chat are changed in a damaged copy."""
TABLES: Final = ("edits", "reactions", "mentions")
"""The tables beside the messages, which are small: a third of the flips are aimed at them."""
PAGES_MAX: Final = 100
"""How many pages a list in a store of this size may have at most."""


@dataclass
class Truth:
    """What was stored, and the users who stored it."""

    people: list[UserId] = field(default_factory=list)
    chats: dict[ChatId, list[UserId]] = field(default_factory=dict)
    messages: dict[ChatId, list[Message]] = field(default_factory=dict)
    """All entries: messages, edits, deletions, reactions."""
    first: dict[ChatId, SendMessage] = field(default_factory=dict)


@dataclass
class Tally:
    """Counts of what happened to the copies."""

    copies: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


async def make_store(directory: Path) -> Truth:
    """Make a store as a killed process leaves it, half of it in the log, and a stopped one."""
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
    await _change(world, truth)
    await harness.reopen()
    await _talk(world, truth, 12)
    await _change(world, truth)
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


async def _change(world: World, truth: Truth) -> None:
    """In each chat: messages with edits and reactions, some deleted; a reply that mentions."""
    for chat_id, members in truth.chats.items():
        entries = await world.engine.messages(chat_id)
        plain = [one for one in entries if one.amends is None and not one.is_deleted]
        for number, message in enumerate(plain[4::3][-4:]):
            target, author = message.sequence, message.sender_id
            drafts = [
                world.edit(chat_id, author, target, f"edit of {target}, ebb & flow 🌊" * 2),
                world.edit(chat_id, author, target, f"edit again of {target}, ebb & flow 🌊"),
                *(world.reaction(chat_id, one, target, "👍") for one in members),
                world.reaction(chat_id, members[0], target, "🎉"),
                world.reaction(chat_id, members[0], target, "👍", is_on=False),
            ]
            if number % 2:
                drafts.append(world.deletion(chat_id, author, target, reason="a slip"))
            await world.append(*drafts)
        text, last = "an answer, ebb & flow 🌊", plain[-1].sequence
        mentions = tuple(members[1:])
        await world.store(world.draft(chat_id, members[0], text, reply_to=last, mentions=mentions))


def flip(directory: Path, random: Random, *, is_aimed: bool = False) -> str:
    """Flip one bit anywhere in a file of the store, or in the pages of `TABLES`; return where."""
    path = random.choice([directory / name for name in FILES if (directory / name).exists()])
    if is_aimed:
        path = directory / DATABASE_NAME
    content = bytearray(path.read_bytes())
    place = random.randrange(len(content) * 8)
    if is_aimed:
        page, page_bytes = random.choice(_pages(path))
        place = (page - 1) * page_bytes * 8 + random.randrange(page_bytes * 8)
    content[place // 8] ^= 1 << place % 8
    path.write_bytes(content)
    return f"{path.name} byte {place // 8} bit {place % 8}"


def _pages(path: Path) -> list[tuple[int, int]]:
    """The root pages of `TABLES`, with their size: most of the pages, as the tables are small."""
    names = ", ".join(f"'{name}'" for name in TABLES)
    query = f"SELECT rootpage FROM sqlite_schema WHERE name IN ({names})"
    database = apsw.Connection(f"file:{path}?immutable=1", flags=_READ)
    try:
        size: Any = database.execute("PRAGMA page_size").get
        pages: list[Any] = database.execute(query).fetchall()
        return [(page, size) for (page,) in pages]
    finally:
        database.close()


class Visit:
    """All users read everything, and write a little."""

    def __init__(
        self,
        storage: SqliteStorage,
        truth: Truth,
        tally: Tally,
        name: str,
        violated: Sequence[str] = (),
    ) -> None:
        """`violated`: the checks of `verify` that failed on the copy."""
        self._violated = violated
        self._storage = storage
        self._truth = truth
        self._tally = tally
        self._name = name
        self._now_ms = 1_900_000_000_000
        self._deleted: set[tuple[ChatId, int]] = set()
        """The messages that this visit has deleted itself."""

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
        """The answer; None if it was refused, or failed, which is counted."""
        try:
            return await asyncio.wait_for(question, 10)
        except TidewireError as error:
            self._tally.outcomes[type(error).__name__] += 1
        except Exception as error:  # noqa: BLE001 - the visit counts any error
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
            if page is None:
                return
            for item in page.items:
                last = item.last_message
                if last is not None and not self._was_said(
                    item.chat.chat_id, last.sequence, last.preview
                ):
                    self.fault(f"{item.chat.chat_id}: a list of chats shows {last.preview!r}")
            if page.next is None:
                return
            cursor = page.next
        self.fault("a chat list has no end")

    def _was_said(self, chat_id: ChatId, sequence: int, text: str) -> bool:
        """Whether a message ever had this text, at first or by an edit."""
        about = [one for one in self._truth.messages.get(chat_id, ()) if one.content]
        said = [one.content for one in about if subject_of(one) == sequence]
        return not text or text == SAID_LATER or any(one.startswith(text) for one in said)

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
            found = [one.sequence for one in whole.messages if one.amends is None]
            await self._look_at_now(chat_id, reader, found[-PAGE_MESSAGES_MAX:])
        await self.ask(storage.delivery_status(reader, chat_id, None))
        await self.ask(storage.members(reader, chat_id, after=None, count_max=PLENTY))
        await self.ask(storage.roster(chat_id))
        await self.ask(storage.floors([chat_id]))
        await self.ask(storage.standing(reader, chat_id))
        first = self._truth.messages[chat_id][0]
        await self.ask(storage.message(reader, chat_id, first.message_id))

    async def _look_at_now(self, chat_id: ChatId, reader: UserId, sequences: list[int]) -> None:
        """Check that no text is shown that was never said, and that nothing is wrongly shown as
        deleted: a client would erase its own copy. Reactions are rows without checksums: `verify`
        finds what is wrong."""
        found = await self.ask(self._storage.messages_now(reader, chat_id, sequences))
        stored = self._truth.messages[chat_id]
        deleted = {one.sequence for one in stored if one.is_deleted}
        for sequence, now in (found or {}).items():
            if not self._was_said(chat_id, sequence, now.content or ""):
                self.fault(f"{chat_id}: {sequence} is shown as {now.content!r}")
            is_deleted = sequence in deleted or (chat_id, sequence) in self._deleted
            if now.is_deleted and not is_deleted:
                self.fault(f"{chat_id}: {sequence} is shown as deleted, and was not")

    def _compare(self, chat_id: ChatId, after: int | None, found: Sequence[Message]) -> None:
        stored = {message.sequence: message for message in self._truth.messages[chat_id]}
        for message in found:
            self._tally.outcomes["damaged messages"] += message.is_damaged
            told = stored.get(message.sequence)
            if message.is_damaged:
                if message.content:
                    self.fault(f"{chat_id}: damaged {message.sequence} has content")
            elif (chat_id, subject_of(message)) in self._deleted:
                # Rows that name a message's edits have no checksum, so a deletion may miss an
                # edit; `verify` notices it.
                is_lost = message.amends is not None and "edits_exact" in self._violated
                self._tally.outcomes["edits that a deletion has not found"] += is_lost
                if message.content and not is_lost:
                    self.fault(f"{chat_id}: {message.sequence} has its text after its deletion")
            elif told is not None and message != told:
                self.fault(f"{chat_id}: {message.sequence} is not what was stored")
            elif told is None and message.content not in {SAID_LATER, ""}:
                self.fault(f"{chat_id}: {message.sequence} was never said")
        for one, other in pairwise(found):
            if other.prev_sequence != one.sequence:
                self.fault(f"{chat_id}: {other.sequence} does not follow {one.sequence}")
        if found and after is not None and found[0].prev_sequence > after:
            self.fault(f"{chat_id}: {found[0].sequence} does not follow {after}")

    async def _write(self, chat_id: ChatId, members: list[UserId]) -> None:
        self._now_ms += 1
        first = self._truth.first[chat_id]
        new = self._draft(chat_id, members[0], SAID_LATER)
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
        await self._change(chat_id, members)

    async def _change(self, chat_id: ChatId, members: list[UserId]) -> None:
        """Change messages that have edits and reactions already, and delete others. Each change is
        an append of its own, so that one can fail without the others."""
        stored = self._truth.messages[chat_id]
        edited = {one.amends.target for one in stored if one.amends is not None and one.content}
        targets = [one for one in stored if one.sequence in edited][:CHANGES_EACH]
        for number, message in enumerate(targets):
            target, author = message.sequence, message.sender_id
            edit = Amendment(kind=EntryKind.EDIT, target=target)
            react = Amendment(kind=EntryKind.REACT, target=target, emoji="👍")
            delete = Amendment(kind=EntryKind.DELETE, target=target)
            drafts = [
                self._draft(chat_id, author, SAID_LATER, edit),
                self._draft(chat_id, members[number % len(members)], "", react),
                *([self._draft(chat_id, author, "", delete)] if number % 2 else []),
            ]
            for draft in drafts:
                outcomes = await self.ask(self._storage.append([draft], now_ms=self._now_ms))
                for outcome in outcomes or ():
                    self._tally.outcomes[f"change: {type(outcome).__name__}"] += 1
                    if draft.amends == delete and isinstance(outcome, Appended):
                        self._deleted.add((chat_id, target))

    def _draft(
        self, chat_id: ChatId, user_id: UserId, content: str, amends: Amendment | None = None
    ) -> SendMessage:
        return SendMessage(
            chat_id=chat_id,
            sender_id=user_id,
            client_message_id=ClientMessageId(str(uuid.uuid4())),
            content=content,
            message_id=MessageId(f"msg_{encode_ulid(secrets.randbits(128))}"),
            amends=amends,
        )


async def try_copy(
    store: Path,
    copy: Path,
    truth: Truth,
    random: Random,
    tally: Tally,
    *,
    is_aimed: bool = False,
) -> str:
    """Flip a bit in a copy, verify it, serve it; return where the bit is."""
    shutil.copytree(store, copy)
    where = flip(copy, random, is_aimed=is_aimed)
    name = f"{copy.name} ({where})"
    before = len(tally.faults)
    verified = copy.with_name(copy.name + "-verified")
    shutil.copytree(copy, verified)
    violated = check_verify(verified, name, tally)
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
            await Visit(storage, truth, tally, name, violated).run()
        finally:
            await storage.close()
    tally.faults += [f"{name}: the process would have ended: {doubt}" for doubt in doubts]
    tally.copies += 1
    if len(tally.faults) == before:
        shutil.rmtree(copy)
    return where


def check_verify(directory: Path, name: str, tally: Tally) -> list[str]:
    """Run `verify`, which must end in a report or refuse with a sentence; return failed checks."""
    try:
        report = verify(lambda: SqliteInspector(directory / DATABASE_NAME))
    except TidewireError as error:
        tally.outcomes[f"not verified: {type(error).__name__}"] += 1
    except Exception as error:  # noqa: BLE001 - this is what is looked for
        tally.faults.append(f"{name}: verify failed with {type(error).__name__}: {error}")
    else:
        tally.outcomes["verify sees it" if report.violations else "verify sees nothing"] += 1
        return [check.name for check in report.checks if check.violations]
    return []


async def try_copies(
    directory: Path,
    seed: str,
    copies: int,
    *,
    copies_min: int = 0,
    seconds_max: float = float("inf"),
) -> Tally:
    """Try `copies` copies, or as many as the time allows, but at least `copies_min`."""
    tally = Tally()
    truth = await make_store(directory)
    began = time.monotonic()
    for number in range(copies):
        if number >= copies_min and time.monotonic() - began > seconds_max:
            break
        random = Random(f"{seed}-{number}")
        copy = directory / f"copy-{number}"
        # In a real store most of the data is in the database, not in the log.
        store = directory / ("killed" if number % 5 == 0 else "stopped")
        is_aimed = number % 3 == 1 and store.name == "stopped"
        await try_copy(store, copy, truth, random, tally, is_aimed=is_aimed)
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
    # Imported here, because it imports this module.
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
