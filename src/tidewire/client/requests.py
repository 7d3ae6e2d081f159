"""The open requests of a connection, and the timeouts of their answers. PURE."""

from typing import Final, TypeVar

from tidewire.client.effects import Now
from tidewire.client.outbox import OutboxEntry
from tidewire.client.replica import Replica

DIGEST: Final = "the digest"

Subject = Replica | OutboxEntry | str
"""What a request asks for: a page of a chat, to store an entry, or the digest."""
S = TypeVar("S")


class Requests:
    """The requests of this connection that are not answered yet."""

    def __init__(self, answer_ms_max: int) -> None:
        self._answer_ms_max = answer_ms_max
        self._made = 0
        # Oldest first, so the first one's answer is the first to be overdue.
        self._open: dict[str, tuple[Subject, int]] = {}

    def new_id(self) -> str:
        self._made += 1
        return str(self._made)

    def ask(self, subject: Subject, now: Now) -> str:
        """Open a request; returns its id."""
        request_id = self.new_id()
        self._open[request_id] = (subject, now.ms + self._answer_ms_max)
        return request_id

    def answered(self, request_id: str | None, kind: type[S]) -> S | None:
        """Close the request that this answers, if it is of this kind; returns its subject."""
        subject, _ = self._open.get(request_id or "", (None, 0))
        if subject is None or not isinstance(subject, kind):
            return None
        del self._open[request_id or ""]
        return subject

    def digest_answered(self) -> None:
        """Close requests for a digest. It may come unasked and in pages, so ids tell nothing."""
        for request_id, (subject, _) in list(self._open.items()):
            if subject is DIGEST:
                del self._open[request_id]

    def clear(self) -> None:
        self._open.clear()

    def next_deadline_ms(self) -> int | None:
        """When the first answer is overdue."""
        return next((expires_at_ms for _, expires_at_ms in self._open.values()), None)
