"""The client without `async`, for scripts and notebooks: the same names, each call waits.

>>> with Client.register(url, "carol", "correct horse") as me:
...     chat = me.direct("bob")
...     sent = chat.send("hi")
...     sequence = sent.stored(timeout_s=10)
...     [message.text for message in chat.messages()]
['hi']

A thread of its own runs the event loop; the connection lives while the program does other things.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tidewire.client import chat as chats
from tidewire.client import client as clients
from tidewire.client.errors import ClientClosed
from tidewire.client.tables import MEMORY

if TYPE_CHECKING:
    import concurrent.futures
    import ssl as ssl_module
    from collections.abc import Callable, Coroutine, Iterator, Sequence
    from os import PathLike
    from types import TracebackType

    from tidewire.client import sent as sents
    from tidewire.client.credentials import TokenSource
    from tidewire.client.effects import Status
    from tidewire.client.logins import RegisterWish
    from tidewire.client.model import Event, Message
    from tidewire.client.options import ClientOptions
    from tidewire.domain.chats import ChatType
    from tidewire.domain.delivery import Tick
    from tidewire.wire.rest_models import (
        AccountView,
        FoundUser,
        MemberView,
        SessionView,
        UserView,
    )

T = TypeVar("T")


class _Loop:
    """A thread that runs an event loop, and work that is given to it from outside."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="tidewire-client", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Raises TimeoutError; the work is then given up."""

        async def bounded() -> T:
            async with asyncio.timeout(timeout_s):
                return await work

        future: concurrent.futures.Future[T] = asyncio.run_coroutine_threadsafe(
            bounded(), self._loop
        )
        try:
            return future.result()
        except BaseException:
            # Ctrl-C while waiting: the work is not to go on without us.
            future.cancel()
            raise

    def call(self, act: Callable[[], T]) -> T:
        async def acted() -> T:
            return act()

        return self.run(acted())

    def end(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


class Client:
    """See `tidewire.client.Client`. Use it in `with`."""

    def __init__(
        self,
        url: str,
        *,
        token: TokenSource | None = None,
        store: str | PathLike[str] = MEMORY,
        device_id: str | None = None,
        options: ClientOptions | None = None,
        ssl_context: ssl_module.SSLContext | None = None,
        moved: bool = False,
    ) -> None:
        async def make() -> clients.Client:
            return clients.Client(
                url,
                token=token,
                store=store,
                device_id=device_id,
                options=options,
                ssl_context=ssl_context,
                moved=moved,
            )

        self._start(make())

    def _start(self, making: Coroutine[Any, Any, clients.Client]) -> None:
        self._loop = _Loop()
        try:
            self._client = self._loop.run(making)
        except BaseException:
            self._loop.end()
            raise

    @classmethod
    def _made(cls, making: Coroutine[Any, Any, clients.Client]) -> Self:
        made = cls.__new__(cls)
        made._start(making)
        return made

    @classmethod
    def register(
        cls,
        url: str,
        username: str,
        password: str,
        *,
        store: str | PathLike[str] = MEMORY,
        display_name: str | None = None,
        invite: str | None = None,
        options: ClientOptions | None = None,
        ssl_context: ssl_module.SSLContext | None = None,
    ) -> Self:
        return cls._made(
            clients.Client.register(
                url,
                username,
                password,
                store=store,
                display_name=display_name,
                invite=invite,
                options=options,
                ssl_context=ssl_context,
            )
        )

    @classmethod
    def login(
        cls,
        url: str,
        username: str,
        password: str,
        *,
        store: str | PathLike[str] = MEMORY,
        options: ClientOptions | None = None,
        ssl_context: ssl_module.SSLContext | None = None,
        moved: bool = False,
    ) -> Self:
        return cls._made(
            clients.Client.login(
                url,
                username,
                password,
                store=store,
                options=options,
                ssl_context=ssl_context,
                moved=moved,
            )
        )

    @classmethod
    def open(
        cls,
        url: str,
        username: str,
        password: str,
        *,
        store: str | PathLike[str] = MEMORY,
        register: RegisterWish = "if-missing",
        display_name: str | None = None,
        invite: str | None = None,
        options: ClientOptions | None = None,
        ssl_context: ssl_module.SSLContext | None = None,
        moved: bool = False,
    ) -> Self:
        return cls._made(
            clients.Client.open(
                url,
                username,
                password,
                store=store,
                register=register,
                display_name=display_name,
                invite=invite,
                options=options,
                ssl_context=ssl_context,
                moved=moved,
            )
        )

    def logout(self) -> None:
        self._loop.run(self._client.logout())

    def change_password(self, current: str, new: str) -> int:
        return self._loop.run(self._client.change_password(current, new))

    def sessions(self) -> list[SessionView]:
        return self._loop.run(self._client.sessions())

    def end_session(self, session_id: str) -> None:
        self._loop.run(self._client.end_session(session_id))

    def end_other_sessions(self) -> int:
        return self._loop.run(self._client.end_other_sessions())

    def delete_account(self, password: str) -> None:
        self._loop.run(self._client.delete_account(password))

    def __enter__(self) -> Self:
        try:
            self._loop.run(self._client.__aenter__())
        except BaseException:
            self._loop.end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(linger_s=clients.LINGER_S if error is None else 0.0)

    def close(self, linger_s: float = 0.0) -> None:
        try:
            self._loop.run(self._client.close(linger_s))
        finally:
            self._loop.end()

    @property
    def status(self) -> Status:
        return self._client.status

    @property
    def user_id(self) -> str | None:
        return self._client.user_id

    def ready(self, timeout_s: float | None = None) -> None:
        self._loop.run(self._client.ready(), timeout_s)

    def flush(self, timeout_s: float | None = None) -> None:
        self._loop.run(self._client.flush(), timeout_s)

    def reconnect(self) -> None:
        self._loop.call(self._client.reconnect)

    def new_id(self) -> str:
        return self._loop.call(self._client.new_id)

    def chat(self, chat_id: str) -> Chat:
        return Chat(self._loop, self._client.chat(chat_id))

    def known_chats(self) -> list[Chat]:
        return [Chat(self._loop, one) for one in self._loop.call(self._client.known_chats)]

    def chats(self) -> list[Chat]:
        return [Chat(self._loop, one) for one in self._loop.run(self._client.chats())]

    def direct(self, username: str) -> Chat:
        return Chat(self._loop, self._loop.run(self._client.direct(username)))

    def group(self, name: str, *usernames: str) -> Chat:
        return Chat(self._loop, self._loop.run(self._client.group(name, *usernames)))

    def me(self) -> AccountView:
        return self._loop.run(self._client.me())

    def users(self, *usernames: str) -> list[FoundUser]:
        return self._loop.run(self._client.users(*usernames))

    def find(self, username: str) -> FoundUser:
        return self._loop.run(self._client.find(username))

    def user(self, user_id: str) -> UserView:
        return self._loop.run(self._client.user(user_id))

    def events(self, timeout_s: float | None = None) -> Iterator[Event]:
        """As in the async client. Ends when nothing comes for so long, or the client is closed."""
        events = self._client.events()

        async def following() -> Event | None:
            try:
                return await anext(events)
            except StopAsyncIteration:
                return None

        while True:
            try:
                event = self._loop.run(following(), timeout_s)
            except TimeoutError:
                return
            if event is None:
                return
            yield event

    def confirm(self, event: Event) -> None:
        self._loop.call(lambda: self._client.confirm(event))

    def reply_id(self, message: Message, part: int = 0) -> str:
        return self._client.reply_id(message, part)

    def search(self, text: str, *, chat: Chat | None = None, limit: int = 50) -> list[Message]:
        inner = None if chat is None else chat.inner
        return self._loop.run(self._client.search(text, chat=inner, limit=limit))

    def outbox(self) -> list[Sent]:
        return [Sent(self._loop, one) for one in self._loop.call(self._client.outbox)]

    def wait_closed(self, timeout_s: float | None = None) -> Status:
        return self._loop.run(self._client.wait_closed(), timeout_s)


class Chat:
    """See `tidewire.client.Chat`."""

    def __init__(self, loop: _Loop, inner: chats.Chat) -> None:
        self._loop = loop
        self.inner = inner
        self.chat_id = inner.chat_id

    @property
    def type(self) -> ChatType | None:
        return self.inner.type

    @property
    def name(self) -> str | None:
        return self.inner.name

    @property
    def is_member(self) -> bool:
        return self.inner.is_member

    @property
    def is_synced(self) -> bool:
        return self.inner.is_synced

    @property
    def unread(self) -> int:
        return self.inner.unread

    @property
    def is_hidden(self) -> bool:
        return self.inner.is_hidden

    @property
    def last_sequence(self) -> int:
        return self.inner.last_sequence

    def send(
        self, text: str, *, client_message_id: str | None = None, seen: int | None = None
    ) -> Sent:
        sending = self.inner.send(text, client_message_id=client_message_id, seen=seen)
        return Sent(self._loop, self._loop.run(sending))

    def reply(self, message: Message, text: str, *, part: int = 0) -> Sent:
        return Sent(self._loop, self._loop.run(self.inner.reply(message, text, part=part)))

    def pending(self) -> list[Sent]:
        return [Sent(self._loop, one) for one in self._loop.call(self.inner.pending)]

    def typing(self, is_typing: bool = True) -> None:
        self._loop.call(lambda: self.inner.typing(is_typing))

    def read(self, through: Message | int | None = None) -> None:
        self._loop.run(self.inner.read(through))

    def messages(
        self,
        *,
        before: int | None = None,
        after: int = 0,
        limit: int = chats.HISTORY_DEFAULT,
    ) -> list[Message]:
        return self._loop.run(self.inner.messages(before=before, after=after, limit=limit))

    def lost(self, limit: int = chats.HISTORY_DEFAULT) -> list[Message]:
        return self._loop.run(self.inner.lost(limit))

    def history(
        self,
        *,
        before: int | None = None,
        after: int | None = None,
        around: int | None = None,
        limit: int = chats.HISTORY_DEFAULT,
    ) -> list[Message]:
        return self._loop.run(
            self.inner.history(before=before, after=after, around=around, limit=limit)
        )

    def members(self) -> Sequence[MemberView]:
        return self._loop.run(self.inner.members())

    def add(self, who: str) -> None:
        self._loop.run(self.inner.add(who))

    def remove(self, who: str) -> None:
        self._loop.run(self.inner.remove(who))

    def leave(self, *, do_not_add_again: bool = False) -> None:
        self._loop.run(self.inner.leave(do_not_add_again=do_not_add_again))

    def allow_adding(self) -> None:
        self._loop.run(self.inner.allow_adding())

    def hand_over(self, user_id: str) -> None:
        self._loop.run(self.inner.hand_over(user_id))

    def close(self) -> None:
        self._loop.run(self.inner.close())

    def hide(self) -> None:
        self._loop.run(self.inner.hide())

    def unhide(self) -> None:
        self._loop.run(self.inner.unhide())

    def rename(self, name: str) -> None:
        self._loop.run(self.inner.rename(name))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Chat) and other.chat_id == self.chat_id

    def __hash__(self) -> int:
        return hash(self.chat_id)

    def __repr__(self) -> str:
        return f"Chat({self.chat_id})"


class Sent:
    """See `tidewire.client.Sent`. The waits raise TimeoutError."""

    def __init__(self, loop: _Loop, inner: sents.Sent) -> None:
        self._loop = loop
        self.inner = inner

    @property
    def client_message_id(self) -> str:
        return self.inner.client_message_id

    @property
    def chat_id(self) -> str:
        return self.inner.chat_id

    @property
    def text(self) -> str:
        return self.inner.text

    @property
    def sequence(self) -> int | None:
        return self.inner.sequence

    @property
    def code(self) -> str | None:
        return self.inner.code

    @property
    def reason(self) -> str | None:
        return self.inner.reason

    @property
    def tick(self) -> Tick:
        return self.inner.tick

    def stored(self, timeout_s: float | None = None) -> int:
        return self._loop.run(self.inner.stored(), timeout_s)

    def delivered(self, timeout_s: float | None = None) -> None:
        self._loop.run(self.inner.delivered(), timeout_s)

    def read(self, timeout_s: float | None = None) -> None:
        self._loop.run(self.inner.read(), timeout_s)

    def retry(self) -> bool:
        return self._loop.run(self.inner.retry())

    def drop(self) -> bool:
        return self._loop.run(self.inner.drop())

    def __repr__(self) -> str:
        return repr(self.inner)


__all__ = ["Chat", "Client", "ClientClosed", "Sent"]
