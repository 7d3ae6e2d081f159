"""Makes people, chats and messages on somebody else's server, as anybody would: by its REST API.

Slow, because passwords are hashed and limits hold there; a server for measuring has them raised.
"""

import asyncio
import secrets
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tidewire.ops.load.frames import CONTENT
from tidewire.ops.load.rest_calls import API, Rest
from tidewire.ops.load.target import LoadImpossible, Person
from tidewire.ops.load.workload import Progress

WAITS_MAX: Final = 20
"""How often one request is repeated because the server asked for patience."""
_WAIT_S_MAX: Final = 60.0


class RestMaker:
    """Satisfies `workload.Maker`."""

    def __init__(self, url: str, progress: Progress) -> None:
        self._rest = Rest(url)
        self._progress = progress
        self._run = secrets.token_hex(4)
        """Names of this run, so that another one can follow on the same server."""
        self._count = 0

    async def close(self) -> None:
        """Nothing is kept open."""

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
                key = f"00000000-0000-4000-8000-{number:012x}"
                body = {"client_message_id": key, "content": CONTENT}
                await self._post(f"/chats/{chat_id}/messages", body, author)

    async def _register(self) -> Person:
        self._count += 1
        name = f"load-{self._run}-{self._count}"
        device_id = str(uuid.uuid4())
        password = secrets.token_urlsafe(16)
        body = {
            "username": name,
            "display_name": name,
            "password": password,
            "device_id": device_id,
        }
        answer = await self._post("/auth/register", body, None)
        tokens = answer["tokens"]
        return Person(
            answer["user"]["user_id"],
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
            if answer.is_good:
                return answer.data
            waits += 1
            if answer.status not in (429, 503) or waits > WAITS_MAX:
                raise LoadImpossible(f"the server refused POST {API}{path}: {answer.said}")
            await asyncio.sleep(min(_WAIT_S_MAX, max(0.1, answer.retry_after_s)))
