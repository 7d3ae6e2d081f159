"""One request to a server's REST API, in a thread, on a connection of its own."""

import asyncio
import http.client
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from tidewire.ops.load.target import LoadImpossible, Person

API: Final = "/api/v1"
TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, whatever it was."""

    status: int
    retry_after_s: float
    body: bytes

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300

    @property
    def data(self) -> Any:
        return msgspec.json.decode(self.body)["data"] if self.body else None

    @property
    def said(self) -> str:
        return f"{self.status} {self.body.decode(errors='replace')[:300]}"


class Rest:
    """Asks one server."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise LoadImpossible(f"{url} is not a server's address; give http://HOST:PORT")
        self._host = parts.netloc
        self._is_secure = parts.scheme == "https"

    async def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        actor: Person | None = None,
    ) -> Answer:
        """Raises OSError or http.client.HTTPException if there is no answer."""
        sent = None if body is None else msgspec.json.encode(body)
        return await asyncio.to_thread(self._exchange, method, path, sent, actor)

    def _exchange(self, method: str, path: str, body: bytes | None, actor: Person | None) -> Answer:
        headers = {"Connection": "close"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if actor is not None:
            headers |= {"Authorization": f"Bearer {actor.token}", "X-Device-ID": actor.device_id}
        kind = http.client.HTTPSConnection if self._is_secure else http.client.HTTPConnection
        connection = kind(self._host, timeout=TIMEOUT_S)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            retry_after = response.headers.get("Retry-After", "")
            wait_s = float(retry_after) if retry_after.isdecimal() else 1.0
            return Answer(response.status, wait_s, response.read())
        finally:
            connection.close()
