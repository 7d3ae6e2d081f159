"""Messages that are on their way on this connection: which request is which message. PURE."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tidewire.client.effects import Now
from tidewire.client.outbox import FLYING, Entry
from tidewire.client.places import Place
from tidewire.domain.ids import ChatId, ClientMessageId
from tidewire.wire.client_frames import SendMessageFrame, SendMessagePayload


class Sending(NamedTuple):
    client_message_id: ClientMessageId
    chat_id: ChatId
    expires_at_ms: int


class Sends:
    def __init__(self, places: dict[ChatId, Place], answer_ms_max: int) -> None:
        self._places = places
        self._answer_ms_max = answer_ms_max
        # Oldest first, so the first one's answer is the first to be overdue.
        self._sending: dict[str, Sending] = {}
        self._marking: dict[ClientMessageId, Entry] = {}

    @property
    def is_empty(self) -> bool:
        return not self._sending and not self._marking

    def clear(self) -> None:
        self._sending.clear()
        self._marking.clear()

    def divide(self, leaving: Sequence[Entry]) -> tuple[list[Entry], list[Entry]]:
        """What may leave now, and of what it has to be written down first that it leaves."""
        unmarked = [entry for entry in leaving if entry.left_at_ms is None]
        for entry in unmarked:
            self._marking[entry.client_message_id] = entry
        return [entry for entry in leaving if entry.left_at_ms is not None], unmarked

    def marked(self, entries: Sequence[Entry]) -> list[Entry]:
        """It is written down that these leave; those of them that still want to."""
        return [
            entry
            for entry in entries
            if self._marking.pop(entry.client_message_id, None) is not None
        ]

    def frame(self, entry: Entry, new_request_id: Callable[[], str], now: Now) -> SendMessageFrame:
        assert entry.state is FLYING
        request_id = new_request_id()
        self._sending[request_id] = Sending(
            entry.client_message_id, entry.chat_id, now.ms + self._answer_ms_max
        )
        place = self._places.get(entry.chat_id)
        if place is not None:
            place.sends_flying += 1
        return SendMessageFrame(
            request_id=request_id,
            payload=SendMessagePayload(
                client_message_id=entry.client_message_id,
                chat_id=entry.chat_id,
                content=entry.content,
                content_type=entry.content_type,
                seen_sequence=entry.seen_sequence,
                is_first=entry.is_first,
            ),
        )

    def answered(self, request_id: str | None) -> Sending | None:
        """What this is the answer to, if it is one."""
        if request_id is None:
            return None
        sending = self._sending.pop(request_id, None)
        if sending is not None:
            place = self._places.get(sending.chat_id)
            if place is not None and place.sends_flying:
                place.sends_flying -= 1
        return sending

    def next_deadline_ms(self) -> int | None:
        for sending in self._sending.values():
            return sending.expires_at_ms
        return None
