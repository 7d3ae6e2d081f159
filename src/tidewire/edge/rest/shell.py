"""The outermost layer of REST: gives every request its id and every answer its headers.

It is plain ASGI around the whole application, so that also what no route matches is covered.
"""

import uuid
from collections.abc import Iterable
from typing import Any, Final

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from tidewire.accounts.throttle import address_key
from tidewire.domain.ids import is_uuid
from tidewire.edge.rest.counters import RestCounters
from tidewire.edge.rest.gate import Gate
from tidewire.edge.rest.quotas import Allowance
from tidewire.ports.audit import ORIGIN, Origin
from tidewire.ports.runtime import Clock, RandomBytes, Tasks

_FIXED_HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)


class RequestShell:
    """An ASGI application around another one."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        gate: Gate,
        clock: Clock,
        random_bytes: RandomBytes,
        counters: RestCounters,
        tasks: Tasks,
    ) -> None:
        self._app = app
        self._gate = gate
        self._clock = clock
        self._random_bytes = random_bytes
        self._counters = counters
        self._tasks = tasks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        headers = scope["headers"]
        request_id = self._request_id(_header(headers, b"x-request-id") or "")
        peer_ip = (scope["client"] or ("", 0))[0]
        client_ip = self._gate.client_ip(peer_ip, _header(headers, b"x-forwarded-for"))
        address = address_key(client_ip)
        state: dict[str, Any] = {
            "request_id": request_id,
            "address": address,
            "counters": self._counters,
            "tasks": self._tasks,
        }
        scope["state"] = state

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message["headers"],
                    *self._headers(message["headers"], state),
                ]
            await send(message)

        origin = ORIGIN.set(Origin(client_ip or None, _header(headers, b"user-agent")))
        try:
            await self._app(scope, receive, answer)
        finally:
            ORIGIN.reset(origin)

    def _headers(self, present: Any, state: dict[str, Any]) -> list[tuple[bytes, bytes]]:
        names = {name.lower() for name, _ in present}
        allowance = state.get("allowance")
        if not isinstance(allowance, Allowance):
            allowance = self._gate.allowance_of(state["address"])
        reset_at_s = -(-(self._clock.wall_ms() + allowance.full_in_ms) // 1000)
        return [
            (b"x-request-id", state["request_id"].encode()),
            (b"x-ratelimit-limit", b"%d" % allowance.limit),
            (b"x-ratelimit-remaining", b"%d" % allowance.remaining),
            (b"x-ratelimit-reset", b"%d" % reset_at_s),
            *(header for header in _FIXED_HEADERS if header[0] not in names),
        ]

    def _request_id(self, given: str) -> str:
        """The client's own if it is a UUID, or a new one."""
        if is_uuid(given):
            return given
        return str(uuid.UUID(bytes=self._random_bytes(16), version=4))


def _header(headers: Iterable[tuple[bytes, bytes]], wanted: bytes) -> str | None:
    """A header's text; repeated ones are one list (RFC 9110, 5.3)."""
    values = [value.decode("latin-1") for name, value in headers if name == wanted]
    return ", ".join(values) if values else None
