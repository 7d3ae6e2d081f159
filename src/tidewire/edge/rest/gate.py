"""Admits requests: checks the token of a request and the request limits.

Endpoints are private unless they say otherwise. A request with a good token counts for its user;
all others are counted by their address, so that guessing tokens is slow.
"""

from enum import StrEnum
from itertools import chain
from typing import Any, Final

from litestar.connection import ASGIConnection
from litestar.di import NamedDependency
from litestar.handlers import BaseRouteHandler
from litestar.params import SkipValidation

from tidewire.domain.errors import AuthFailure, RateLimited, Unauthorized
from tidewire.edge.rest.faults import NotFound
from tidewire.edge.rest.options import RestOptions
from tidewire.edge.rest.quotas import Allowance, Quota, take_all
from tidewire.edge.rest.services import RestServices
from tidewire.ports.services import Identity

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS
_TOKEN_CHARACTERS_MAX: Final = 8_192


class Tier(StrEnum):
    """What a request counts as."""

    READ = "read"
    WRITE = "write"
    SEND = "send"
    LOOKUP = "lookup"


PUBLIC: Final = {"public": True}
"""`opt` of an endpoint that needs no token."""
PROBE: Final = {"public": True, "probe": True}
"""`opt` of an endpoint for probes, which come often: they have an allowance of their own."""
INSIDE: Final = {**PROBE, "inside": True}
"""`opt` of a probe that only insiders may use."""


Services = NamedDependency[SkipValidation[RestServices]]
Caller = NamedDependency[SkipValidation[Identity]]


class LimitPassed(RateLimited):
    """Too many requests, with the limit that was passed."""

    def __init__(self, allowance: Allowance) -> None:
        super().__init__("too many requests; wait a while", retry_after_ms=allowance.wait_ms)
        window = {"limit": allowance.limit, "window_seconds": allowance.window_seconds}
        self.details = {**window, **self.details}


class Gate:
    """Checks every request before its body is read."""

    def __init__(self, services: RestServices, options: RestOptions) -> None:
        self._services = services
        self._options = options
        self._anonymous = self._quota(options.anonymous_per_minute)
        self._probes = self._quota(options.probes_per_minute)
        self._quotas: dict[Tier, tuple[Quota, ...]] = {
            Tier.READ: (self._quota(options.reads_per_minute),),
            Tier.WRITE: (self._quota(options.writes_per_minute),),
            Tier.SEND: (self._quota(options.sends_per_minute),),
            Tier.LOOKUP: (
                self._quota(options.lookups_per_minute),
                self._quota(options.lookups_per_hour, _HOUR_MS),
            ),
        }
        if services.shared_limits is not None:
            quotas = (self._anonymous, self._probes, *chain(*self._quotas.values()))
            services.shared_limits.update(
                (f"rest_{number}", quota.share()) for number, quota in enumerate(quotas)
            )

    async def admit(
        self, connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler
    ) -> None:
        """A Litestar guard. Raises Unauthorized, RateLimited, Unavailable."""
        method = str(connection.scope.get("method", ""))
        state: dict[str, Any] = connection.scope["state"]
        if method == "OPTIONS":
            return
        if handler.opt.get("probe"):
            self._count(state, (self._probes,), state["address"])
            if handler.opt.get("inside") and not state["is_inside"]:
                raise NotFound
            return
        if handler.opt.get("public"):
            self._count_address(state)
            return
        try:
            identity = await self._services.authenticator.authenticate(
                _bearer(connection.headers.get("authorization", "")),
                device_id=connection.headers.get("x-device-id"),
            )
        except Unauthorized:
            self._count_address(state)
            raise
        state["identity"] = identity
        tier = handler.opt.get("tier", Tier.READ if method == "GET" else Tier.WRITE)
        self._count(state, self._quotas[tier], identity.user_id)

    def allowance_of(self, address: str) -> Allowance:
        """What an address may still do."""
        return self._anonymous.look(address, self._services.clock.monotonic_ms())

    def count_other(self, address: str) -> Allowance:
        """Count what no endpoint has counted: unknown paths, OPTIONS, files of the web app."""
        return self._anonymous.take(address, self._services.clock.monotonic_ms())

    def _count_address(self, state: dict[str, Any]) -> None:
        try:
            self._count(state, (self._anonymous,), state["address"])
        except LimitPassed:
            state["is_late"] = True
            raise

    def _count(self, state: dict[str, Any], quotas: tuple[Quota, ...], key: str) -> None:
        allowance = take_all(quotas, key, self._services.clock.monotonic_ms())
        state["allowance"] = allowance
        if allowance.wait_ms:
            raise LimitPassed(allowance)

    def _quota(self, limit: int, window_ms: int = _MINUTE_MS) -> Quota:
        return Quota(limit, window_ms=window_ms, keys_max=self._options.limiter_keys_max)


def _bearer(authorization: str) -> str:
    """The token of an Authorization header."""
    if not authorization.strip():
        raise Unauthorized(AuthFailure.MISSING_TOKEN)
    scheme, _, token = authorization.partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token or len(token) > _TOKEN_CHARACTERS_MAX:
        raise Unauthorized(AuthFailure.INVALID_TOKEN)
    return token
