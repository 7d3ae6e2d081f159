"""What the writer keeps of authors and chats: true at every append, whatever happened between."""

from collections.abc import Sequence
from typing import Any

import apsw
import pytest

from tests.engines.sqlite.store import Stores, open_beside, pair_in, store_of
from tests.support.world import World, taken
from tidewire.domain.append import Author, ChatEnd
from tidewire.domain.delivery import NOWHERE, Positions
from tidewire.domain.errors import CounterMissing, Forbidden, NotAMember
from tidewire.domain.ids import ChatId, UserId
from tidewire.engines.sqlite import append, known
from tidewire.engines.sqlite.known import Known

PAIR = (ChatId("chat_1"), UserId("user_anna"))


@pytest.fixture
async def world(stores: Stores) -> World:
    return await stores.open()


def reads_of_authors(world: World) -> list[str]:
    """Every statement from here on that reads authors."""
    seen: list[str] = []

    def trace(traced: dict[str, Any]) -> None:
        if traced["sql"] == append.FIND_AUTHORS:
            seen.append(traced["sql"])

    store_of(world).sqlite._database.trace_v2(apsw.SQLITE_TRACE_STMT, trace)
    return seen


async def test_author_is_read_once(world: World) -> None:
    chat_id, ann, ben = await pair_in(world)
    reads = reads_of_authors(world)
    for _ in range(3):
        await world.send(chat_id, ann)
    assert len(reads) == 1
    await world.send(chat_id, ben)
    await world.ack(ann, chat_id, 4)
    await world.send(chat_id, ann)
    assert len(reads) == 2


async def test_author_is_read_again_after_any_other_write(world: World) -> None:
    chat_id, ann, _ = await pair_in(world)
    await world.send(chat_id, ann)
    reads = reads_of_authors(world)
    await world.person()
    await world.send(chat_id, ann)
    assert len(reads) == 1


async def test_removed_author_is_refused_and_one_who_is_back_begins_anew(world: World) -> None:
    owner, ben = await world.people(2)
    chat_id = await world.group(owner, ben)
    assert (await world.send(chat_id, ben)).sequence == 1
    await world.remove(owner, chat_id, ben)
    assert isinstance(await world.try_send(chat_id, ben), NotAMember)
    await world.send_many(chat_id, owner, 3)
    await world.add(owner, chat_id, ben)
    answer = await world.send(chat_id, ben)
    assert (answer.sequence, answer.prev_sequence) == (5, 4)
    # Nothing from before the joining is owed, so the own message moves both.
    assert await world.positions(ben, chat_id) == Positions(5, 5)


async def test_blocked_author_is_refused_at_once_and_not_longer(world: World) -> None:
    chat_id, ann, ben = await pair_in(world)
    await world.send(chat_id, ann)
    await world.storage.block(ben, ann, now_ms=world.now())
    assert isinstance(await world.try_send(chat_id, ann), Forbidden)
    await world.storage.unblock(ben, ann)
    assert (await world.send(chat_id, ann)).sequence == 2


async def test_positions_that_moved_by_an_acknowledgement_are_those_of_the_next_reply(
    world: World,
) -> None:
    chat_id, ann, ben = await pair_in(world)
    await world.send(chat_id, ben)
    await world.send(chat_id, ann)
    await world.ack(ben, chat_id, 2)
    # Who has got it and answers has read it, and is up to date.
    await world.send(chat_id, ben)
    assert await world.positions(ben, chat_id) == Positions(3, 3)


async def test_chat_ends_where_another_author_has_written(world: World) -> None:
    chat_id, ann, ben = await pair_in(world)
    chain = [
        (answer.sequence, answer.prev_sequence)
        for author in (ann, ben, ben, ann, ben)
        for answer in [await world.send(chat_id, author)]
    ]
    assert chain == [(1, 0), (2, 1), (3, 2), (4, 3), (5, 4)]


@pytest.mark.parametrize("is_alone", [True, False])
async def test_append_that_was_undone_leaves_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, is_alone: bool
) -> None:
    chat_id, ann, _ = await pair_in(world)
    await world.send(chat_id, ann)
    write = append._write

    def fail(*_: object) -> None:
        monkeypatch.setattr(append, "_write", write)
        raise ZeroDivisionError

    monkeypatch.setattr(append, "_write", fail)
    storage = store_of(world).sqlite
    outcomes: list[object] = []
    for draft in (world.draft(chat_id, ann), world.draft(chat_id, ann))[: 1 if is_alone else 2]:
        storage.append_nowait([draft], now_ms=world.now(), done=outcomes.append)
    answer = await world.send(chat_id, ann)
    assert isinstance(outcomes[0], ZeroDivisionError)
    stored = [taken(one) for one in _flat(outcomes[1:])] + [answer]
    assert [(one.sequence, one.prev_sequence) for one in stored] == [
        (2 + index, 1 + index) for index in range(len(stored))
    ]


def _flat(batches: Sequence[Any]) -> list[Any]:
    return [outcome for batch in batches for outcome in batch]


async def test_what_another_program_wrote_is_seen(world: World) -> None:
    chat_id, ann, _ = await pair_in(world)
    await world.send(chat_id, ann)
    beside = open_beside(store_of(world).path)
    beside.execute("UPDATE chat_counters SET sequence_counter = 7")
    answer = await world.send(chat_id, ann)
    assert (answer.sequence, answer.prev_sequence) == (8, 1)
    beside.execute("DELETE FROM chat_counters")
    assert isinstance(await world.try_send(chat_id, ann), CounterMissing)
    beside.close()


async def test_number_of_authors_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "AUTHORS_MAX", 2)
    ann, *others = await world.people(4)
    chats = [await world.direct(ann, other) for other in others]
    for chat_id in chats * 2:
        await world.send(chat_id, ann)
        assert len(store_of(world).sqlite._known.authors) <= 3


# The rules of its own, on a bare database.


@pytest.fixture
def database() -> apsw.Connection:
    database = apsw.Connection(":memory:")
    database.execute("CREATE TABLE notes (note TEXT)")
    return database


def remember(kept: Known) -> None:
    kept.look()
    kept.authors[PAIR] = Author(ChatEnd(1, 5, 5), 0, NOWHERE, is_blocked=False)
    kept.keep()


def is_kept(kept: Known) -> bool:
    kept.look()
    found = PAIR in kept.authors
    kept.keep()
    return found


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("BEGIN", "COMMIT", True),
        ("BEGIN", "ROLLBACK", False),
        ("BEGIN", "INSERT INTO notes VALUES ('x'); COMMIT", False),
    ],
)
def test_known_is_forgotten_when_it_is_undone_or_something_else_is_written(
    database: apsw.Connection, before: str, after: str, expected: bool
) -> None:
    kept = Known(database)
    database.execute(before)
    remember(kept)
    database.execute(after)
    assert is_kept(kept) is expected


def test_known_is_forgotten_when_its_use_broke_off(database: apsw.Connection) -> None:
    kept = Known(database)
    remember(kept)
    kept.look()
    assert not is_kept(kept)
