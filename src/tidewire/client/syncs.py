"""Which chats are behind, and which pages are being asked for. PURE."""

from typing import TYPE_CHECKING

import msgspec

from tidewire.client.backoff import backoff_ms
from tidewire.client.options import ClientOptions
from tidewire.client.places import Place
from tidewire.domain.ids import ChatId
from tidewire.wire.client_frames import SyncRequestFrame, SyncRequestPayload

if TYPE_CHECKING:
    from random import Random


class Flight(msgspec.Struct, frozen=True):
    """A page that was asked for."""

    place: Place
    after: int
    expires_at_ms: int


class Syncs:
    def __init__(self, options: ClientOptions, random: "Random") -> None:
        self._options = options
        self._random = random
        # Chats that want a page, and from when on; asked in this order.
        self._wanted: dict[ChatId, tuple[Place, int]] = {}
        # None of them before this: what comes with every frame need not look at every chat.
        self._wanted_from_ms = 0
        self._flying: dict[str, Flight] = {}
        self._asked: dict[ChatId, str] = {}
        self._failures: dict[ChatId, int] = {}

    def clear(self) -> None:
        self._wanted.clear()
        self._flying.clear()
        self._asked.clear()
        self._failures.clear()

    def want(self, place: Place, from_ms: int) -> None:
        """Ask for a page of this chat, at this time at the earliest. Once is enough."""
        chat_id = place.chat_id
        if chat_id in self._asked:
            return
        known = self._wanted.get(chat_id)
        if known is None or from_ms < known[1]:
            self._put(place, from_ms)

    def forget(self, chat_id: ChatId) -> None:
        self._wanted.pop(chat_id, None)
        self._failures.pop(chat_id, None)

    def due(self, now_ms: int) -> list[Place]:
        """Places whose page is to be asked for now, as far as the bound allows."""
        room = self._options.syncs_max - len(self._flying)
        if room <= 0 or not self._wanted or now_ms < self._wanted_from_ms:
            return []
        due: list[Place] = []
        for chat_id, (place, from_ms) in list(self._wanted.items()):
            if from_ms > now_ms:
                continue
            del self._wanted[chat_id]
            # What was missing may have come meanwhile.
            if place.is_behind:
                due.append(place)
                if len(due) == room:
                    break
        self._wanted_from_ms = min((from_ms for _, from_ms in self._wanted.values()), default=0)
        return due

    def ask(self, place: Place, request_id: str, now_ms: int) -> SyncRequestFrame:
        self._flying[request_id] = Flight(place, place.cursor, now_ms + self._options.answer_ms_max)
        self._asked[place.chat_id] = request_id
        return SyncRequestFrame(
            request_id=request_id,
            payload=SyncRequestPayload(
                chat_id=place.chat_id,
                last_acked_sequence=place.cursor,
                limit=self._options.page_messages,
            ),
        )

    def answered(self, request_id: str) -> Flight | None:
        """The page that this is the answer to."""
        flight = self._flying.pop(request_id, None)
        if flight is not None:
            self._asked.pop(flight.place.chat_id, None)
        return flight

    def succeeded(self, place: Place) -> None:
        self._failures.pop(place.chat_id, None)

    def failed(self, place: Place, now_ms: int, retry_after_ms: int) -> None:
        """Ask again later, and not earlier."""
        failures = self._failures[place.chat_id] = self._failures.get(place.chat_id, 0) + 1
        wait_ms = backoff_ms(
            failures,
            self._random,
            first_ms=self._options.backoff_ms,
            longest_ms=self._options.backoff_ms_max,
        )
        self._put(place, now_ms + max(wait_ms, retry_after_ms))

    def is_overdue(self, now_ms: int) -> bool:
        return any(flight.expires_at_ms <= now_ms for flight in self._flying.values())

    def next_deadline_ms(self, *, may_ask: bool) -> int | None:
        deadlines = [flight.expires_at_ms for flight in self._flying.values()]
        if may_ask and self._wanted and len(self._flying) < self._options.syncs_max:
            deadlines.append(self._wanted_from_ms)
        return min(deadlines, default=None)

    def _put(self, place: Place, from_ms: int) -> None:
        self._wanted.pop(place.chat_id, None)
        is_first = not self._wanted
        self._wanted[place.chat_id] = (place, from_ms)
        self._wanted_from_ms = from_ms if is_first else min(from_ms, self._wanted_from_ms)
