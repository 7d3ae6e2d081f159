"""Where planes and commands report what an operator may have to look up later.

The address of a client is known to the edge alone, and no rule of a plane depends on it. So the
edge notes it for the request (`ORIGIN`), and the trail reads it there; planes name only the actor.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Protocol, TypedDict, Unpack

import msgspec

from tidewire.domain.audit import AuditAction
from tidewire.domain.ids import ChatId, SessionId


class Origin(msgspec.Struct, frozen=True):
    """Where a request comes from."""

    address: str | None = None
    """The client's IP address, behind trusted proxies too."""
    client: str | None = None
    """The client's name for itself, as it came: clean it before it is stored or shown."""


NOWHERE: Final = Origin()
"""The origin of work that no client asked for."""

ORIGIN: Final[ContextVar[Origin]] = ContextVar("ORIGIN", default=NOWHERE)
"""The origin of the request that is being carried out."""


@contextmanager
def origin_noted(origin: Origin) -> Iterator[None]:
    """Work that begins inside has this origin."""
    before = ORIGIN.set(origin)
    try:
        yield
    finally:
        ORIGIN.reset(before)


class AuditFields(TypedDict, total=False):
    """The fields of `domain.audit.AuditRecord` that a caller may add."""

    target: str | None
    chat_id: ChatId | None
    sequence: int | None
    session_id: SessionId | None
    command: str | None
    reason: str | None
    count: int | None


class AuditTrail(Protocol):
    """Takes records. Call it after the act is durable, or has failed."""

    def record(
        self, action: AuditAction, *, actor: str | None, **fields: Unpack[AuditFields]
    ) -> None:
        """Note that the action was done now, from the origin of the current request.

        Never raises and never waits.
        """
        ...


class NoTrail:
    """Keeps nothing: for tests and tools."""

    def record(self, *_: object, **__: object) -> None:
        """Does nothing."""


NO_TRAIL: Final[AuditTrail] = NoTrail()
