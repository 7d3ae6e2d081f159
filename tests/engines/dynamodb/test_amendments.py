"""Entries that change messages, where DynamoDB makes it hard: several processes, reads that lag
behind a commit, pages of two tables.

What every engine does with them is in tests/contract/test_storage_amendments.py.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from tests.engines.dynamodb.conftest import Behind
from tests.engines.dynamodb.looks import (
    SECRET,
    TRANSACT,
    append,
    row_of,
    store_of,
)
from tests.support.dynamodb_proxy import Fate, Proxy
from tests.support.outcomes import chained, describe
from tests.support.world import PLENTY, World, taken
from tidewire.domain.errors import EditConflict
from tidewire.domain.events import MessageAppended
from tidewire.domain.fold import AS_WRITTEN, MessageNow, fold
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.limits import UNREAD_MAX, UNREAD_SCAN_MAX
from tidewire.domain.messages import Message
from tidewire.engines.dynamodb import amending, schema
from tidewire.engines.dynamodb import append as append_module
from tidewire.engines.dynamodb.database import Wanted
from tidewire.engines.dynamodb.rows import Row, Write
from tidewire.engines.dynamodb.storage import DynamoStorage

pytestmark = pytest.mark.slow
"""Each waits for many requests."""


def folded(entries: Sequence[Message], target: int, reader: UserId) -> MessageNow:
    now = AS_WRITTEN
    for entry in entries:
        if entry.amends is not None and entry.amends.target == target:
            now = fold(now, entry, reader)
    return now


def check_counts(entries: Sequence[Message], target: int) -> None:
    """Every count that was ever told is that of the set."""
    on: set[tuple[UserId, str]] = set()
    for entry in entries:
        if entry.amends is None or entry.amends.target != target or entry.amends.emoji is None:
            continue
        change = on.add if entry.amends.is_on else on.discard
        change((entry.sender_id, entry.amends.emoji))
        assert entry.count == Counter(emoji for _, emoji in on)[entry.amends.emoji], entry


@contextmanager
def transactions(store: DynamoStorage, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many items each transaction has, up to the end of the block."""
    counted: list[int] = []
    transact = store._database.transact

    async def counting(writes: Sequence[Write], **more: bool) -> None:
        counted.append(len(writes))
        await transact(writes, **more)

    with monkeypatch.context() as patched:
        patched.setattr(store._database, "transact", counting)
        yield counted


# What it costs.


async def test_items_of_a_transaction(direct: World, monkeypatch: pytest.MonkeyPatch) -> None:
    anna, ben = await direct.people(2)
    chat = await direct.direct(anna, ben)
    await direct.send(chat, anna)
    with transactions(store_of(direct), monkeypatch) as items:
        await direct.send(chat, anna)
        await direct.store(direct.reaction(chat, ben, 1))
        await direct.store(direct.reaction(chat, ben, 1, is_on=False))
        await direct.store(direct.edit(chat, anna, 1))
        await direct.store(direct.edit(chat, anna, 1))
        await direct.store(direct.edit(chat, anna, 1))
        await direct.store(direct.deletion(chat, anna, 1))
        await direct.store(direct.deletion(chat, anna, 2))
        await direct.store(direct.draft(chat, anna, reply_to=1, mentions=(ben,)))
    message = 4
    assert items == [
        message,
        message + 2,
        message + 2,
        *[message + 1] * 3,
        message + 2 + 2 * 3,
        message + 2,
        message,
    ]


async def test_many_reactions_at_once_share_transactions(
    direct: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = await direct.people(31)
    chat = await direct.group(*people)
    await direct.send(chat, people[0])
    with transactions(store_of(direct), monkeypatch) as items:
        outcomes = await direct.append(*(direct.reaction(chat, one, 1) for one in people))
    assert items == [amending.ITEMS_MAX, 9]
    assert [taken(one).sequence for one in outcomes] == list(range(2, 33))
    entries = await direct.engine.messages(chat)
    check_counts(entries, 1)
    assert (await direct.now_of(people[0], chat, 1)).reactions[0].count == 31


async def test_unread_is_counted_whatever_lies_between(direct: World) -> None:
    """As many requests before and after more reactions than a count would look through."""
    anna, ben = await direct.people(2)
    chat = await direct.direct(anna, ben)
    await direct.send_many(chat, anna, 3)
    counts = store_of(direct).counts

    async def cost() -> int:
        before = counts.requests
        assert (await direct.entry(ben, chat)).unread == 3
        return counts.requests - before

    assert (await direct.entry(ben, chat)).unread == 3
    first = await cost()
    for _ in range(3):
        await direct.append(
            *(direct.reaction(chat, anna, 1, is_on=bool(index % 2)) for index in range(400))
        )
    assert (await direct.entry(ben, chat)).head > UNREAD_SCAN_MAX
    assert await cost() == first


async def test_mention_is_found_behind_more_unread_messages_than_are_counted(
    direct: World,
) -> None:
    anna, ben = await direct.people(2)
    chat = await direct.direct(anna, ben)
    await direct.send_many(chat, anna, 300)
    await direct.store(direct.draft(chat, anna, mentions=(ben,)))
    await direct.send_many(chat, anna, 20)
    entry = await direct.entry(ben, chat)
    assert (entry.unread, entry.mentions_unread) == (UNREAD_MAX, 1)
    await direct.read(ben, chat, 301)
    entry = await direct.entry(ben, chat)
    assert (entry.unread, entry.mentions_unread) == (20, 0)


# Several processes.


async def test_of_two_edits_from_two_processes_one_is_told_of_the_other(
    direct: World, behind: Behind
) -> None:
    anna, ben = await direct.people(2)
    chat = await direct.direct(anna, ben)
    await direct.send(chat, anna)
    base = 0
    for turn in range(4):
        one, other = await asyncio.gather(
            direct.append(direct.edit(chat, anna, 1, f"here {turn}", base=base)),
            append(behind, direct, direct.edit(chat, anna, 1, f"there {turn}", base=base)),
        )
        [refused] = [two for two in (*one, *other) if isinstance(two, EditConflict)]
        [stored] = [taken(two) for two in (*one, *other) if two is not refused]
        assert refused.edited_by == stored.sequence
        assert refused.content == (await direct.now_of(ben, chat, 1)).content
        base = stored.sequence
    entries = await direct.engine.messages(chat)
    assert len(entries) == 5
    assert chained(entries)


async def test_counts_of_two_processes_are_those_of_the_set(direct: World, behind: Behind) -> None:
    people = await direct.people(6)
    chat = await direct.group(*people)
    await direct.send(chat, people[0])

    async def react(store: Any, person: UserId) -> None:
        for turn in range(4):
            drafts = [
                direct.reaction(chat, person, 1, emoji, is_on=turn % 2 == 0)
                for emoji in ("👍", "🎉")
            ]
            outcomes = await store.append(drafts, now_ms=direct.now())
            assert all("stored" in text for text in describe(outcomes))
        last = direct.reaction(chat, person, 1)
        taken(*await store.append([last], now_ms=direct.now()))

    stores = (direct.storage, behind.storage)
    await asyncio.gather(*(react(stores[n % 2], person) for n, person in enumerate(people)))
    entries = await direct.engine.messages(chat)
    assert chained(entries)
    check_counts(entries, 1)
    for reader in people[:2]:
        now = await direct.now_of(reader, chat, 1)
        assert now == folded(entries, 1, reader)
        assert [(one.emoji, one.count) for one in now.shown_reactions] == [("👍", 6)]


async def test_edit_that_meets_a_deletion_on_its_way_is_refused(
    direct: World, behind: Behind, proxy: Proxy
) -> None:
    anna, ben = await direct.people(2)
    chat = await direct.direct(anna, ben)
    await direct.send(chat, anna)
    go = asyncio.Event()
    rule = proxy.rule(TRANSACT, Fate.PASS, hold=go)
    editing = asyncio.ensure_future(
        append(behind, direct, direct.edit(chat, anna, 1, SECRET), direct.reaction(chat, ben, 1))
    )
    await rule.seen.wait()
    await direct.store(direct.deletion(chat, anna, 1))
    go.set()
    assert describe(await editing) == ["MessageDeleted", "MessageDeleted"]
    assert SECRET not in str(await direct.engine.messages(chat))
    assert not [one for one in behind.events if isinstance(one, MessageAppended)]


async def test_deletion_that_meets_an_edit_on_its_way_erases_it_too(
    direct: World, behind: Behind, proxy: Proxy
) -> None:
    anna, ben = await direct.people(2)
    chat = await direct.direct(anna, ben)
    await direct.send(chat, anna)
    go = asyncio.Event()
    rule = proxy.rule(TRANSACT, Fate.PASS, hold=go)
    deleting = asyncio.ensure_future(append(behind, direct, direct.deletion(chat, anna, 1)))
    await rule.seen.wait()
    await direct.store(direct.edit(chat, anna, 1, SECRET))
    go.set()
    [outcome] = await deleting
    sequence = taken(outcome).sequence
    entries = await direct.engine.messages(chat)
    assert [(one.content, one.deleted_by) for one in entries] == [
        ("", sequence),
        ("", sequence),
        ("", None),
    ]


# Reads that lag behind a commit.


def read_stale(
    behind: Behind, monkeypatch: pytest.MonkeyPatch, stale: dict[str, Row | None], times: int = 1
) -> None:
    """Phase 0 of an append sees these rows, by table, as they were; so many times."""
    database = behind.storage._database
    get_many = database.get_many
    left = dict.fromkeys(stale, times)

    async def lagging(wanted: Sequence[Wanted]) -> list[Row | None]:
        found = await get_many(wanted)
        for index, (table, _) in enumerate(wanted):
            if left.get(table, 0):
                left[table] -= 1
                found[index] = stale[table]
        return found

    monkeypatch.setattr(database, "get_many", lagging)


async def counted_after_stale_reads(
    direct: World, behind: Behind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message's row, and then a reaction's, are as before the last commit: that commit shows
    itself in parts, the head first."""
    anna, ben = await direct.people(2)
    chat = await direct.direct(anna, ben)
    await direct.send(chat, anna)
    before = await row_of(direct, schema.MESSAGES, {"chat_id": chat, "sequence": 1})
    await direct.store(direct.reaction(chat, anna, 1))
    with monkeypatch.context() as patched:
        read_stale(behind, patched, {schema.MESSAGES: before})
        await append(behind, direct, direct.reaction(chat, ben, 1))
    with monkeypatch.context() as patched:
        read_stale(behind, patched, {schema.REACTIONS: None})
        await append(behind, direct, direct.reaction(chat, ben, 1))
    check_counts(await direct.engine.messages(chat), 1)
    assert (await direct.now_of(anna, chat, 1)).reactions[0].count == 2
    assert behind.storage.counts.fences_failed == 2


async def test_counts_are_exact_though_a_commit_shows_itself_in_parts(
    direct: World, behind: Behind, monkeypatch: pytest.MonkeyPatch
) -> None:
    await counted_after_stale_reads(direct, behind, monkeypatch)


def _without_condition(write: Write) -> Write:
    [(kind, body)] = write.items()
    text = body.get("UpdateExpression", "")
    bare = {name: value for name, value in body.items() if "Condition" not in name}
    for name in ("ExpressionAttributeNames", "ExpressionAttributeValues"):
        words = text.replace(",", " ").split()
        used = {key: one for key, one in body.get(name, {}).items() if key in words}
        bare.pop(name, None)
        bare |= {name: used} if used else {}
    return {kind: bare}


async def test_counts_turn_wrong_without_the_conditions(
    direct: World, behind: Behind, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unconditional(*given: Any) -> list[Write]:
        return [_without_condition(write) for write in amending.amendment_writes(*given)]

    monkeypatch.setattr(append_module, "amendment_writes", unconditional)
    with pytest.raises(AssertionError):
        await counted_after_stale_reads(direct, behind, monkeypatch)


async def test_deletion_erases_an_edit_that_it_did_not_see_at_first(
    direct: World, behind: Behind, monkeypatch: pytest.MonkeyPatch
) -> None:
    anna, ben = await direct.people(2)
    chat = await direct.direct(anna, ben)
    await direct.send(chat, anna)
    before = await row_of(direct, schema.MESSAGES, {"chat_id": chat, "sequence": 1})
    await direct.store(direct.edit(chat, anna, 1, SECRET))
    read_stale(behind, monkeypatch, {schema.MESSAGES: before})
    taken(*await append(behind, direct, direct.deletion(chat, anna, 1)))
    assert SECRET not in str(await direct.engine.messages(chat))


# Pages.


async def read_all(store: Any, reader: UserId, chat: ChatId, count_max: int) -> list[Message]:
    """All entries, page by page, and back again as history."""
    found: list[Message] = []
    has_more = True
    while has_more:
        page = await store.messages_after(
            reader, chat, found[-1].sequence if found else 0, count_max=count_max, bytes_max=PLENTY
        )
        found += page.messages
        has_more = page.has_more
    back: list[Message] = []
    before = None
    has_more = True
    while has_more:
        page = await store.messages_before(
            reader, chat, before, count_max=count_max, bytes_max=PLENTY
        )
        back = [*page.messages, *back]
        before, has_more = page.messages[0].sequence, page.has_more
    assert back[: len(found)] == found
    return found


@pytest.mark.parametrize("count_max", [1, 2, 3, 7, 100])
async def test_pages_have_messages_and_amendments_in_their_order(
    direct: World, count_max: int
) -> None:
    anna, ben = await direct.people(2)
    chat = await direct.direct(anna, ben)
    await direct.send(chat, anna)
    await direct.append(*(direct.reaction(chat, ben, 1, f":{n}:") for n in range(4)))
    await direct.send_many(chat, ben, 3)
    await direct.store(direct.edit(chat, anna, 1))
    await direct.send(chat, anna)
    await direct.store(direct.deletion(chat, anna, 1))
    stored = await direct.engine.messages(chat)
    assert len(stored) == 11
    assert await read_all(direct.storage, ben, chat, count_max) == stored


async def test_page_is_cut_at_its_bytes_whatever_table_they_are_from(direct: World) -> None:
    anna, ben = await direct.people(2)
    chat = await direct.direct(anna, ben)
    await direct.store(direct.draft(chat, anna, "x" * 60))
    for _ in range(3):
        await direct.store(direct.edit(chat, anna, 1, "y" * 60))
        await direct.store(direct.draft(chat, ben, "z" * 60))
    cursor, sizes = 0, []
    while cursor < 7:
        page = await direct.storage.messages_after(ben, chat, cursor, count_max=100, bytes_max=130)
        sizes.append(len(page.messages))
        cursor = page.synced_through
    assert sizes == [2, 2, 2, 1]


@pytest.mark.parametrize("hidden", [{2}, {3}, {4}, {2, 5}])
async def test_page_is_cut_where_an_amendment_does_not_show_itself(
    direct: World, behind: Behind, proxy: Proxy, hidden: set[int]
) -> None:
    anna, ben = await direct.people(2)
    chat = await direct.direct(anna, ben)
    await direct.send(chat, anna)
    proxy.withhold = lambda table, item: (
        table.endswith(("_messages", "_amendments")) and int(item["sequence"]["N"]) in hidden
    )
    drafts = [
        direct.reaction(chat, ben, 1),
        direct.draft(chat, anna),
        direct.reaction(chat, ben, 3),
        direct.draft(chat, anna),
    ]
    for draft in drafts:
        taken(*await append(behind, direct, draft))
    found = await read_all(behind.storage, ben, chat, 100)
    assert [one.sequence for one in found] == [1, 2, 3, 4, 5]
    assert chained(found)


async def test_no_read_that_begins_after_the_ack_of_a_deletion_has_the_text(
    direct: World, behind: Behind, proxy: Proxy
) -> None:
    """Others read and write all the time, through a store that shows its commits late."""
    anna, ben, cleo = await direct.people(3)
    chat = await direct.group(anna, ben, cleo)
    proxy.withhold_seconds = 0.05
    proxy.withhold = lambda table, item: (
        table.endswith(("_messages", "_amendments")) and int(item["sequence"]["N"]) % 3 == 0
    )
    deleted: set[int] = set()
    is_over = False

    async def read() -> int:
        rounds = 0
        while not is_over:
            gone = set(deleted)
            page = await behind.storage.messages_after(
                ben, chat, 0, count_max=PLENTY, bytes_max=PLENTY
            )
            for entry in page.messages:
                target = entry.sequence if entry.amends is None else entry.amends.target
                assert target not in gone or not entry.content, entry
            rounds += 1
        return rounds

    async def write() -> None:
        nonlocal is_over
        for turn in range(6):
            text = f"{SECRET} {turn}"
            [first] = await append(behind, direct, direct.draft(chat, anna, text))
            target = taken(first).sequence
            await append(
                behind,
                direct,
                direct.edit(chat, anna, target, text + " again"),
                direct.reaction(chat, cleo, target),
                direct.draft(chat, cleo, "meanwhile"),
            )
            taken(*await append(behind, direct, direct.deletion(chat, anna, target)))
            deleted.add(target)
        is_over = True

    rounds, _ = await asyncio.gather(read(), write())
    assert rounds > 3
    entries = await direct.engine.messages(chat)
    assert SECRET not in str(entries)
    assert chained(entries)
