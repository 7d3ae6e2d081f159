"""The names of users and chats: fetched in the background, kept in the store.

The socket sends only ids. A name is fetched over REST once, and a client that is not connected
shows the names that it fetched before. A caller waits for a name for a moment at most.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final

from tidewire.client.driver import Driver
from tidewire.client.errors import ClientError
from tidewire.client.link import READY
from tidewire.client.model import MessageRow, Names
from tidewire.client.replica import Replica
from tidewire.client.rest import Rest
from tidewire.domain.chats import ChatType
from tidewire.domain.ids import ChatId
from tidewire.wire.rest_models import ChatView, Envelope, UserView

WAIT_S_MAX: Final = 2.0
"""How long a caller that wants to show a name waits for it."""
ONE_BY_ONE_MAX: Final = 5
"""Up to so many chats without a name are fetched one by one; if there are more, all are listed."""
USERS_MAX: Final = 20
"""How many users who are not in a chat any more are looked up at a time."""


class People:
    def __init__(
        self, driver: Driver, rest: Rest, *, list_chats: Callable[[], Awaitable[object]]
    ) -> None:
        self.names = Names()
        self._driver = driver
        self._rest = rest
        self._list_chats = list_chats
        # Chats and users that were asked for on this connection, and are not asked for again.
        self._asked: set[str] = set()
        self._nameless: dict[ChatId, Replica] = {}
        self._task: asyncio.Task[None] | None = None
        driver.on_replica = self.noticed
        driver.on_ready = self._connected

    async def load(self) -> None:
        """Load the names that earlier runs have stored."""
        self.names.learn(await self._driver.store.do(lambda tables: tables.names()))

    # Chats.

    def noticed(self, replica: Replica) -> None:
        """A chat has changed; maybe it has no name yet."""
        if replica.name is None and replica.is_member and replica.chat_id not in self._asked:
            self._nameless[replica.chat_id] = replica
            self._start()

    def _connected(self) -> None:
        self._asked.clear()
        for replica in self._driver.core.replicas.values():
            self.noticed(replica)

    def _start(self) -> None:
        if self._task is None and self._driver.status.state is READY:
            self._task = self._driver.spawn(self._learn_chats())
            self._task.add_done_callback(self._learned)

    def _learned(self, _: "asyncio.Task[None]") -> None:
        self._task = None
        if self._nameless:
            self._start()

    async def _learn_chats(self) -> None:
        wanted = list(self._nameless)
        self._nameless.clear()
        self._asked.update(wanted)
        with suppress(ClientError):
            if len(wanted) > ONE_BY_ONE_MAX:
                await self._list_chats()
                return
            for chat_id in wanted:
                await self._learn_chat(chat_id)

    async def _learn_chat(self, chat_id: str) -> None:
        answer = await self._rest.call(Envelope[ChatView], "GET", f"/chats/{chat_id}")
        self.take_view(answer.data)

    def take_view(self, view: ChatView) -> None:
        """A chat's name and its members' names, as the server has just told them."""
        self.take({member.user_id: member.display_name for member in view.members})
        name = view.name
        if view.type is ChatType.DIRECT:
            own_id = self._driver.core.user_id
            others = [one.display_name for one in view.members if one.user_id != own_id]
            name = others[0] if others else None
        self.name_chat(view.chat_id, name)

    def name_chat(self, chat_id: ChatId, name: str | None) -> None:
        replica = self._driver.core.replicas.get(chat_id)
        if replica is not None and name is not None and name != replica.name:
            replica.name = name
            self._driver.replica_changed(replica)

    async def settled(self) -> None:
        """Wait until the chats have their names, for a moment at most."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=WAIT_S_MAX)

    # People.

    def take(self, names: dict[str, str]) -> None:
        """Add names that the server has just sent."""
        news = self.names.learn(names)
        if news:
            self._driver.write(lambda tables: tables.save_names(news))

    async def know(self, messages: Iterable[MessageRow]) -> None:
        """Fetch the names of the authors, if the server can be asked, for a moment at most."""
        senders: dict[str, list[str]] = {}
        for one in messages:
            senders.setdefault(one.chat_id, []).append(one.sender_id)
            if one.quoted is not None:
                senders[one.chat_id].append(one.quoted.sender_id)
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_S_MAX):
                for chat_id, user_ids in senders.items():
                    await self.learn(chat_id, user_ids)

    def unknown(self, user_ids: Iterable[str]) -> list[str]:
        """Users whose names are missing and were not asked for on this connection."""
        return [
            user_id
            for user_id in dict.fromkeys(user_ids)
            if self.names.get(user_id) is None and user_id not in self._asked
        ]

    async def learn(self, chat_id: str, user_ids: Iterable[str]) -> bool:
        """Ask for the names that are missing; True if there was something to ask. Without a
        connection nothing happens, and a name that cannot be fetched stays unknown."""
        missing = self.unknown(user_ids)
        if not missing or self._driver.status.state is not READY:
            return False
        self._asked.update(missing)
        unasked = set(missing)
        try:
            with suppress(ClientError):
                await self._learn_chat(chat_id)
            gone = [one for one in missing if self.names.get(one) is None]
            for user_id in gone[:USERS_MAX]:
                # They are not in the chat any more.
                with suppress(ClientError):
                    found = await self._rest.call(Envelope[UserView], "GET", f"/users/{user_id}")
                    self.take({user_id: found.data.display_name})
                unasked.discard(user_id)
        finally:
            # A caller waits for a moment only, and at most USERS_MAX are looked up at a time: the
            # others are asked for when a caller needs them again.
            self._asked -= unasked
        return True
