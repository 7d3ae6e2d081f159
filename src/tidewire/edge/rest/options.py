"""What an operator may tune about REST."""

from dataclasses import dataclass

from tidewire.domain.limits import FRAME_BYTES_MAX, check_numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class RestOptions:
    """Bounds of the REST edge. An impossible value raises ValueError."""

    body_bytes_max: int = FRAME_BYTES_MAX
    """How large the body of a request may be."""
    reads_per_minute: int = 300
    """GET requests of one user."""
    writes_per_minute: int = 60
    """Requests of one user that change something, messages apart."""
    sends_per_minute: int = 1_800
    """Messages that one user sends over REST. The limits for all edges apply as well."""
    lookups_per_minute: int = 10
    """Searches for users by name, of one user."""
    lookups_per_hour: int = 100
    """The same over an hour."""
    anonymous_per_minute: int = 600
    """Requests without a valid token, from one address (a /64 of IPv6), those for unknown paths
    included. Beyond it they are answered late."""
    probes_per_minute: int = 1_200
    """Requests for `/healthz`, `/readyz`, `/metrics` and `/api/v1/health` from one address."""
    limiter_keys_max: int = 50_000
    """How many users or addresses each of these limits remembers."""
    cors_origins: tuple[str, ...] = ()
    """Other origins whose pages may call this API from a browser."""

    def __post_init__(self) -> None:
        check_numbers(self)
