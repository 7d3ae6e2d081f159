"""Requests to a server's REST API, each on a connection of its own."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from tidewire_bench.target import LoadImpossible, Person

API: Final = "/api/v1"
TIMEOUT_S: Final = 30.0


class Rest:
    """Asks one server."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise LoadImpossible(f"{url} is not a server's address; give http://HOST:PORT")
        self._url = url.rstrip("/")

    async def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        actor: Person | None = None,
    ) -> httpx.Response:
        """Raises httpx.HTTPError if there is no answer."""
        headers = {}
        if actor is not None:
            headers = {"Authorization": f"Bearer {actor.token}", "X-Device-ID": actor.device_id}
        async with httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False) as client:
            return await client.request(method, self._url + path, json=body, headers=headers)

    async def metrics(self) -> dict[str, float]:
        """The server's metrics, by name and labels."""
        page = (await self.ask("GET", "/metrics")).text
        lines = (line.rpartition(" ") for line in page.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in lines if name}


def data_of(answer: httpx.Response) -> Any:
    return answer.json()["data"]


def said(answer: httpx.Response) -> str:
    return f"{answer.status_code} {answer.text[:300]}"


def retry_after_s(headers: Mapping[str, str], otherwise_s: float) -> float:
    """How long the server asks to wait."""
    told = headers.get("Retry-After", "")
    return float(told) if told.isdecimal() else otherwise_s
