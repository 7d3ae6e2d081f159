"""What an operator may tune about the edge."""

from dataclasses import dataclass
from pathlib import Path

from tidewire.domain.accounts import Secret
from tidewire.domain.limits import check, check_numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeOptions:
    """Where to listen, what to believe of a peer, and what a peer may cost."""

    host: str = "127.0.0.1"
    """The address to listen on."""
    port: int = 8080
    """The port to listen on; 0 takes a free one."""
    processes: int = 1
    """How many gateway processes serve the port, beside the one that keeps the store; 1: one
    process does everything. More of them pay with four cores or more, if at all."""
    link_bytes_max: int = 64 * 1024 * 1024
    """How many bytes may wait unread between the store process and a gateway process. Beyond it
    the gateway process is cut off."""
    tls_cert: Path | None = None
    """A certificate chain in PEM, for those without a proxy in front."""
    tls_key: Path | None = None
    """The key of that certificate."""
    tls_handshake_timeout_ms: int = 10_000
    """How long a client may take for the TLS handshake."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks of proxies whose X-Forwarded-For is believed."""
    probe_token: Secret | None = None
    """Requests with this token as `Authorization: Bearer …` get `/metrics` and `/readyz`; without
    it these answer on loopback only, and not through a proxy. At least 16 characters."""
    header_timeout_ms: int = 10_000
    """How long a client may take to send the head of a request, and again for its body."""
    answer_timeout_ms: int = 30_000
    """How long the client may read nothing of an HTTP answer before the connection is
    dropped."""
    keep_alive_ms: int = 30_000
    """How long an HTTP connection may be idle between two requests."""
    backlog: int = 2_048
    """How many connections may wait in the kernel to be accepted."""
    http_connections_max: int = 4_000
    """How many HTTP connections there may be in all, WebSockets apart; beyond it: 503. Each may
    hold a request head of 32 KB."""
    address_http_connections_max: int = 200
    """The same for one address (a /64 of IPv6); beyond it: 429. A browser opens about six; raise
    it where a large office shares one address."""
    address_connections_max: int = 1_000
    """How many connections one address may have, WebSockets included; beyond it: 429. Trusted
    proxies are not counted; the addresses that they name are, for WebSockets only."""
    address_faults_per_minute: int = 100
    """How many requests and upgrades of one address may be malformed. After that its new
    connections are dropped without an answer, until the limit allows a request again."""
    addresses_max: int = 50_000
    """How many addresses with malformed requests are remembered."""
    inbound_bytes_per_second: int = 1024 * 1024
    """How much a WebSocket may send in the long run. Every frame counts as its payload and 1024
    bytes more, control frames and fragments too: about a thousand small frames a second. Beyond
    it the connection is read more slowly."""
    inbound_burst_bytes: int = 2 * 1024 * 1024
    """How much of that a WebSocket may send at once. Twice as much at once ends the connection."""
    inbound_excess_ms_max: int = 10_000
    """How long in a minute the budget may hold a WebSocket back before the connection is closed."""

    def __post_init__(self) -> None:
        check(self.processes <= 64, "processes is 1 to 64")
        check(0 <= self.port <= 65_535, "port is 0 to 65535")
        is_short = self.probe_token is not None and len(self.probe_token.reveal()) < 16
        check(not is_short, "probe_token has at least 16 characters")
        check((self.tls_cert is None) == (self.tls_key is None), "tls_cert and tls_key go together")
        check_numbers(self, may_be_zero=("port",))
