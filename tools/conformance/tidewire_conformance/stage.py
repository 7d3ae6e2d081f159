"""What a check has: the played server, the client behind its adapter, and ways to wait.

Timeouts are generous; a client has to be exact to the millisecond only where the server's own clock
proves it. A check that fails raises `Violated`, whose sentence says what the client did.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NoReturn, TypeVar

from tidewire.domain.chats import ChatType
from tidewire_conformance.adapter import Adapter
from tidewire_conformance.connection import Connection, Heard
from tidewire_conformance.server import PlayedServer
from tidewire_conformance.truth import PlayedChat

PATIENCE_S: Final = 10.0
"""The timeout of a wait whose duty is not about time, besides the client's own backoff."""
LONGEST_BACKOFF_S: Final = 30.0
_LOOK_S: Final = 0.005
_LAG_LOOK_S: Final = 0.02
_BARRIERS: Final = 3


Seen = TypeVar("Seen")


class Violated(Exception):
    """The client broke the duty; the sentence says how."""


class Stage:
    def __init__(
        self, server: PlayedServer, adapter: Adapter, *, patience_s: float | None = None
    ) -> None:
        self.server = server
        self.adapter = adapter
        usual_s = PATIENCE_S + LONGEST_BACKOFF_S * adapter.time_scale
        self.patience_s = usual_s if patience_s is None else patience_s
        self._preparing_s = max(usual_s, self.patience_s)
        """How long the client may take to get ready. With a shorter time, a check on a busy machine
        would fail before it has looked at its own duty."""

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

    async def in_time(self, is_so: Callable[[], bool], seconds: float, sentence: str) -> float:
        """Wait for something on the wire that has to come within a time. The time in which this
        process could not run is added, because the client may not have run either; that time is
        returned, in seconds."""
        deadline = self.server.now() + seconds
        lag_s = 0.0
        while not is_so():
            began = self.server.now()
            if began > deadline:
                self.fail(sentence)
            await asyncio.sleep(_LAG_LOOK_S)
            late_s = max(self.server.now() - began - 2 * _LAG_LOOK_S, 0.0)
            deadline += late_s
            lag_s += late_s
        return lag_s

    async def eventually(
        self,
        look: Callable[[], Awaitable[Seen]],
        is_good: Callable[[Seen], bool],
        sentence: Callable[[Seen], str],
    ) -> Seen:
        """Wait for something that the application shows."""
        deadline = self.server.now() + self.patience_s
        while not is_good(seen := await look()):
            if self.server.now() > deadline:
                self.fail(sentence(seen))
            await asyncio.sleep(_LOOK_S)
        return seen

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
        patience_s = self._preparing_s
        if not await server.until(
            lambda: server.is_connected and server.connection.digests_sent > 0, patience_s
        ):
            self.fail("it did not connect")
        connection = server.connection
        calm = 0
        while calm < _BARRIERS:
            if not await connection.barrier(patience_s):
                self.fail("it did not answer a ping, or hung up")
            calm = 0 if connection.unanswered else calm + 1
            if not await server.until(
                lambda: not connection.unanswered or connection.is_over, patience_s
            ):
                self.fail("a request is stuck")

    async def reconnected(self, after: int) -> None:
        """Wait for a connection with a higher number than this one."""
        await self.until(
            lambda: self.server.connection.number > after and self.server.is_connected,
            "it did not come back",
        )

    async def cut(self) -> None:
        """Cut the connection, and wait for the next one."""
        connection = self.server.connection
        connection.cut()
        await self.reconnected(connection.number)

    async def relive(self, *, is_clean: bool = False) -> None:
        """Kill the client, or end it as a user does, restart it, and wait until it is connected."""
        before = self.server.connection.number
        await (self.adapter.stop() if is_clean else self.adapter.kill())
        await self.adapter.restart()
        await self.reconnected(before)

    async def hears(
        self, kind: str, chat: PlayedChat | None = None, *, connection: Connection | None = None
    ) -> Heard:
        """Wait for the first frame of this type, of a chat, on a connection."""
        await self.until(
            lambda: bool(self.server.of(kind, connection=connection, chat=chat)), f"no {kind} came"
        )
        return self.server.of(kind, connection=connection, chat=chat)[0]

    async def texts(self, chat: PlayedChat) -> list[str]:
        """What the application shows of a chat."""
        return [shown.text for shown in await self.adapter.messages(chat.chat_id)]

    async def shows(self, chat: PlayedChat, texts: Sequence[str] | None = None) -> None:
        """Wait until the application shows these texts of a chat, or all, each once, in order."""
        wanted = list(chat.texts if texts is None else texts)
        await self.eventually(
            lambda: self.texts(chat),
            lambda seen: seen == wanted,
            lambda seen: f"it shows {seen}, not {wanted}",
        )

    async def shows_all_of(self, chat: PlayedChat) -> None:
        """Wait until every text of a chat is shown, in whatever order."""
        await self.eventually(
            lambda: self.texts(chat),
            lambda seen: set(seen) >= set(chat.texts),
            lambda seen: f"it shows {seen}, not all of {chat.texts}",
        )

    async def tick(self, chat: PlayedChat, text: str) -> str | None:
        """The tick of an own message now."""
        for ticked in await self.adapter.ticks(chat.chat_id):
            if ticked.text == text:
                return ticked.tick
        return None

    async def ticked(self, chat: PlayedChat, text: str, wanted: str) -> None:
        """Wait until an own message has this tick."""
        await self.eventually(
            lambda: self.tick(chat, text),
            lambda seen: seen == wanted,
            lambda seen: f"{text!r} is shown as {seen}, not {wanted}",
        )

    async def acked(self, chat: PlayedChat, through: int) -> bool:
        """Wait until the client has acknowledged up to here. A slow client is ended as a user would
        do it, which makes it send its acknowledgements; True if that was needed."""
        server = self.server
        if await server.until(lambda: through in server.acked(chat), 6 * self.scale + 1):
            return False
        await self.adapter.stop()
        await self.until(
            lambda: through in server.acked(chat),
            f"{through} was never acknowledged, only {server.acked(chat)}",
        )
        return True
