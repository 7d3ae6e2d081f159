"""What own entries show and wait for, against the server that the conformance kit plays."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tidewire.terminal.state import TerminalState
from tidewire_conformance.connection import Heard
from tidewire_conformance.sdk import SdkAdapter
from tidewire_conformance.server import PlayedServer
from tidewire_conformance.stage import Stage
from tidewire_conformance.truth import PlayedChat

pytestmark = pytest.mark.slow  # sockets, and a client with its store on the disk


@pytest.fixture
async def adapter() -> AsyncIterator[SdkAdapter]:
    made = SdkAdapter()
    yield made
    await made.dispose()


@pytest.fixture
async def stage(adapter: SdkAdapter) -> AsyncIterator[Stage]:
    server = PlayedServer()
    await server.open()
    yield Stage(server, adapter)
    await server.close()


async def gap_before_the_own_one(stage: Stage) -> PlayedChat:
    """From now on an own message is answered, and the one before it is neither pushed nor, until
    that is released, in an answer to a sync."""
    server = stage.server
    (chat,) = await stage.begin()

    def overtakes(heard: Heard) -> bool:
        server.say(chat, "before", push=False)
        server.answer(heard, server.store(heard))
        return True

    server.rules["send_message"] = overtakes
    server.hold("sync_response")
    return chat


async def test_stored_waits_for_the_message_before_the_own_one(
    stage: Stage, adapter: SdkAdapter
) -> None:
    server, played = stage.server, await gap_before_the_own_one(stage)
    chat = adapter.client.chat(played.chat_id)
    sent = await chat.send("own")
    waits = [asyncio.create_task(sent.stored()), asyncio.create_task(adapter.client.flush())]
    await stage.until(lambda: bool(server.of("sync_request")), "it did not sync")
    await server.connection.barrier(stage.patience_s)
    assert sent.sequence == 2
    assert not any(wait.done() for wait in waits)
    assert await chat.messages() == []
    server.release("sync_response")
    async with asyncio.timeout(stage.patience_s):
        assert await waits[0] == 2
        assert [message.text for message in await chat.messages()] == ["before", "own"]
        await waits[1]


async def test_stored_does_not_wait_for_a_connection_that_is_gone(
    stage: Stage, adapter: SdkAdapter
) -> None:
    server, played = stage.server, await gap_before_the_own_one(stage)
    sent = await adapter.client.chat(played.chat_id).send("own")
    waits = [asyncio.create_task(sent.stored()), asyncio.create_task(adapter.client.flush())]
    await stage.until(lambda: bool(server.of("sync_request")), "it did not sync")
    server.hold("connection_established")
    server.connection.cut()
    async with asyncio.timeout(stage.patience_s):
        await asyncio.gather(*waits)
    assert sent.sequence == 2


async def test_change_of_a_message_on_its_way_is_shown_on_it_once_it_is_stored(
    stage: Stage, adapter: SdkAdapter
) -> None:
    server = stage.server
    (played,) = await stage.begin()
    chat = adapter.client.chat(played.chat_id)
    server.hold("send_message_ack")
    sent = await chat.send("own")
    await stage.until(lambda: bool(server.of("send_message")), "it did not send")
    edit = await sent.edit("own, better")
    assert edit.amends is not None
    assert edit.amends.target == 0
    server.release("send_message_ack")
    async with asyncio.timeout(stage.patience_s):
        assert await sent.stored() == 1
    assert edit.amends.target == 1
    # The played server answers no edit, so this one stays on its way.
    assert chat.pending() == [edit]
    state = TerminalState(adapter.client, now_ms=lambda: 0)
    state.enter(chat)
    await state.fill()
    (row,) = state.rows()
    assert (row.text, row.is_edited) == ("own, better", True)
