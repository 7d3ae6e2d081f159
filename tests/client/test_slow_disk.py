"""Clients whose disk is slow: what a later entry must not leave before."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.client.people import People, next_event
from tests.e2e.chatting import PATIENCE_S
from tidewire.client import Client, MessageFailed, MessageRefused, Tick
from tidewire.client.outbox import QUEUED
from tidewire.domain.ids import ClientMessageId

pytestmark = pytest.mark.slow  # each talks to a real server


@contextmanager
def disk_held(client: Client) -> Iterator[None]:
    """The store's thread does nothing meanwhile."""
    is_over = threading.Event()
    held = client.driver.store.do(lambda _: is_over.wait(PATIENCE_S))
    try:
        yield
    finally:
        is_over.set()
    assert not held.done()


async def test_nothing_leaves_behind_a_dropped_message_until_the_disk_has_that(
    people: People,
) -> None:
    """A client that is killed meanwhile has the dropped one in its outbox when it starts again, and
    would send it after the later one."""
    alice, _, chat = await people.pair()
    socket = alice.driver._socket
    assert socket is not None
    # The first one is on its way until the answers are read again.
    socket.pause()
    first, second, third = await asyncio.gather(*(chat.send(f"text {n}") for n in range(3)))
    with disk_held(alice):
        dropping = asyncio.create_task(second.drop())
        await asyncio.sleep(0)
        socket.resume()
        async with asyncio.timeout(PATIENCE_S):
            await alice.driver.waits.until(
                first.client_message_id, lambda: first.sequence is not None
            )
        waiting = alice.driver.core.outbox.get(ClientMessageId(third.client_message_id))
        assert waiting is not None
        assert waiting.state is QUEUED
        assert not dropping.done()
    assert await dropping
    assert await third.stored() == 2
    assert [one.text for one in await chat.messages()] == ["text 0", "text 2"]


async def test_retry_whose_caller_gives_up_is_sent_all_the_same(people: People) -> None:
    await people.register("alice")
    alice = await people.open("alice")
    sent = await alice.chat("chat_of_nobody").send("hello?")
    with pytest.raises(MessageFailed):
        await sent.stored()
    with disk_held(alice):
        retrying = asyncio.create_task(sent.retry())
        await asyncio.sleep(0)
        retrying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await retrying
    assert sent.tick is Tick.SENDING
    with pytest.raises(MessageFailed):
        async with asyncio.timeout(PATIENCE_S):
            await sent.stored()


async def test_change_whose_message_was_dropped_is_told_as_failed_after_a_kill(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drop and the change reach the disk together; the process is killed before
    it has told, on the disk, that the change fails. What was written later is sent all the same."""
    alice, _, chat = await people.pair()
    await alice.close()
    away = Client("http://127.0.0.1:9", store=people.store("alice"), moved=True)
    async with away:
        there = away.chat(chat.chat_id)
        message = await there.send("never mind")
        # From here on nothing that the disk has done is heard of, as after a kill.
        monkeypatch.setattr(away.driver.sending, "written", lambda _: None)
        with disk_held(away):
            reacting = asyncio.create_task(there.react(message, "👍"))
            dropping = asyncio.create_task(message.drop())
            await asyncio.sleep(0)
        reaction = await reacting
        assert await dropping
    again = await people.open("alice", moved=True)
    refused = await next_event(again, MessageRefused)
    assert refused.client_message_id == reaction.client_message_id
    assert (refused.kind, refused.code) == ("react", "TARGET_NOT_FOUND")
    async with asyncio.timeout(PATIENCE_S):
        await (await again.chat(chat.chat_id).send("later")).stored()
    assert again.outbox() == []
    assert await again.driver.look_up(lambda tables: tables.entries()) == []
    assert [one.text for one in await again.chat(chat.chat_id).messages()] == ["later"]


async def test_change_that_is_written_during_a_retry_of_its_message_blocks_nothing(
    people: People,
) -> None:
    """It was numbered before the retry numbered its message anew, and waits for its answer: it must
    not stand before it."""
    await people.register("alice")
    alice = await people.open("alice")
    nobodys = "chat_of_nobody"
    with pytest.raises(MessageFailed):
        await (await alice.chat(nobodys).send("hello?")).stored()
    await alice.close()
    away = Client("http://127.0.0.1:9", store=people.store("alice"), moved=True)
    async with away:
        (message,) = away.outbox()
        with disk_held(away):
            reacting = asyncio.create_task(away.chat(nobodys).react(message, "👍"))
            await asyncio.sleep(0)
            retrying = asyncio.create_task(message.retry())
            await asyncio.sleep(0)
        assert await retrying
        await reacting
        assert len(away.outbox()) == 2
    again = await people.open("alice", moved=True)
    async with asyncio.timeout(PATIENCE_S):
        await again.flush()
    assert [(one.kind, one.code) for one in again.outbox()] == [("message", "NOT_A_MEMBER")]
