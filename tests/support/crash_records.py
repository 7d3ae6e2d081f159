"""The records that a load reports while it runs, one line each: its questions, and the answers.

A line is written before the act and another after its answer, so whatever happens to the process,
the reader of the lines knows what was promised and what was still open. Most records are entries of
a history (`history.py`), so that all trace invariants can be checked at the end. A line is short
enough for a pipe to take it in one piece (PIPE_BUF): the text of a message follows from its key and
its length.
"""

from typing import Any, Final, get_args

import msgspec

from tests.support import history
from tidewire.domain.ids import ClientMessageId
from tidewire.domain.messages import Message
from tidewire.domain.rows import entry_of_row, row_of


class Placed(history.Acked, frozen=True, kw_only=True):
    """The answer to Sent: as Acked, with the sequence of the entry before it."""

    prev_sequence: int


class OnLine(msgspec.Struct, frozen=True):
    """The next question is sent on this connection."""

    line: str


class Opening(msgspec.Struct, frozen=True):
    """The process is up and about to open the store."""


class Opened(msgspec.Struct, frozen=True):
    """The store is open."""


class Ready(msgspec.Struct, frozen=True):
    """The people and chats are there, the load begins."""


class Restarted(msgspec.Struct, frozen=True):
    """The write-ahead log has been restarted."""


class Fault(msgspec.Struct, frozen=True):
    """The load itself saw something that must not happen."""

    sentence: str


Record = (
    history.Sent
    | Placed
    | history.Refused
    | history.SyncAsked
    | history.Synced
    | history.TextsAsked
    | history.TextsShown
    | history.AdvanceSent
    | history.AdvanceAcked
    | history.PositionAsked
    | history.PositionShown
    | history.BoundaryAsked
    | history.BoundaryShown
    | history.SummaryAsked
    | history.SummaryShown
    | history.MemberAdding
    | history.MemberRemoving
    | history.MembershipDone
    | history.Published
    | OnLine
    | Opening
    | Opened
    | Ready
    | Restarted
    | Fault
)

LINE_BYTES_MAX: Final = 4096
"""What Linux promises a pipe to take in one piece."""

PAGE_MESSAGES_MAX: Final = 12
"""How many messages fit into a line."""

TEXT_MAX: Final = 40
"""How much of a text is reported where the record does not have its key."""

_KINDS: Final = {kind.__name__: kind for kind in get_args(Record)}


def content_of(key: ClientMessageId, length: int) -> str:
    """The text of a message with this key and length: a mixed-up or torn text does not fit."""
    text = f"{key} é{length} "
    return (text * (length // len(text) + 1))[:length]


def encode_line(record: Record) -> bytes:
    fields: dict[str, Any] = msgspec.structs.asdict(record)
    if isinstance(record, history.Sent):
        fields["content"] = _length(record.client_message_id, record.content)
    elif isinstance(record, history.Synced):
        fields["messages"] = [_shortened(message) for message in record.messages]
    elif isinstance(record, history.TextsShown):
        # A text begins with the key of its entry, which distinguishes it from other texts.
        fields["texts"] = {key: text[:TEXT_MAX] for key, text in record.texts.items()}
    line = msgspec.json.encode((type(record).__name__, fields)) + b"\n"
    assert len(line) <= LINE_BYTES_MAX
    return line


def decode_line(line: bytes) -> Record:
    name, fields = msgspec.json.decode(line)
    if name == "Sent":
        fields["content"] = content_of(fields["client_message_id"], fields["content"])
    elif name == "Synced":
        fields["messages"] = [_expanded(row) for row in fields["messages"]]
    elif name == "TextsShown":
        fields["texts"] = {int(sequence): text for sequence, text in fields["texts"].items()}
    record: Record = msgspec.convert(fields, _KINDS[name])
    return record


def _shortened(message: Message) -> tuple[object, ...]:
    length = str(_length(message.client_message_id, message.content))
    return *row_of(msgspec.structs.replace(message, content=length)), message.is_damaged


def _expanded(row: list[Any]) -> Message:
    message = entry_of_row(row[:-1])
    content = content_of(message.client_message_id, int(message.content))
    return msgspec.structs.replace(message, content=content, is_damaged=row[-1])


def _length(key: ClientMessageId, content: str) -> int:
    """The length, which is all that is reported: the text follows from it and the key."""
    assert content == content_of(key, len(content)), f"{key} has another text: {content[:80]!r}"
    return len(content)
