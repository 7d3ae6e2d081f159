"""Helpers to push to users and to publish to the event log."""

from collections.abc import Sequence

from tidewire.domain.events import LoggedEvent
from tidewire.domain.ids import ConnectionId, UserId
from tidewire.ports.event_log import EventLog, publishing
from tidewire.ports.router import Push, Router


def give(
    router: Router,
    user_ids: Sequence[UserId],
    framed: bytes,
    *,
    except_connection: ConnectionId | None = None,
) -> None:
    """Push a message to these users."""
    router.push(Push(user_ids, "message", framed, except_connection))


async def published(log: EventLog, events: Sequence[LoggedEvent]) -> None:
    """Wait until the log has these events. Raises LogUnavailable."""
    error = await publishing(log, events)
    if error is not None:
        raise error
