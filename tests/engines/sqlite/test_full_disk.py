"""A full disk in the middle of a commit: nothing of it is stored, and it is no tragedy.

Three makes of full disk: one that runs out after so many bytes, wherever in a commit that is; a
database that may not grow, which is noticed before the commit; and a real one, where the machine
lets us mount one. Slow where a process is started.
"""

import asyncio
from pathlib import Path

import apsw
import pytest

from tests.engines.sqlite import child
from tests.engines.sqlite.faulty_vfs import FaultyVfs, full_after, no_fault
from tests.engines.sqlite.full_disk import EXPECTED, attempt, full_disk_story
from tests.engines.sqlite.store import Stores, TunedStore, pair_in, store_of
from tests.support.outcomes import chained
from tests.support.world import taken
from tidewire.domain.errors import ErrorCode, Retry, StoreFull
from tidewire.engines.sqlite import SqliteOptions
from tidewire.engines.sqlite.database import single


async def test_full_disk_is_survived(tmp_path: Path, vfs: FaultyVfs) -> None:
    store = TunedStore(tmp_path, SqliteOptions(vfs=vfs.name))

    def fill() -> None:
        vfs.before_write = full_after(20_000)

    def make_room() -> None:
        vfs.before_write = no_fault

    assert await full_disk_story(store, fill, make_room) == EXPECTED
    assert store.doubts == []


@pytest.mark.slow
async def test_full_disk_is_survived_when_it_is_a_real_one(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    process = child.start("fill-a-real-disk", tmp_path / "disk")
    said, complaints = await asyncio.to_thread(process.communicate, timeout=50)
    assert complaints == ""
    assert process.returncode == 0
    # Where nothing may be mounted, the test above is all that this machine can tell.
    assert said.splitlines() in (EXPECTED, [child.CANNOT_MOUNT])


@pytest.mark.parametrize("room_bytes", [0, 31, 4_000, 8_000, 20_000, 60_000])
async def test_commit_is_undone_as_a_whole_when_the_disk_is_full(
    stores: Stores, vfs: FaultyVfs, room_bytes: int
) -> None:
    world = await stores.open(SqliteOptions(vfs=vfs.name))
    chat, one, other = await pair_in(world)
    await world.send_many(chat, other, 5)
    # Let them all share a log that is not empty, so that its header is not what fails.
    drafts = [[world.draft(chat, one, "x" * 4_000) for _ in range(10)] for _ in range(3)]
    vfs.before_write = full_after(room_bytes)
    outcomes = await asyncio.gather(*(attempt(world.append(*batch)) for batch in drafts))
    assert [type(outcome) for outcome in outcomes] == [StoreFull] * 3
    assert len(await world.messages(one, chat)) == 5
    assert await store_of(world).counter(chat) == 5
    vfs.before_write = no_fault
    for batch in drafts:
        await world.append(*batch)
    await store_of(world).reopen()
    found = await store_of(world).messages(chat)
    assert chained(found)
    assert [message.client_message_id for message in found[5:]] == [
        draft.client_message_id for batch in drafts for draft in batch
    ]
    assert store_of(world).doubts == []


async def test_commit_is_undone_when_the_database_may_not_grow(stores: Stores) -> None:
    world = await stores.open()
    chat, one, _ = await pair_in(world)
    await world.send_many(chat, one, 5)
    # The writer is idle, so its connection may be used here.
    writer = store_of(world).sqlite._database
    pages = single(writer, "PRAGMA page_count")
    assert single(writer, f"PRAGMA max_page_count = {pages}") == pages
    drafts = [world.draft(chat, one, "x" * 4_000) for _ in range(10)]
    error = await attempt(world.append(*drafts))
    assert isinstance(error, StoreFull)
    assert error.code is ErrorCode.SERVICE_UNAVAILABLE
    assert error.retry is Retry.SAME_REQUEST
    assert isinstance(error.__cause__, apsw.FullError)
    assert len(await world.messages(one, chat)) == 5
    single(writer, f"PRAGMA max_page_count = {pages + 1_000}")
    answers = [taken(outcome) for outcome in await world.append(*drafts)]
    assert [answer.sequence for answer in answers] == list(range(6, 16))
    assert store_of(world).doubts == []


async def test_new_store_can_be_opened_later_when_the_disk_was_full(
    stores: Stores, vfs: FaultyVfs, tmp_path: Path
) -> None:
    options = SqliteOptions(vfs=vfs.name)
    vfs.before_write = full_after(10_000)
    with pytest.raises(StoreFull):
        await stores.open(options, directory=tmp_path / "data")
    vfs.before_write = no_fault
    world = await stores.open(options, directory=tmp_path / "data")
    chat, one, _ = await pair_in(world)
    assert (await world.send(chat, one)).sequence == 1
