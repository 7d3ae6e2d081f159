"""Effects: what a connection's core wants done, as values; `driver` carries them out. PURE."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec

from tidewire.client.entries import Item
from tidewire.client.outbox import OutboxEntry
from tidewire.client.replica import Replica
from tidewire.domain.ids import ChatId, ClientMessageId
from tidewire.wire.client_frames import ClientFrame
from tidewire.wire.server_frames import ChatUpdatePayload, TypingIndicatorPayload


class Now(msgspec.Struct, frozen=True, gc=False):
    """An instant: `ms` on a monotonic clock, `wall_ms` on the wall clock."""

    ms: int
    wall_ms: int


class ConnectionState(StrEnum):
    OFFLINE = "offline"
    CONNECTING = "connecting"
    SYNCING = "syncing"
    READY = "ready"
    CLOSED = "closed"


class Status(msgspec.Struct, frozen=True):
    """The state of a connection; `reason` is why it is offline or closed."""

    state: ConnectionState
    reason: str | None = None

    def __str__(self) -> str:
        return self.state if self.reason is None else f"{self.state}({self.reason})"


class Connect(msgspec.Struct, frozen=True):
    """Open a connection; `with_new_token`: get another token first, the last one is not valid."""

    with_new_token: bool


class Send(msgspec.Struct, frozen=True):
    frame: ClientFrame


class Disconnect(msgspec.Struct, frozen=True):
    """Close the socket. `lost` is not called for it: the core has forgotten it already."""

    code: int


class Keep(msgspec.Struct, frozen=True):
    """Store entries, and that everything up to `through` is held. Then `stored` is called.

    `is_complete`: the server has nothing above `through`; what is held above is from before a
    restore. `deletions` are the deletions among the items that the unread count does not include
    yet; they belong to the count that the server has told `counts_told` times so far.
    """

    replica: Replica
    items: Sequence[Item]
    through: int
    generation: int
    is_complete: bool = False
    deletions: Sequence[int] = ()
    counts_told: int = 0


class Erased(msgspec.Struct, frozen=True):
    """A message of another user whose text the store has just erased, because of the deletion `by`;
    and whether it mentioned the user."""

    sequence: int
    by: int
    is_mention: bool


class Restart(msgspec.Struct, frozen=True):
    """The server's store is another one: these replicas begin again. Stored before later Keeps."""

    replicas: Sequence[Replica]
    epoch: str | None


class Mark(msgspec.Struct, frozen=True):
    """Note on the disk that these are about to leave. Then `marked` is called."""

    entries: Sequence[OutboxEntry]


class Release(msgspec.Struct, frozen=True):
    """Entries of this chat in the outbox may leave. The connection itself handles this effect."""

    chat_id: ChatId


class SendFailed(msgspec.Struct, frozen=True):
    """An entry was refused for good, or it cannot be known whether the server has it. `is_kept`: it
    stays in the outbox until the user decides. Then `saved` is called, once it is on the disk."""

    entry: OutboxEntry
    is_kept: bool = True


class Rewritten(msgspec.Struct, frozen=True):
    """An entry of the outbox has changed, and must be on the disk before it leaves."""

    entry: OutboxEntry


class Dropped(msgspec.Struct, frozen=True):
    """These were removed from the outbox, because they have no effect any more. Then `saved` is
    called, once they are off the disk."""

    entries: Sequence[OutboxEntry]


class Settled(msgspec.Struct, frozen=True):
    """The server has stored an entry of ours."""

    client_message_id: ClientMessageId
    chat_id: ChatId
    sequence: int


class ReplicaChanged(msgspec.Struct, frozen=True):
    """Numbers or facts of a chat have changed: store and show them."""

    replica: Replica


class ChatChanged(msgspec.Struct, frozen=True):
    """Something happened to a chat, as the server has sent it."""

    update: ChatUpdatePayload


class Typed(msgspec.Struct, frozen=True):
    typing: TypingIndicatorPayload


class StatusChanged(msgspec.Struct, frozen=True):
    status: Status


class Introduced(msgspec.Struct, frozen=True):
    """The server has introduced itself: our user id, the epoch of its store, and which of the
    offered features are on."""

    user_id: str
    epoch: str
    features: tuple[str, ...] = ()


class PauseReading(msgspec.Struct, frozen=True):
    """The disk is slower than the network: read no more until ResumeReading."""


class ResumeReading(msgspec.Struct, frozen=True):
    pass


Effect = (
    Connect
    | Send
    | Disconnect
    | Keep
    | Restart
    | Mark
    | Release
    | SendFailed
    | Rewritten
    | Dropped
    | Settled
    | ReplicaChanged
    | ChatChanged
    | Typed
    | StatusChanged
    | Introduced
    | PauseReading
    | ResumeReading
)

PAUSE: Final = PauseReading()
RESUME: Final = ResumeReading()


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no connection: the server's answer to the request to upgrade."""

    status: int
    error: str
    reason: str | None = None
    message: str = ""
    retry_after_ms: int = 0
