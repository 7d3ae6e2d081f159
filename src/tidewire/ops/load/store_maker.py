"""Makes people, logins, chats and messages right in the store of a server that does not run.

Nobody's password is hashed: the tokens are issued with the server's own secret, and nobody has a
password at all.
"""

import asyncio
import os
import uuid
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

from tidewire.accounts.options import AccountOptions
from tidewire.accounts.tokens import AccessTokens
from tidewire.domain.accounts import OpenSession, Secret, Session
from tidewire.domain.chats import CreateDirect, CreateGroup
from tidewire.domain.ids import ChatId, ClientMessageId, UlidSource, UserId
from tidewire.domain.limits import APPEND_SENDS_MAX, GROUP_MEMBERS_MAX
from tidewire.domain.messages import Appended, SendMessage
from tidewire.domain.users import User
from tidewire.engines.sqlite import SqliteStorage
from tidewire.ops.load.frames import CONTENT
from tidewire.ops.load.target import Person
from tidewire.ops.load.workload import Progress
from tidewire.ports.runtime import Clock
from tidewire.ports.storage import Storage

AT_ONCE: Final = 500
"""Writes that share a commit."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class StoreMaker:
    """Satisfies `workload.Maker`."""

    def __init__(
        self,
        storage: Storage,
        secret: Secret,
        *,
        clock: Clock,
        ids: UlidSource,
        progress: Progress,
    ) -> None:
        self._storage = storage
        self._options = AccountOptions()
        self._tokens = AccessTokens(secret, options=self._options, random_bytes=os.urandom)
        self._clock = clock
        self._ids = ids
        self._progress = progress
        self._count = 0

    @classmethod
    async def open(
        cls, data_dir: Path, secret: Secret, *, clock: Clock, ids: UlidSource, progress: Progress
    ) -> "StoreMaker":
        storage = await SqliteStorage.open(data_dir)
        return cls(storage, secret, clock=clock, ids=ids, progress=progress)

    async def close(self) -> None:
        await self._storage.close()

    async def people(self, count: int) -> list[Person]:
        first = self._count
        self._count += count
        numbers = range(first, self._count)
        return await self._all("people", numbers, self._person)

    async def direct(self, pairs: Sequence[tuple[Person, Person]]) -> list[str]:
        return await self._all("chats", pairs, self._direct)

    async def group(self, owner: Person, others: Sequence[Person]) -> str:
        now_ms = self._clock.wall_ms()
        command = CreateGroup(
            chat_id=self._ids.chat_id(now_ms),
            actor_id=UserId(owner.user_id),
            name="load",
            member_ids=[UserId(other.user_id) for other in others],
        )
        members_max = max(GROUP_MEMBERS_MAX, 1 + len(others))
        created = await self._storage.create_group(command, members_max=members_max, now_ms=now_ms)
        return created.chat.chat_id

    async def fill(self, chats: Sequence[tuple[str, Person]], count: int) -> None:
        now_ms = self._clock.wall_ms()
        sends = (
            SendMessage(
                chat_id=ChatId(chat_id),
                sender_id=UserId(author.user_id),
                client_message_id=ClientMessageId(f"00000000-0000-4000-8000-{number:012x}"),
                content=CONTENT,
                message_id=self._ids.message_id(now_ms),
            )
            for chat_id, author in chats
            for number in range(count)
        )
        stored = 0
        while batch := list(islice(sends, APPEND_SENDS_MAX)):
            for outcome in await self._storage.append(batch, now_ms=now_ms):
                if not isinstance(outcome, Appended):
                    raise outcome
            stored += len(batch)
            self._progress("messages", stored, len(chats) * count)

    async def _person(self, number: int) -> Person:
        now_ms = self._clock.wall_ms()
        user_id = self._ids.user_id(now_ms)
        name = f"load-{number}"
        user = User(
            user_id=user_id,
            username=name,
            display_name=name,
            created_at_ms=now_ms,
            updated_at_ms=now_ms,
        )
        device_id = str(uuid.uuid4())
        session = Session(
            session_id=self._ids.session_id(now_ms),
            user_id=user_id,
            device_id=device_id,
            created_at_ms=now_ms,
            last_active_at_ms=now_ms,
            expires_at_ms=now_ms + self._options.session_ms,
        )
        await self._storage.add_user(user)
        opening = OpenSession(session=session, refresh_hash=os.urandom(32))
        await self._storage.open_session(
            opening, sessions_max=self._options.sessions_max, now_ms=now_ms
        )
        token, _ = self._tokens.issue(session, life_ms=self._options.access_token_ms, now_ms=now_ms)
        return Person(user_id, token.reveal(), device_id)

    async def _direct(self, pair: tuple[Person, Person]) -> str:
        now_ms = self._clock.wall_ms()
        command = CreateDirect(
            chat_id=self._ids.chat_id(now_ms),
            actor_id=UserId(pair[0].user_id),
            other_id=UserId(pair[1].user_id),
        )
        return (await self._storage.create_direct(command, now_ms=now_ms)).chat.chat_id

    async def _all(
        self, stage: str, items: Iterable[Item], make: Callable[[Item], Awaitable[Result]]
    ) -> list[Result]:
        """So many at a time: they share their commits."""
        wanted = list(items)
        made: list[Result] = []
        for at in range(0, len(wanted), AT_ONCE):
            self._progress(stage, at, len(wanted))
            made += await asyncio.gather(*(make(item) for item in wanted[at : at + AT_ONCE]))
        return made
