"""Positions of a direct chat are in no index of lowest positions, also those of older stores."""

from typing import Any

import pytest

from tests.engines.sqlite.inspected import edited, one, populate, verify_file, violated
from tests.engines.sqlite.store import Stores, store_of
from tests.engines.sqlite.test_damaged_files import damage, pages_of
from tidewire.domain.ids import ChatId
from tidewire.engines.sqlite.database import transaction
from tidewire.engines.sqlite.migrate import STEPS, migrations

INDEXED = """
SELECT chat_id, count(*) FROM delivery_state INDEXED BY {index}
WHERE joined_sequence IS NOT NULL GROUP BY chat_id
"""

PAIRS_AS_BEFORE = """
SELECT count(*) FROM delivery_state NOT INDEXED JOIN chats USING (chat_id)
WHERE chat_type = 'direct' AND joined_sequence IS NOT NULL
"""

AS_BEFORE = """
UPDATE delivery_state SET joined_sequence = (
    SELECT joined_sequence FROM chat_memberships AS member
    WHERE member.chat_id = delivery_state.chat_id AND member.user_id = delivery_state.user_id
)
"""


def members_indexed(path: Any, index: str) -> dict[ChatId, int]:
    with edited(path) as database:
        found: list[Any] = database.execute(INDEXED.format(index=index)).fetchall()
        return dict(found)


@pytest.mark.parametrize("index", ["delivered_floor", "read_floor"])
async def test_positions_of_pairs_are_in_no_index(stores: Stores, index: str) -> None:
    world = await stores.open()
    group, _, _ = await populate(world)
    assert members_indexed(store_of(world).path, index) == {group: 5}


async def test_positions_of_pairs_leave_the_indexes_of_a_store_of_before(stores: Stores) -> None:
    world = await stores.open()
    group, direct, [ann, bob, *_] = await populate(world)
    before = await world.storage.floors([group, direct])
    standings = [await world.entry(user, direct) for user in (ann, bob)]
    path = store_of(world).path
    await store_of(world).close()
    with edited(path) as database:
        database.execute(AS_BEFORE).fetchall()
        assert len(members_indexed(path, "read_floor")) == 5
        STEPS["0010_pairs.sql"](database, migrations()[9].sql)
    world = await stores.open(directory=path.parent)
    assert members_indexed(path, "delivered_floor") == {group: 5}
    assert members_indexed(path, "read_floor") == {group: 5}
    assert await world.storage.floors([group, direct]) == before
    assert [await world.entry(user, direct) for user in (ann, bob)] == standings
    assert violated(verify_file(path)) == []


@pytest.mark.parametrize("damaged", ["delivery_state", "delivered_floor"])
async def test_rows_stay_as_they_are_when_some_cannot_be_read(stores: Stores, damaged: str) -> None:
    world = await stores.open()
    await populate(world)
    path = store_of(world).path
    await store_of(world).close()
    with edited(path) as database:
        database.execute(AS_BEFORE).fetchall()
    damage(path, pages_of(path, damaged)[0])
    with edited(path) as database, transaction(database):
        STEPS["0010_pairs.sql"](database, migrations()[9].sql)
        database.execute("INSERT INTO store_meta VALUES ('written', 'yes')")
    assert one(path, "SELECT value FROM store_meta WHERE key = 'written'") == "yes"
    if damaged == "delivered_floor":
        assert one(path, PAIRS_AS_BEFORE) == 8
