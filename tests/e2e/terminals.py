"""People in front of terminals: Textual's pilot on a real server. Holds no test."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC
from pathlib import Path
from typing import Final

from textual.events import Key
from textual.pilot import Pilot

from tests.e2e.chatting import PASSWORD, PATIENCE_S, Site, eventually
from tests.support.ports import free_port
from tidewire.client import Chat, Client, ClientOptions
from tidewire.terminal.app import ChatApp, ChatScreen
from tidewire.terminal.lines import MARKS
from tidewire.terminal.widgets import MessageView
from tidewire.terminal.window import WINDOW_MAX

SIZE: Final = (80, 24)
QUICK: Final = ClientOptions(backoff_ms=50, backoff_ms_max=200, ack_ms=20)


class SteadySite(Site):
    """A server that comes back at the same address."""

    def __init__(self, data_dir: Path, **settings: int | str) -> None:
        super().__init__(data_dir, server__port=free_port(), **settings)


async def register(site: Site, store: Path, username: str, display_name: str) -> Client:
    """Somebody new; not connected yet."""
    return await Client.register(
        site.url, username, PASSWORD, store=store, display_name=display_name, options=QUICK
    )


async def login(site: Site, store: Path, username: str) -> Client:
    return await Client.login(site.url, username, PASSWORD, store=store, options=QUICK)


async def held(client: Client, chat: Chat, through: int) -> None:
    """Wait until a device holds a chat up to here: what the server has stored, and told its author
    so, may still be on its way to the others."""
    await eventually(
        lambda: client.chat(chat.chat_id).last_sequence >= through, f"{chat.chat_id} has not come"
    )


class Terminal:
    """Somebody's terminal with the chat on it."""

    def __init__(self, app: ChatApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot

    @property
    def screen(self) -> ChatScreen:
        return self.app.screen_of_chats

    @property
    def view(self) -> MessageView:
        return self.screen.message_view

    @property
    def shown(self) -> str:
        """What is on the screen, dialogs included."""
        return "\n".join(strip.text for strip in self.app.screen._compositor.render_strips())

    @property
    def head(self) -> str:
        return self.shown.partition("\n")[0]

    def line(self, text: str) -> str:
        """The first line of the conversation or the list that has this text."""
        return next((line for line in self.shown.splitlines() if text in line), "")

    def mark(self, text: str) -> str:
        """The mark at the end of a message."""
        line = self.line(text).rstrip(" ▁▂▃▄▅▆▇█")
        return next((m for m in sorted(MARKS.values(), key=len)[::-1] if line.endswith(m)), "")

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until the screen is so."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not is_so():
                    await self.pilot.pause(0.01)
        except TimeoutError:
            raise AssertionError(self.shown) from None

    async def sees(self, *texts: str) -> None:
        await self.until(lambda: all(text in self.shown for text in texts))

    async def press(self, *keys: str) -> None:
        """Key by key, as fingers do: each is dealt with before the next. On a busy machine a pilot
        takes a program that has no turn for one that has nothing to do."""
        for key in keys:
            screen = self.app.screen
            await self.pilot.press(key)
            if self.app.screen is not screen:
                # What has come up takes the next key.
                await self.pilot.pause()

    def press_at_once(self, *keys: str) -> None:
        """As a slow line brings them: all in one piece."""
        driver = self.app._driver
        assert driver is not None
        for key in keys:
            pressed = Key(key, None)
            pressed.set_sender(self.app)
            driver.send_message(pressed)

    async def type(self, text: str) -> None:
        names = {" ": "space", "\n": "ctrl+j"}
        await self.press(*(names.get(letter, letter) for letter in text))

    async def write(self, text: str) -> None:
        """Write a message and send it."""
        await self.until(lambda: self.screen.composer.has_focus)
        await self.type(text)
        await self.until(lambda: self.screen.composer.text == text)
        await self.press("enter")
        await self.until(lambda: not self.screen.composer.text)

    async def write_to(self, username: str) -> None:
        """Open the direct chat with somebody."""
        await self.press("ctrl+n")
        await self.sees("User name")
        await self.type(username)
        await self.press("enter")
        await self.until(lambda: self.app.screen is self.screen)
        # The dialog is gone before its chat is there to write in.
        chat = await self.screen.state.client.direct(username)
        await self.until(lambda: self.screen.state.chat == chat and self.screen.composer.has_focus)


class PatientApp(ChatApp):
    """On a busy machine a notice is gone before a test has looked; here it is left for longer."""

    NOTIFICATION_TIMEOUT = PATIENCE_S


@asynccontextmanager
async def terminal(
    client: Client,
    username: str,
    size: tuple[int, int] = SIZE,
    *,
    window_max: int = WINDOW_MAX,
) -> AsyncIterator[Terminal]:
    """A terminal with the chat of a client that is open."""
    app = PatientApp(
        client,
        username=username,
        zone=UTC,
        now_ms=lambda: time.time_ns() // 1_000_000,
        window_max=window_max,
    )
    async with app.run_test(size=size, notifications=True) as pilot:
        shown = Terminal(app, pilot)
        await shown.until(lambda: app.screen is app.screen_of_chats)
        yield shown
