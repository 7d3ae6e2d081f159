"""The ledger: what the store has promised, kept outside of it, and held against it after a crash.

It knows nothing of the engine but its tables, which it reads as they are, without the index that
the engine would use, through a connection of its own that cannot write.
"""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import apsw
import msgspec

from tests.support.crash_records import (
    Answered,
    Changed,
    Changing,
    Fault,
    Moved,
    Moving,
    Record,
    RefusedSend,
    Seen,
    Sent,
    content_of,
)
from tidewire.domain.delivery import NOWHERE, Positions
from tidewire.domain.ids import ChatId, ClientMessageId, MessageId, UserId
from tidewire.engines.sqlite.database import DATABASE_NAME
from tidewire.engines.sqlite.inspect import SqliteInspector
from tidewire.ops.verify import verify

FAULTS_MAX: Final = 20
"""More than this many of a kind are not worth reading."""

_MESSAGES: Final = """
SELECT client_message_id, message_id, sequence, prev_sequence, created_at,
    chat_id, sender_id, content
FROM messages NOT INDEXED ORDER BY position
"""


class Promise(msgspec.Struct, frozen=True, gc=False):
    """The place of a message, as somebody was told it."""

    message_id: MessageId
    sequence: int
    prev_sequence: int
    created_at_ms: int


class Stored(msgspec.Struct, frozen=True, gc=False):
    """A message as it is in the file."""

    key: ClientMessageId
    place: Promise
    chat_id: ChatId
    sender_id: UserId
    content: str


class Snapshot(msgspec.Struct, frozen=True):
    """What is in a database file: messages in commit order, positions, members."""

    messages: list[Stored]
    positions: dict[tuple[str, str], Positions]
    members: set[tuple[str, str]]


def read_snapshot(directory: Path, *, is_thorough: bool = False) -> Snapshot:
    """Read the file as it is. `is_thorough` also has SQLite look at every page."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_NOMUTEX
    database = apsw.Connection(str(directory / DATABASE_NAME), flags=flags)
    try:
        if is_thorough:
            damage = database.execute("PRAGMA integrity_check").fetchall()
            assert damage == [("ok",)], damage[:3]
        messages = [
            Stored(key, Promise(*place), chat_id, sender_id, content)
            for key, *place, chat_id, sender_id, content in database.execute(_MESSAGES)
        ]
        positions = {
            (user_id, chat_id): Positions(delivered, read)
            for user_id, chat_id, delivered, read in database.execute(
                "SELECT user_id, chat_id, last_acked_sequence, last_read_sequence"
                " FROM delivery_state NOT INDEXED"
            )
        }
        members = set(database.execute("SELECT chat_id, user_id FROM chat_memberships NOT INDEXED"))
    finally:
        database.close()
    return Snapshot(messages, positions, members)


def state_faults(directory: Path) -> list[str]:
    """What `tidewire verify` has to say about the file."""
    report = verify(lambda: SqliteInspector(directory / DATABASE_NAME))
    return [
        f"{check.name}: {offender.chat_id}: {offender.found}"
        for check in report.checks
        for offender in check.offenders
    ]


class Ledger:
    """Takes records in (`feed`), holds them against a snapshot (`faults_in`)."""

    def __init__(self) -> None:
        self.records: Counter[str] = Counter()
        self.promises: dict[ClientMessageId, Promise] = {}
        """Messages that somebody was told about, by answer or by sight."""
        self.open: dict[ClientMessageId, Sent] = {}
        """Sends without an answer."""
        self._sends: dict[ClientMessageId, Sent] = {}
        self._in_flight: Counter[ClientMessageId] = Counter()
        self._refused: set[ClientMessageId] = set()
        self._heads: dict[ChatId, int] = {}
        # What was answered in its chat when a send began: it must come after that.
        self._began_above: dict[ClientMessageId, int] = {}
        self._lines: dict[tuple[str, ChatId], list[ClientMessageId]] = {}
        self._asked: dict[tuple[str, str], Positions] = {}
        self._shown: dict[tuple[str, str], Positions] = {}
        # What a membership may be: one answer if the last change was confirmed, else both.
        self._members: dict[tuple[str, str], set[bool]] = {}
        self._faults: list[str] = []

    def sends(self, keys: Iterable[ClientMessageId]) -> list[Sent]:
        """The sends of these keys, to be repeated: on no connection, so in no order."""
        return [msgspec.structs.replace(self._sends[key], line=None) for key in keys]

    def feed(self, record: Record) -> None:
        """Take in what the load reports, in its order."""
        self.records[type(record).__name__] += 1
        if isinstance(record, Sent):
            self._sent(record)
        elif isinstance(record, Answered | Seen):
            place = Promise(
                record.message_id, record.sequence, record.prev_sequence, record.created_at_ms
            )
            self._promised(record.key, place, is_answer=isinstance(record, Answered))
        elif isinstance(record, RefusedSend):
            self._refuse(record.key)
        elif isinstance(record, Moving | Moved):
            known = self._asked if isinstance(record, Moving) else self._shown
            pair = (record.user_id, record.chat_id)
            before = known.get(pair, NOWHERE)
            known[pair] = before.merged(Positions(record.delivered, record.read))
        elif isinstance(record, Changing):
            self._members.setdefault((record.chat_id, record.user_id), {False}).add(record.joins)
        elif isinstance(record, Changed):
            self._members[record.chat_id, record.user_id] = {record.joins}
        elif isinstance(record, Fault):
            self._faults.append(record.sentence)

    def settle(self, snapshot: Snapshot) -> int:
        """A life is over and checked; how many sends without an answer were stored after all.

        They are promised from now on: whoever looks, or retries, is told of them.
        """
        found = 0
        for stored in snapshot.messages:
            if stored.key in self.open and stored.key not in self.promises:
                self.promises[stored.key] = stored.place
                found += 1
        self._lines.clear()
        self._in_flight.clear()
        return found

    def faults_in(self, snapshot: Snapshot) -> list[str]:
        """Everything in which the store does not keep what was promised."""
        by_key = {stored.key: stored for stored in snapshot.messages}
        faults = [
            *self._faults,
            *self._lost(by_key),
            *self._strange(snapshot.messages),
            *_broken_chains(snapshot.messages),
            *self._out_of_line(by_key),
            *self._wrong_positions(snapshot),
            *self._wrong_members(snapshot),
        ]
        return faults[:FAULTS_MAX]

    def _sent(self, sent: Sent) -> None:
        if sent.key not in self._sends:
            self._sends[sent.key] = sent
            self._began_above[sent.key] = self._heads.get(sent.chat_id, 0)
            if sent.line is not None:
                self._lines.setdefault((sent.line, sent.chat_id), []).append(sent.key)
        self._in_flight[sent.key] += 1
        self._refused.discard(sent.key)
        if sent.key not in self.promises:
            self.open[sent.key] = sent

    def _refuse(self, key: ClientMessageId) -> None:
        self._in_flight[key] -= 1
        # Another try of it may still be under way, and may be taken.
        if not self._in_flight[key]:
            self._refused.add(key)
            self.open.pop(key, None)
        sent = self._sends[key]
        if sent.line is not None and (line := self._lines.get((sent.line, sent.chat_id))):
            # A later try of it comes at its own time.
            line[:] = [other for other in line if other != key]

    def _promised(self, key: ClientMessageId, place: Promise, *, is_answer: bool) -> None:
        first = self.promises.setdefault(key, place)
        if first != place:
            self._faults.append(f"{key} was told as {first}, now as {place}")
        sent = self._sends.get(key)
        if sent is None:
            self._faults.append(f"{key} was shown at {place}, but nobody has sent it")
            return
        if place.sequence <= self._began_above[key]:
            self._faults.append(f"{key} was sent after {self._began_above[key]}, got {place}")
        if is_answer:
            self._in_flight[key] -= 1
            self.open.pop(key, None)
            self._heads[sent.chat_id] = max(self._heads.get(sent.chat_id, 0), place.sequence)

    def _lost(self, by_key: dict[ClientMessageId, Stored]) -> Iterable[str]:
        for key, place in self.promises.items():
            stored = by_key.get(key)
            if stored is None:
                yield f"lost: {key}, promised at {place}"
            elif stored.place != place:
                yield f"changed: {key}, promised at {place}, stored at {stored.place}"

    def _strange(self, messages: list[Stored]) -> Iterable[str]:
        """Messages that are there twice, or that nobody sent, or not like that."""
        counts = Counter([stored.key for stored in messages])
        yield from (f"{key} is there {count} times" for key, count in counts.items() if count > 1)
        for stored in messages:
            sent = self._sends.get(stored.key)
            if sent is None:
                yield f"{stored.key} is there, but nobody has sent it"
            elif (stored.chat_id, stored.sender_id) != (sent.chat_id, sent.sender_id):
                yield f"{stored.key} is in the wrong place: {stored.chat_id}, {stored.sender_id}"
            elif stored.content != content_of(sent):
                yield f"{stored.key} has another text: {stored.content[:80]!r}"
            elif stored.key in self._refused:
                yield f"{stored.key} was refused, but is there at {stored.place}"

    def _out_of_line(self, by_key: dict[ClientMessageId, Stored]) -> Iterable[str]:
        """What one connection sends to one chat is stored in its order, without a hole (P-13)."""
        for line, keys in self._lines.items():
            last, missing = 0, None
            for key in keys:
                stored = by_key.get(key)
                if stored is None:
                    missing = missing or key
                elif missing is not None:
                    yield f"{line}: {key} is there, {missing} before it is not"
                elif stored.place.sequence <= last:
                    yield f"{line}: {key} is at {stored.place.sequence}, the one before at {last}"
                else:
                    last = stored.place.sequence

    def _wrong_positions(self, snapshot: Snapshot) -> Iterable[str]:
        own: dict[tuple[str, str], int] = {}
        for stored in snapshot.messages:
            own[stored.sender_id, stored.chat_id] = stored.place.sequence
        for pair, shown in self._shown.items():
            found = snapshot.positions.get(pair, NOWHERE)
            if found.merged(shown) != found:
                yield f"the positions {pair} were shown as {shown} and are now {found}"
        for pair, found in snapshot.positions.items():
            asked = self._asked.get(pair, NOWHERE)
            bound = max(asked.delivered, asked.read, own.get(pair, 0))
            if max(found.delivered, found.read) > bound:
                yield f"the positions {pair} are {found}, but nobody has acknowledged above {bound}"

    def _wrong_members(self, snapshot: Snapshot) -> Iterable[str]:
        for pair, possible in self._members.items():
            if (pair in snapshot.members) not in possible:
                yield f"membership {pair} is {pair in snapshot.members}, not one of {possible}"


def _broken_chains(messages: list[Stored]) -> Iterable[str]:
    heads: dict[ChatId, int] = {}
    for stored in messages:
        head = heads.get(stored.chat_id, 0)
        place = stored.place
        if place.prev_sequence != head or place.sequence <= head:
            yield f"{stored.key} at {place} comes after {head} in {stored.chat_id}"
        heads[stored.chat_id] = place.sequence
