"""Sessions that ended: their sockets close here at once, and at the other gateways of a cluster."""

from collections.abc import Callable, Sequence

from tidewire.domain.ids import SessionId
from tidewire.gateway.hub import Hub


def nobody_else(_: object) -> None:
    """This process is the only one."""


class Revocations:
    """Closes the sockets of sessions that ended, and counts them."""

    def __init__(
        self, hub: Hub, tell_others: Callable[[Sequence[SessionId]], None] = nobody_else
    ) -> None:
        self.count = 0
        self._hub = hub
        self._tell_others = tell_others

    def __call__(self, session_ids: Sequence[SessionId]) -> None:
        """They ended here."""
        self.count += len(session_ids)
        self._hub.close_session(session_ids)
        self._tell_others(session_ids)
