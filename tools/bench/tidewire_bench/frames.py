"""The frames of a load client: written cheaply, read only as far as it needs them. PURE.

Processor time that a generator spends on a message is taken from the server on the same machine. So
requests on the path of every message are templates with numbers in them, and of the frames that
come back only the fields that are used are decoded.
"""

from typing import Final

import msgspec

CONTENT: Final = "Hello, world! " * 6
"""84 bytes, as in every workload of ours."""
SYNC_LIMIT: Final = 500


class Part(msgspec.Struct, gc=False):
    """A payload, or the fields of it that matter here."""


class Item(msgspec.Struct, gc=False, frozen=True):
    """A message or another entry, from a push, a page or an ack."""

    sequence: int
    prev_sequence: int
    client_message_id: str
    chat_id: str = ""
    """Set in a push; in a page all items are of one chat."""
    kind: str | None = None
    """None: a message; else another entry."""


class Push(Part, gc=False, tag="message", tag_field="type"):
    payload: Item


class EntryPush(Part, gc=False, tag="entry", tag_field="type"):
    """An entry that is no message; pushed to clients that have offered `entries`."""

    payload: Item


class AckPart(Part, gc=False):
    chat_id: str
    client_message_id: str
    sequence: int
    prev_sequence: int


class SendAck(Part, gc=False, tag="send_message_ack", tag_field="type"):
    payload: AckPart
    request_id: str = ""


class EstablishedPart(Part, gc=False):
    user_id: str
    features: tuple[str, ...] = ()


class Established(Part, gc=False, tag="connection_established", tag_field="type"):
    payload: EstablishedPart


class Numbers(Part, gc=False):
    """The numbers that a client shows of a chat. None of them ever goes down."""

    chat_id: str
    head: int = 0
    delivered: int = 0
    read: int = 0
    others_delivered: int = 0
    others_read: int = 0


RISING: Final = ("head", "delivered", "read", "others_delivered", "others_read")


class DigestEntry(Numbers, gc=False, kw_only=True):
    joined_sequence: int = 0


class DigestPart(msgspec.Struct):
    last: bool
    chats: list[DigestEntry]
    page: int = 0


class Digest(msgspec.Struct, tag="chat_digest", tag_field="type"):
    payload: DigestPart


class PagePart(msgspec.Struct):
    messages: list[Item]
    synced_through: int
    has_more: bool


class Page(msgspec.Struct, tag="sync_response", tag_field="type"):
    payload: PagePart


class StatusPart(Part, gc=False):
    chat_id: str
    others_delivered: int
    others_read: int
    own_delivered: int = 0
    own_read: int = 0


class Status(Part, gc=False, tag="status_update", tag_field="type"):
    payload: StatusPart


class ChangePart(Part, gc=False):
    chat_id: str
    change: str
    user_id: str = ""
    joined_sequence: int = 0


class Change(Part, gc=False, tag="chat_update", tag_field="type"):
    payload: ChangePart


class ErrorDetails(Part, gc=False):
    retry_after_seconds: float = 0.0


class ErrorPart(msgspec.Struct):
    code: str
    message: str
    details: ErrorDetails = msgspec.field(default_factory=ErrorDetails)


class Error(msgspec.Struct, tag="error", tag_field="type"):
    payload: ErrorPart
    request_id: str | None = None


class ClosingPart(Part, gc=False):
    reason: str
    reconnect_delay_ms: int


class Closing(Part, gc=False, tag="connection_closing", tag_field="type"):
    payload: ClosingPart


class ResyncPart(Part, gc=False):
    delay_ms: int


class Resync(Part, gc=False, tag="resync", tag_field="type"):
    payload: ResyncPart


class Typing(Part, gc=False, tag="typing_indicator", tag_field="type"):
    """Another user types. Ignored."""


class Beat(Part, gc=False, tag="heartbeat_ack", tag_field="type"):
    """The server is alive."""


Frame = (
    SendAck
    | Push
    | EntryPush
    | Established
    | Digest
    | Page
    | Status
    | Change
    | Error
    | Closing
    | Resync
    | Typing
    | Beat
)
_DECODER: Final[msgspec.json.Decoder[Frame]] = msgspec.json.Decoder(Frame)
decode_frame: Final = _DECODER.decode
"""Raises msgspec.DecodeError for a frame that is not known here."""
_MESSAGE_DECODER: Final[msgspec.json.Decoder[Frame | list[Frame]]] = msgspec.json.Decoder(
    Frame | list[Frame]
)
decode_message: Final = _MESSAGE_DECODER.decode
"""The same for a frame or an array of frames."""

HEARTBEAT: Final = b'{"type":"heartbeat","payload":{}}'


def message_key(sender: int, number: int) -> str:
    """The client_message_id of a sender's message with this number in its chat: a UUID that costs
    nothing to make."""
    return f"{sender:08x}-0000-4000-8000-{number:012x}"


def sender_of(client_message_id: str) -> int:
    return int(client_message_id[:8], 16)


def number_of(client_message_id: str) -> int:
    """The number of this message among those of its sender."""
    return int(client_message_id[24:], 16)


def send_template(chat_id: str, sender: int) -> bytes:
    """A `send_message` without its number, which goes in twice: `template % (number, number)`."""
    return (
        b'{"type":"send_message","request_id":"%d","payload":{"client_message_id":"'
        + f"{sender:08x}-0000-4000-8000-".encode()
        + b'%012x","chat_id":"'
        + f'{chat_id}","content":"{CONTENT}"}}}}'.encode()
    )


def edit_template(chat_id: str, sender: int) -> bytes:
    """An `edit_message` without its number, which goes in twice, and its target."""
    return _change_template("edit_message", chat_id, sender, f'"content":"{CONTENT}"')


def react_template(chat_id: str, sender: int) -> bytes:
    """A `react`, with the same gaps as an edit."""
    return _change_template("react", chat_id, sender, '"emoji":"👍"')


def _change_template(kind: str, chat_id: str, sender: int, field: str) -> bytes:
    key = f"{sender:08x}-0000-4000-8000-%012x"
    payload = f'"client_message_id":"{key}","chat_id":"{chat_id}","target":%d,{field}'
    return f'{{"type":"{kind}","request_id":"%d","payload":{{{payload}}}}}'.encode()


def ack_template(chat_id: str) -> bytes:
    """An `ack` without its sequence."""
    payload = f'{{"chat_id":"{chat_id}","last_acked_sequence":%d}}'
    return f'{{"type":"ack","payload":{payload}}}'.encode()


def request(kind: str, request_id: str, **payload: object) -> bytes:
    return msgspec.json.encode({"type": kind, "request_id": request_id, "payload": payload})


def one_way(kind: str, **payload: object) -> bytes:
    return msgspec.json.encode({"type": kind, "payload": payload})


def sync_request(chat_id: str, after: int, request_id: str) -> bytes:
    return request(
        "sync_request", request_id, chat_id=chat_id, last_acked_sequence=after, limit=SYNC_LIMIT
    )
