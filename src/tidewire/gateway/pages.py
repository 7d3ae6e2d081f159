"""Large answers of a connection, one after the other: pages of messages and of digests. PURE.

One page at a time is read, sent and drained; only then is the next one read. So a slow reader is
served slowly, and holds one page of the server's memory, whatever it asks for (D-07). A digest of
many pages takes turns with the syncs that wait.
"""

from collections import deque

import msgspec

from tidewire.domain.ids import ChatId
from tidewire.wire.client_frames import SyncRequestFrame


class DigestRun(msgspec.Struct, frozen=True, gc=False):
    """One digest being sent, and how far it has got. Without a `request_id` it comes unasked."""

    request_id: str | None
    digest_id: str
    page: int = 0
    after: ChatId | None = None

    def continued(self, after: ChatId) -> "DigestRun":
        """The next page of the same digest."""
        return DigestRun(self.request_id, self.digest_id, self.page + 1, after)


PageWork = SyncRequestFrame | DigestRun


class PageLane:
    """The work being read or drained now, and the queue behind it."""

    __slots__ = ("_digests_begun", "_queue", "current", "is_draining")

    def __init__(self) -> None:
        self.current: PageWork | None = None
        self.is_draining = False
        """The current page was sent and has not gone out yet."""
        # Made when first used: most connections never have anything waiting.
        self._queue: deque[PageWork] | None = None
        self._digests_begun = 0

    def __len__(self) -> int:
        """The number of work items, the current one included."""
        queued_count = len(self._queue) if self._queue else 0
        return queued_count + (self.current is not None)

    def begin_digest(self, request_id: str | None) -> DigestRun:
        """Make a digest run with an id that is unique on this connection."""
        self._digests_begun += 1
        return DigestRun(request_id, f"digest_{self._digests_begun}")

    def offer(self, work: PageWork) -> PageWork | None:
        """Add work; return it if it must be read now."""
        if self.current is None:
            self.current = work
            return work
        if self._queue is None:
            self._queue = deque()
        self._queue.append(work)
        return None

    def next(self) -> PageWork | None:
        """Finish the current work, and return the work to read now, if any."""
        assert self.current is not None
        self.is_draining = False
        self.current = self._queue.popleft() if self._queue else None
        return self.current

    def clear(self) -> None:
        """Forget everything: the connection ends."""
        self.current = None
        self.is_draining = False
        self._queue = None
