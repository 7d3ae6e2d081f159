"""`verify` on the tables of messages that change: each fault is found, and no change is taken for
one."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from tests.engines.dynamodb.looks import SECRET, row_of, store_of
from tests.support.dynamodb import a_backdoor
from tests.support.engines import DynamoHarness
from tests.support.inspectors import verify_engine, violated
from tests.support.world import World
from tidewire.domain.ids import ChatId, ClientMessageId, UserId
from tidewire.engines.dynamodb import inspect_changes, looking, rows, schema
from tidewire.engines.dynamodb.entries import Mark, mark_key, mark_row
from tidewire.engines.dynamodb.inspect import DynamoInspector
from tidewire.engines.dynamodb.inspect_changes import ChangeInspection
from tidewire.engines.dynamodb.rows import Row
from tidewire.ops.change_checks import (
    check_changes,
    check_kept,
    is_sound_change,
    is_sound_kept,
)
from tidewire.ops.invariants import Kind, names_of
from tidewire.ops.verify import verify

pytestmark = pytest.mark.slow
"""Each waits for many requests."""

THUMB, PARTY = "👍", "🎉"


async def amended(world: World) -> tuple[ChatId, ChatId, Sequence[UserId]]:
    """A group: 1 has two edits and reactions, 2 was edited, reacted to and deleted, 14 replies to 3
    and mentions two, 15 mentioned one and was deleted, 17 is a reaction. A chat of two messages."""
    ann, bob, cleo = people = await world.people(3)
    group = await world.group(ann, bob, cleo)
    for draft in (
        world.draft(group, ann, "one"),
        world.draft(group, ann, SECRET),
        world.draft(group, bob, "three"),
        world.edit(group, ann, 1, "uno"),
        world.edit(group, ann, 2, f"still {SECRET}"),
        world.edit(group, ann, 1, "eins"),
        world.reaction(group, bob, 1, THUMB),
        world.reaction(group, cleo, 1, THUMB),
        world.reaction(group, bob, 1, THUMB, is_on=False),
        world.reaction(group, bob, 2, THUMB),
        world.reaction(group, cleo, 1, PARTY),
        world.reaction(group, cleo, 1, PARTY, is_on=False),
        world.deletion(group, ann, 2),
        world.draft(group, bob, "yes", reply_to=3, mentions=(ann, cleo)),
        world.draft(group, bob, "no", mentions=(ann,)),
        world.deletion(group, bob, 15),
        world.reaction(group, ann, 3, THUMB),
    ):
        await world.store(draft)
    await swept(world, group, 2)
    direct = await world.direct(ann, bob)
    await world.send_many(direct, ann, 2)
    return group, direct, people


async def swept(world: World, chat: ChatId, target: int) -> None:
    """The reactions of a deleted message are swept behind the caller's back."""
    async with asyncio.timeout(20):
        while True:
            row = await row_of(world, schema.MESSAGES, {"chat_id": chat, "sequence": target})
            assert row is not None
            if "reacted_by" not in row:
                return
            await asyncio.sleep(0.02)


class Spoiling:
    """The store's rows by the back door, each put back after it was spoilt and looked at."""

    def __init__(self, world: World, *chats: ChatId) -> None:
        self._world = world
        self._chats = chats
        self._database = store_of(world)._database
        self._tables = looking.Tables(options_of(world))
        self._inspection = ChangeInspection(self._tables)

    def _violated(self) -> list[str]:
        """What `verify` finds of it; all of that, for each of the faults, would take too long."""
        found: set[str] = set()
        for chat in self._chats:
            for changes in self._inspection.changes(chat, is_sound_change):
                found |= {one.invariant for one in check_changes(chat, changes)}
        for kept in self._inspection.kept(is_sound_kept):
            found |= {one.invariant for one in check_kept(kept)}
        return [name for name in names_of(Kind.STATE) if name in found]

    def close(self) -> None:
        self._tables.close()

    async def spoil(self, table: str, key: Row, fields: Row | None) -> list[str]:
        """What is violated with these fields of a row; None: without the row."""
        before = await row_of(self._world, table, key)
        with self._database.within_budget():
            if fields is None:
                await self._database.write(rows.delete(table, key))
            else:
                await self._database.write(rows.put(table, {**(before or {}), **key, **fields}))
        found = await asyncio.to_thread(self._violated)
        with self._database.within_budget():
            again = rows.delete(table, key) if before is None else rows.put(table, before)
            await self._database.write(again)
        return found


Fault = tuple[str, Row, Row | None]
"""A table, the key of a row in it, and what it has instead; None: there is no such row."""


def faults(
    group: ChatId, other: ChatId, people: Sequence[UserId], key_of_2: ClientMessageId
) -> dict[str, tuple[Fault, list[str]]]:
    """Each kind of fault, and what `verify` calls it."""
    return {
        **faults_of_messages(group, people[0]),
        **faults_of_reactions(group, people),
        "mentions are not found": (
            (schema.CHATS, {"chat_id": group}, {"last_mention": None}),
            ["mentions_exact"],
        ),
        "mention of nobody": (
            (schema.CHATS, {"chat_id": group}, {"last_mention": 3}),
            ["mentions_exact"],
        ),
        "another last message": (
            (schema.CHATS, {"chat_id": group}, {"last_message": 14}),
            ["message_before_exact"],
        ),
        "a last message before the head": (
            (schema.CHATS, {"chat_id": other}, {"last_message": 1}),
            ["message_before_exact"],
        ),
        "hash of a deleted text": (
            (
                schema.KEYS,
                {"chat_id": group, "client_message_id": key_of_2},
                {"content_hash": b"hash"},
            ),
            ["deleted_is_erased"],
        ),
    }


def faults_of_messages(group: ChatId, ann: UserId) -> dict[str, tuple[Fault, list[str]]]:
    def message(sequence: int, **fields: Any) -> Fault:
        return schema.MESSAGES, {"chat_id": group, "sequence": sequence}, fields

    def amendment(sequence: int, **fields: Any) -> Fault:
        return schema.AMENDMENTS, {"chat_id": group, "sequence": sequence}, fields

    return {
        "edit is not kept": (message(1, edits=[6]), ["edits_exact"]),
        "kept as an edit is none": (message(1, edits=[4, 6, 7]), ["edits_exact"]),
        "kept as an edit is not there": (message(1, edits=[4, 6, 99]), ["edits_exact"]),
        "edit of another message": (message(3, edits=[4]), ["edits_exact"]),
        "text of a deleted message": (message(2, content=SECRET), ["deleted_is_erased"]),
        "text of its edit": (amendment(5, content=SECRET), ["deleted_is_erased"]),
        "mentions of a deleted message": (message(15, mentions=[ann]), ["deleted_is_erased"]),
        "not deleted any more": (
            message(2, deleted_by=None),
            ["deleted_is_erased", "reactions_exact"],
        ),
        "deleted by another": (message(2, deleted_by=12), ["deleted_is_erased"]),
        "edit of an edit": (amendment(6, target=4), ["target_is_a_message", "edits_exact"]),
        "edit of what is not there": (
            amendment(6, target=99),
            ["target_is_a_message", "edits_exact"],
        ),
        "reply to an edit": (message(14, reply_to=4), ["target_is_a_message"]),
    }


def faults_of_reactions(
    group: ChatId, people: Sequence[UserId]
) -> dict[str, tuple[Fault, list[str]]]:
    ann, bob, cleo = people

    def message(sequence: int, **fields: Any) -> Fault:
        return schema.MESSAGES, {"chat_id": group, "sequence": sequence}, fields

    def counts(found: dict[str, tuple[int, int]], *, of: int = 1) -> Fault:
        return message(of, reactions=msgspec.json.encode(found).decode())

    def mark(target: int, user: UserId, sequence: int, *, is_on: bool = True) -> Fault:
        row = mark_row(group, Mark(target, THUMB, user, sequence, is_on))
        return schema.REACTIONS, schema.key_of(schema.REACTIONS, row), row

    lost: Fault = (schema.REACTIONS, mark_key(group, Mark(1, THUMB, cleo)), None)
    found: dict[str, Fault] = {
        "reaction is not kept": lost,
        "taken back and on": mark(1, bob, 9),
        "reaction of before": mark(1, bob, 7),
        "reaction of another": mark(1, ann, 8),
        "reaction of no entry": mark(3, ann, 99),
        "reaction of a deleted message": mark(2, bob, 10),
        "wrong count": counts({THUMB: (2, 9)}),
        "count of before": counts({THUMB: (1, 7)}),
        "count of no entry": counts({THUMB: (1, 9), "🐟": (1, 99)}),
        "no count": message(1, reactions=None),
        "count of none": counts({THUMB: (1, 9), PARTY: (1, 11)}),
        "count of a deleted message": counts({THUMB: (1, 10)}, of=2),
        "no last reaction": message(1, reacted_by=None),
        "last reaction of before": message(1, reacted_by=9),
        "last reaction is none": message(1, reacted_by=13),
    }
    return {name: (fault, ["reactions_exact"]) for name, fault in found.items()}


async def test_what_is_kept_of_changes_is_checked(direct: World) -> None:
    group, other, people = await amended(direct)
    spoiling = Spoiling(direct, group, other)
    deleted = (await direct.engine.messages(group))[1]
    cases = faults(group, other, people, deleted.client_message_id)
    report = await asyncio.to_thread(verify_engine, direct.engine)
    assert violated(report) == []
    assert report.counts.changes == 15
    found = {name: await spoiling.spoil(*fault) for name, (fault, _) in cases.items()}
    spoiling.close()
    assert found == {name: expected for name, (_, expected) in cases.items()}
    assert violated(await asyncio.to_thread(verify_engine, direct.engine)) == []


async def test_reactions_that_are_not_swept_yet_are_no_fault(direct: World) -> None:
    """A process that died before it had swept them leaves the message saying so."""
    group, _, (_, bob, _) = await amended(direct)
    async with a_backdoor(options_of(direct)) as database:
        left = rows.put(schema.REACTIONS, mark_row(group, Mark(2, THUMB, bob, 10, is_on=True)))
        await store_of(direct)._database.write(left)
        place: Row = {"chat_id": group, "sequence": 2}
        says_so = rows.change(
            schema.MESSAGES, place, {"reacted_by": 10}, where={"deleted_by": rows.PRESENT}
        )
        await database.write(says_so)
    assert violated(await asyncio.to_thread(verify_engine, direct.engine)) == []


def options_of(world: World) -> Any:
    assert isinstance(world.engine, DynamoHarness)
    return world.engine.tables.options


async def test_changes_meanwhile_give_no_false_alarm(
    direct: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between an entry, or what is kept of one, and the rows that it is held against, the message
    that it is about is edited, reacted to and deleted."""
    group, _, (ann, bob, cleo) = await amended(direct)
    targets = [await direct.send_many(group, ann, 1) for _ in range(8)]
    await direct.append(*(direct.edit(group, ann, target, "new") for target in targets))
    await direct.append(*(direct.reaction(group, bob, target) for target in targets))
    loop = asyncio.get_running_loop()

    async def change(target: int) -> None:
        await direct.append(
            direct.edit(group, ann, target, "newer"),
            direct.reaction(group, cleo, target),
            direct.reaction(group, cleo, 3, PARTY, is_on=target % 2 > 0),
            direct.draft(group, bob, mentions=(ann,), reply_to=target),
        )
        if target % 2:
            await direct.store(direct.deletion(group, ann, target))

    get_places: Callable[..., Any] = looking.Tables.get_places
    together: Callable[..., Any] = looking.Tables.get_places_together
    read_again = 0

    def change_first(self: looking.Tables, places: Any) -> Any:
        places = list(places)
        named = {key["sequence"] for table, key in places if table == schema.MESSAGES}
        for target in [one for one in targets if one in named]:
            targets.remove(target)
            asyncio.run_coroutine_threadsafe(change(target), loop).result()
        return get_places(self, places)

    def count(self: looking.Tables, places: Any) -> Any:
        nonlocal read_again
        read_again += 1
        return together(self, places)

    monkeypatch.setattr(looking.Tables, "get_places", change_first)
    monkeypatch.setattr(looking.Tables, "get_places_together", count)
    monkeypatch.setattr(looking, "ENTRIES_PER_CHUNK", 5)
    monkeypatch.setattr(inspect_changes, "SOURCES_PER_LOOK", 3)
    options = options_of(direct)
    report = await asyncio.to_thread(verify, lambda: DynamoInspector(options))
    assert [one.offenders for one in report.checks if one.violations] == []
    assert targets == []
    assert read_again > 0
    assert violated(await asyncio.to_thread(verify_engine, direct.engine)) == []
