"""What is deleted stays deleted: with answers that get lost, events that are told late, keys that
expire, sweeps that break off; by the server itself, and while a cluster is upgraded."""

import asyncio

import pytest

from tests.engines.dynamodb.conftest import Behind
from tests.engines.dynamodb.looks import (
    SECRET,
    TRANSACT,
    append,
    key_of,
    reaction_rows,
    row_of,
    store_of,
)
from tests.support.dynamodb import a_backdoor
from tests.support.dynamodb_proxy import Fate, Proxy
from tests.support.engines import DynamoHarness
from tests.support.memory.event_log import MemoryEventLog
from tests.support.outcomes import describe
from tests.support.world import World, taken
from tests.unit.ingest.house import JumpingClock
from tidewire.domain.errors import InvalidOperation, MessageDeleted
from tidewire.domain.events import MessageAppended
from tidewire.domain.ids import SYSTEM
from tidewire.domain.messages import EntryKind
from tidewire.engines.dynamodb import amended, rows, schema, schema_version
from tidewire.engines.dynamodb.entries import KEY_LIFE_SECONDS
from tidewire.engines.dynamodb.tables import upgrade
from tidewire.ingest.options import IngestOptions
from tidewire.ingest.relay import Relay

pytestmark = pytest.mark.slow
"""Each waits for many requests."""


# Commits whose answer got lost, events that are told late.


async def test_own_commit_that_was_deleted_meanwhile_is_told_as_deleted(
    direct: World, behind: Behind, proxy: Proxy
) -> None:
    """Its process was told wrongly that it had failed; another deletes it before it looks again."""
    anna, ben = await direct.people(2)
    chat = await direct.direct(anna, ben)
    proxy.rule(TRANSACT, Fate.DENY)
    proxy.rule("BatchGetItem", Fate.PASS, times=2)
    go = asyncio.Event()
    looking_again = proxy.rule("BatchGetItem", Fate.PASS, hold=go)
    sending = asyncio.ensure_future(append(behind, direct, direct.draft(chat, anna, SECRET)))
    await looking_again.seen.wait()
    await direct.store(direct.deletion(chat, anna, 1))
    go.set()
    assert describe(await sending) == ["stored 1 after 0"]
    [event] = [one for one in behind.events if isinstance(one, MessageAppended)]
    assert (event.message.content, event.message.deleted_by) == ("", 2)


async def test_reaction_whose_commit_was_denied_is_told_with_its_count(
    direct: World, behind: Behind, proxy: Proxy
) -> None:
    anna, ben = await direct.people(2)
    chat = await direct.direct(anna, ben)
    await direct.send(chat, anna)
    await direct.store(direct.reaction(chat, anna, 1))
    proxy.rule(TRANSACT, Fate.DENY)
    outcomes = await append(
        behind,
        direct,
        direct.reaction(chat, ben, 1),
        # Of another transaction, and so of another commit.
        direct.edit(chat, anna, 1),
    )
    assert describe(outcomes) == ["stored 3 after 2", "stored 4 after 3"]
    told = [one.message for one in behind.events if isinstance(one, MessageAppended)]
    assert told == (await direct.engine.messages(chat))[2:]
    assert told[0].count == 2


def relay_of(world: World, log: MemoryEventLog) -> Relay:
    clock = JumpingClock()
    clock.date_ms = world.now() + 60_000
    return Relay(
        relay_id="late",
        log=log,
        outbox=store_of(world),
        is_publishing=lambda _: False,
        clock=clock,
        options=IngestOptions(),
    )


async def test_relay_that_is_late_publishes_no_text_that_was_deleted(direct: World) -> None:
    """The process that wrote it died before it could publish anything."""
    anna, ben = await direct.people(2)
    chat = await direct.direct(anna, ben)
    await direct.append(
        direct.draft(chat, anna, SECRET, mentions=(ben,)), direct.draft(chat, ben, "kept")
    )
    await direct.store(direct.edit(chat, anna, 1, f"{SECRET}, corrected"))
    await direct.store(direct.edit(chat, ben, 2, "kept, corrected"))
    log = MemoryEventLog()
    await direct.store(direct.deletion(chat, anna, 1))
    await relay_of(direct, log).round()
    told = [one.message for one in log.events if isinstance(one, MessageAppended)]
    assert sorted(told, key=lambda one: one.sequence) == await direct.engine.messages(chat)
    assert SECRET not in str(log.events)
    by_sequence = {one.sequence: one for one in told}
    assert [by_sequence[n].deleted_by for n in (1, 2, 3, 4, 5)] == [5, None, 5, None, None]
    assert (by_sequence[1].mentions, by_sequence[2].content) == ((), "kept")
    assert by_sequence[5].kind is EntryKind.DELETE
    assert await store_of(direct).outbox_rows(0, after=None, count_max=100) == []


# Keys.


async def test_deletion_takes_the_hashes_of_what_was_said(direct: World) -> None:
    anna, ben = await direct.people(2)
    chat = await direct.direct(anna, ben)
    keys = [direct.key() for _ in range(3)]
    await direct.send(chat, anna, SECRET, key=keys[0])
    await direct.store(direct.edit(chat, anna, 1, SECRET, key=keys[1]))
    await direct.store(direct.reaction(chat, ben, 1, key=keys[2]))
    await direct.store(direct.deletion(chat, anna, 1))
    has_hash = ["content_hash" in await key_of(direct, chat, key) for key in keys]
    assert has_hash == [False, False, True]


async def test_deletion_leaves_a_key_alone_that_another_message_has_by_now(
    direct: World,
) -> None:
    anna, ben = await direct.people(2)
    chat = await direct.direct(anna, ben)
    key = direct.key()
    await direct.send(chat, anna, SECRET, key=key)
    later_ms = direct.now() + KEY_LIFE_SECONDS * 1000 + 1_000
    again = direct.draft(chat, anna, "a week later", key=key)
    [outcome] = await direct.storage.append([again], now_ms=later_ms)
    assert taken(outcome).sequence == 2
    await direct.store(direct.deletion(chat, anna, 1))
    assert (await key_of(direct, chat, key))["sequence"] == 2
    assert "content_hash" in await key_of(direct, chat, key)
    assert isinstance(direct.engine, DynamoHarness)
    async with a_backdoor(direct.engine.tables.options) as database:
        place = {"chat_id": chat, "client_message_id": key}
        await database.write(rows.delete(schema.KEYS, place))
    # One that has expired and is gone is not made again.
    await direct.store(direct.deletion(chat, anna, 2))
    assert await row_of(direct, schema.KEYS, place) is None


# Reactions of what was deleted.


async def until_swept(world: World) -> None:
    await asyncio.gather(*store_of(world)._acts)


async def test_reactions_are_swept_after_the_deletion(
    direct: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(amended, "MARKS_PER_SWEEP", 3)
    people = await direct.people(8)
    chat = await direct.group(*people)
    await direct.send_many(chat, people[0], 2)
    for target in (1, 2):
        await direct.append(*(direct.reaction(chat, one, target) for one in people))
    await direct.store(direct.deletion(chat, people[0], 1))
    await until_swept(direct)
    left = await reaction_rows(direct, chat)
    assert {row["reaction"][:16] for row in left} == {f"{2:016d}"}
    row = await row_of(direct, schema.MESSAGES, {"chat_id": chat, "sequence": 1})
    assert row is not None
    assert "reacted_by" not in row


async def test_sweep_that_broke_off_goes_on_when_the_message_is_looked_at(
    direct: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(amended, "MARKS_PER_SWEEP", 2)
    people = await direct.people(6)
    chat = await direct.group(*people)
    await direct.send(chat, people[0])
    await direct.append(*(direct.reaction(chat, one, 1) for one in people))
    with monkeypatch.context() as patched:
        patched.setattr(amended, "SWEEPS_MAX", 1)
        await direct.store(direct.deletion(chat, people[0], 1))
        await until_swept(direct)
    assert len(await reaction_rows(direct, chat)) == 4
    # Nobody sees what is left of them.
    now = await direct.now_of(people[1], chat, 1)
    assert (now.is_deleted, now.reactions) == (True, ())
    assert isinstance(await direct.refusal(direct.reaction(chat, people[1], 1)), MessageDeleted)
    await until_swept(direct)
    assert await reaction_rows(direct, chat) == []


async def test_page_with_very_many_reactions_has_exact_counts_and_own_marks(
    direct: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(amended, "MARKS_MAX", 7)
    people = await direct.people(5)
    chat = await direct.group(*people)
    await direct.send_many(chat, people[0], 3)
    for target in (1, 2, 3):
        await direct.append(*(direct.reaction(chat, one, target) for one in people))
    found = await direct.storage.messages_now(people[4], chat, [1, 2, 3])
    reactions = [found[target].reactions[0] for target in (1, 2, 3)]
    assert [(one.count, one.is_own) for one in reactions] == [(5, True)] * 3
    assert [one.own_sequence for one in reactions] == [8, 13, 18]
    assert [len(one.users) for one in reactions] == [5, 1, 1]


# The server itself.


async def test_system_deletes_in_a_group_that_was_closed(direct: World) -> None:
    anna, ben = await direct.people(2)
    chat = await direct.group(anna, ben)
    await direct.send(chat, ben, SECRET)
    await direct.close_group(anna, chat)
    assert chat in await direct.storage.chats_of_author(ben, after=None, count_max=10)
    assert await direct.storage.messages_by(ben, chat, after=0, count_max=10) == [1]
    assert describe(await direct.append(direct.deletion(chat, ben, 1))) == ["NotAMember"]
    await direct.store(direct.deletion(chat, SYSTEM, 1))
    assert SECRET not in str(await direct.engine.messages(chat))


async def test_chats_of_an_author_are_found_though_no_position_was_ever_moved(
    direct: World, behind: Behind, proxy: Proxy
) -> None:
    """The author's own moves are not written, no device acknowledged anything, and the author is
    gone."""
    anna, ben = await direct.people(2)
    left, removed, closed = [await direct.group(anna, ben) for _ in range(3)]
    proxy.rule("UpdateItem", Fate.UNAVAILABLE, table="delivery_state", times=100)
    for chat in (left, removed, closed):
        taken(*await append(behind, direct, direct.draft(chat, ben, SECRET)))
    await direct.leave(ben, left)
    await direct.remove(anna, removed, ben)
    await direct.close_group(anna, closed)
    found = await direct.storage.chats_of_author(ben, after=None, count_max=10)
    assert found == sorted([left, removed, closed])
    assert (await direct.add(anna, left, ben)).joined_sequence == 1
    assert (await direct.positions(ben, left)).read == 0


async def test_messages_of_an_author_are_found_however_many_lie_between(
    direct: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(amended, "MESSAGES_PER_LOOK", 4)
    anna, ben = await direct.people(2)
    chat = await direct.direct(anna, ben)
    for sender, count in ((anna, 9), (ben, 1), (anna, 7), (ben, 2)):
        await direct.send_many(chat, sender, count)
    found = direct.storage.messages_by
    assert await found(ben, chat, after=0, count_max=10) == [10, 18, 19]
    assert await found(ben, chat, after=0, count_max=2) == [10, 18]
    assert await found(ben, chat, after=18, count_max=2) == [19]


# While a cluster is upgraded.


async def test_store_of_an_old_version_takes_plain_messages_only(direct: World) -> None:
    anna, ben = await direct.people(2)
    chat = await direct.direct(anna, ben)
    key = direct.key()
    await direct.send(chat, anna)
    await direct.store(direct.reaction(chat, ben, 1, key=key))
    assert isinstance(direct.engine, DynamoHarness)
    async with a_backdoor(direct.engine.tables.options) as database:
        await database.write(rows.delete(schema.STORE, schema_version.KEY))
        await direct.engine.reopen()
        try:
            drafts = [
                direct.edit(chat, anna, 1),
                direct.reaction(chat, ben, 1),
                direct.deletion(chat, anna, 1),
                direct.draft(chat, ben, reply_to=1),
                direct.draft(chat, ben, mentions=(anna,)),
            ]
            for draft in drafts:
                refusal = await direct.refusal(draft)
                assert isinstance(refusal, InvalidOperation)
                assert "upgraded" in str(refusal)
            # What was stored is answered, outsiders learn nothing, and messages go through.
            again = await direct.store(direct.reaction(chat, ben, 1, key=key))
            assert again.deduplicated
            outsider = direct.edit(chat, direct.stranger(), 1)
            assert describe(await direct.append(outsider)) == ["NotAMember"]
            assert (await direct.send(chat, anna)).sequence == 3
        finally:
            await upgrade(database)
    # Without a restart.
    outcomes = await direct.append(*drafts)
    assert describe(outcomes) == [f"stored {n} after {n - 1}" for n in range(4, 9)]
