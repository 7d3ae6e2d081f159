"""The gateway as the edge sees it: decides who may connect, and begins the conversations.

It reads a request and checks its token, then the limits, then the room. Some facts can change
until the connection is made (a session is revoked meanwhile, a user connects twice at the same
instant), so the hub checks them again.
"""

import asyncio
import logging
from collections.abc import Sequence

from tidewire.domain.addresses import address_key
from tidewire.domain.errors import AuthFailure, Unauthorized, Unavailable
from tidewire.domain.ids import UserId
from tidewire.domain.rates import Limiter, Rate, SharedView
from tidewire.gateway.connection import Connection, Rules
from tidewire.gateway.counters import add
from tidewire.gateway.driver import ConnectionDriver, Desk
from tidewire.gateway.handshake import Credentials, read_credentials
from tidewire.gateway.limits import SendLimiter
from tidewire.gateway.options import GatewayOptions
from tidewire.ports.runtime import FLOOD_KEY, IdSource
from tidewire.ports.services import Authenticator, Identity
from tidewire.ports.transport import (
    Admission,
    HandshakeRefusal,
    SocketGateway,
    SocketListener,
    SocketTransport,
    UpgradeRequest,
)
from tidewire.wire.error_table import error_payload
from tidewire.wire.features import Feature
from tidewire.wire.forms import form_of

_logger = logging.getLogger(__name__)


def send_limiter(options: GatewayOptions) -> SendLimiter:
    """Make the limiter of sends: one for the process, shared by all edges that take messages."""
    in_chat, burst = options.send_chat_rate_per_second, options.send_chat_burst
    return SendLimiter(
        per_chat=Rate(in_chat, burst=burst),
        per_user=Rate(options.send_user_rate_per_second, burst=options.send_user_burst),
        # Reactions to all chats together have half the rate of messages to one chat.
        reactions=Rate(in_chat, per_ms=2_000, burst=burst),
        keys_max=options.limiter_keys_max,
    )


class Gateway:
    """Admits connections and talks on them (`ports.transport.SocketGateway`)."""

    def __init__(
        self,
        desk: Desk,
        *,
        authenticator: Authenticator,
        ids: IdSource,
        epoch: str,
        sends: SendLimiter,
    ) -> None:
        """`epoch` is the store's. `sends` limits sending (`send_limiter`); give the same one to
        every edge that takes messages."""
        options = desk.options
        self._desk = desk
        self._hub = desk.hub
        self._authenticator = authenticator
        self._messages = desk.messages
        self._takes_entries = False
        """Whether the store takes entries, as far as known; once True, it stays True."""
        self._ids = ids
        self._clock = desk.clock
        self._options = options
        self._rules = Rules(options, epoch=epoch, sends=sends)
        keys_max = options.limiter_keys_max
        self._by_ip: Limiter[str] = Limiter(
            _per_minute(options.ip_connects_per_minute), keys_max=keys_max
        )
        self._by_user: Limiter[UserId] = Limiter(
            _per_minute(options.user_connects_per_minute), keys_max=keys_max
        )
        self._handshakes_count = 0

    def share_limits(self) -> dict[str, SharedView]:
        """Count attempts to connect over all processes."""
        return {"connect_ip": self._by_ip.share(), "connect_user": self._by_user.share()}

    async def authorise(self, request: UpgradeRequest) -> Admission | HandshakeRefusal:
        """May this request become a connection? Never raises on what a peer sent."""
        if self._handshakes_count >= self._options.handshakes_max:
            outcome: Admission | HandshakeRefusal = self._no_room("too many are connecting")
        else:
            self._handshakes_count += 1
            try:
                outcome = await self._authorise(request)
            finally:
                self._handshakes_count -= 1
        if isinstance(outcome, HandshakeRefusal):
            add(self._hub.counters.handshakes_refused_by_error, outcome.error)
            # Log neither the URL nor the headers: they may hold a token.
            _logger.info(
                "handshake refused",
                extra={
                    "client_ip": request.client_ip,
                    "error": outcome.error,
                    "http_status": outcome.http_status,
                    FLOOD_KEY: address_key(request.client_ip),
                },
            )
        return outcome

    def connected(self, admission: Admission, transport: SocketTransport) -> SocketListener:
        """The upgrade has been answered: begin the conversation."""
        now_ms, wall_ms = self._clock.monotonic_ms(), self._clock.wall_ms()
        core = Connection(
            self._rules,
            connection_id=self._ids.connection_id(wall_ms),
            user_id=admission.user_id,
            device_id=admission.device_id,
            features=admission.features,
            withheld=() if self._takes_entries else admission.withheld,
            token_ends_at_ms=now_ms + admission.token_expires_at_ms - wall_ms,
            now_ms=now_ms,
        )
        driver = ConnectionDriver(self._desk, core, admission, transport)
        try:
            self._hub.join(driver)
        except Exception as error:  # noqa: BLE001 - it concerns this connection alone
            driver.failed(error)
        return driver

    async def _authorise(self, request: UpgradeRequest) -> Admission | HandshakeRefusal:
        if self._hub.is_shutting_down:
            return self._no_room("the server is stopping")
        credentials = read_credentials(request, self._options)
        if isinstance(credentials, HandshakeRefusal):
            return self._charge(request) or credentials
        # Read before the token is checked: its key may be removed during the check.
        token_round = self._hub.token_round
        identity = await self._identify(credentials)
        if isinstance(identity, HandshakeRefusal):
            return self._charge(request) or identity
        withheld = await self._withheld(credentials.features)
        return (
            self._charge(request)
            or self._limit(identity.user_id, credentials.device_id)
            or form_of(
                Admission,
                credentials,
                identity,
                request,
                token_expires_at_ms=identity.expires_at_ms,
                token_round=token_round,
                withheld=withheld,
            )
        )

    async def _withheld(self, features: Sequence[Feature]) -> tuple[Feature, ...]:
        """The features that the store cannot serve yet. A store that is not upgraded is asked again
        at each handshake, as often as the store allows. Until then no client is told that it may
        send frames that would be refused."""
        if self._takes_entries or Feature.ENTRIES not in features:
            return ()
        try:
            async with asyncio.timeout(self._options.handshake_timeout_ms / 1000):
                is_on = await self._messages.takes_entries()
        except (TimeoutError, Unavailable):
            is_on = False
        if not is_on:
            return (Feature.ENTRIES,)
        self._takes_entries = True
        self._hub.end_withheld()
        return ()

    async def _identify(self, credentials: Credentials) -> Identity | HandshakeRefusal:
        try:
            async with asyncio.timeout(self._options.handshake_timeout_ms / 1000):
                return await self._authenticator.authenticate(
                    credentials.token, device_id=credentials.device_id
                )
        except (TimeoutError, Unavailable):
            return self._no_room("the token could not be checked; try again")
        except Unauthorized as error:
            return self._unauthorised(error)

    def _unauthorised(self, error: Unauthorized) -> HandshakeRefusal:
        payload = error_payload(error)
        add(self._hub.counters.auth_failures_by_reason, error.reason)
        is_revoked = error.reason is AuthFailure.TOKEN_REVOKED
        return HandshakeRefusal(
            http_status=401,
            error="token_revoked" if is_revoked else "invalid_token",
            message=payload.message,
            details=payload.details or {},
        )

    def _charge(self, request: UpgradeRequest) -> HandshakeRefusal | None:
        """Count an attempt of this address, successful or not; a refusal if it makes too many."""
        address = address_key(request.client_ip)
        wait_ms = self._by_ip.take(address, self._clock.monotonic_ms())
        return _throttled(wait_ms) if wait_ms else None

    def _limit(self, user_id: UserId, device_id: str) -> HandshakeRefusal | None:
        options, hub = self._options, self._hub
        wait_ms = self._by_user.take(user_id, self._clock.monotonic_ms())
        if wait_ms:
            return _throttled(wait_ms)
        if hub.connections_count >= options.connections_max:
            return self._no_room("this server has as many connections as it can hold")
        if hub.other_devices_count(user_id, device_id) >= options.user_connections_max:
            return HandshakeRefusal(
                http_status=429,
                error="rate_limited",
                message=f"a user has at most {options.user_connections_max} connections",
                retry_after_seconds=options.retry_after_seconds,
            )
        return None

    def _no_room(self, message: str) -> HandshakeRefusal:
        return HandshakeRefusal(
            http_status=503,
            error="service_unavailable",
            message=message,
            retry_after_seconds=self._options.retry_after_seconds,
        )


def _per_minute(count: int) -> Rate:
    return Rate(count, per_ms=60_000, burst=count)


def _throttled(wait_ms: int) -> HandshakeRefusal:
    return HandshakeRefusal(
        http_status=429,
        error="rate_limited",
        message="too many attempts to connect",
        retry_after_seconds=max(1, -(-wait_ms // 1000)),
    )


_CONFORMS: type[SocketGateway] = Gateway
