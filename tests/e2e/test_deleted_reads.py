"""No read that begins after a deletion was acknowledged has the text, in whatever way it is read.

People write, edit and delete on a real server while others sync, look at history, at single
messages and at their lists of chats, connect anew, and an operator makes backups. What was asked
and what came is a history, checked by the trace invariant of the crash runs. Each text is said
once, so it is looked for as it is in whatever comes back. Slow: real servers.
"""

import asyncio
import json
from collections.abc import Awaitable, Iterator, Sequence
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from tests.e2e.chatting import Account, Phone, Site, new_key
from tests.e2e.commands import tidewire
from tests.support.history import (
    Acked,
    Entry,
    FinalState,
    Found,
    History,
    Question,
    Sent,
    TextsAsked,
    TextsShown,
)
from tests.support.trace_entries import check_deleted_is_not_read
from tidewire.domain.ids import ChatId, ClientMessageId, MessageId, UserId
from tidewire.domain.messages import Amendment, EntryKind

pytestmark = pytest.mark.slow

LIMITS = {
    "gateway__send_chat_rate_per_second": 10_000,
    "gateway__send_chat_burst": 100_000,
    "gateway__send_user_rate_per_second": 10_000,
    "gateway__send_user_burst": 100_000,
    "gateway__user_connects_per_minute": 10_000,
    "rest__reads_per_minute": 100_000,
}
MESSAGES = 60
NOTHING = FinalState(messages={}, counters={}, positions={})
SHOW_TEXTS = ("sync", "history", "a message by its id", "the list of chats", "a backup")
PERSONAL = ("sync", "history", "a message by its id", "the list of chats", "the digest")


@pytest.fixture(scope="module", params=[1, 2], ids=["alone", "processes"])
def site(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("deleted")
    with Site(directory, server__processes=request.param, **LIMITS) as site:
        yield site
        assert site.complaints() == []


class Record:
    """What is asked and told about one chat, in its order."""

    def __init__(self, chat_id: str) -> None:
        self.chat_id = chat_id
        self.entries: list[Entry] = []
        self.said: dict[int, list[str]] = {}
        """The texts of each message: as it was written, and by edits."""
        self.ids: dict[int, str] = {}
        self.is_over = False
        self._ops = count(1)

    async def send(
        self, phone: Phone, who: Account, frame_type: str, amends: Amendment | None, text: str = ""
    ) -> int:
        """Have an entry stored; its sequence."""
        key, chat_id = new_key(), self.chat_id
        fields: dict[str, Any] = {"content": text} if text else {}
        if amends is not None:
            fields["target"] = amends.target
        op = self._ask(
            Sent(
                op=next(self._ops),
                chat_id=ChatId(chat_id),
                user_id=UserId(who.user_id),
                client_message_id=ClientMessageId(key),
                content=text,
                amends=amends,
            )
        )
        wish = {"chat_id": chat_id, "client_message_id": key, **fields}
        answer = await phone.ask(frame_type, wish)
        assert answer["type"] == "send_message_ack", answer
        acked = answer["payload"]
        sequence: int = acked["sequence"]
        subject = sequence if amends is None else amends.target
        if text:
            self.said.setdefault(subject, []).append(text)
        if amends is None:
            self.ids[sequence] = acked["message_id"]
        self.entries.append(
            Acked(
                op=op, sequence=sequence, message_id=MessageId(acked["message_id"]), created_at_ms=0
            )
        )
        return sequence

    async def read(self, way: str, who: Account, reading: Awaitable[object]) -> None:
        """Read in some way, and note which texts came back, and of which messages."""
        user_id, chat_id = UserId(who.user_id), ChatId(self.chat_id)
        op = self._ask(TextsAsked(op=next(self._ops), chat_id=chat_id, user_id=user_id, way=way))
        came = json.dumps(await reading, ensure_ascii=False)
        found = {at: text for at, texts in self.said.items() for text in texts if text in came}
        self.entries.append(TextsShown(op=op, texts=found))

    def _ask(self, question: Question) -> int:
        self.entries.append(question)
        return question.op


async def write(record: Record, phone: Phone, who: Account, name: str) -> None:
    """Messages that are edited, and of which most are deleted, soon or later."""
    random, alive = Random(name), list[int]()
    for number in range(MESSAGES):
        text = f"{name} said secret {number};"
        sequence = await record.send(phone, who, "send_message", None, text)
        alive.append(sequence)
        for turn in range(random.randrange(3)):
            edit = Amendment(kind=EntryKind.EDIT, target=sequence)
            text = f"{name} meant secret {number}, {turn};"
            await record.send(phone, who, "edit_message", edit, text)
        while len(alive) > random.randrange(4):
            target = alive.pop(random.randrange(len(alive)))
            deletion = Amendment(kind=EntryKind.DELETE, target=target)
            await record.send(phone, who, "delete_message", deletion)


class Reader:
    """A person who looks at the chat in all ways that are open to them, and an operator."""

    def __init__(
        self, record: Record, site: Site, phone: Phone, who: Account, tablet: Account, to: Path
    ) -> None:
        self._record, self._site, self._phone = record, site, phone
        self._who, self._tablet = who, tablet
        self._random = Random(who.username)
        self._directory, self._copies = to, count()

    async def read(self, way: str) -> None:
        await self._record.read(way, self._who, self._reading(way))

    async def read_until_it_is_over(self) -> None:
        while not self._record.is_over:
            await self.read(self._random.choice(PERSONAL))

    async def back_up_until_it_is_over(self) -> None:
        while not self._record.is_over:
            await self.read("a backup")

    def _reading(self, way: str) -> Awaitable[object]:
        record, site, who = self._record, self._site, self._who
        path = f"/chats/{record.chat_id}/messages"
        match way:
            case "sync":
                # Below the last message, so that there is something to give.
                cursor = self._random.choice([0, *record.ids][:-1])
                return self._phone.sync(record.chat_id, cursor)
            case "history":
                return site.done("GET", f"{path}?limit=100", by=who)
            case "a message by its id":
                # One of the last: the others are deleted, by far most of them.
                message_id = self._random.choice([*record.ids.values()][-4:])
                return site.done("GET", f"{path}/{message_id}", by=who)
            case "the list of chats":
                return site.done("GET", "/chats", by=who)
            case "the digest":
                return digest_of(site, self._tablet)
            case _:
                file = self._directory / f"{who.username} {next(self._copies)}.db"
                return asyncio.to_thread(copied, site.data_dir, file)


async def digest_of(site: Site, who: Account) -> object:
    async with site.phone(who, features=("entries",)) as phone:
        return list(phone.inbox)


def copied(data_dir: Path, file: Path) -> list[object]:
    assert tidewire("backup", data_dir, file).exit_code == 0
    database = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
    names = database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    rows = [str(row) for (name,) in names for row in database.execute(f'SELECT * FROM "{name}"')]
    database.close()
    return list(rows)


def violations(entries: Sequence[Entry]) -> list[Found]:
    return list(check_deleted_is_not_read(History(entries), NOTHING))


@pytest.mark.timeout(180)
async def test_no_read_after_the_acknowledgement_of_a_deletion_has_the_text(
    site: Site, tmp_path: Path
) -> None:
    anna, ben, cleo = await site.people("anna", "ben", "cleo")
    record = Record(await site.group(anna, ben, cleo))
    async with (
        site.phone(anna, features=("entries",)) as one,
        site.phone(ben) as other,
        site.phone(cleo, features=("batch", "entries")) as third,
    ):
        readers = [
            Reader(record, site, phone, who, await site.login(who), tmp_path)
            for phone, who in ((third, cleo), (other, ben))
        ]
        # One text is there to be seen in every way before it is deleted, after all the others.
        first = await record.send(one, anna, "send_message", None, "the first secret;")
        for way in SHOW_TEXTS:
            await readers[0].read(way)
        shown = [one for one in record.entries if isinstance(one, TextsShown)]
        assert [one.texts for one in shown] == [{first: "the first secret;"}] * len(SHOW_TEXTS)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(readers[0].back_up_until_it_is_over())
            for reader in readers:
                tasks.create_task(reader.read_until_it_is_over())
            await asyncio.gather(write(record, one, anna, "anna"), write(record, other, ben, "ben"))
            record.is_over = True
        deletion = Amendment(kind=EntryKind.DELETE, target=first)
        await record.send(one, anna, "delete_message", deletion)
        for way in {*SHOW_TEXTS, *PERSONAL}:
            await readers[1].read(way)
    assert violations(record.entries) == []
    # What was seen of it before would have been noticed now.
    asked = {one.op: one for one in record.entries if isinstance(one, TextsAsked)}
    for again, seen in enumerate(shown, start=1_000_000):
        late: list[Entry] = [replace(asked[seen.op], op=again), replace(seen, op=again)]
        assert violations([*record.entries, *late]), "a text that is shown after its deletion"
