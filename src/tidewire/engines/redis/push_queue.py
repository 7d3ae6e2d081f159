"""The queue of pushes to other processes: in order, bounded, and no loss goes untold. PURE.

If there is no room, or a batch cannot be delivered, everything that waits is dropped. The queue
then owes all clients a notice that pushes were lost, which goes out before anything else.
"""

from collections import deque
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from tidewire.domain.ids import ConnectionId, UserId
from tidewire.engines.redis.options import RedisOptions

_USER_BYTES: Final = 64
"""About how much memory a user id takes, with Python's overhead."""
_PUSH_BYTES: Final = 200
"""About how much memory a push takes besides its frame and its users."""


class Kind(StrEnum):
    """What an entry of a gateway's stream is about."""

    PUSH = "push"
    RESYNC = "resync"
    LOST = "lost"
    """All clients sync again; sessions and rosters, which entries may be about, are read again."""
    REVOKE = "revoke"
    DUPLICATE = "duplicate"
    FORGET_ROSTER = "forget_roster"
    NEWS = "news"
    """Only for gateways other than the sender, and only if they know this kind."""
    FORWARD = "forward"
    """Sends that another gateway forwards, or their results. Only for a gateway that has taken a
    lease or has forwarded sends, so that it knows this kind."""


class Parcel(NamedTuple):
    """One thing to tell gateways."""

    kind: Kind
    user_ids: Sequence[UserId] | None
    """None: every gateway gets it."""
    body: bytes = b""
    except_connection: ConnectionId | None = None
    news: bytes = b""
    """The news that come with a push."""

    @property
    def size(self) -> int:
        return (
            _PUSH_BYTES + len(self.body) + len(self.news) + _USER_BYTES * len(self.user_ids or ())
        )


LOST: Final = Parcel(Kind.LOST, None)


class Batch(NamedTuple):
    number: int
    parcels: list[Parcel]


class PushQueue:
    """One batch is under way at a time."""

    def __init__(self, options: RedisOptions) -> None:
        self._options = options
        self._waiting: deque[Parcel] = deque()
        self._batch: Batch | None = None
        self._attempts = 0
        self._batches = 0
        self.bytes_count = 0
        self.put_count = 0
        """How many parcels have been put in, ever."""
        self.done_count = 0
        """How many of them, from the first on, were handed on or dropped."""
        self.losses = 0
        """How often everything that waited was dropped, and all clients told."""
        self._dropped_since = False
        self.owes_word = False
        """Something was dropped, and the clients have not been told yet."""

    def put(self, parcel: Parcel) -> None:
        """Add one to the end; if there is no room, everything that waits is dropped."""
        self.put_count += 1
        if self.bytes_count + parcel.size > self._options.queue_bytes_max:
            self._drop()
            return
        self._waiting.append(parcel)
        self.bytes_count += parcel.size

    def take(self) -> Batch | None:
        """What to push now: the batch that failed before, or the next one; None if there is none.
        `done` or `failed` has to follow."""
        if self._batch is None and (self.owes_word or self._waiting):
            self._batches += 1
            self._batch = Batch(self._batches, self._next_parcels())
        return self._batch

    def done(self) -> None:
        """The batch was pushed."""
        assert self._batch is not None
        parcels, self._batch = self._batch.parcels, None
        self._attempts = 0
        if parcels[0] is LOST:
            del parcels[0]
            # It is still owed if something was dropped after this notice had left the queue.
            self.owes_word = self._dropped_since
        for parcel in parcels:
            self.bytes_count -= parcel.size
        self._count_done()

    def failed(self) -> None:
        """The batch may not have been pushed: it is tried again, for a while."""
        assert self._batch is not None
        self._attempts += 1
        if self.owes_word or self._attempts >= self._options.attempts_max:
            self._batch = None
            self._drop()
            self._attempts = 0

    def _next_parcels(self) -> list[Parcel]:
        parcels: list[Parcel] = []
        users = size = 0
        if self.owes_word:
            parcels.append(LOST)
            self._dropped_since = False
        options = self._options
        while self._waiting and len(parcels) < options.batch_pushes_max:
            parcel = self._waiting[0]
            users += len(parcel.user_ids or ())
            size += parcel.size
            if parcels and (users > options.batch_users_max or size > options.batch_bytes_max):
                break
            parcels.append(self._waiting.popleft())
        return parcels

    def _drop(self) -> None:
        """Drop everything but the batch under way, which may have been pushed already."""
        self.losses += 1
        self.owes_word = True
        self._dropped_since = True
        self._waiting.clear()
        parcels = [] if self._batch is None else self._batch.parcels
        self.bytes_count = sum(parcel.size for parcel in parcels if parcel is not LOST)
        if self._batch is None:
            self._count_done()

    def _count_done(self) -> None:
        """Called when no batch is under way."""
        self.done_count = self.put_count - len(self._waiting)
