"""The options of a client that an application may set, and the waits computed from them. PURE.

No option exceeds `domain.limits`.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidewire.domain.limits import PAGE_MESSAGES_MAX

if TYPE_CHECKING:
    from random import Random

VARIATION: Final = 0.25
"""Each wait is up to this part longer or shorter, so that clients do not all come back at once
(CL-06)."""

_SECOND_MS: Final = 1_000
_DAY_MS: Final = 24 * 3_600 * _SECOND_MS
_DOUBLINGS_MAX: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Bounds and times of a client. An impossible value raises ValueError."""

    # Connecting.

    backoff_ms: int = _SECOND_MS
    """How long to wait after the first failure; it doubles with each further one."""

    backoff_ms_max: int = 30 * _SECOND_MS
    """The longest wait. Every wait is varied by up to a quarter either way."""

    handshake_ms_max: int = 20 * _SECOND_MS
    """How long connecting may take, until the server has introduced itself."""

    answer_ms_max: int = 20 * _SECOND_MS
    """How long an answer may take; after that the connection is given up."""

    renew_grace_ms: int = 5 * _SECOND_MS
    """How long a connection whose token ends soon waits for its answers before it is replaced."""

    # Receiving.

    page_messages: int = PAGE_MESSAGES_MAX
    """How many messages a page of a sync asks for."""

    syncs_max: int = 5
    """How many chats are synced at the same time."""

    waiting_max: int = 1_000
    """How many messages of a chat may wait for one that is missing before them. Later ones are
    dropped; the sync that fetches the missing one brings them too."""

    unstored_max: int = 4_000
    """How many messages may be on their way to the disk; beyond it nothing more is read."""

    gap_grace_ms: int = 200
    """How long to wait before a gap is synced, while the answer to an own message may still fill
    it."""

    ack_messages: int = 10
    """After so many stored messages a chat is acknowledged, however recent the last one was."""

    ack_direct_ms: int = 250
    """The least time between two acknowledgements of a direct chat with fewer messages. The first
    one after a pause leaves at once: the other sees the second tick."""

    ack_ms: int = 5 * _SECOND_MS
    """The same in a group, where many acknowledge each message. Only acknowledgements of own
    messages wait longer."""

    ack_interval_ms: int = 50
    """The least time after a full bundle of acknowledgements; it is shorter after a smaller one."""

    ack_frames_max: int = 20
    """How many acknowledgements a bundle has."""

    # Sending.

    outbox_max: int = 10_000
    """How many messages may wait to be sent, failed ones included."""

    window: int = 1
    """How many messages of a chat are on their way at once. After a refusal all of them are sent
    again, in the order of writing; if one is given up, those after it are sent without it."""

    sends_max: int = 64
    """How many messages of all chats together are on their way at once."""

    tries_max: int = 3
    """How often a message is sent again after an error of the server itself."""

    fate_ms_max: int = 6 * _DAY_MS
    """A message that left longer ago and whose fate is unknown is not sent again automatically: a
    server that has stored it may not recognise its id any more."""

    # The application.

    happenings_max: int = 1_000
    """How many fleeting events (ticks, typing, states) wait for the application; the oldest go."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is at least 1")
        if self.page_messages > PAGE_MESSAGES_MAX:
            raise ValueError(f"page_messages is at most {PAGE_MESSAGES_MAX}")
        if self.unstored_max < self.page_messages:
            raise ValueError("unstored_max holds at least one page")
        if self.backoff_ms_max < self.backoff_ms:
            raise ValueError("backoff_ms_max is at least backoff_ms")


def varied(wait_ms: float, random: "Random", variation: float = VARIATION) -> int:
    """The wait, made longer or shorter by a random part."""
    return round(wait_ms * (1 - variation + 2 * variation * random.random()))


def backoff_ms(failures: int, random: "Random", options: ClientOptions) -> int:
    """The wait after so many failures in a row, the first being 1: doubling, bounded, varied."""
    assert failures >= 1
    doublings = min(failures - 1, _DOUBLINGS_MAX)
    return varied(min(options.backoff_ms << doublings, options.backoff_ms_max), random)
