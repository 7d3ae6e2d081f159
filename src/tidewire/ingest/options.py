"""Settings of the ingest plane that an operator may change. None exceeds `domain.limits`."""

from dataclasses import dataclass

from tidewire.domain.limits import (
    APPEND_BYTES_MAX,
    APPEND_SENDS_MAX,
    CONTENT_BYTES_MAX,
    check,
    check_numbers,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestOptions:
    """Bounds and times of the ingest plane. An impossible value raises ValueError."""

    batch_sends_max: int = APPEND_SENDS_MAX
    """How many sends go into one append; a store with small transactions wants fewer."""

    batch_bytes_max: int = 1024 * 1024
    """How many bytes of content go into one append."""

    queue_sends_max: int = 8192
    """How many sends may wait for an append; beyond it a send is refused at once."""

    queue_chat_sends_max: int = 1024
    """How many of them may be of one chat, where chats are appended in parallel: a chat that the
    store is slow with must not use up the room of all the others."""

    appends_in_flight_max: int = 20
    """How many appends run at the same time, where chats are appended in parallel. A process is at
    its limit long before that number; with more of them under way, a store that is at its limit
    gets smaller batches and does less."""

    send_deadline_ms: int = 5_000
    """How long a send waits for its answer unless its caller says otherwise; longer than the
    store's own budget of 3 s, so that the store's verdict comes first (P-12)."""

    drain_ms: int = 5_000
    """How long a shutdown waits until the sends that were taken in are stored."""

    # In a cluster: how commits get into the event log.

    publishing_commits_max: int = 10_000
    """How many commits may be on their way into the event log; also how many rows of the outbox may
    wait for their deletion. Beyond it they are left to the relays."""

    relay_after_ms: int = 2_000
    """How old a row of the outbox is before a relay publishes it."""

    relay_poll_ms: int = 2_000
    """The time between two looks at a shard of the outbox while a row waits in it."""

    relay_idle_ms_max: int = 60_000
    """The longest time between two looks at a shard, while nothing is found in it. A shard is
    looked at at once when a gateway has come or gone, and by a gateway that could not publish."""

    relay_rows_max: int = 50
    """How many rows a relay publishes together."""

    relay_pause_ms_max: int = 4_000
    """The longest pause of a relay after the log or the store has failed. So when both are back, a
    relay goes on at most this much later."""

    lease_ms: int = 15_000
    """How long a shard stays with a relay that does not renew its lease."""

    def __post_init__(self) -> None:
        check_numbers(self, may_be_zero=("drain_ms", "relay_after_ms"))
        check(1 <= self.batch_sends_max <= APPEND_SENDS_MAX, "batch_sends_max is 1 to 512")
        check(
            CONTENT_BYTES_MAX <= self.batch_bytes_max <= APPEND_BYTES_MAX,
            "batch_bytes_max holds at least one message (4096) and is at most 4 MiB",
        )
        check(
            self.lease_ms >= 4 * self.relay_poll_ms, "lease_ms is at least four times relay_poll_ms"
        )
