"""A client that lives to be killed: it talks in one chat and echoes in another. Holds no test.

    python -m tests.client.victim URL STORE LIFE TALK_CHAT ECHO_CHAT PROMISES

Each text that is on the disk is appended to the file PROMISES. Some are changed, while they may be
in the outbox, on their way or stored: first the wish is noted (`3-7 edit?`), then, when it is on
the disk, that it is promised (`3-7 edit`). An edit puts a star behind the text. It ends by itself
when its standard input is closed, after everything has arrived.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import BinaryIO

from tidewire.client import Chat, Client, ClientOptions, MessageReceived, Sent

BURST = 5
QUICK = ClientOptions(backoff_ms=20, backoff_ms_max=100, ack_ms=50)


async def talk(chat: Chat, life: str, promises: BinaryIO, is_over: asyncio.Event) -> None:
    """In bursts, because one message is in flight at a time: at every kill some of those that were
    promised are nowhere but in the store."""
    number = 0
    earlier: list[Sent] = []
    while not is_over.is_set():
        texts = [f"{life}-{number + one}" for one in range(1, BURST + 1)]
        number += BURST
        sent = await asyncio.gather(*(chat.send(text) for text in texts))
        promises.write("".join(f"{text}\n" for text in texts).encode())
        # Those of now are in the outbox or on their way, some of before are stored.
        await changes(chat, promises, sent[:3])
        earlier += sent[3:]
        stored = [one for one in earlier if one.sequence is not None][:3]
        earlier = [one for one in earlier if one not in stored]
        await changes(chat, promises, stored)
        # As much as the server takes, and the others get their turns.
        await asyncio.sleep(0.02)


async def changes(chat: Chat, promises: BinaryIO, sent: Sequence[Sent]) -> None:
    """Edit the first, delete the second, react to the third."""
    wishes: list[tuple[str, Callable[[Sent], Awaitable[object]]]] = [
        ("edit", lambda one: chat.edit(one, one.text + "*")),
        ("delete", chat.delete),
        ("react", lambda one: chat.react(one, "👍")),
    ]
    for one, (what, wish) in zip(sent, wishes, strict=False):
        text = one.text
        promises.write(f"{text} {what}?\n".encode())
        await wish(one)
        promises.write(f"{text} {what}\n".encode())


async def echo(me: Client, echo_id: str) -> None:
    async for event in me.events():
        if isinstance(event, MessageReceived) and event.message.chat_id == echo_id:
            await me.chat(echo_id).reply(event.message, f"re: {event.message.text}")


async def live(url: str, store: str, life: str, talk_id: str, echo_id: str, path: str) -> None:
    loop = asyncio.get_running_loop()
    is_over = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), is_over.set)
    print("up", flush=True)  # noqa: T201 - the parent waits for this line
    with open(path, "ab", buffering=0) as promises:  # noqa: PTH123
        async with Client(url, store=store, options=QUICK) as me:
            echoing = loop.create_task(echo(me, echo_id))
            await talk(me.chat(talk_id), life, promises, is_over)
            await me.ready()
            await me.flush()
            echoing.cancel()
            with suppress(asyncio.CancelledError):
                await echoing
    os.close(sys.stdin.fileno())


if __name__ == "__main__":
    asyncio.run(live(*sys.argv[1:]))
