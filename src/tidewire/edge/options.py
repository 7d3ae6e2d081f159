"""What an operator may tune about the edge."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeOptions:
    """Where to listen, and what to believe of whoever connects."""

    host: str = "127.0.0.1"
    """The address to listen on."""
    port: int = 8080
    """The port to listen on; 0 takes a free one."""
    tls_cert: Path | None = None
    """A certificate chain in PEM, for those without a proxy in front."""
    tls_key: Path | None = None
    """The key of that certificate."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks of proxies whose X-Forwarded-For is believed."""
    header_timeout_ms: int = 10_000
    """How long a client may take to send the head of a request, and again for its body."""
    keep_alive_ms: int = 30_000
    """How long an HTTP connection may be idle between two requests."""
    backlog: int = 2_048
    """How many connections the kernel may hold that were not accepted yet."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise ValueError("port is 0 to 65535")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key go together")
        if self.header_timeout_ms < 1 or self.keep_alive_ms < 1:
            raise ValueError("header_timeout_ms and keep_alive_ms are at least 1")
        if self.backlog < 1:
            raise ValueError("backlog is at least 1")
