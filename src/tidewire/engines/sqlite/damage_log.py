"""Tells an operator which messages are damaged and which requests met damage: log lines, counters.

A damaged message is read again and again; it is told once, with its chat and its sequence. Its text
is never told.
"""

import logging
from collections.abc import Iterable
from typing import Final

from tidewire.domain.errors import StoreDamaged
from tidewire.domain.messages import Message

_KNOWN_MAX: Final = 10_000
"""So many damaged messages are remembered; more are told again when they are read again."""

_logger: Final = logging.getLogger(__name__)


class DamageLog:
    """Used on the event loop."""

    def __init__(self) -> None:
        self.messages_damaged = 0
        """How many messages were found damaged since the start, each counted once."""
        self.requests_failed = 0
        """How many requests failed because of damage."""
        self._known: set[tuple[str, int]] = set()

    def note_messages(self, messages: Iterable[Message]) -> None:
        for message in messages:
            if message.is_damaged:
                self._note(message.chat_id, message.sequence)

    def note_failure(self, failure: StoreDamaged) -> None:
        self.requests_failed += 1
        _logger.error("a request met damage in the store", extra={"reason": failure.reason})

    def _note(self, chat_id: str, sequence: int) -> None:
        place = (chat_id, sequence)
        if place in self._known:
            return
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known.add(place)
        self.messages_damaged += 1
        _logger.error(
            "a stored message is damaged; it is shown as such, without its text",
            extra={"chat_id": chat_id, "sequence": sequence},
        )
