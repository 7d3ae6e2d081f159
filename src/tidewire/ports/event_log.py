"""Where the events of commits go. One process: straight from the writer. Cluster: Kafka."""

from collections.abc import Sequence
from typing import Protocol

from tidewire.domain.events import Event


class CommitListener(Protocol):
    """Is told what was committed."""

    def __call__(self, events: Sequence[Event]) -> None:
        """Take the events of one commit, in the order in which they happened.

        Called once per commit that has events, in commit order, on the event loop, after the commit
        is durable and before the callers of that commit go on. Must return soon and not raise.
        """
        ...


def ignore_commits(events: Sequence[Event]) -> None:
    """The listener of somebody who does not care."""
