"""`tidewire send`, `edit`, `delete`, `react` and `tail`: the client for scripts."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from enum import StrEnum
from typing import Final

from tidewire.client import (
    Change,
    Chat,
    Client,
    Message,
    MessageChanged,
    MessageFailed,
    MessageReceived,
    MessageStored,
    Sent,
    ServerUnreachable,
    StatusMoved,
)
from tidewire.client.effects import ConnectionState
from tidewire.domain.chats import ChatType
from tidewire.domain.messages import MENTION_ALL
from tidewire.terminal import addresses
from tidewire.terminal.words import change_line, json_change, json_line, state_words, text_line


class Stage(StrEnum):
    """The stage that a message has to reach before `send` ends."""

    STORED = "stored"
    DELIVERED = "delivered"
    READ = "read"


class Outcome(StrEnum):
    REACHED = "reached"
    WAITED_IN_VAIN = "waited in vain"
    """It is stored, but did not reach the wanted stage in time."""
    NEVER_LEFT = "never left"
    MAY_ARRIVE = "may arrive"
    """It left, and no answer came; it stays in the outbox."""


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
    reply_to: int | None = None,
    mentions: Sequence[str] = (),
) -> Result:
    """Send a message and wait. Raises ClientError, MessageFailed among them."""

    async def act(chat: Chat) -> Sent:
        return await chat.send(
            text,
            reply_to=reply_to,
            mentions=[one if one == MENTION_ALL else one.removeprefix("@") for one in mentions],
            client_message_id=client_message_id,
        )

    return await carry_out(client, chat_text, act, stage=stage, timeout_s=timeout_s)


async def carry_out(
    client: Client,
    chat_text: str,
    act: Callable[[Chat], Awaitable[Sent]],
    *,
    stage: Stage = Stage.STORED,
    timeout_s: float,
) -> Result:
    """Send something to a chat and wait. Raises ClientError, MessageFailed among them."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    sent: Sent | None = None
    try:
        async with asyncio.timeout_at(deadline):
            chat = await find_chat(client, chat_text)
            sent = await act(chat)
            await sent.stored()
            await _reached(sent, stage)
    except MessageFailed:
        # No user will decide about it later: it must not fill the outbox.
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


PATIENCE_S: Final = 2.0
"""After this time `tail` says that there is no connection."""
READY_S: Final = 20.0
"""How long a connection may take if the chat is not to be followed."""
PAGE: Final = 100


@dataclass(eq=False, repr=False)
class Tail:
    """Prints a chat and follows it. `show` gets lines for stdout, `tell` gets remarks about it."""

    client: Client
    wish: TailWish
    show: Callable[[str], None]
    tell: Callable[[str], None]

    def __post_init__(self) -> None:
        self._last = 0

    async def run(self, chat_text: str) -> None:
        """Print the chat; this ends by itself only if it does not follow. Raises ClientError."""
        client, wish = self.client, self.wish
        await self._ready()
        chat = await find_chat(client, chat_text)
        if wish.since is None:
            self._last = chat.last_sequence if wish.lines == 0 else 0
            if wish.lines:
                held = chat.last_sequence
                self._print(await chat.history(limit=wish.lines))
                # The messages are printed in their current state: past changes are not news.
                self._last = max(self._last, held)
        else:
            await self._print_after(chat, wish.since)
        if wish.is_following:
            await self._follow(chat)

    async def _ready(self) -> None:
        """Wait until everything that the server has is here; without a limit if it follows."""
        patience_s = PATIENCE_S if self.wish.is_following else READY_S
        try:
            async with asyncio.timeout(patience_s):
                await self.client.ready()
        except TimeoutError:
            words = state_words(self.client.status)
            if not self.wish.is_following:
                raise ServerUnreachable(f"no connection in {READY_S:.0f} s ({words})") from None
            self.tell(words)
            await self.client.ready()

    async def _print_after(self, chat: Chat, since: int) -> None:
        """Print messages and changes since then, in order. The messages are as they are now."""
        self._last = since
        changes = await chat.changes(after=since, limit=PAGE)
        while page := await chat.history(after=self._last, limit=PAGE):
            for message in page:
                changes = await self._print_changes(chat, changes, before=message.sequence)
                self._print([message])
        while changes:
            changes = await self._print_changes(chat, changes, before=None)

    async def _print_changes(
        self, chat: Chat, changes: list[Change], before: int | None
    ) -> list[Change]:
        """Print the changes before a message; returns the rest, or the next page of them."""
        while changes and (before is None or changes[0].sequence < before):
            change = changes.pop(0)
            self._print_change(change, chat.chat_id)
            if not changes:
                changes = await chat.changes(after=change.sequence, limit=PAGE)
        return changes

    async def _follow(self, chat: Chat) -> None:
        is_away = False
        async for event in self.client.events():
            match event:
                case MessageReceived() | MessageStored():
                    if event.message.chat_id == chat.chat_id:
                        self._print([event.message])
                case MessageChanged():
                    if event.chat_id == chat.chat_id:
                        self._print_change(event.change, chat.chat_id)
                case StatusMoved():
                    state = event.status.state
                    # Only that the connection is gone or back, not each try in between.
                    wanted = ConnectionState.READY if is_away else ConnectionState.OFFLINE
                    if state is wanted:
                        is_away = not is_away
                        self.tell(state_words(event.status))
                case _:
                    pass

    def _print(self, messages: Iterable[Message]) -> None:
        for message in messages:
            if message.sequence <= self._last:
                continue
            self._last = message.sequence
            name = message.sender_name or message.sender_id
            if self.wish.is_json:
                self.show(json_line(message, name))
            else:
                self.show(text_line(message, name, self.wish.zone))

    def _print_change(self, change: Change, chat_id: str) -> None:
        if change.sequence <= self._last:
            return
        self._last = change.sequence
        name = change.sender_name or change.sender_id
        if self.wish.is_json:
            self.show(json_change(change, chat_id, name))
        else:
            self.show(change_line(change, name, self.wish.zone))


async def find_chat(client: Client, text: str) -> Chat:
    """The chat that a text names; a direct chat is made if there is none. Raises ClientError and
    InvalidOperation."""
    address = addresses.parse_address(text)
    if isinstance(address, addresses.ByName):
        address = await _choose(client, address.name)
    if isinstance(address, addresses.WithUser):
        return await client.direct(address.username)
    assert isinstance(address, addresses.ById)
    return client.chat(address.chat_id)


async def _choose(client: Client, name: str) -> addresses.ById | addresses.WithUser:
    try:
        chats = await client.chats()
    except ServerUnreachable:
        # Without the server, use the chats that this device knows.
        chats = client.known_chats()
    groups = [
        addresses.Known(chat.chat_id, chat.name)
        for chat in chats
        if chat.type is ChatType.GROUP and chat.name is not None
    ]
    is_user = addresses.may_be_username(name)
    if is_user and any(group.name.casefold() == name.casefold() for group in groups):
        # Only now look up whether there is such a user: a server limits how many names a client may
        # look up. Otherwise the name is a user's, or `direct` says that there is no such user.
        is_user = bool(await client.users(name))
    return addresses.choose(name, groups, is_user=is_user)
