"""What the REST edge uses: the planes' services, clock and random source, and counters."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from tidewire.accounts.people import PeopleService
from tidewire.accounts.service import AccountService
from tidewire.chats.service import ChatService
from tidewire.delivery.service import DeliveryService
from tidewire.domain.errors import ErrorCode
from tidewire.domain.rates import SharedView
from tidewire.edge.peers import Insiders, TrustedProxies
from tidewire.gateway.limits import SendLimiter
from tidewire.ingest.service import IngestService
from tidewire.ports.accounts import RequestStore
from tidewire.ports.runtime import Clock, IdSource, RandomBytes, Tasks
from tidewire.ports.services import Authenticator
from tidewire.ports.storage import ChatStore, MessageStore, PositionStore


class RestCounters:
    """Counters. They only grow."""

    __slots__ = ("errors_sent_by_code",)

    def __init__(self) -> None:
        self.errors_sent_by_code: dict[str, int] = {}
        """Every request that was refused, or that failed."""

    def sent(self, code: ErrorCode) -> None:
        self.errors_sent_by_code[code] = self.errors_sent_by_code.get(code, 0) + 1


class RestStore(MessageStore, ChatStore, PositionStore, RequestStore, Protocol):
    """The parts of the store that REST uses directly, because no rule of a service applies."""


@dataclass(frozen=True, kw_only=True)
class RestServices:
    """Everything behind the endpoints."""

    authenticator: Authenticator
    accounts: AccountService
    people: PeopleService
    chats: ChatService
    delivery: DeliveryService
    ingest: IngestService
    store: RestStore
    sends: SendLimiter
    """The gateway's limiter: a user has one allowance, for REST and WebSocket together."""
    tasks: Tasks
    """Counts requests that fail unexpectedly."""
    clock: Clock
    ids: IdSource
    random_bytes: RandomBytes
    check_ready: Callable[[], Awaitable[None]]
    """Returns if the store answers, raises Unavailable if it does not."""
    metrics: Callable[[], Awaitable[bytes]]
    """The Prometheus text of this moment."""
    group_members_max: int
    """The limit of the chat plane, for the list of capabilities."""
    counters: RestCounters = field(default_factory=RestCounters)
    proxies: TrustedProxies = field(default_factory=lambda: TrustedProxies(()))
    insiders: Insiders = field(default_factory=lambda: Insiders(TrustedProxies(())))
    """Who may see readiness and metrics."""
    shared_limits: dict[str, SharedView] | None = None
    """Filled with the limits of REST if several processes share them; None if not."""
