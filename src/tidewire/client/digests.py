"""The state of all chats, page by page: when it is asked for, and what it changes. PURE.

A digest merges, it never overrules: an entry that is older than what is known is ignored, and at
its end only those chats are gone that were held before it began and were neither listed nor
changed meanwhile.
"""

from collections.abc import Iterable

from tidewire.client.options import ClientOptions
from tidewire.client.places import Place, place_of
from tidewire.domain.delivery import DigestEntry
from tidewire.domain.ids import ChatId


class Digests:
    def __init__(self, options: ClientOptions) -> None:
        self._options = options
        self._request_id: str | None = None
        self._expires_at_ms: int | None = None
        """Until when the last page has to be here; None while no digest is coming."""
        self._due_at_ms: int | None = None
        self._held: dict[ChatId, None] = {}

    def clear(self) -> None:
        self._request_id = self._expires_at_ms = self._due_at_ms = None
        self._held.clear()

    # Asking.

    def begin(self, held: Iterable[ChatId], now_ms: int) -> None:
        """A digest is on its way; these chats are held now."""
        self._held = dict.fromkeys(held)
        self._expires_at_ms = now_ms + self._options.answer_ms_max
        self._due_at_ms = None

    def ask(self, request_id: str, held: Iterable[ChatId], now_ms: int) -> None:
        self._request_id = request_id
        self.begin(held, now_ms)

    def want(self, at_ms: int) -> None:
        """Something may have been missed: ask, at this time or earlier if that was wanted."""
        self._due_at_ms = at_ms if self._due_at_ms is None else min(self._due_at_ms, at_ms)

    def failed(self, again_at_ms: int) -> None:
        self._request_id = self._expires_at_ms = None
        self._held.clear()
        self.want(again_at_ms)

    def is_asked(self, request_id: str) -> bool:
        return request_id == self._request_id

    def is_due(self, now_ms: int) -> bool:
        """One at a time."""
        return (
            self._expires_at_ms is None
            and self._due_at_ms is not None
            and self._due_at_ms <= now_ms
        )

    def is_overdue(self, now_ms: int) -> bool:
        return self._expires_at_ms is not None and self._expires_at_ms <= now_ms

    def next_deadline_ms(self, *, may_ask: bool) -> int | None:
        if self._expires_at_ms is not None:
            return self._expires_at_ms
        return self._due_at_ms if may_ask else None

    # Answers.

    def merge(self, places: dict[ChatId, Place], entry: DigestEntry) -> tuple[Place, bool]:
        """Take an entry in; the place, and whether it was news."""
        self._held.pop(entry.chat_id, None)
        place = places.get(entry.chat_id)
        if place is None:
            place = places[entry.chat_id] = place_of(entry, waiting_max=self._options.waiting_max)
            return place, True
        if entry.membership_version < place.membership_version:
            return place, False
        place.merge_digest(entry)
        return place, True

    def updated(self, chat_id: ChatId) -> None:
        """This chat changed while the digest was read, so what the digest says of it is old."""
        self._held.pop(chat_id, None)

    def complete(self) -> list[ChatId]:
        """The last page is here; the chats that are gone."""
        gone = list(self._held)
        self._held.clear()
        self._request_id = self._expires_at_ms = None
        return gone
