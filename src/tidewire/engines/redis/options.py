"""Where Redis is, how long things live in it, and what may wait for it."""

from dataclasses import dataclass

from tidewire.domain.accounts import Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisOptions:
    """The routes of a cluster. An impossible value raises ValueError."""

    url: Secret | None = None
    """`redis://host:port/0`, `rediss://` for TLS, with a password if there is one. For a Redis
    Cluster, the address of one server or of the whole cluster is enough: it names the others. None:
    no Redis, one process."""
    key_prefix: str = "tidewire:"
    """Before every key: several clusters can share a Redis."""
    timeout_ms: int = 2_000
    """The timeout of one call. It must not be shorter than a busy process may stall: for a gateway,
    a call without an answer means that all its clients sync again."""
    assert_ms: int = 5_000
    """How often a gateway asserts all its routes."""
    life_ms: int = 15_000
    """How long a route lives without being asserted."""
    drain_ms: int = 2_000
    """How long an entry may lie in a gateway's stream before all its clients sync again."""
    register_ms: int = 1_000
    """How long a new connection waits for its route to be known."""
    assert_chunk: int = 500
    """How many routes are asserted or registered at once; a single Redis gets them in one call, and
    does nothing else meanwhile."""
    stream_entries_max: int = 20_000
    """How many pushes a gateway may be behind."""
    queue_bytes_max: int = 16 * 1024 * 1024
    """How many bytes may wait in a process to be pushed; with one more, all clients sync again."""
    batch_pushes_max: int = 500
    """How many pushes go to Redis in one request."""
    batch_users_max: int = 2_000
    """How many users' routes are asked for in one request."""
    batch_bytes_max: int = 1024 * 1024
    """How many bytes go in one request. The first of these three limits that is reached counts."""
    attempts_max: int = 4
    """How often a batch is tried before all clients sync again."""
    retry_ms: int = 200
    """How long to wait before another try after Redis did not answer."""
    limits_ms: int = 200
    """How often what users have used up of their limits is exchanged with the other gateways."""

    def __post_init__(self) -> None:
        if self.assert_ms < self.drain_ms:
            raise ValueError(f"assert_ms is at least {self.drain_ms} (drain_ms)")
        if not self.key_prefix or any(letter in self.key_prefix for letter in " {}"):
            raise ValueError("key_prefix is not empty and has no spaces and no braces")
        if self.life_ms < 2 * self.assert_ms:
            raise ValueError("life_ms is at least twice assert_ms, so that one may be missed")
