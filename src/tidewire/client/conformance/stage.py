"""What a check has: the played server, the client behind its adapter, and ways to wait.

A wait has a generous end; only what the server's own clock proves is held against a client to the
millisecond. A check fails by `Violated`, whose sentence says what the client did.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NoReturn

from tidewire.client.conformance.adapter import Adapter
from tidewire.client.conformance.server import PlayedServer
from tidewire.client.conformance.truth import PlayedChat
from tidewire.domain.chats import ChatType

PATIENCE_S: Final = 10.0
"""How long something may take that is not about time, besides the client's own backoff."""
LONGEST_BACKOFF_S: Final = 30.0
_LOOK_S: Final = 0.005
_LAG_LOOK_S: Final = 0.02
_BARRIERS: Final = 3


class Violated(Exception):
    """The client broke the duty; the sentence says how."""


class Stage:
    def __init__(
        self, server: PlayedServer, adapter: Adapter, *, patience_s: float | None = None
    ) -> None:
        self.server = server
        self.adapter = adapter
        longest_backoff_s = LONGEST_BACKOFF_S * adapter.time_scale
        self.patience_s = PATIENCE_S + longest_backoff_s if patience_s is None else patience_s

    @property
    def scale(self) -> float:
        return self.adapter.time_scale

    # Verdicts.

    def fail(self, sentence: str) -> NoReturn:
        raise Violated(sentence)

    def expect(self, is_so: bool, sentence: str) -> None:
        if not is_so:
            self.fail(sentence)

    async def until(self, is_so: Callable[[], bool], sentence: str) -> None:
        """Wait for something on the wire."""
        if not await self.server.until(is_so, self.patience_s):
            self.fail(sentence)

    async def in_time(self, is_so: Callable[[], bool], seconds: float, sentence: str) -> None:
        """Wait for something on the wire that has to come within a time. What this process did not
        get of its machine meanwhile is added, because the client may not have got it either."""
        deadline = self.server.now() + seconds
        while not is_so():
            began = self.server.now()
            if began > deadline:
                self.fail(sentence)
            await asyncio.sleep(_LAG_LOOK_S)
            deadline += max(self.server.now() - began - 2 * _LAG_LOOK_S, 0.0)

    async def eventually(
        self, is_so: Callable[[], Awaitable[bool]], sentence: Callable[[], str] | str
    ) -> None:
        """Wait for something that the application shows."""
        deadline = self.server.now() + self.patience_s
        while not await is_so():
            if self.server.now() > deadline:
                self.fail(sentence if isinstance(sentence, str) else sentence())
            await asyncio.sleep(_LOOK_S)

    async def quiet(self, seconds: float) -> None:
        """Give the client the time to do something that it must not do."""
        await asyncio.sleep(seconds)

    # The usual course of things.

    async def begin(
        self, chats: int = 1, *, messages: int = 0, chat_type: ChatType = ChatType.DIRECT
    ) -> list[PlayedChat]:
        """Make chats with some messages, start the client, and wait until it holds them."""
        made = [self.server.truth.new_chat(chat_type) for _ in range(chats)]
        await self.adapter.start(self.server.url, self.server.account)
        await self.ready()
        for chat in made:
            for number in range(messages):
                self.server.say(chat, f"first {number + 1}")
        for chat in made:
            if messages:
                await self.shows(chat)
        return made

    async def ready(self) -> None:
        """Wait until the client is connected, has the digest, and has nothing left to ask."""
        server = self.server
        await self.until(
            lambda: server.is_connected and server.line.digests_sent > 0,
            "it did not connect",
        )
        line = server.line
        calm = 0
        while calm < _BARRIERS:
            if not await line.barrier(self.patience_s):
                self.fail("it did not answer a ping, or hung up")
            calm = 0 if line.unanswered else calm + 1
            await self.until(lambda: not line.unanswered or line.is_over, "a request is stuck")

    async def reconnected(self, after: int) -> None:
        """Wait for a connection with a higher number than this one."""
        await self.until(
            lambda: self.server.line.number > after and self.server.is_connected,
            "it did not come back",
        )

    async def shows(self, chat: PlayedChat, texts: Sequence[str] | None = None) -> None:
        """Wait until the application shows these texts of a chat, or all, each once, in order."""
        wanted = list(chat.texts if texts is None else texts)
        seen: list[str] = []

        async def look() -> bool:
            seen[:] = [shown.text for shown in await self.adapter.messages(chat.chat_id)]
            return seen == wanted

        await self.eventually(look, lambda: f"it shows {seen}, not {wanted}")

    async def shows_all_of(self, chat: PlayedChat) -> None:
        """Wait until every text of a chat is shown, in whatever order."""
        seen: list[str] = []

        async def look() -> bool:
            seen[:] = [shown.text for shown in await self.adapter.messages(chat.chat_id)]
            return set(seen) >= set(chat.texts)

        await self.eventually(look, lambda: f"it shows {seen}, not all of {chat.texts}")

    async def tick(self, chat: PlayedChat, text: str) -> str | None:
        """What stands beside an own message now."""
        for ticked in await self.adapter.ticks(chat.chat_id):
            if ticked.text == text:
                return ticked.tick
        return None

    async def ticked(self, chat: PlayedChat, text: str, *ticks: str) -> None:
        """Wait until one of these stands beside an own message."""
        seen: list[str | None] = []

        async def look() -> bool:
            seen[:] = [await self.tick(chat, text)]
            return seen[0] in ticks

        await self.eventually(look, lambda: f"{text!r} is shown as {seen[0]}, not {ticks[0]}")

    async def acked(self, chat: PlayedChat, through: int) -> bool:
        """Wait until the client has acknowledged up to here. A client that takes its time is ended
        as a user would do it, which brings its acknowledgements out; True: that was needed."""
        server = self.server
        if await server.until(lambda: through in server.acked(chat), 6 * self.scale + 1):
            return False
        await self.adapter.stop()
        await self.until(
            lambda: through in server.acked(chat),
            f"{through} was never acknowledged, only {server.acked(chat)}",
        )
        return True
