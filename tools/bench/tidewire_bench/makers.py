"""Make what a workload needs, before it begins: people, chats and messages.

In the store of a server that is not running, accounts are made without passwords, and their tokens
are issued with the server's own secret: nothing has to be hashed. On a server that is running,
everything is made over its REST API; slowly, because its limits hold, unless they are raised.
"""

import asyncio
import os
import secrets
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

from tidewire.accounts.keys import KeyRing
from tidewire.accounts.options import AccountOptions
from tidewire.accounts.tokens import AccessTokens
from tidewire.domain.accounts import OpenSession, Secret, Session
from tidewire.domain.chats import CreateDirect, CreateGroup
from tidewire.domain.ids import ChatId, ClientMessageId, UserId
from tidewire.domain.limits import APPEND_SENDS_MAX, GROUP_MEMBERS_MAX
from tidewire.domain.messages import Appended, SendMessage
from tidewire.domain.users import User
from tidewire.ports.storage import Storage
from tidewire.runtime.clock import SystemClock
from tidewire.runtime.id_source import id_source
from tidewire_bench.frames import CONTENT, message_key
from tidewire_bench.rest import API, Rest, data_of, retry_after_s, said
from tidewire_bench.target import LoadImpossible, Person
from tidewire_bench.workload import Progress

AT_ONCE: Final = 500
"""Writes that share a commit."""
WAITS_MAX: Final = 20
"""How often one request is repeated because the server asked to wait."""
_WAIT_S_MAX: Final = 60.0

Item = TypeVar("Item")
Result = TypeVar("Result")


class StoreMaker:
    """Satisfies `workload.Maker`, in a store."""

    def __init__(self, storage: Storage, secret: Secret, progress: Progress) -> None:
        self._storage = storage
        self._options = AccountOptions()
        self._tokens = AccessTokens(KeyRing.of(secret), os.urandom)
        self._clock = SystemClock()
        self._ids = id_source()
        self._progress = progress
        self._count = 0

    async def people(self, count: int) -> list[Person]:
        first = self._count
        self._count += count
        return await self._all("people", range(first, self._count), self._person)

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
                client_message_id=ClientMessageId(message_key(0, number)),
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
        user_id, device_id = self._ids.user_id(now_ms), str(uuid.uuid4())
        name = f"load-{number}"
        user = User(
            user_id=user_id,
            username=name,
            display_name=name,
            created_at_ms=now_ms,
            updated_at_ms=now_ms,
        )
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
        """Make `AT_ONCE` at a time, so that they share their commits."""
        wanted = list(items)
        made: list[Result] = []
        for at in range(0, len(wanted), AT_ONCE):
            self._progress(stage, at, len(wanted))
            made += await asyncio.gather(*(make(item) for item in wanted[at : at + AT_ONCE]))
        return made


class RestMaker:
    """Satisfies `workload.Maker`, over REST."""

    def __init__(self, url: str, progress: Progress) -> None:
        self._rest = Rest(url)
        self._progress = progress
        self._run = secrets.token_hex(4)
        """Part of the names of this run, so that another run can follow on the same server."""
        self._count = 0

    async def people(self, count: int) -> list[Person]:
        made = []
        for number in range(count):
            self._progress("people", number, count)
            made.append(await self._register())
        return made

    async def direct(self, pairs: Sequence[tuple[Person, Person]]) -> list[str]:
        made = []
        for number, (one, other) in enumerate(pairs):
            self._progress("chats", number, len(pairs))
            body = {"type": "direct", "member_ids": [other.user_id]}
            made.append(str((await self._post("/chats", body, one))["chat_id"]))
        return made

    async def group(self, owner: Person, others: Sequence[Person]) -> str:
        members = [other.user_id for other in others]
        body = {"type": "group", "name": "load", "member_ids": members}
        return str((await self._post("/chats", body, owner))["chat_id"])

    async def fill(self, chats: Sequence[tuple[str, Person]], count: int) -> None:
        for done, (chat_id, author) in enumerate(chats):
            for number in range(count):
                self._progress("messages", done * count + number, len(chats) * count)
                body = {"client_message_id": message_key(0, number), "content": CONTENT}
                await self._post(f"/chats/{chat_id}/messages", body, author)

    async def _register(self) -> Person:
        self._count += 1
        name, password = f"load-{self._run}-{self._count}", secrets.token_urlsafe(16)
        device_id = str(uuid.uuid4())
        body = {"username": name, "display_name": name, "password": password}
        made = await self._post("/auth/register", body | {"device_id": device_id}, None)
        tokens = made["tokens"]
        return Person(
            made["user"]["user_id"],
            tokens["access_token"],
            device_id,
            username=name,
            password=password,
            refresh_token=tokens["refresh_token"],
        )

    async def _post(self, path: str, body: Mapping[str, object], actor: Person | None) -> Any:
        """The answer's data. Waits as long as the server asks for. Raises LoadImpossible."""
        waits = 0
        while True:
            answer = await self._rest.ask("POST", API + path, body, actor)
            if answer.is_success:
                return data_of(answer)
            waits += 1
            if answer.status_code not in (429, 503) or waits > WAITS_MAX:
                raise LoadImpossible(f"the server refused POST {API}{path}: {said(answer)}")
            wait_s = max(0.1, retry_after_s(answer.headers, 1.0))
            await asyncio.sleep(min(_WAIT_S_MAX, wait_s))
