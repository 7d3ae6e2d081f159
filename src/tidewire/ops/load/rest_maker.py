"""Makes people, chats and messages on somebody else's server, as anybody would: by its REST API.

Slow, because passwords are hashed and limits hold there; a server for measuring has them raised.
"""

import asyncio
import http.client
import secrets
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from tidewire.ops.load.frames import CONTENT
from tidewire.ops.load.target import LoadImpossible, Person
from tidewire.ops.load.workload import Progress

TIMEOUT_S: Final = 30.0
WAITS_MAX: Final = 20
"""How often one request is repeated because the server asked for patience."""
_WAIT_S_MAX: Final = 60.0


class RestMaker:
    """Satisfies `workload.Maker`."""

    def __init__(self, url: str, progress: Progress) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise LoadImpossible(f"{url} is not a server's address; give http://HOST:PORT")
        self._host = parts.netloc
        self._is_secure = parts.scheme == "https"
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
        body = {
            "username": name,
            "display_name": name,
            "password": secrets.token_urlsafe(16),
            "device_id": device_id,
        }
        answer = await self._post("/auth/register", body, None)
        return Person(answer["user"]["user_id"], answer["tokens"]["access_token"], device_id)

    async def _post(self, path: str, body: Mapping[str, object], actor: Person | None) -> Any:
        """The answer's data. Waits as long as the server asks for. Raises LoadImpossible."""
        sent, waits = msgspec.json.encode(body), 0
        while True:
            status, retry_after_s, answer = await asyncio.to_thread(
                self._exchange, path, sent, actor
            )
            if status in (200, 201):
                return msgspec.json.decode(answer)["data"]
            waits += 1
            if status not in (429, 503) or waits > WAITS_MAX:
                said = answer.decode(errors="replace")[:300]
                raise LoadImpossible(f"the server refused POST /api/v1{path}: {status} {said}")
            await asyncio.sleep(min(_WAIT_S_MAX, max(0.1, retry_after_s)))

    def _exchange(self, path: str, body: bytes, actor: Person | None) -> tuple[int, float, bytes]:
        headers = {"Content-Type": "application/json"}
        if actor is not None:
            headers |= {"Authorization": f"Bearer {actor.token}", "X-Device-ID": actor.device_id}
        kind = http.client.HTTPSConnection if self._is_secure else http.client.HTTPConnection
        connection = kind(self._host, timeout=TIMEOUT_S)
        try:
            connection.request("POST", f"/api/v1{path}", body, headers)
            response = connection.getresponse()
            retry_after = response.headers.get("Retry-After", "")
            wait_s = float(retry_after) if retry_after.isdecimal() else 1.0
            return response.status, wait_s, response.read()
        finally:
            connection.close()
