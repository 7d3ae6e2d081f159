"""Pages of messages that are whole: cut where the chain breaks, and where they get too large. PURE.

A query is only read-committed against transactions: it may show the second message of a commit and
not the first. What follows a message that is not there yet is left out until it is (P-01).
"""

from collections.abc import Sequence

from tidewire.domain.messages import Message


def chained_after(messages: Sequence[Message], after: int) -> list[Message]:
    """The messages, ascending, up to the first whose predecessor is missing."""
    chain: list[Message] = []
    last = after
    for message in messages:
        # The one before the first may lie anywhere at or below the cursor.
        if message.prev_sequence > last or (chain and message.prev_sequence != last):
            break
        chain.append(message)
        last = message.sequence
    return chain


def chained_before(messages: Sequence[Message], top: int) -> list[Message]:
    """The messages, descending, from the one that must be on top down to the first that is
    missing."""
    chain: list[Message] = []
    wanted = top
    for message in messages:
        if message.sequence != wanted:
            break
        chain.append(message)
        wanted = message.prev_sequence
    return chain


def cut(messages: Sequence[Message], *, count_max: int, bytes_max: int) -> list[Message]:
    """The first messages that fit, but at least one."""
    page: list[Message] = []
    size_bytes = 0
    for message in messages:
        size_bytes += len(message.content.encode())
        if page and (len(page) >= count_max or size_bytes > bytes_max):
            break
        page.append(message)
    return page


def is_enough(messages: Sequence[Message], *, count_max: int, bytes_max: int) -> bool:
    """True if reading on could not make the page longer."""
    return len(cut(messages, count_max=count_max, bytes_max=bytes_max)) < len(messages) or (
        len(messages) >= count_max
    )
