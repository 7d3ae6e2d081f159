"""The outermost layer of REST: gives every request its id and every answer its headers.

It is plain ASGI around the whole application, so it also covers requests that no route matches.
"""

import uuid
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from tidewire.domain.addresses import address_key
from tidewire.domain.ids import is_uuid
from tidewire.edge.rest.faults import error_body
from tidewire.edge.rest.gate import Gate, LimitPassed
from tidewire.edge.rest.quotas import Allowance
from tidewire.edge.rest.services import RestServices
from tidewire.ports.audit import ORIGIN, Origin
from tidewire.ports.runtime import pause

_FIXED_HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)


INSIDE_PATHS: Final = ("/readyz", "/metrics")
"""Paths where only insiders get an answer."""
PROBE_PATHS: Final = ("/healthz", "/api/v1/health")
"""Other paths with the allowance of probes."""
LATE_MS: Final = 1_000
"""How long an address that sends too many requests waits for each refusal."""


class RequestShell:
    """An ASGI application around another one."""

    def __init__(self, app: ASGIApp, gate: Gate, services: RestServices) -> None:
        self._app = app
        self._gate = gate
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        headers = scope["headers"]
        request_id = self._request_id(_header(headers, b"x-request-id") or "")
        peer_ip = (scope["client"] or ("", 0))[0]
        client_ip = self._services.proxies.client_ip(peer_ip, _header(headers, b"x-forwarded-for"))
        address = address_key(client_ip)
        state: dict[str, Any] = {
            "request_id": request_id,
            "address": address,
            "counters": self._services.counters,
            "tasks": self._services.tasks,
        }
        scope["state"] = state
        if scope["path"] in INSIDE_PATHS:
            state["is_inside"] = self._services.insiders.includes(peer_ip, headers)
        elif scope["path"] not in PROBE_PATHS and not _header(headers, b"authorization"):
            allowance = self._gate.allowance_of(address)
            if allowance.wait_ms:
                state["allowance"] = allowance
                await self._refuse(allowance, state, send)
                return

        is_refused = False

        async def answer(message: Message) -> None:
            nonlocal is_refused
            if is_refused:
                return
            if message["type"] == "http.response.start":
                if "allowance" not in state:
                    state["allowance"] = self._gate.count_other(address)
                    is_refused = state["allowance"].wait_ms > 0
                if is_refused:
                    # Requests with an Authorization header or to a probe path pass the check above.
                    await self._refuse(state["allowance"], state, send)
                    return
                if state.get("is_late"):
                    await pause(LATE_MS)
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

    async def _refuse(self, allowance: Allowance, state: dict[str, Any], send: Send) -> None:
        """Refuse an address that sends too many requests: late, so that its connections get few
        answers a second, and without the application."""
        await pause(LATE_MS)
        error = LimitPassed(allowance)
        self._services.counters.sent(error.code)
        body = msgspec.json.encode(error_body(error, state["request_id"]))
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"retry-after", str(error.details["retry_after_seconds"]).encode()),
        ]
        headers += self._headers(headers, state)
        await send({"type": "http.response.start", "status": 429, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    def _headers(self, present: Any, state: dict[str, Any]) -> list[tuple[bytes, bytes]]:
        names = {name.lower() for name, _ in present}
        allowance = state["allowance"]
        reset_at_s = -(-(self._services.clock.wall_ms() + allowance.full_in_ms) // 1000)
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
        return str(uuid.UUID(bytes=self._services.random_bytes(16), version=4))


def _header(headers: Iterable[tuple[bytes, bytes]], wanted: bytes) -> str | None:
    """A header's text; repeated ones are one list (RFC 9110, 5.3)."""
    values = [value.decode("latin-1") for name, value in headers if name == wanted]
    return ", ".join(values) if values else None
