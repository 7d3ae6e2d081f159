"""Names of people by their ids: asked for once, and kept in the store for when nobody answers."""

from collections.abc import Iterable
from typing import Final

import msgspec

from tidewire.client import Chat, Client, ClientError

NAMES_MAX: Final = 1_000
_META: Final = "terminal_names"


class People:
    def __init__(self, client: Client, names_max: int = NAMES_MAX) -> None:
        self._client = client
        self._names_max = names_max
        self._names: dict[str, str] = {}
        self._asked: set[str] = set()

    async def load(self) -> None:
        text = await self._client.driver.store.do(lambda tables: tables.meta(_META))
        if text is not None:
            self._names = msgspec.json.decode(text, type=dict[str, str])

    def name(self, user_id: str) -> str:
        """What somebody is called; his id until that is known."""
        return self._names.get(user_id, user_id)

    def unknown(self, user_ids: Iterable[str]) -> list[str]:
        """Those whose name is not known and was not asked for in vain, each once."""
        return [
            user_id
            for user_id in dict.fromkeys(user_ids)
            if user_id not in self._names and user_id not in self._asked
        ]

    async def learn(self, chat: Chat, senders: Iterable[str]) -> bool:
        """Ask for the names that are missing; True if there is something new. Never raises: a name
        that cannot be had is an id."""
        missing = self.unknown(senders)
        if not missing:
            return False
        found: dict[str, str] = {}
        try:
            found = {one.user_id: one.display_name for one in await chat.members()}
            for user_id in missing:
                if user_id not in found:
                    found[user_id] = (await self._client.user(user_id)).display_name
        except ClientError:
            # Offline, or gone for good. Once a run is often enough for those who are gone.
            if found and len(self._asked) < self._names_max:
                self._asked.update(missing)
        return await self.tell(found)

    async def tell(self, found: dict[str, str]) -> bool:
        """Names that came by themselves; True if there is something new."""
        if all(self._names.get(user_id) == name for user_id, name in found.items()):
            return False
        for user_id, name in found.items():
            self._names.pop(user_id, None)
            self._names[user_id] = name
        for user_id in list(self._names)[: max(0, len(self._names) - self._names_max)]:
            del self._names[user_id]
        text = msgspec.json.encode(self._names).decode()
        await self._client.driver.store.do(lambda tables: tables.set_meta(**{_META: text}))
        return True
