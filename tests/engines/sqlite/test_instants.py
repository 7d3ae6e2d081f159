"""What a read and an answer are made of: one instant, and the numbers that were stored."""

import asyncio
import threading

import pytest

from tests.engines.sqlite.store import Stores, open_beside, pair_in, store_of
from tests.support.world import PLENTY
from tidewire.domain.chats import ChatAccess
from tidewire.domain.errors import NotAMember
from tidewire.domain.messages import Appended
from tidewire.engines.sqlite import reading
from tidewire.engines.sqlite.chats import access_chat

PATIENCE_S = 30


@pytest.mark.parametrize("page", ["after", "before"])
async def test_page_is_of_the_instant_in_which_its_reader_was_a_member(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    """The reader is removed between the gate and the page, and more is said (E10)."""
    world = await stores.open()
    owner, reader = await world.people(2)
    chat = await world.group(owner, reader)
    await world.send_many(chat, owner, 3)
    is_in, may_go_on = threading.Event(), threading.Event()

    def stopped(*given: object) -> ChatAccess:
        access = access_chat(*given)  # type: ignore[arg-type]
        is_in.set()
        assert may_go_on.wait(PATIENCE_S)
        return access

    monkeypatch.setattr(reading, "access_chat", stopped)
    bounds = {"count_max": PLENTY, "bytes_max": PLENTY}
    if page == "after":
        reads = world.storage.messages_after(reader, chat, 0, **bounds)
    else:
        reads = world.storage.messages_before(reader, chat, 100, **bounds)
    task = asyncio.ensure_future(reads)
    assert await asyncio.to_thread(is_in.wait, PATIENCE_S)
    await world.remove(owner, chat, reader)
    await world.send(chat, owner, "not for the one who was removed")
    may_go_on.set()
    found = await task
    assert [message.sequence for message in found.messages] == [1, 2, 3]
    with pytest.raises(NotAMember):
        await world.messages(reader, chat)


async def test_retry_is_answered_with_the_stored_numbers_behind_a_gap(stores: Stores) -> None:
    """`prev_sequence` is not `sequence` - 1 where numbers were skipped (E11)."""
    world = await stores.open()
    chat, one, _ = await pair_in(world)
    await world.send_many(chat, one, 2)
    await store_of(world).close()
    database = open_beside(store_of(world).path)
    database.execute("UPDATE chat_counters SET sequence_counter = sequence_counter + 1048576")
    database.close()
    await store_of(world).open()
    draft = world.draft(chat, one)
    [first] = await world.append(draft)
    [again] = await world.append(draft)
    assert isinstance(first, Appended)
    assert isinstance(again, Appended)
    assert (first.sequence, first.prev_sequence) == (1_048_579, 2)
    assert (again.sequence, again.prev_sequence) == (1_048_579, 2)
    assert again.deduplicated
