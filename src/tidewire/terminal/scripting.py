"""`tidewire send` and `tidewire tail`: the client for scripts."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import tzinfo
from enum import StrEnum
from typing import Final

from tidewire.client import (
    Chat,
    Client,
    Message,
    MessageFailed,
    MessageReceived,
    MessageStored,
    Sent,
    ServerUnreachable,
    StatusMoved,
)
from tidewire.client.effects import ConnectionState
from tidewire.terminal.finding import find_chat
from tidewire.terminal.output import json_line, text_line
from tidewire.terminal.people import People
from tidewire.terminal.words import state_words

PAGE: Final = 100
PATIENCE_S: Final = 2.0
"""After what time it is said that there is no connection."""
READY_S: Final = 20.0
"""How long a connection may take if nobody wants to follow."""


class Stage(StrEnum):
    """How far a message is to get before `send` ends."""

    STORED = "stored"
    DELIVERED = "delivered"
    READ = "read"


class Outcome(StrEnum):
    REACHED = "reached"
    WAITED_IN_VAIN = "waited in vain"
    """It is stored; what was asked for did not happen in time."""
    NEVER_LEFT = "never left"
    MAY_ARRIVE = "may arrive"
    """It left, nobody heard an answer; it stays in the outbox."""


@dataclass(frozen=True, slots=True)
class Result:
    outcome: Outcome
    sequence: int | None


async def send(
    client: Client,
    chat_text: str,
    text: str,
    *,
    stage: Stage,
    timeout_s: float,
    client_message_id: str | None,
) -> Result:
    """Send a message and wait. Raises ClientError, MessageFailed among them."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    sent: Sent | None = None
    try:
        async with asyncio.timeout_at(deadline):
            chat = await find_chat(client, chat_text)
            sent = await chat.send(text, client_message_id=client_message_id)
            await sent.stored()
            await _reached(sent, stage)
    except MessageFailed:
        # Nobody will come to decide about it: it must not fill the outbox.
        assert sent is not None
        await sent.drop()
        raise
    except TimeoutError:
        if sent is None:
            return Result(Outcome.NEVER_LEFT, None)
        if sent.sequence is not None:
            return Result(Outcome.WAITED_IN_VAIN, sent.sequence)
        has_left = not await sent.drop()
        return Result(Outcome.MAY_ARRIVE if has_left else Outcome.NEVER_LEFT, None)
    return Result(Outcome.REACHED, sent.sequence)


async def _reached(sent: Sent, stage: Stage) -> None:
    if stage is Stage.DELIVERED:
        await sent.delivered()
    elif stage is Stage.READ:
        await sent.read()


@dataclass(frozen=True, slots=True, kw_only=True)
class TailWish:
    since: int | None
    """Everything after this sequence; None: the last `lines` messages."""
    lines: int
    is_json: bool
    is_following: bool
    zone: tzinfo | None


class Tail:
    """Prints a chat and goes on. `show` gets lines for stdout, `tell` what is said about it."""

    def __init__(
        self,
        client: Client,
        wish: TailWish,
        show: Callable[[str], None],
        tell: Callable[[str], None],
    ) -> None:
        self._client = client
        self._wish = wish
        self._show = show
        self._tell = tell
        self._people = People(client)
        self._last = 0

    async def run(self, chat_text: str) -> None:
        """Ends by itself only if it is not to follow. Raises ClientError."""
        client, wish = self._client, self._wish
        await self._people.load()
        await self._ready()
        chat = await find_chat(client, chat_text)
        if wish.since is None:
            self._last = chat.last_sequence if wish.lines == 0 else 0
            if wish.lines:
                await self._print(chat, await chat.history(limit=wish.lines))
        else:
            await self._print_after(chat, wish.since)
        if wish.is_following:
            await self._follow(chat)

    async def _ready(self) -> None:
        """Everything that the server has comes first; who follows may wait for a server."""
        patience_s = PATIENCE_S if self._wish.is_following else READY_S
        try:
            async with asyncio.timeout(patience_s):
                await self._client.ready()
        except TimeoutError:
            words = state_words(self._client.status)
            if not self._wish.is_following:
                raise ServerUnreachable(f"no connection in {READY_S:.0f} s ({words})") from None
            self._tell(words)
            await self._client.ready()

    async def _print_after(self, chat: Chat, since: int) -> None:
        self._last = since
        while page := await chat.history(after=self._last, limit=PAGE):
            await self._print(chat, page)

    async def _follow(self, chat: Chat) -> None:
        is_away = False
        async for event in self._client.events():
            match event:
                case MessageReceived() | MessageStored():
                    if event.message.chat_id == chat.chat_id:
                        await self._print(chat, [event.message])
                case StatusMoved():
                    state = event.status.state
                    # Only that it is gone and that it is back, not each try in between.
                    wanted = ConnectionState.READY if is_away else ConnectionState.OFFLINE
                    if state is wanted:
                        is_away = not is_away
                        self._tell(state_words(event.status))
                case _:
                    pass

    async def _print(self, chat: Chat, messages: list[Message]) -> None:
        await self._people.learn(chat, [message.sender_id for message in messages])
        for message in messages:
            if message.sequence <= self._last:
                continue
            self._last = message.sequence
            name = self._people.name(message.sender_id)
            if self._wish.is_json:
                self._show(json_line(message, name))
            else:
                self._show(text_line(message, name, self._wish.zone))
