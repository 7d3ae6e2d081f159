"""Drives our own client, `tidewire.client`, in this process."""

import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from tidewire.client.client import Client
from tidewire.client.options import ClientOptions
from tidewire.domain.errors import TidewireError
from tidewire_conformance.adapter import Account, SendRefused, Shown, Ticked

TIME_SCALE: Final = 0.2
SHOWN_MAX: Final = 100_000
SCALED: Final = (
    "backoff_ms",
    "backoff_ms_max",
    "ack_ms",
    "ack_direct_ms",
    "ack_interval_ms",
    "gap_grace_ms",
)


def scaled_options(scale: float) -> ClientOptions:
    """The defaults, with the waits of the contract shortened."""
    options = ClientOptions()
    shorter = {name: max(round(getattr(options, name) * scale), 1) for name in SCALED}
    return replace(options, **shorter)


class SdkAdapter:
    """`kill` removes the socket, the timers and the store's waiting jobs at once; a commit that is
    running at that instant may complete, as when a process is killed."""

    def __init__(
        self, *, time_scale: float = TIME_SCALE, directory: Path | None = None, url: str = ""
    ) -> None:
        """`directory` and `url` are those of an earlier life, whose store is there."""
        self.time_scale = time_scale
        self._options = scaled_options(time_scale)
        self._directory = directory or Path(tempfile.mkdtemp(prefix="tidewire-conformance-"))
        self._store = self._directory / "client.db"
        self._url = url
        self._client: Client | None = None
        self._is_open = False

    @property
    def client(self) -> Client:
        assert self._client is not None
        return self._client

    async def start(self, url: str, account: Account) -> None:
        self._url = url
        self._client = await Client.login(
            url, account.username, account.password, store=self._store, options=self._options
        )
        await self.client.__aenter__()
        self._is_open = True

    async def restart(self) -> None:
        self._client = Client(self._url, store=self._store, options=self._options)
        await self.client.__aenter__()
        self._is_open = True

    async def stop(self) -> None:
        self._is_open = False
        await self.client.close()

    async def kill(self) -> None:
        self._is_open = False
        await _abandon(self.client)

    async def dispose(self) -> None:
        if self._client is not None and self._is_open:
            await self.kill()
        shutil.rmtree(self._directory)

    async def send(self, chat_id: str, text: str) -> None:
        try:
            await self.client.chat(chat_id).send(text)
        except TidewireError as error:
            raise SendRefused(str(error)) from error

    async def messages(self, chat_id: str) -> Sequence[Shown]:
        found = await self.client.chat(chat_id).messages(limit=SHOWN_MAX)
        return [Shown(message.sequence, message.text) for message in found]

    async def ticks(self, chat_id: str) -> Sequence[Ticked]:
        chat = self.client.chat(chat_id)
        stored = await chat.messages(limit=SHOWN_MAX)
        ticked = [
            Ticked(message.text, str(message.tick))
            for message in stored
            if message.tick is not None
        ]
        return [*ticked, *(Ticked(sent.text, str(sent.tick)) for sent in chat.pending())]

    async def read(self, chat_id: str) -> None:
        await self.client.chat(chat_id).read()

    async def state(self) -> str:
        return str(self.client.status.state)

    async def round_trip_ms(self) -> float | None:
        return self.client.driver.core.round_trip_ms


async def _abandon(client: Client) -> None:
    """End a client as if its process were killed: only the file of its store is left."""
    driver = client.driver
    store = driver.store
    with store._news:
        store._jobs.clear()
        store._is_closing = True
        store._news.notify()
    for timer in (driver._timer, driver.writing._handle):
        if timer is not None:
            timer.cancel()
    for task in list(driver._tasks):
        task.cancel()
    sockets = [*driver._leaving] if driver._socket is None else [*driver._leaving, driver._socket]
    driver._socket = None
    for socket in sockets:
        socket._is_let_go = True
        if socket._transport is not None:
            socket._transport.underlying_transport.abort()
        # A handshake that is under way ends by itself; the loop must not end before it.
        await socket.gone()
    if store._thread is not None:
        await asyncio.to_thread(store._thread.join)
    store._database.close()
    await client.rest.close()
