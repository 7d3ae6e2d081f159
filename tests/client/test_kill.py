"""kill -9 of a client under load, again and again: nothing is lost, nothing is there twice.

The victim talks in one chat and echoes in another while somebody writes to it without a pause. Some
of what it says it edits, deletes or reacts to. It is killed at a random instant of each life, also
while it starts. At the end the store, the server and the other side hold the same messages, as they
are now; everything that was on the disk once has arrived exactly once, and each message has exactly
one echo.
"""

import asyncio
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.client.people import People, next_event
from tests.e2e.chatting import eventually
from tidewire.client import Chat, Client, Message, MessageReceived
from tidewire.wire.rest_models import ChatView, Envelope

ROUNDS = int(os.environ.get("CLIENT_KILL_ROUNDS", "20"))
"""`make test` kills 20 times; CLIENT_KILL_ROUNDS=100 as often as one likes."""
LIFE_S_MAX = 0.5
UNANSWERED_MAX = 100
"""Questions that wait for their echo. A victim that takes long to start must not find thousands."""


class Victim:
    def __init__(self, url: str, store: Path, chats: tuple[str, str], promises: Path) -> None:
        self._arguments = [url, str(store)]
        self._chats = chats
        self._promises = promises

    def start(self, life: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.client.victim", *self._arguments, str(life)]
        return subprocess.Popen(
            [*command, *self._chats, str(self._promises)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    async def up(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        assert await asyncio.to_thread(process.stdout.readline) == b"up\n"

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.communicate()


@pytest.mark.slow
@pytest.mark.timeout(180 + 5 * ROUNDS)
async def test_kills_of_a_client_lose_and_double_nothing(people: People, tmp_path: Path) -> None:
    await people.register("alice")
    bobs_name = await people.register("bob")
    alice = await people.open("alice")
    talk = await alice.group("talk", bobs_name)
    echo = await alice.direct(bobs_name)
    promises = tmp_path / "promises"
    promises.touch()
    victim = Victim(people.site.url, people.store("bob"), (talk.chat_id, echo.chat_id), promises)
    chance = random.Random(4711)
    is_over = asyncio.Event()
    asking = asyncio.get_running_loop().create_task(ask(echo, is_over))
    for life in range(ROUNDS):
        process = victim.start(life)
        await victim.up(process)
        await asyncio.sleep(chance.random() * LIFE_S_MAX)
        await asyncio.to_thread(victim.kill, process)
    process = victim.start(ROUNDS)
    await victim.up(process)
    await asyncio.sleep(LIFE_S_MAX)
    is_over.set()
    asked = await asking
    await echoed(alice, echo, len(asked))
    await changed(talk)
    _, _ = await asyncio.to_thread(process.communicate)
    assert process.returncode == 0

    promised = promises.read_text().splitlines()
    await check_talk(people, alice, talk, promised)
    await check_echo(people, alice, echo, asked)
    assert len(promised) > ROUNDS
    assert len(asked) > ROUNDS


async def ask(chat: Chat, is_over: asyncio.Event) -> list[str]:
    """Write without a pause, but not faster than echoes can be expected."""
    asked: list[str] = []
    while not is_over.is_set():
        # Whatever else is in the chat is an echo.
        if 2 * len(asked) - chat.last_sequence >= UNANSWERED_MAX:
            await asyncio.sleep(0.01)
            continue
        asked.append(f"question {len(asked)}")
        sent = await chat.send(asked[-1])
        await sent.stored()
        await asyncio.sleep(0.01)
    return asked


async def echoed(alice: Client, chat: Chat, count: int) -> None:
    """Wait for the last echo, and a moment in which a second one could come."""
    async with asyncio.timeout(60):
        while len([m for m in await held(chat) if not m[1]]) < count:
            await next_event(alice, MessageReceived)
    # Whatever the server had to say before this is said.
    await alice.rest.call(object, "GET", "/users/me")


async def changed(chat: Chat) -> None:
    """Wait until something was edited and deleted that had left before: what is changed in the
    outbox never was otherwise. Short lives on a busy machine may have come to no more than that."""
    async with asyncio.timeout(60):
        while True:
            messages = await chat.messages(limit=1_000_000)
            is_edited = any(one.is_edited for one in messages)
            if is_edited and any(one.is_deleted for one in messages):
                return
            await asyncio.sleep(0.05)


Shown = tuple[int, str, bool, bool, int]
"""A message as it is now: sequence, text, edited, deleted, reactions."""


async def held(chat: Chat) -> list[tuple[int, bool, str]]:
    messages = await chat.messages(limit=1_000_000)
    return [(message.sequence, message.is_own, message.text) for message in messages]


def as_shown(message: Message) -> Shown:
    reactions = sum(one.count for one in message.reactions)
    return message.sequence, message.text, message.is_edited, message.is_deleted, reactions


async def check_talk(people: People, alice: Client, chat: Chat, promised: list[str]) -> None:
    await caught_up(alice, chat)
    messages = await everything(chat)
    at_server = [as_shown(message) for message in messages]
    by_text = {message.text.rstrip("*"): message for message in messages if message.text}
    texts = Counter(message.text.rstrip("*") for message in messages if message.text)
    assert [text for text, count in texts.items() if count > 1] == []
    wished = {line for line in promised if " " in line}
    for text in (line for line in promised if " " not in line):
        message = by_text.get(text)
        if message is None:
            # It may have been dropped before it left, or be a tombstone.
            assert f"{text} delete?" in wished, text
            continue
        assert f"{text} delete" not in wished
        is_edited, has_reaction = message.text.endswith("*"), bool(message.reactions)
        assert is_edited <= (f"{text} edit?" in wished), text
        assert is_edited >= (f"{text} edit" in wished), text
        assert has_reaction <= (f"{text} react?" in wished), text
        assert has_reaction >= (f"{text} react" in wished), text
        assert [one.count for one in message.reactions] in ([], [1])
    # In the order in which they were written, within each life and over all of them.
    order = [tuple(map(int, text.split("-"))) for text in by_text]
    assert order == sorted(order)
    assert len([one for one in messages if one.is_edited]) > 0
    assert len([one for one in messages if one.is_deleted]) > 0
    assert [as_shown(one) for one in await chat.messages(limit=1_000_000)] == at_server
    await check_store(people, chat, at_server)


async def check_echo(people: People, alice: Client, chat: Chat, asked: list[str]) -> None:
    await caught_up(alice, chat)
    at_server = [as_shown(message) for message in await everything(chat)]
    texts = Counter(text for _, text, *_ in at_server)
    assert texts == Counter([*asked, *(f"re: {text}" for text in asked)])
    assert [as_shown(one) for one in await chat.messages(limit=1_000_000)] == at_server
    await check_store(people, chat, at_server)


async def caught_up(alice: Client, chat: Chat) -> None:
    """All that the server has is on this device, too."""
    path = f"/chats/{chat.chat_id}"
    head = (await alice.rest.call(Envelope[ChatView], "GET", path)).data.current_sequence
    await eventually(lambda: chat.last_sequence >= head, "a push is missing")


async def check_store(people: People, chat: Chat, at_server: list[Shown]) -> None:
    """The victim's own store holds the same, once and in order, and its outbox is empty."""
    bob = Client(people.site.url, store=people.store("bob"))
    async with bob:
        await bob.ready()
        mine = bob.chat(chat.chat_id)
        assert [as_shown(one) for one in await mine.messages(limit=1_000_000)] == at_server
        assert bob.outbox() == []
        stored = await bob.driver.store.do(lambda tables: tables.entries())
        assert stored == []


async def everything(chat: Chat) -> list[Message]:
    """What the server has, asked by REST."""
    return await chat._ask(1_000_000, after_sequence=0, direction="forward")
