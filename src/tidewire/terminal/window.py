"""The loaded part of a chat's history: bounded, and without a missing message. PURE."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from tidewire.client.model import Message

PAGE: Final = 50
"""How many messages are loaded at a time."""
WINDOW_MAX: Final = 500
"""How many are kept; more are dropped at the far end, and loaded again when the user goes there."""
CHANGES_MAX: Final = 1000
"""How many changes are remembered, for pages that were asked for before them."""

Change = Callable[[Message], Message]
"""Changes a message, or a reply's quote of it; applying it again changes nothing."""


class Window:
    """Messages in their order. At its ends there may be more: `has_older`, `has_newer`."""

    def __init__(self, messages_max: int = WINDOW_MAX) -> None:
        self._messages_max = messages_max
        self._messages: dict[int, Message] = {}
        self._changes: deque[tuple[int, Change]] = deque(maxlen=CHANGES_MAX)
        self.has_older = False
        self.has_newer = False

    @property
    def messages(self) -> Sequence[Message]:
        return list(self._messages.values())

    @property
    def first(self) -> int | None:
        return next(iter(self._messages), None)

    @property
    def last(self) -> int | None:
        return next(reversed(self._messages), None)

    def __len__(self) -> int:
        return len(self._messages)

    def replace(
        self, messages: Iterable[Message], *, has_older: bool, has_newer: bool = False
    ) -> None:
        """Start again somewhere in the history."""
        self._messages = {}
        self._add_page(messages)
        self.has_older, self.has_newer = has_older, has_newer
        self._trim_old()

    def prepend(self, messages: Iterable[Message], *, has_older: bool) -> None:
        """Add a page that ends just before the first message; if there are too many, drop the
        newest."""
        self._add_page(messages)
        self.has_older = has_older
        while len(self._messages) > self._messages_max:
            self._messages.popitem()
            self.has_newer = True

    def append(self, messages: Iterable[Message], *, has_newer: bool) -> None:
        """Add a page that begins just after the last message; if there are too many, drop the
        oldest."""
        self._add_page(messages)
        self.has_newer = has_newer
        self._trim_old()

    def arrived(self, message: Message) -> bool:
        """Add a message that continues the chat; False: not shown, as the end is not loaded."""
        if self.has_newer:
            return False
        self._add([message])
        self._trim_old()
        return message.sequence in self._messages

    def changed(self, target: int, change: Change) -> None:
        """Apply a change to a message, and to its quotes in replies."""
        self._changes.append((target, change))
        for sequence, message in self._messages.items():
            self._messages[sequence] = _after(message, target, change)

    def get(self, sequence: int) -> Message | None:
        return self._messages.get(sequence)

    def _add_page(self, messages: Iterable[Message]) -> None:
        """Add a page, with the changes: it may have been read before they came."""
        page = list(messages)
        here = {one.sequence for one in page} | {one.quoted.sequence for one in page if one.quoted}
        for target, change in self._changes:
            if target in here:
                page = [_after(one, target, change) for one in page]
        self._add(page)

    def _add(self, messages: Iterable[Message]) -> None:
        merged = self._messages | {message.sequence: message for message in messages}
        self._messages = dict(sorted(merged.items()))

    def _trim_old(self) -> None:
        extra = len(self._messages) - self._messages_max
        if extra > 0:
            for sequence in list(self._messages)[:extra]:
                del self._messages[sequence]
            self.has_older = True


def _after(message: Message, target: int, change: Change) -> Message:
    after = change(message) if message.sequence == target else message
    if after.quoted is not None and after.quoted.sequence == target:
        after = replace(after, quoted=change(after.quoted))
    return after
