"""Settings of connections that an operator may change. None exceeds `domain.limits`."""

from dataclasses import dataclass
from typing import Final

from tidewire.domain.limits import (
    CONTENT_BYTES_MAX,
    DIGEST_CHATS_MAX,
    HEARTBEAT_INTERVAL_MS,
    IDLE_TIMEOUT_MS,
    PAGE_BYTES_MAX,
    check,
    check_numbers,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions:
    """Bounds and times of the connection plane. An impossible value raises ValueError."""

    # Signs of life.

    heartbeat_interval_ms: int = HEARTBEAT_INTERVAL_MS
    """How often a client is asked to send a heartbeat."""

    idle_timeout_ms: int = IDLE_TIMEOUT_MS
    """How long a connection may be silent, pongs included, before it is closed."""

    ping_interval_ms: int = 25_000
    """After how much silence the peer is pinged; 0 means never."""

    pong_timeout_ms: int = 30_000
    """How long a pinged peer may stay silent. A half-open connection is found after
    `ping_interval_ms` and this time; by default together less than a minute."""

    connection_age_ms_max: int | None = None
    """The age at which a connection is asked to reconnect at the latest; each is asked at a time of
    its own in the last quarter before that age. None means never."""

    closing_grace_ms: int = 5_000
    """How long a connection that is told to leave stays open for answers that it is still owed."""

    # What a client may send.

    send_chat_rate_per_second: int = 10
    """How many messages a user may send to one chat in the long run."""

    send_chat_burst: int = 20
    """How many messages a user may send to one chat at once."""

    send_user_rate_per_second: int = 30
    """How many messages a user may send to all chats together in the long run."""

    send_user_burst: int = 60
    """How many messages a user may send to all chats together at once."""

    control_rate_per_second: int = 500
    """How many acks, reads, typing frames and heartbeats a connection may send in the long run.
    Acks are gathered before they are written, so this only bounds the work of reading them."""

    control_burst: int = 1_000
    """How many acks, reads, typing frames and heartbeats a connection may send at once."""

    typing_interval_ms: int = 1_000
    """At most once in this time a connection may say that its user types in a chat; more is dropped
    without an error."""

    typing_chats_max: int = 8
    """In how many chats at once a connection may say that its user types: people type in one."""

    invalid_frames_max: int = 10
    """How many invalid frames within the window end a connection."""

    throttled_frames_max: int = 1_000
    """How many frames above a limit within the window end a connection."""

    offence_window_ms: int = 60_000
    """The window in which invalid frames and frames above a limit are counted."""

    requests_waiting_max: int = 100
    """How many requests of a connection may wait for their answers; beyond it: SERVER_BUSY."""

    limiter_keys_max: int = 100_000
    """How many users, chats or addresses each limiter remembers. One that is forgotten early has
    its whole burst again."""

    # What a client is sent.

    outbound_bytes_max: int = 1024 * 1024
    """How many bytes may be unsent on a connection, pages aside; at this bound it is closed."""

    outbound_warning_percent: int = 80
    """The part of `outbound_bytes_max` from which on a connection is reported as slow."""

    drained_bytes_max: int = 64 * 1024
    """The next page is read when no more than this is unsent."""

    page_bytes_max: int = PAGE_BYTES_MAX
    """How many bytes of content a sync page has at most."""

    page_bytes_per_second: int = 2 * 1024 * 1024
    """How fast pages of messages and of digests go to a connection in the long run. Beyond it the
    next page waits; it is never refused. Reading a page counts 4096 bytes more."""

    page_burst_bytes: int = 16 * 1024 * 1024
    """How many bytes of pages a connection may get at once, for a device that was away for long."""

    digest_chats_max: int = DIGEST_CHATS_MAX
    """How many chats a digest page has at most."""

    store_timeout_ms: int = 5_000
    """How long a page may take to be read; longer than the store's own budget (P-12)."""

    return_rate_per_second: int = 500
    """Connections that are all told to come back, or to sync again, are given delays so that this
    many do so in a second."""

    return_spread_ms_max: int = 30_000
    """The longest of those delays, however many connections there are."""

    # Who may connect.

    connections_max: int = 100_000
    """How many connections this process holds; beyond it: 503."""

    user_connections_max: int = 5
    """How many connections, each on a device of its own, a user may have."""

    user_connects_per_minute: int = 10
    """How often a user may connect."""

    ip_connects_per_minute: int = 100
    """How often an address may try to connect, with or without success."""

    handshakes_max: int = 1_000
    """How many requests to connect may be checked at the same time; beyond it: 503."""

    handshake_timeout_ms: int = 5_000
    """How long checking a token may take."""

    retry_after_seconds: int = 5
    """After how many seconds a client may try again if it was refused because there is no room."""

    revoked_sessions_max: int = 10_000
    """How many sessions that were just revoked are remembered, for handshakes still under way."""

    origins_allowed: tuple[str, ...] = ()
    """Origins of web pages that may connect (`https://chat.example.org`) besides the server's own;
    `*` means all. Only browsers send an origin."""

    is_token_in_url_allowed: bool = False
    """Whether `?token=…&device_id=…` is taken. URLs end up in logs."""

    def __post_init__(self) -> None:
        check_numbers(self, may_be_zero=_MAY_BE_ZERO)
        check(
            self.idle_timeout_ms >= 2 * self.heartbeat_interval_ms,
            "idle_timeout_ms is at least twice heartbeat_interval_ms: one heartbeat may be lost",
        )
        check(
            self.ping_interval_ms + self.pong_timeout_ms <= self.idle_timeout_ms,
            "pong_timeout_ms and ping_interval_ms together are at most idle_timeout_ms",
        )
        check(
            CONTENT_BYTES_MAX <= self.page_bytes_max <= PAGE_BYTES_MAX,
            "page_bytes_max holds at least one message (4096) and is at most 256 KiB",
        )
        check(
            self.digest_chats_max <= DIGEST_CHATS_MAX,
            f"digest_chats_max is at most {DIGEST_CHATS_MAX}",
        )
        check(
            self.drained_bytes_max < self.outbound_bytes_max,
            "drained_bytes_max is below outbound_bytes_max",
        )
        check(self.outbound_warning_percent <= 100, "outbound_warning_percent is at most 100")

    @property
    def page_slack_ms(self) -> int:
        """How long a burst of pages takes at their rate."""
        return self.page_burst_bytes * 1000 // self.page_bytes_per_second

    @property
    def outbound_warning_bytes(self) -> int:
        return self.outbound_bytes_max * self.outbound_warning_percent // 100


_MAY_BE_ZERO: Final = ("ping_interval_ms", "closing_grace_ms", "return_spread_ms_max")
