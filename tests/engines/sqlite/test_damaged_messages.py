"""Stored messages whose bytes changed: marked where they are read, and nothing else suffers (A5).

The rows are changed behind the store's back, as a disk would, not through a table's rules.
"""

from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from tests.engines.sqlite.inspected import edited
from tests.engines.sqlite.store import Stores, pair_in, store_of
from tests.support.outcomes import describe
from tests.support.world import PLENTY, World
from tidewire.domain.errors import CounterMissing, StoreDamaged
from tidewire.domain.ids import ChatId, UserId, placed
from tidewire.domain.messages import Appended, Message, SendMessage
from tidewire.engines.sqlite import storage as sqlite_storage
from tidewire.engines.sqlite.storage import DamageLog

COUNT = 6


class Damaged:
    """A store with one chat of six messages, closed, so that its rows can be changed."""

    def __init__(self, world: World, chat: ChatId, author: UserId, other: UserId) -> None:
        self.world = world
        self.chat = chat
        self.author = author
        self.other = other
        self.sends: list[SendMessage] = []
        self.acks: list[Appended] = []

    @property
    def path(self) -> Path:
        return store_of(self.world).path

    def change(self, sequence: int, assignment: str) -> None:
        """Change a row in the table and in no index: the indexes are hidden meanwhile."""
        with hidden_indexes(self.path) as database:
            database.execute(
                f"UPDATE messages SET {assignment} WHERE chat_id = ? AND sequence = ?",
                (self.chat, sequence),
            )
            assert database.changes() == 1

    def change_index(self, sequence: int, assignment: str) -> None:
        """Change what the index by sequence says of a row, not the row."""
        with hidden_indexes(self.path, but="messages_by_sequence") as database:
            database.execute(
                f"UPDATE messages SET {assignment} WHERE chat_id = ? AND sequence = ?",
                (self.chat, sequence),
            )
        with hidden_indexes(self.path) as database:
            database.execute(
                "UPDATE messages SET sequence = ?, chat_id = ? WHERE message_id = ?",
                (sequence, self.chat, self.acks[sequence - 1].message_id),
            )
            assert database.changes() == 1

    async def open(self) -> None:
        await store_of(self.world).open()

    async def synced(self, after: int = 0, **given: int) -> list[Message]:
        page = await self.world.storage.messages_after(
            self.other, self.chat, after, **{"count_max": PLENTY, "bytes_max": PLENTY, **given}
        )
        return list(page.messages)


class hidden_indexes:  # noqa: N801 - used as a statement
    """Indexes of the messages, and the rules of their table, hidden from SQLite for a while."""

    def __init__(self, path: Path, but: str = "") -> None:
        self._path = path
        self._but = but
        self._rows: list[Any] = []
        self._edit: Any = None

    def __enter__(self) -> apsw.Connection:
        where = "tbl_name = 'messages' AND type = 'index' AND name <> ?"
        with edited(self._path) as database:
            _allow(database)
            self._table = database.execute(
                "SELECT sql FROM sqlite_schema WHERE name = 'messages'"
            ).get
            self._rows = database.execute(
                f"SELECT * FROM sqlite_schema WHERE {where}", (self._but,)
            ).fetchall()
            database.execute(f"DELETE FROM sqlite_schema WHERE {where}", (self._but,))
            database.execute(
                "UPDATE sqlite_schema SET sql = replace(replace(replace(sql, 'NOT NULL', ''),"
                " ') STRICT', ')'), 'CHECK (sequence > prev_sequence)', '')"
                " WHERE name = 'messages'"
            )
            database.execute(
                "UPDATE sqlite_schema SET sql = replace(sql, 'INTEGER  PRIMARY', 'INTEGER PRIMARY')"
                " WHERE name = 'messages'"
            )
        self._edit = edited(self._path)
        found: apsw.Connection = self._edit.__enter__()
        return found

    def __exit__(self, *raised: object) -> None:
        self._edit.__exit__(*raised)
        with edited(self._path) as database:
            _allow(database)
            database.execute(
                "UPDATE sqlite_schema SET sql = ? WHERE name = 'messages'", (self._table,)
            )
            for row in self._rows:
                database.execute("INSERT INTO sqlite_schema VALUES (?, ?, ?, ?, ?)", row)


def _allow(database: apsw.Connection) -> None:
    database.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    database.execute("PRAGMA writable_schema = ON")


@pytest.fixture
async def damaged(stores: Stores) -> Damaged:
    world = await stores.open()
    chat, author, other = await pair_in(world)
    made = Damaged(world, chat, author, other)
    for number in range(1, COUNT + 1):
        send = world.draft(chat, author, f"message {number} 🌊")
        [outcome] = await world.append(send)
        assert isinstance(outcome, Appended)
        made.sends.append(send)
        made.acks.append(outcome)
    await store_of(world).close()
    return made


def marks(messages: list[Message]) -> list[tuple[int, int, bool, str]]:
    return [(m.sequence, m.prev_sequence, m.is_damaged, m.content) for m in messages]


def expected(*damaged: int) -> list[tuple[int, int, bool, str]]:
    return [
        (number, number - 1, number in damaged, "" if number in damaged else f"message {number} 🌊")
        for number in range(1, COUNT + 1)
    ]


CHANGES = [
    "content = 'other text'",
    "content = CAST(x'ff41fe' AS TEXT)",
    "content = NULL",
    "content = 5",
    "content = x'00ff'",
    "sender_id = 'user_01J00000000000000000000000'",
    "sender_id = CAST(x'c3' AS TEXT)",
    "message_id = CAST(x'c328' AS TEXT)",
    "client_message_id = NULL",
    "content_type = CAST(x'80' AS TEXT)",
    "created_at = created_at + 1",
    "created_at = -5",
    "created_at = 1 << 62",
    "created_at = 'soon'",
    "checksum = checksum + 1",
    "checksum = NULL",
    "checksum = 'none'",
]


@pytest.mark.parametrize("sequence", [1, 3, COUNT])
@pytest.mark.parametrize("change", CHANGES)
async def test_damaged_message_is_marked_and_the_chain_is_whole(
    damaged: Damaged, sequence: int, change: str
) -> None:
    damaged.change(sequence, change)
    await damaged.open()
    assert marks(await damaged.synced()) == expected(sequence)
    assert marks(await damaged.synced(sequence - 1, count_max=1)) == [
        expected(sequence)[sequence - 1]
    ]
    page = await damaged.world.storage.messages_before(
        damaged.other, damaged.chat, None, count_max=PLENTY, bytes_max=PLENTY
    )
    assert marks(list(page.messages)) == expected(sequence)
    found = await damaged.world.storage.message(
        damaged.other, damaged.chat, damaged.acks[sequence - 1].message_id
    )
    assert found.sequence == sequence
    # The id was asked for: that of the row does not matter.
    assert found.is_damaged == (not change.startswith("message_id"))
    assert found.is_damaged == (found.content == "")


@pytest.mark.parametrize("sequence", [1, 3, COUNT])
@pytest.mark.parametrize(
    "change",
    [
        "sequence = 1030",
        "sequence = NULL",
        "sequence = 'x'",
        "prev_sequence = 77",
        "prev_sequence = NULL",
    ],
)
async def test_numbers_are_rebuilt_and_the_content_is_whole(
    damaged: Damaged, sequence: int, change: str
) -> None:
    damaged.change(sequence, change)
    await damaged.open()
    assert marks(await damaged.synced()) == expected()


@pytest.mark.parametrize("sequence", [1, 3, COUNT])
@pytest.mark.parametrize(
    "change", ["sequence = sequence + 1024", "sequence = NULL", "chat_id = 'chat_x'"]
)
async def test_damaged_index_hides_no_message(damaged: Damaged, sequence: int, change: str) -> None:
    damaged.change_index(sequence, change)
    await damaged.open()
    assert marks(await damaged.synced()) == expected()


async def test_row_that_is_gone_stands_there_as_damaged(damaged: Damaged) -> None:
    with hidden_indexes(damaged.path) as database:
        database.execute("DELETE FROM messages WHERE sequence = 3")
    with edited(damaged.path) as database:
        database.execute("REINDEX")
    await damaged.open()
    assert marks(await damaged.synced()) == expected(3)
    assert marks(await damaged.synced(2)) == expected(3)[2:]


async def test_retry_of_a_damaged_message_gets_its_first_answer(damaged: Damaged) -> None:
    damaged.change(3, "content = CAST(x'ff' AS TEXT)")
    damaged.change(4, "content = 'other text', sender_id = 'user_x'")
    await damaged.open()
    new = damaged.world.draft(damaged.chat, damaged.author, "new")
    outcomes = await damaged.world.append(damaged.sends[2], damaged.sends[3], damaged.sends[4], new)
    assert [outcome.sequence for outcome in outcomes if isinstance(outcome, Appended)] == [
        3,
        4,
        5,
        7,
    ]
    for outcome, first in zip(outcomes, damaged.acks[2:5], strict=False):
        assert isinstance(outcome, Appended)
        assert (outcome.message_id, outcome.created_at_ms) == (
            first.message_id,
            first.created_at_ms,
        )
        assert outcome.deduplicated


async def test_chat_list_and_delivery_status_survive_a_damaged_message(damaged: Damaged) -> None:
    damaged.change(COUNT, "content = CAST(x'ff' AS TEXT), created_at = 1 << 61")
    await damaged.open()
    storage = damaged.world.storage
    page = await storage.chat_list(damaged.other, cursor=None, count_max=10)
    [item] = page.items
    assert item.last_message is not None
    assert (item.last_message.sequence, item.last_message.is_damaged) == (COUNT, True)
    assert item.last_message.preview == ""
    assert (item.unread, item.undelivered) == (COUNT, COUNT)
    status = await storage.delivery_status(damaged.author, damaged.chat, COUNT)
    assert len(status.members) == 2


async def test_damaged_message_is_told_once_with_its_place_and_without_its_text(
    damaged: Damaged, caplog: pytest.LogCaptureFixture
) -> None:
    damaged.change(3, "content = 'another secret'")
    await damaged.open()
    await damaged.synced()
    await damaged.synced()
    [record] = [one for one in caplog.records if "is damaged" in one.getMessage()]
    assert (vars(record)["chat_id"], vars(record)["sequence"]) == (damaged.chat, 3)
    assert "secret" not in caplog.text
    assert store_of(damaged.world).sqlite.damage.messages_damaged == 1


async def test_damaged_messages_are_counted_once_up_to_as_many_as_are_remembered(
    damaged: Damaged, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Those beyond are logged, each time that they are read, but not counted."""
    monkeypatch.setattr(sqlite_storage, "DAMAGED_KNOWN_MAX", 4)
    await damaged.open()
    messages = [msgspec.structs.replace(one, is_damaged=True) for one in await damaged.synced()]
    log = DamageLog()
    for known, counted in ((3, 3), (3, 3), (4, 4), (COUNT, 4), (COUNT, 4)):
        log.note_messages(messages[:known])
        assert log.messages_damaged == counted
    told = [vars(one)["sequence"] for one in caplog.records if "is damaged" in one.getMessage()]
    assert set(told) == set(range(1, COUNT + 1))


@pytest.mark.parametrize(
    "change", ["sequence = NULL", "sequence = sequence + 1024", "chat_id = 'chat_x'"]
)
async def test_new_message_names_the_true_last_one(damaged: Damaged, change: str) -> None:
    """The index says that another message is the last one."""
    damaged.change_index(COUNT, change)
    await damaged.open()
    chat = await damaged.world.chat(damaged.author, damaged.chat)
    assert chat.head == COUNT
    entry = await damaged.world.storage.standing(damaged.other, damaged.chat)
    assert entry is not None
    assert entry.head == COUNT
    [outcome] = await damaged.world.append(damaged.world.draft(damaged.chat, damaged.author))
    if isinstance(outcome, Appended):
        assert (outcome.sequence, outcome.prev_sequence) == (COUNT + 1, COUNT)
    else:
        assert isinstance(outcome, CounterMissing | StoreDamaged)


async def test_new_messages_follow_a_damaged_one(damaged: Damaged) -> None:
    damaged.change(COUNT, "content = 'other'")
    await damaged.open()
    sent = await damaged.world.send(damaged.chat, damaged.author)
    assert (sent.sequence, sent.prev_sequence) == (COUNT + 1, COUNT)
    assert len(await damaged.synced()) == COUNT + 1


async def test_damaged_unique_index_takes_no_other_send_along(damaged: Damaged) -> None:
    """What SQLite cannot read of an index may look to it like the very key that is to be added."""
    world = damaged.world
    await damaged.open()
    chats = [damaged.chat, damaged.chat, await world.group(damaged.author), damaged.chat]
    await store_of(world).close()
    sends = [world.draft(chat, damaged.author) for chat in chats]
    with edited(damaged.path) as database:
        taken = placed(sends[1].message_id, 8)
        database.execute("UPDATE messages SET message_id = ? WHERE sequence = 3", (taken,))
        # None of ours has a key that was not looked for before.
        database.execute("CREATE UNIQUE INDEX unreadable ON messages (message_id)")
    await damaged.open()
    outcomes = await world.append(*sends)
    # Later ones of the same chat and batch must not overtake.
    assert describe(outcomes) == [
        *("stored 7 after 6", "StoreDamaged", "stored 1 after 0", "StoreDamaged")
    ]
    assert describe(await world.append(sends[3])) == ["stored 8 after 7"]
