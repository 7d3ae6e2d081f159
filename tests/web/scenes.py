"""Ann in a browser, Bob in Node, and their chat on a real server. Holds no test."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self
from uuid import uuid4

from tests.web.nodes import NodePerson
from tests.web.tabs import QUICK, Tab, Tabs, until


class Scene:
    def __init__(self, drivers: Path, folder: Path, *, ann_at: str, bob_at: str) -> None:
        """The addresses at which the two find the server."""
        self.ann = f"ann-{uuid4().hex[:8]}"
        self.tabs = Tabs(ann_at, drivers / "tabs")
        self.bob = NodePerson(drivers / "talk.mjs", bob_at, folder)
        self.chat_id = ""
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.bob)
        await self._stack.enter_async_context(self.tabs)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def begin(
        self, count: int, before: str = "", options: Mapping[str, object] = QUICK
    ) -> list[Tab]:
        """So many tabs; Ann has written to nobody yet."""
        first = await (await self.tabs.blank(before)).open(self.ann, options)
        self.chat_id = await first.do("direct", self.bob.username)
        await first.do("ready")
        for _ in range(count - 1):
            await (await self.tabs.blank(before)).open(options=options)
        return [*self.tabs.tabs]

    async def bobs(self) -> list[str]:
        """What Bob is shown."""
        found: list[str] = await self.bob.do("texts", self.chat_id)
        return found

    async def has_come(self, text: str) -> bool:
        return text in await self.bobs()

    async def shown_alike(self, count: int) -> None:
        """All tabs, and Bob, show the same so many messages."""

        async def are_alike() -> bool:
            theirs = await self.bobs()
            shown = [await tab.texts(self.chat_id) for tab in self.tabs.tabs]
            return len(theirs) == count and all(one == theirs for one in shown)

        await until(are_alike, f"{count} messages are shown alike everywhere")

    async def without_faults(self) -> None:
        for tab in self.tabs.tabs:
            assert (await tab.do("state"))["faults"] == []
