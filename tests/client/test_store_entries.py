"""What the store makes of entries: messages as they are now, and nothing of what was deleted."""

import asyncio
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest
from msgspec.structs import replace

from tests.unit.client.stage import (
    CHAT,
    ME,
    THEM,
    amending,
    deletion,
    edit,
    entry,
    item,
    key,
    reaction,
)
from tidewire.client.effects import Erased, Keep
from tidewire.client.model import ChangeRow, MessageRow
from tidewire.client.outbox import FAILED
from tidewire.client.replica import Replica, ReplicaRecord
from tidewire.client.schema import _SCHEMA, APPLICATION_ID, MEMORY, SCHEMA_VERSION, connect
from tidewire.client.store import Store
from tidewire.client.tables import EventRow, Tables
from tidewire.domain.chats import ChatType
from tidewire.domain.fold import AS_WRITTEN, MessageNow
from tidewire.domain.limits import UNREAD_SCAN_MAX
from tidewire.domain.messages import MENTION_ALL, EntryKind, MessageBody
from tidewire.wire.server_frames import SyncItem

REPLICA = Replica(chat_id=CHAT, chat_type=ChatType.GROUP, waiting_max=1)


def record(**fields: Any) -> ReplicaRecord:
    return ReplicaRecord(chat_id=CHAT, chat_type=ChatType.GROUP, **fields)


class Disk:
    """A store in memory, without its thread."""

    def __init__(self) -> None:
        self.database = connect(MEMORY)
        self.tables = Tables(self.database)
        self.tables.save_replicas([record()])
        self.tables.set_meta(user_id=ME)

    def keep(self, *items: SyncItem, last: bool = False, through: int = 0) -> list[Erased]:
        through = through or items[-1].sequence
        done = self.tables.keep([Keep(REPLICA, items, through, 0, is_complete=last)], ME)
        return done.get(CHAT, [])

    def rows(self) -> list[MessageRow]:
        return self.tables.messages(CHAT, before=None, after=0, limit=1_000, newest_first=False)

    def row(self, sequence: int) -> MessageRow:
        return self.tables.at(CHAT, [sequence])[sequence]

    def holds(self, text: str) -> bool:
        """Whether the bytes of a text are anywhere in the file."""
        return text.encode() in self.database.serialize("main")

    def events(self, after: int = 0) -> list[MessageRow | ChangeRow | EventRow]:
        return self.tables.next_events(after, 1_000)[0]


@pytest.fixture
def disk() -> Disk:
    return Disk()


# Folding.


def test_entries_are_folded_into_the_message_that_they_name(disk: Disk) -> None:
    disk.keep(item(1), item(2, sender=ME), edit(3, 1, "better"))
    assert [row.sequence for row in disk.rows()] == [1, 2], "an edit is no message"
    assert disk.row(1).now == MessageNow(content="better", edited_sequence=3)
    disk.keep(reaction(4, 2, "👍", count=1), reaction(5, 2, "👍", count=2, sender=ME))
    (thumbs,) = disk.row(2).now.reactions
    assert (thumbs.count, thumbs.is_own, thumbs.users) == (2, True, (THEM, ME))
    disk.keep(reaction(6, 2, "👍", count=1, is_on=False, sender=ME), edit(7, 1, "best"))
    (thumbs,) = disk.row(2).now.reactions
    assert (thumbs.count, thumbs.is_own, thumbs.users) == (1, False, (THEM,))
    assert disk.row(1).now.content == "best"
    assert [row.sequence for row in disk.tables.search("BEST", None, 9)] == [1]
    assert disk.tables.search("message 1", None, 9) == [], "it is searched as it is now"


def test_what_is_not_known_is_held_and_not_shown(disk: Disk) -> None:
    disk.keep(
        item(1), item(2, kind="poll", target=1, content="?"), edit(3, 1, "x", is_damaged=True)
    )
    assert [row.sequence for row in disk.rows()] == [1]
    assert [event.position for event in disk.events()] == [1]
    [held] = disk.tables.replicas()
    assert held.cursor == 3
    assert disk.row(1).now == AS_WRITTEN
    assert disk.tables.count_unread(CHAT, 0) == (1, 0)


def test_reply_has_the_message_that_it_answers_as_it_is_now(disk: Disk) -> None:
    disk.keep(item(1), item(2, reply_to=1, mentions=(ME,)), item(3, reply_to=99))
    quoted = disk.row(2).quoted
    assert quoted is not None
    assert quoted.content == "message 1"
    assert disk.row(3).quoted is None
    disk.keep(edit(4, 1, "better"))
    quoted = disk.row(2).quoted
    assert quoted is not None
    assert quoted.now.content == "better"
    disk.keep(deletion(5, 1))
    quoted = disk.row(2).quoted
    assert quoted is not None
    assert (quoted.content, quoted.is_erased) == ("", True)


def test_unread_is_counted_as_the_server_does(disk: Disk) -> None:
    disk.keep(
        item(1, mentions=(ME,)),
        item(2, sender=ME),
        item(3, mentions=(MENTION_ALL,)),
        item(4, mentions=(THEM,)),
        reaction(5, 1, "👍", count=1),
        item(6, is_deleted=True, content=""),
        item(7, sender=ME, mentions=(ME,)),
    )
    assert disk.tables.count_unread(CHAT, 0) == (3, 2)
    assert disk.tables.count_unread(CHAT, 1) == (2, 1)
    assert disk.keep(deletion(8, 3)) == [Erased(3, 8, is_mention=True)]
    assert disk.tables.count_unread(CHAT, 0) == (2, 1)
    assert disk.keep(deletion(9, 2)) == [], "an own one was never unread"
    assert disk.tables.count_unread("chat_unknown", 0) == (0, 0)


def test_unread_of_one_who_is_far_behind_is_that_of_the_last_messages(disk: Disk) -> None:
    """Own and deleted messages above the position are looked at too; what is before the last ones
    is not."""
    disk.keep(*(item(n) for n in range(1, 6)))
    through = UNREAD_SCAN_MAX + 5
    disk.keep(*(item(n, sender=ME) for n in range(6, through)))
    disk.keep(item(through, is_deleted=True, content=""))
    disk.keep(item(through + 1), item(through + 2, mentions=(ME,)))
    disk.keep(reaction(through + 3, 1, "👍", count=1))
    assert disk.tables.count_unread(CHAT, 0) == (2, 1)
    assert disk.tables.count_unread(CHAT, 5) == (2, 1)
    assert disk.tables.count_unread(CHAT, through + 1) == (1, 1)


def test_deleted_messages_are_among_the_last_ones(disk: Disk) -> None:
    disk.keep(*(item(n) for n in range(1, 4)))
    disk.keep(*(item(n, is_deleted=True, content="") for n in range(4, UNREAD_SCAN_MAX + 2)))
    assert disk.tables.count_unread(CHAT, 0) == (2, 0)


def test_many_reactions_neither_hide_messages_nor_cost_a_scan(disk: Disk) -> None:
    disk.keep(item(1), item(2))
    disk.keep(*(reaction(n, 1, "👍", count=1, is_on=n % 2 == 0) for n in range(3, 2_000)))
    assert disk.tables.count_unread(CHAT, 0) == (2, 0)
    assert [row.sequence for row in disk.rows()] == [1, 2]
    for query in ("messages_alone", "entries_by_target", "mentions"):
        plan = disk.database.execute(
            "EXPLAIN QUERY PLAN SELECT 1 FROM entries WHERE chat = 1 AND sequence > 5 "
            + {
                "messages_alone": "AND kind IS NULL AND is_gone = 0 ORDER BY sequence DESC LIMIT 9",
                "entries_by_target": "AND target = 3",
                "mentions": "AND is_mention = 1",
            }[query]
        ).fetchall()
        assert query in str(plan), plan


# Events.


def changes(disk: Disk, after: int = 0) -> list[tuple[MessageNow, MessageNow]]:
    return [(one.before, one.after) for one in disk.events(after) if isinstance(one, ChangeRow)]


def test_change_tells_what_was_before_and_after_it(disk: Disk) -> None:
    disk.keep(item(1), edit(2, 1, "two"), edit(3, 1, "three"), reaction(4, 1, "👍", count=1))
    (first, second, third) = changes(disk)
    assert first == (AS_WRITTEN, MessageNow(content="two", edited_sequence=2))
    assert second == (first[1], MessageNow(content="three", edited_sequence=3))
    assert third[0] == second[1]
    assert [one.count for one in third[1].reactions] == [1]
    # From anywhere on they are the same.
    assert changes(disk, after=2) == [second, third]
    message = disk.events()[0]
    assert isinstance(message, MessageRow)
    assert message.now == third[1], "a message comes as it is now"


def test_change_of_a_message_that_is_not_held_comes_without_it(disk: Disk) -> None:
    disk.tables.save_replicas([record(start=5)])
    disk.keep(edit(6, 3, "new"), through=6)
    (change,) = disk.events()
    assert isinstance(change, ChangeRow)
    assert change.message is None
    assert change.after.content == "new"


def test_events_that_wait_tell_nothing_of_what_was_deleted_since(disk: Disk) -> None:
    disk.keep(item(1, content="secret"), edit(2, 1, "very secret"), reaction(3, 1, "👍", count=1))
    disk.keep(deletion(4, 1))
    message, *rest = disk.events()
    assert isinstance(message, MessageRow)
    assert (message.content, message.is_erased) == ("", True)
    gone = MessageNow(deleted_sequence=4)
    assert changes(disk) == [(gone, gone)] * 3
    assert [one.entry.content for one in rest if isinstance(one, ChangeRow)] == ["", "", ""]


# Deletions.


def test_deletion_erases_everything_that_was_said(disk: Disk) -> None:
    tables = disk.tables
    disk.keep(item(1, sender=ME, client_message_id=key(1), content="the secret, first"))
    disk.keep(edit(2, 1, "the secret, second", sender=ME, client_message_id=key(2)))
    disk.keep(item(3, reply_to=1, content="an answer"))
    queued = amending(7, EntryKind.EDIT, 1, left_at_ms=None)
    failed = amending(8, EntryKind.EDIT, 1, state=FAILED, code="EDIT_CONFLICT", reason="no")
    behind = amending(9, EntryKind.EDIT, behind=1)
    for one in (queued, failed, behind):
        one.body = replace(one.body, content=f"the secret, number {one.number}")
    other = amending(10, EntryKind.EDIT, 3)
    tables.save_entries([queued, failed, behind, other, amending(11, EntryKind.REACT, 1)])

    def refused(client_message_id: str, target: int | None, text: str) -> None:
        body = {"chat_id": CHAT, "client_message_id": client_message_id, "target": target}
        tables.happened("refused", msgspec.json.encode({**body, "text": text}).decode())

    refused(key(8), 1, "the secret, refused")
    refused(key(1), None, "the secret, refused once and then sent")
    refused(key(77), None, "another text")
    assert disk.holds("the secret")
    disk.keep(deletion(4, 1, reason="a mistake"))
    assert not disk.holds("the secret")
    assert disk.holds("an answer")
    assert disk.holds("another text")
    assert [one.number for one in tables.entries()] == [10, 11]
    assert tables.search("secret", None, 10) == []
    assert disk.row(1).is_erased
    # What is written late finds it deleted.
    tables.save_entries([failed])
    assert not disk.holds("the secret")
    assert [one.number for one in tables.entries()] == [10, 11]


def test_no_text_is_put_back_under_a_deletion(disk: Disk) -> None:
    disk.keep(item(1, content="secret"), deletion(2, 1))
    # Pushed again, an answer to an own one that comes late, an edit of a server that has lost the
    # deletion: whatever it is.
    disk.keep(item(1, content="secret"))
    disk.keep(edit(3, 1, "secret"))
    assert not disk.holds("secret")
    assert disk.row(1).is_erased
    # A deletion that is known before its message is.
    disk.tables.save_replicas([record(start=5)])
    disk.keep(deletion(6, 4), through=6)
    disk.keep(item(4, content="secret", sender=ME), through=6)
    disk.keep(item(5, content="kept", sender=ME), through=6)
    assert not disk.holds("secret")
    assert disk.row(4).is_erased
    assert not disk.row(5).is_erased


def test_message_that_the_server_has_erased_is_a_tombstone_before_its_deletion_comes(
    disk: Disk,
) -> None:
    disk.keep(item(1, content="", is_deleted=True), edit(2, 1, "", is_deleted=True))
    assert disk.row(1).is_erased
    assert disk.row(1).now.content is None
    assert disk.keep(deletion(3, 1)) == [], "it was never shown"


def test_page_of_history_is_joined_with_what_is_held(disk: Disk) -> None:
    disk.keep(item(1), item(2), item(3), edit(4, 1, "four"), reaction(5, 2, "👍", count=1))
    told = {
        1: MessageNow(content="one", edited_sequence=0),
        2: MessageNow(content="nine", edited_sequence=9),
        3: MessageNow(deleted_sequence=8),
        -1: AS_WRITTEN,
    }
    joined, erased = disk.tables.join_page(CHAT, told)
    assert joined[1].content == "four"
    assert (joined[2].content, len(joined[2].reactions)) == ("nine", 1)
    assert erased == [Erased(3, 8, is_mention=False)]
    assert not disk.holds("message 3")
    # A page that is older than that one.
    joined, erased = disk.tables.join_page(CHAT, {3: AS_WRITTEN})
    assert (joined[3].is_deleted, erased) == (True, [])
    # What is ahead of the chain is shown and not kept: only a deletion is final.
    assert disk.row(2).now.content is None
    assert disk.tables.join_page("chat_unknown", told) == (told, [])


# A restored server.


def test_restore_that_lost_an_edit_shows_the_message_as_it_was(disk: Disk) -> None:
    disk.keep(item(1), edit(2, 1, "two"), edit(3, 1, "three"), reaction(4, 1, "👍", count=1))
    disk.tables.restart([record()], "two")
    disk.keep(item(1), edit(2, 1, "two"), item(900, 2), last=True)
    assert disk.row(1).now == MessageNow(content="two", edited_sequence=2)
    assert disk.tables.gone(CHAT, 9) == [], "an edit is no message"


def test_restore_does_not_bring_a_deleted_text_back(disk: Disk) -> None:
    disk.keep(item(1, content="secret"), edit(2, 1, "secret too"), deletion(3, 1))
    disk.tables.restart([record()], "two")
    disk.keep(item(1, content="secret"), edit(2, 1, "secret too"), item(900, 2), last=True)
    disk.keep(edit(901, 1, "secret again"))
    assert not disk.holds("secret")
    assert disk.row(1).is_erased


def test_restore_that_lost_a_message_erases_what_is_deleted_later(disk: Disk) -> None:
    disk.keep(item(1), item(2, content="lost and secret"), item(3, content="kept"))
    disk.tables.restart([record()], "two")
    disk.keep(item(1), item(900, 1), last=True)
    assert [row.content for row in disk.tables.gone(CHAT, 9)] == ["lost and secret", "kept"]
    disk.keep(deletion(901, 2))
    assert not disk.holds("lost and secret")
    assert [row.content for row in disk.tables.gone(CHAT, 9)] == ["", "kept"]


def test_erased_message_of_a_restored_server_is_erased_here(disk: Disk) -> None:
    disk.keep(item(1, content="secret"), item(2))
    disk.tables.restart([record()], "two")
    disk.keep(item(1, content="", is_deleted=True), item(2))
    assert not disk.holds("secret")


# The outbox.


def test_outbox_keeps_what_an_amendment_says(disk: Disk) -> None:
    made = [
        entry(1, left_at_ms=None),
        amending(2, EntryKind.EDIT, 7, base=3),
        amending(3, EntryKind.REACT, behind=1),
        amending(4, EntryKind.DELETE, 9),
    ]
    made[0].body = replace(made[0].body, reply_to=4, mentions=(ME, MENTION_ALL))
    disk.tables.save_entries(made)
    assert disk.tables.entries() == made


def test_amendment_names_its_target_when_that_was_stored_meanwhile(disk: Disk) -> None:
    behind = [amending(2, EntryKind.EDIT, behind=1), amending(3, EntryKind.EDIT, behind=9)]
    disk.tables.save_entries([entry(1), *behind])
    assert [one.target_key for one in disk.tables.entries()] == [None, key(1), key(9)]
    disk.keep(item(5, sender=ME, client_message_id=key(1)))
    one, other = disk.tables.entries()
    assert one.amends is not None
    assert (one.number, one.amends.target, one.target_key) == (2, 5, None)
    assert other.target_key == key(9), "what becomes of it, the core decides"


# The file.


def old_store(path: Path) -> None:
    """A store of version 0.1.0, which has heard of entries without knowing them."""
    database = apsw.Connection(str(path))
    database.execute(_SCHEMA)
    database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    database.execute("PRAGMA user_version = 1")
    database.execute(
        "INSERT INTO chats VALUES (1, ?, 'group', 'team', 1, 1, 2, 9, 9, 9, 2, 0, 0, 3, 0)", (CHAT,)
    )
    for sequence, text in ((3, "three"), (4, "four"), (6, ""), (7, "seven"), (9, "")):
        database.execute(
            "INSERT INTO messages VALUES (?, 1, ?, ?, ?, ?, ?, ?, 'text/plain', ?, 0, 0)",
            (
                sequence,
                sequence,
                4 if sequence == 6 else sequence - 1,
                f"msg_{sequence}",
                THEM,
                key(100_000 + sequence),
                text,
                "2031-05-04T11:20:07.412Z",
            ),
        )
    database.execute(
        "INSERT INTO outbox VALUES (?, 1, ?, 'waiting', 'text/plain', 0, 5, NULL, 'queued', "
        "NULL, NULL)",
        (key(1), CHAT),
    )
    database.close()


async def test_store_of_an_older_version_is_brought_forward(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    old_store(path)
    for _ in range(2):
        store = Store(str(path))
        kept = await store.do(
            lambda tables: tables.messages(CHAT, before=None, after=0, limit=9, newest_first=False)
        )
        assert [row.content for row in kept] == ["three", "four", "seven"]
        [held] = await store.do(lambda tables: tables.replicas())
        # What an older client took for messages without content is fetched again.
        assert (held.cursor, held.head, held.mentions_unread) == (4, 9, 0)
        [waiting] = await store.do(lambda tables: tables.entries())
        assert (waiting.body.content, waiting.amends) == ("waiting", None)
        await store.close()
    database = apsw.Connection(str(path))
    assert list(database.execute("PRAGMA user_version")) == [(SCHEMA_VERSION,)]
    database.close()


async def test_entries_that_an_older_version_did_not_know_are_fetched(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    old_store(path)
    store = Store(str(path))

    def again(tables: Tables) -> dict[int, MessageRow]:
        items = [edit(6, 4, "better", prev=4), item(7, 6), deletion(9, 3, prev=7)]
        tables.keep([Keep(REPLICA, items, 9, 0)], ME)
        return tables.at(CHAT, [3, 4, 7])

    found = await store.do(again)
    assert found[3].is_erased
    assert found[4].now.content == "better"
    assert found[7].content == "seven", "what is held is held once"
    await store.close()


async def test_erased_text_is_in_no_file_of_the_store(tmp_path: Path) -> None:
    """Also not in the write-ahead log, while the store is open."""
    store = Store(str(tmp_path / "x.db"))
    secret = "the secret " * 200

    def said(tables: Tables) -> None:
        tables.save_replicas([record()])
        items = [item(1, content=secret), edit(2, 1, secret), item(3, content="kept" * 500)]
        tables.keep([Keep(REPLICA, items, 3, 0)], ME)

    await store.do(said)
    assert in_files(tmp_path, b"the secret")
    await store.do(lambda tables: tables.keep([Keep(REPLICA, [deletion(4, 1)], 4, 0)], ME))
    # The log is emptied after the answer; the next job comes after that.
    await store.do(lambda tables: tables.meta("x"))
    assert not in_files(tmp_path, b"the secret")
    assert in_files(tmp_path, b"keptkept")
    await store.close()
    assert not in_files(tmp_path, b"the secret")


async def test_text_that_was_dropped_before_it_left_is_in_no_file_of_the_store(
    tmp_path: Path,
) -> None:
    """A message that waits in the outbox is deleted by dropping it: no deletion ever comes."""
    store = Store(str(tmp_path / "x.db"))
    secret = entry(1, body=MessageBody(content="the secret " * 50))
    await store.do(lambda tables: tables.put_entries([secret]))
    assert in_files(tmp_path, b"the secret")
    await store.do(lambda tables: tables.drop_entries([secret.client_message_id]))
    await store.do(lambda tables: tables.meta("x"))
    assert not in_files(tmp_path, b"the secret")
    await store.close()


def in_files(folder: Path, text: bytes) -> bool:
    return any(text in path.read_bytes() for path in folder.iterdir())


async def test_killed_process_leaves_no_erased_text_for_long(tmp_path: Path) -> None:
    """What the log of a killed process still holds goes when the store is opened again."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    database = connect(str(first / "x.db"))
    tables = Tables(database)
    tables.save_replicas([record()])
    tables.keep([Keep(REPLICA, [item(1, content="the secret " * 50)], 1, 0)], ME)
    tables.keep([Keep(REPLICA, [deletion(2, 1)], 2, 0)], ME)
    assert in_files(first, b"the secret")
    for path in first.iterdir():
        (second / path.name).write_bytes(path.read_bytes())
    database.close()
    store = Store(str(second / "x.db"))
    assert not in_files(second, b"the secret")
    await store.close()


async def test_store_in_memory_erases_too() -> None:
    store = Store(MEMORY)
    await store.do(lambda tables: tables.save_replicas([record()]))
    items = [item(1), deletion(2, 1)]
    erased = await store.do(lambda tables: tables.keep([Keep(REPLICA, items, 2, 0)], ME))
    assert erased == {CHAT: [Erased(1, 2, is_mention=False)]}
    await store.close()
    await asyncio.sleep(0)
