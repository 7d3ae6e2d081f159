"""Clients for tests, each with a store of its own. Holds no test."""

import asyncio
import uuid
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from tests.e2e.chatting import PASSWORD, PATIENCE_S, Address
from tidewire.client import Chat, Client, ClientOptions, Event
from tidewire.engines.sqlite.backup import restore

QUICK: Final = ClientOptions(backoff_ms=20, backoff_ms_max=100, ack_ms=50)
"""Comes back at once: a test does not want to wait."""


class People:
    def __init__(self, site: Address, folder: Path, stack: AsyncExitStack) -> None:
        self.site = site
        self.folder = folder
        self._stack = stack

    def name(self, begin: str) -> str:
        return f"{begin}-{uuid.uuid4().hex[:8]}"

    def store(self, name: str) -> Path:
        return self.folder / f"{name}.db"

    async def register(self, name: str, options: ClientOptions = QUICK) -> str:
        """An account whose login is in its store; its user name."""
        username = self.name(name)
        client = await Client.register(
            self.site.url, username, PASSWORD, store=self.store(name), options=options
        )
        await client.close()
        return username

    async def open(
        self,
        name: str,
        options: ClientOptions = QUICK,
        at: Address | None = None,
        **more: Any,
    ) -> Client:
        """Somebody who has registered, connected and synced."""
        client = Client((at or self.site).url, store=self.store(name), options=options, **more)
        await self._stack.enter_async_context(client)
        async with asyncio.timeout(PATIENCE_S):
            await client.ready()
        return client

    async def pair(self, **options: Any) -> tuple[Client, Client, Chat]:
        """Two people and their direct chat, as the first one sees it."""
        await self.register("alice")
        bobs_name = await self.register("bob")
        alice, bob = await self.open("alice", **options), await self.open("bob", **options)
        return alice, bob, await alice.direct(bobs_name)


async def next_event(client: Client, kind: type[Event], patience_s: float = PATIENCE_S) -> Any:
    """The next event of a kind; it and those before it are confirmed."""
    async with asyncio.timeout(patience_s):
        async for event in client.events():
            if isinstance(event, kind):
                client.confirm(event)
                return event
    raise AssertionError("the events ended")


async def told_of(client: Client, chat: Chat) -> None:
    """Wait until a device has heard of a chat. Who made it may know sooner."""
    async with asyncio.timeout(PATIENCE_S):
        await client.driver.waits.until(
            chat.chat_id, lambda: client.chat(chat.chat_id).type is not None
        )


def restore_with_keys(copy: Path, data: Path, place: Path) -> None:
    """Restore a backup, with the keys of the server's tokens, which are not in it."""
    restore(copy, place)
    for key in data.glob("*.key"):
        (place / key.name).write_bytes(key.read_bytes())
