"""What the REST edge works with: the planes' services, and a few things of the machine."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from tidewire.accounts.people import PeopleService
from tidewire.accounts.service import AccountService
from tidewire.chats.service import ChatService
from tidewire.delivery.service import DeliveryService
from tidewire.edge.insiders import Insiders
from tidewire.edge.proxies import TrustedProxies
from tidewire.edge.rest.counters import RestCounters
from tidewire.gateway.limits import SendLimiter
from tidewire.ingest.service import IngestService
from tidewire.ports.accounts import RequestStore
from tidewire.ports.identity import Authenticator
from tidewire.ports.runtime import Clock, IdSource, RandomBytes, Tasks
from tidewire.ports.storage import MessageStore, PositionStore


class RestStore(MessageStore, PositionStore, RequestStore, Protocol):
    """What of the store is read without a service: history, positions, request keys."""


@dataclass(frozen=True, kw_only=True)
class RestServices:
    """Everything behind the endpoints."""

    authenticator: Authenticator
    accounts: AccountService
    people: PeopleService
    chats: ChatService
    delivery: DeliveryService[Any]
    ingest: IngestService
    store: RestStore
    sends: SendLimiter
    """The gateway's: a user has one allowance, whatever edge he sends over."""
    tasks: Tasks
    """Counts requests that fail unexpectedly."""
    clock: Clock
    ids: IdSource
    random_bytes: RandomBytes
    check_ready: Callable[[], Awaitable[None]]
    """Returns if the store answers, raises Unavailable if it does not."""
    metrics: Callable[[], bytes]
    """The Prometheus text of this moment."""
    group_members_max: int
    """What the chat plane allows, for the list of capabilities."""
    counters: RestCounters = field(default_factory=RestCounters)
    proxies: TrustedProxies = field(default_factory=lambda: TrustedProxies(()))
    insiders: Insiders = field(default_factory=lambda: Insiders(TrustedProxies(())))
    """Who may see readiness and metrics."""
