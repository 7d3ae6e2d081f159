"""What a connection's core wants to be done, as values; `driver` does it. PURE."""

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
    """An instant: `ms` of a clock that only goes forward, `wall_ms` of the calendar's."""

    ms: int
    wall_ms: int


class ConnectionState(StrEnum):
    OFFLINE = "offline"
    CONNECTING = "connecting"
    SYNCING = "syncing"
    READY = "ready"
    CLOSED = "closed"


class Status(msgspec.Struct, frozen=True):
    """Where a connection stands; `reason` is why it is offline or closed."""

    state: ConnectionState
    reason: str | None = None

    def __str__(self) -> str:
        return self.state if self.reason is None else f"{self.state}({self.reason})"


class Connect(msgspec.Struct, frozen=True):
    """Open a connection; with a token that is not the last one, if that was refused."""

    with_new_token: bool


class Send(msgspec.Struct, frozen=True):
    frame: ClientFrame


class Disconnect(msgspec.Struct, frozen=True):
    """Close the socket. Its end is told by `lost`, as every end is."""

    code: int


class Keep(msgspec.Struct, frozen=True):
    """Store entries, and that everything up to `through` is held. Told by `stored`.

    `is_complete`: the server has nothing above `through`; what is held above is from before a
    restore. `deletions` are those of the items that are new to what is unread, as it was when the
    server had told it `counts_told` times.
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
    """The server's store is another one: these replicas begin again. Before any later Keep."""

    replicas: Sequence[Replica]
    epoch: str | None


class Mark(msgspec.Struct, frozen=True):
    """Note on the disk that these are about to leave. Told by `marked`."""

    entries: Sequence[OutboxEntry]


class Release(msgspec.Struct, frozen=True):
    """What waits in the outbox for this chat may leave. Routed by the connection itself."""

    chat_id: ChatId


class SendFailed(msgspec.Struct, frozen=True):
    """An entry was refused for good, or nothing can tell whether the server has it. `is_kept`: it
    stays in the outbox, for its user to decide."""

    entry: OutboxEntry
    is_kept: bool = True


class Rewritten(msgspec.Struct, frozen=True):
    """An entry of the outbox says something else now: to be on the disk before it leaves."""

    entry: OutboxEntry


class Dropped(msgspec.Struct, frozen=True):
    """These are in the outbox no longer: there is nothing left that they could do."""

    entries: Sequence[OutboxEntry]


class Settled(msgspec.Struct, frozen=True):
    """An entry of ours is in the server's store."""

    client_message_id: ClientMessageId
    chat_id: ChatId
    sequence: int


class ReplicaChanged(msgspec.Struct, frozen=True):
    """Numbers or facts of a chat are other than before: to be stored, and to be shown."""

    replica: Replica


class ChatChanged(msgspec.Struct, frozen=True):
    """Something happened to a chat, in the server's words."""

    update: ChatUpdatePayload


class Typed(msgspec.Struct, frozen=True):
    typing: TypingIndicatorPayload


class StatusChanged(msgspec.Struct, frozen=True):
    status: Status


class Introduced(msgspec.Struct, frozen=True):
    """The server has said who we are to it, which epoch of its store this is, and which of the
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
    """Why no connection came about: the answer to the request to upgrade."""

    status: int
    error: str
    reason: str | None = None
    message: str = ""
    retry_after_ms: int = 0
