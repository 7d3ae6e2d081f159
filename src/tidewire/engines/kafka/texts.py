"""Which texts are on their way into the log, and which of them were deleted meanwhile. PURE.

A message owns its own text and the texts of its edits.
"""

from typing import Final

from msgspec.structs import replace

from tidewire.domain.events import LoggedEvent, MessageAppended
from tidewire.domain.ids import ChatId
from tidewire.domain.messages import Message

DELETED_MAX: Final = 10_000
"""How many of the last deletions are remembered: a relay reads a text and publishes it a moment
later, and the deletion may be committed in between."""

Owner = tuple[ChatId, int]
"""A message: its chat and its sequence."""


class Texts:
    def __init__(self, *, deleted_max: int = DELETED_MAX) -> None:
        self._deleted_max = deleted_max
        self._deleted: dict[Owner, int] = {}
        """The sequence of each message's deletion, the oldest first."""
        self._waiting: dict[Owner, int] = {}
        """How many texts of each message are on their way."""
        self._deleted_waiting: set[Owner] = set()

    @property
    def is_deleted_waiting(self) -> bool:
        """Whether a text that was deleted is still on its way."""
        return bool(self._deleted_waiting)

    def deleted(self, deletion: Message) -> None:
        """A deletion is committed."""
        assert deletion.amends is not None
        owner = (deletion.chat_id, deletion.amends.target)
        self._deleted[owner] = deletion.sequence
        if len(self._deleted) > self._deleted_max:
            del self._deleted[next(iter(self._deleted))]
        if owner in self._waiting:
            self._deleted_waiting.add(owner)

    def current(self, event: LoggedEvent) -> LoggedEvent:
        """An event that is about to be published, without a text that was deleted."""
        owner = owner_of(event)
        deleted_by = None if owner is None else self._deleted.get(owner)
        if deleted_by is None:
            return event
        assert isinstance(event, MessageAppended)
        erased = replace(event.message, content="", mentions=(), deleted_by=deleted_by)
        return replace(event, message=erased)

    def leaves(self, owner: Owner) -> None:
        """A text of this message is on its way into the log."""
        self._waiting[owner] = self._waiting.get(owner, 0) + 1

    def arrived(self, owner: Owner) -> None:
        """A text of this message is in the log, or is not on its way any more."""
        left = self._waiting.pop(owner) - 1
        if left:
            self._waiting[owner] = left
        else:
            self._deleted_waiting.discard(owner)


def owner_of(event: LoggedEvent) -> Owner | None:
    """The message to which the text of an event belongs; None if the event has no text."""
    if not isinstance(event, MessageAppended) or not event.message.content:
        return None
    message = event.message
    return message.chat_id, message.sequence if message.amends is None else message.amends.target
