"""The client: one person on one device, with a store that outlives the process."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from typing import TYPE_CHECKING, Final, Self, get_args
from urllib.parse import urlsplit

from tidewire.client.chat import Chat
from tidewire.client.connection import READY
from tidewire.client.credentials import Credentials, RegisterWish, TokenSource
from tidewire.client.driver import Driver
from tidewire.client.errors import ClientClosed, ClientError, RefusedByServer
from tidewire.client.listening import Confirmations, Events
from tidewire.client.model import Event, Message, message_of, reply_id
from tidewire.client.options import ClientOptions
from tidewire.client.people import People
from tidewire.client.replica import first_record
from tidewire.client.rest import Rest
from tidewire.client.schema import MEMORY
from tidewire.client.store import Store
from tidewire.domain.chats import ChatType
from tidewire.domain.errors import ErrorCode
from tidewire.domain.ids import USER_PREFIX, has_form
from tidewire.domain.limits import LOOKUP_NAMES_MAX
from tidewire.wire.rest_models import (
    AccountView,
    ChatListEntry,
    ChatView,
    CreatedChatView,
    Envelope,
    FoundUser,
    LookupResult,
    Page,
    RevokedCount,
    SessionView,
    UserView,
)
from tidewire.wire.rest_requests import ChangePassword, CreateChat, DeleteMe, Logout, LookupUsers

if TYPE_CHECKING:
    import ssl as ssl_module
    from collections.abc import Sequence
    from os import PathLike
    from types import TracebackType

    from tidewire.client.effects import Status
    from tidewire.client.sent import Sent

LINGER_S: Final = 5.0
IDS_AT_ONCE: Final = 64
FOUND_MAX: Final = 10_000
"""How many users are remembered by user name; at least as many as a group can have."""
SOCKET_PATH: Final = "/v1/ws"


class Client:
    """A user on a device. Use it in `async with`; it connects and reconnects by itself.

    `url` is the server's (`https://chat.example.org`). `token` is an access token, or a function
    that returns one (it may be async); without it the login in the store is used. `store` is a file
    that only this device uses, or `:memory:`. `moved`: the server has a new address, and the store
    takes it over. No method waits for the network unless its description says so.

    >>> async def hello():
    ...     async with await Client.register(url, "alice", "correct horse", store=file) as me:
    ...         chat = await me.direct("bob")
    ...         sent = await chat.send("hi")
    ...         await sent.stored()
    ...     async with Client(url, store=file) as me:  # the login is in the store
    ...         return [message.text for message in await me.chat(chat.chat_id).messages()]
    >>> run(hello())
    ['hi']
    """

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
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ClientError(f"{url!r} is no address of a server: it begins with http or https")
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self.options = options or ClientOptions()
        self.rest = Rest(self.url, ssl_context=ssl_context)
        self._store_path = str(store)
        self._device_id = None if device_id is None else device_id.lower()
        self._ssl_context = ssl_context
        self._is_moved = moved
        self._credentials = Credentials(token, rest=self.rest, wall_ms=_wall_ms)
        self._store: Store | None = None
        self._driver: Driver | None = None
        self._people: People | None = None
        self._confirmations: Confirmations | None = None
        self._id_bytes: list[bytes] = []
        self._found: dict[str, FoundUser] = {}

    # Accounts.

    @classmethod
    async def register(
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
        """Make an account, and log this device in: `async with await Client.register(…) as me`."""
        client = cls(url, store=store, options=options, ssl_context=ssl_context)
        return await client._enter(username, password, "always", display_name, invite)

    @classmethod
    async def login(
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
        """Log this device in. Afterwards `Client(url, store=…)` needs no password."""
        client = cls(url, store=store, options=options, ssl_context=ssl_context, moved=moved)
        return await client._enter(username, password, None)

    @classmethod
    async def open(
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
        """Log in as this user, in every run of a program: `async with await Client.open(…)`.

        If the store has a login, that is used, also while the server cannot be reached. Otherwise
        this device logs in; if there is no such account, it is made (`register="if-missing"`), or
        that is an error (`"never"`). `"always"` makes an account, and fails if there is one.
        """
        if register not in get_args(RegisterWish):
            raise ValueError(f"register is one of {', '.join(get_args(RegisterWish))}")
        client = cls(url, store=store, options=options, ssl_context=ssl_context, moved=moved)
        return await client._enter(username, password, register, display_name, invite)

    async def _enter(
        self,
        username: str,
        password: str,
        register: RegisterWish | None,
        display_name: str | None = None,
        invite: str | None = None,
    ) -> Self:
        """Log in; if `register` is given, as `open` says."""
        try:
            await self._open()
            if register is None:
                await self._credentials.login(username, password)
            else:
                await self._credentials.open(username, password, register, display_name, invite)
        except BaseException:
            await self.close()
            raise
        return self

    async def logout(self) -> None:
        """End this login, on the server and here. The store keeps its messages."""
        await self.rest.call(type(None), "POST", "/auth/logout", Logout())
        await self._credentials.forget()

    async def change_password(self, current: str, new: str) -> int:
        """Change the password, and end all other logins; returns how many. This one stays.

        Raises RefusedByServer (INVALID_CREDENTIALS: the current one is wrong; VALIDATION_ERROR;
        RATE_LIMITED). After ServerUnreachable it is not known which of the two is valid.
        """
        body = ChangePassword(current_password=current, new_password=new)
        answer = await self.rest.call(Envelope[RevokedCount], "POST", "/auth/password", body)
        return answer.data.revoked_count

    async def sessions(self) -> list[SessionView]:
        """Where this person is logged in, the oldest login first."""
        return list((await self.rest.call(Page[SessionView], "GET", "/sessions")).data)

    async def end_session(self, session_id: str) -> None:
        """End one of the person's own logins. Raises RefusedByServer (NOT_FOUND)."""
        await self.rest.call(type(None), "DELETE", f"/sessions/{session_id}")

    async def end_other_sessions(self) -> int:
        """End all logins except this one and those of bots; returns how many."""
        answer = await self.rest.call(Envelope[RevokedCount], "DELETE", "/sessions")
        return answer.data.revoked_count

    async def delete_account(self, password: str, *, erase_messages: bool = False) -> None:
        """Delete the account, for ever: it leaves its groups, and all its sessions end. Messages
        stay, as those of a deleted account; with `erase_messages` the server deletes them in all
        chats, soon after. This store keeps what it has.

        Raises RefusedByServer (INVALID_CREDENTIALS, RATE_LIMITED).
        """
        body = DeleteMe(password=password, erase_messages=erase_messages)
        await self.rest.call(type(None), "POST", "/users/me/deletion", body)
        await self._credentials.forget()

    # Beginning and end.

    async def __aenter__(self) -> Self:
        try:
            await self._open()
            assert self._store is not None
            driver = Driver(
                socket_url=self.url.replace("http", "ws", 1) + SOCKET_PATH,
                ssl_context=self._ssl_context,
                store=self._store,
                credentials=self._credentials,
                options=self.options,
                new_id=self.new_id,
            )
            await driver.load()
            people = People(driver, self.rest, list_chats=self.chats)
            await people.load()
        except BaseException:
            await self.close()
            raise
        self._driver, self._people = driver, people
        self._confirmations = Confirmations(driver)
        driver.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close(linger_s=LINGER_S if error is None else 0.0)

    async def close(self, linger_s: float = 0.0) -> None:
        """Close the client. The outbox gets `linger_s` to be sent; the rest stays on the disk."""
        if self._driver is not None:
            await self._driver.close(linger_s)
        elif self._store is not None:
            await self._store.close()
        await self.rest.close()

    async def _open(self) -> str:
        """Open the store and check whose it is; returns the device's id."""
        if self._store is None:
            self._store = Store(self._store_path)
        await self._credentials.attach(
            self._store,
            url=self.url,
            is_moved=self._is_moved,
            device_id=self._device_id,
            new_id=self.new_id(),
        )
        self.rest.headers = {"X-Device-ID": self._credentials.device_id}
        self.rest.token = self._credentials.token
        return self._credentials.device_id

    # Who and how.

    @property
    def driver(self) -> Driver:
        """The inside of the client, for code that is built on it."""
        if self._driver is None:
            raise ClientClosed("not opened yet: use it in 'async with'")
        return self._driver

    @property
    def people(self) -> People:
        """The names of users and chats."""
        if self._people is None:
            raise ClientClosed("not opened yet: use it in 'async with'")
        return self._people

    @property
    def status(self) -> Status:
        """offline, connecting, syncing, ready or closed, and why."""
        return self.driver.status

    @property
    def user_id(self) -> str | None:
        """Our own id; None until the server has said it for the first time."""
        return self.driver.core.user_id

    async def ready(self) -> None:
        """Wait until this device has everything that the server has, including the names of chats
        unless these take long. Raises ClientClosed."""
        driver = self.driver
        await driver.waits.until_change(lambda: driver.status.state is READY)
        await self.people.settled()

    async def flush(self) -> None:
        """Wait until nothing is left to send; failed messages do not count. What was sent is in
        `chat.messages()` then."""
        driver = self.driver
        await driver.waits.until_change(lambda: driver.is_flushed)

    def reconnect(self) -> None:
        """Connect now, if the client is waiting for its next try."""
        self.driver.apply(self.driver.core.start(self.driver.now()))

    def new_id(self) -> str:
        """A new `client_message_id`."""
        # One system call for many ids: a call for each would be most of the cost of an id.
        if not self._id_bytes:
            fresh = os.urandom(16 * IDS_AT_ONCE)
            self._id_bytes = [fresh[at : at + 16] for at in range(0, len(fresh), 16)]
        return str(uuid.UUID(bytes=self._id_bytes.pop(), version=4))

    # Chats.

    def chat(self, chat_id: str) -> Chat:
        """A chat by its id. Does not ask the server."""
        return Chat(self, chat_id)

    def known_chats(self) -> list[Chat]:
        """The chats of the user, as far as this device knows them. Does not ask the server."""
        return [
            Chat(self, replica.chat_id)
            for replica in self.driver.core.replicas.values()
            if replica.is_member
        ]

    async def chats(self) -> list[Chat]:
        """All chats, the one with the newest activity first, with their names; asks the server."""
        found: list[Chat] = []
        cursor: str | None = None
        while True:
            page = await self.rest.call(
                Page[ChatListEntry],
                "GET",
                "/chats",
                params={"limit": 100, **({} if cursor is None else {"cursor": cursor})},
            )
            for entry in page.data:
                other = entry.other_member
                if other is not None:
                    self.people.take({other.user_id: other.display_name})
                self._adopt(entry, entry.name if other is None else other.display_name)
                found.append(Chat(self, entry.chat_id))
            cursor = page.pagination.next_cursor
            if cursor is None:
                return found

    async def direct(self, username: str) -> Chat:
        """The direct chat with a user, made if there is none. Raises RefusedByServer."""
        key = "direct:" + username.casefold()
        driver = self.driver
        known = await driver.store.do(lambda tables: tables.meta(key))
        if known is None:
            user = await self.find(username)
            made = await self._create(
                CreateChat(type=ChatType.DIRECT, member_ids=[user.user_id]), user.display_name
            )
            known = made.chat_id
            await driver.store.do(lambda tables: tables.set_meta(**{key: made.chat_id}))
        return Chat(self, known)

    async def group(self, name: str, *usernames: str) -> Chat:
        """A new group with these people."""
        found = await self._find_all(usernames)
        body = CreateChat(
            type=ChatType.GROUP, name=name, member_ids=[user.user_id for user in found]
        )
        made = await self._create(body, name)
        return Chat(self, made.chat_id)

    async def _create(self, body: CreateChat, name: str) -> CreatedChatView:
        made = (
            await self.rest.call(Envelope[CreatedChatView], "POST", "/chats", body, is_once=True)
        ).data
        self.people.take({member.user_id: member.display_name for member in made.members})
        # The push about the new chat may have come before, and it has ids only.
        self.people.name_chat(made.chat_id, name)
        if made.chat_id not in self.driver.core.replicas:
            view = (await self.rest.call(Envelope[ChatView], "GET", f"/chats/{made.chat_id}")).data
            self._adopt(view, name)
        return made

    def _adopt(self, view: ChatView | ChatListEntry, name: str | None) -> None:
        mine = view.my_membership
        record = first_record(
            view.chat_id,
            view.type,
            start=max(mine.last_acked_sequence, mine.joined_sequence),
            head=view.current_sequence,
            name=name,
            membership_version=view.membership_version,
        )
        self.driver.apply(self.driver.core.adopt(record, self.driver.now()))

    # People.

    async def me(self) -> AccountView:
        return (await self.rest.call(Envelope[AccountView], "GET", "/users/me")).data

    async def users(self, *usernames: str) -> list[FoundUser]:
        """The users with these user names; names that no user has are left out."""
        answer = await self.rest.call(
            Envelope[LookupResult], "POST", "/users/lookup", LookupUsers(usernames=list(usernames))
        )
        return list(answer.data.users)

    async def find(self, username: str) -> FoundUser:
        """A user by user name. Raises RefusedByServer (USER_NOT_FOUND)."""
        [found] = await self._find_all([username])
        return found

    async def id_of(self, who: str) -> str:
        """The id of a user who is named by user name or by id."""
        return who if has_form(who, USER_PREFIX) else (await self.find(who)).user_id

    async def _find_all(self, usernames: Sequence[str]) -> list[FoundUser]:
        """Users in this order. A user who was found once is not looked up again: servers limit how
        many names a client may look up."""
        missing = [name for name in usernames if name.casefold() not in self._found]
        for begin in range(0, len(missing), LOOKUP_NAMES_MAX):
            for user in await self.users(*missing[begin : begin + LOOKUP_NAMES_MAX]):
                if len(self._found) >= FOUND_MAX:
                    self._found.clear()
                self._found[user.username.casefold()] = user
        for name in usernames:
            if name.casefold() not in self._found:
                raise RefusedByServer(
                    ErrorCode.USER_NOT_FOUND, f"there is no user named {name!r}", status=404
                )
        return [self._found[name.casefold()] for name in usernames]

    async def user(self, user_id: str) -> UserView:
        """The public view of a user, by id."""
        return (await self.rest.call(Envelope[UserView], "GET", f"/users/{user_id}")).data

    # Events, search, the outbox.

    def events(self) -> Events:
        """The stream of events, in stored order: `async for event in me.events()`.

        Going on to the next event confirms the last one; see also `confirm`. The stream begins with
        the events that were not confirmed, in this run or in earlier ones.

        >>> async def echo(me):
        ...     async for event in me.events():
        ...         if isinstance(event, MessageReceived):
        ...             chat = me.chat(event.message.chat_id)
        ...             await chat.reply(event.message, f"you said {event.message.text}")
        >>> run(asked(echo, "hi"))
        'you said hi'
        """
        assert self._confirmations is not None
        return Events(self.driver, self._confirmations, self.people, self.chat)

    def confirm(self, event: Event) -> None:
        """Mark this event and all before it as done: they do not come again. The loop does this by
        itself; after a `break` the application has to do it."""
        assert self._confirmations is not None
        self._confirmations.confirm(event)

    def reply_id(self, message: Message, part: int = 0) -> str:
        """The `client_message_id` of our reply to this message, the same in every run."""
        return reply_id(self.user_id or "", message, part)

    async def search(
        self, text: str, *, chat: Chat | None = None, limit: int = 50
    ) -> list[Message]:
        """Messages in the store that contain a text, newest first. Does not ask the server."""
        chat_id = None if chat is None else chat.chat_id
        driver = self.driver
        kept = await driver.look_up(lambda tables: tables.search(text, chat_id, limit))
        names = self.people.names
        return [
            message_of(
                one, driver.core.replicas.get(one.chat_id), names, acts=Chat(self, one.chat_id)
            )
            for one in kept
        ]

    def outbox(self) -> list[Sent]:
        """Everything that waits to be sent, changes of messages and failed ones included, oldest
        first."""
        sending = self.driver.sending
        return [sending.handle_of(entry) for entry in self.driver.core.outbox.entries()]

    async def wait_closed(self) -> Status:
        """Wait until the client is closed, for any reason; returns the status with it."""
        driver = self.driver
        try:
            await driver.waits.until_change(lambda: False)
        except ClientClosed:
            await asyncio.sleep(0)
        return driver.status


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
