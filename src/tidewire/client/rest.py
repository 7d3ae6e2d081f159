"""The server's REST interface, as far as a client needs it. httpx, and the models of `wire`."""

import asyncio
import importlib
import ssl
import sys
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from tidewire import __version__
from tidewire.client.errors import RefusedByServer, ServerUnreachable
from tidewire.domain.errors import ErrorCode
from tidewire.wire.rest_models import ErrorBody
from tidewire.wire.rest_requests import IDEMPOTENCY_FIELD

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

TIMEOUT_S: Final = 15.0
TRIES_MAX: Final = 3
WAIT_S_MAX: Final = 5.0
_WAIT_S: Final = 0.3
USER_AGENT: Final = f"tidewire-python/{__version__}"
"""What a person sees in the list of sessions."""


class Rest:
    def __init__(self, url: str, *, ssl_context: ssl.SSLContext | None) -> None:
        self._url = url + "/api/v1"
        # Without TLS there is nothing to verify, and making an SSL context takes longer than a
        # request.
        self._verify: ssl.SSLContext | bool = url.startswith("https:") and (ssl_context or True)
        self._http: httpx.AsyncClient | None = None
        self.headers: dict[str, str] = {}
        self.token: Callable[[bool], Awaitable[str]] | None = None
        """Gives the access token; a new one if the argument says that the last was refused."""

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    async def call(
        self,
        answer: type[T],
        method: str,
        path: str,
        body: msgspec.Struct | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        is_public: bool = False,
        is_once: bool = False,
    ) -> T:
        """Send a request and decode the answer. If it is safe to repeat, it is tried a few times.

        `is_once`: a key makes the server carry this out once, however often it is sent. Raises
        RefusedByServer and ServerUnreachable.
        """
        headers = dict(self.headers)
        if is_once:
            headers[IDEMPOTENCY_FIELD] = str(uuid.uuid4())
        is_repeatable = is_once or method in ("GET", "PUT", "DELETE", "PATCH")
        has_new_token = False
        tries = 0
        while True:
            tries += 1
            if not is_public and self.token is not None:
                headers["Authorization"] = f"Bearer {await self.token(has_new_token)}"
            try:
                return await self._ask(answer, method, path, body, params, headers)
            except RefusedByServer as refusal:
                if _is_of_the_token(refusal) and not is_public and not has_new_token:
                    has_new_token = True
                    continue
                wait_s = _wait_s(refusal, tries)
                if refusal.status not in (429, 503) or wait_s > WAIT_S_MAX:
                    raise
                if tries >= TRIES_MAX or not is_repeatable:
                    raise
            except ServerUnreachable:
                if tries >= TRIES_MAX or not is_repeatable:
                    raise
                wait_s = _WAIT_S * tries
            await asyncio.sleep(wait_s)

    async def _ask(
        self,
        answer: type[T],
        method: str,
        path: str,
        body: msgspec.Struct | None,
        params: Mapping[str, Any] | None,
        headers: Mapping[str, str],
    ) -> T:
        if "httpx" not in sys.modules:
            # Imported when it is needed, in a thread: that takes longer than all imports of ours.
            await asyncio.to_thread(importlib.import_module, "httpx")
        import httpx

        if self._http is None:
            self._http = httpx.AsyncClient(
                base_url=self._url,
                headers={"User-Agent": USER_AGENT},
                verify=self._verify,
                timeout=TIMEOUT_S,
                trust_env=False,
            )
        try:
            response = await self._http.request(
                method,
                path,
                content=None if body is None else msgspec.json.encode(body),
                params=params,
                headers={**headers, **({} if body is None else _JSON)},
            )
        except httpx.TransportError as error:
            raise ServerUnreachable(f"the server did not answer: {error}") from error
        if response.is_success:
            try:
                return msgspec.json.decode(response.content or b"null", type=answer)
            except ValueError as error:
                raise ServerUnreachable(f"the answer cannot be read: {error}") from error
        raise _refusal(response)


_JSON: Final = {"Content-Type": "application/json"}


def _is_of_the_token(refusal: RefusedByServer) -> bool:
    """Whether a new token may help; a wrong password in a request with a good token is 401 too."""
    return refusal.status == 401 and refusal.reason != ErrorCode.INVALID_CREDENTIALS


def _wait_s(refusal: RefusedByServer, tries: int) -> float:
    told = refusal.facts.get("retry_after_seconds")
    return float(told) if isinstance(told, int | float) else _WAIT_S * tries


def _refusal(response: "httpx.Response") -> RefusedByServer:
    try:
        error = msgspec.json.decode(response.content, type=ErrorBody).error
    except ValueError:
        return RefusedByServer(
            f"HTTP_{response.status_code}", "the server refused", status=response.status_code
        )
    return RefusedByServer(
        error.code, error.message, status=response.status_code, facts=error.details
    )
