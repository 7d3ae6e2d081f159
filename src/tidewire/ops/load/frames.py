"""The frames of a load client: written from templates, read only as far as it needs them. PURE.

What a generator spends on a message is taken from the server on the same machine. So a request is
a template with two numbers in it, and of what comes back only a few fields are decoded.
"""

from typing import Final

import msgspec

CONTENT: Final = "Hello, world! " * 6
"""84 bytes, as in every workload of ours."""
SYNC_LIMIT: Final = 500


class _Part(msgspec.Struct, gc=False):
    """A payload, or the fields of it that matter here."""


class AckPart(_Part, gc=False):
    sequence: int
    prev_sequence: int
    deduplicated: bool


class SendAck(msgspec.Struct, gc=False, tag="send_message_ack", tag_field="type"):
    request_id: str
    payload: AckPart


class PushPart(_Part, gc=False):
    sequence: int
    prev_sequence: int
    client_message_id: str


class Push(msgspec.Struct, gc=False, tag="message", tag_field="type"):
    """A message as it arrives. Load clients that get pushes are in one chat only."""

    payload: PushPart


class EstablishedPart(_Part, gc=False):
    user_id: str


class Established(msgspec.Struct, gc=False, tag="connection_established", tag_field="type"):
    payload: EstablishedPart


class DigestChat(_Part, gc=False):
    chat_id: str
    head: int


class DigestPart(msgspec.Struct):
    digest_id: str
    last: bool
    chats: list[DigestChat]


class Digest(msgspec.Struct, tag="chat_digest", tag_field="type"):
    payload: DigestPart


class SyncPart(msgspec.Struct):
    chat_id: str
    messages: list[PushPart]
    synced_through: int
    has_more: bool


class SyncPage(msgspec.Struct, tag="sync_response", tag_field="type"):
    request_id: str
    payload: SyncPart


class ErrorDetails(_Part, gc=False):
    retry_after_seconds: float = 0.0


class ErrorPart(msgspec.Struct):
    code: str
    message: str
    details: ErrorDetails = msgspec.field(default_factory=ErrorDetails)


class Error(msgspec.Struct, tag="error", tag_field="type"):
    payload: ErrorPart
    request_id: str | None = None


class ClosingPart(_Part, gc=False):
    reason: str
    reconnect_delay_ms: int


class Closing(msgspec.Struct, gc=False, tag="connection_closing", tag_field="type"):
    payload: ClosingPart


class ResyncPart(_Part, gc=False):
    reason: str
    delay_ms: int


class Resync(msgspec.Struct, gc=False, tag="resync", tag_field="type"):
    payload: ResyncPart


class StatusUpdate(msgspec.Struct, gc=False, tag="status_update", tag_field="type"):
    """Ticks: not looked at."""


class ChatUpdate(msgspec.Struct, gc=False, tag="chat_update", tag_field="type"):
    """Not looked at."""


Frame = (
    SendAck
    | Push
    | Established
    | Digest
    | SyncPage
    | Error
    | Closing
    | Resync
    | StatusUpdate
    | ChatUpdate
)
_DECODER: Final[msgspec.json.Decoder[Frame]] = msgspec.json.Decoder(Frame)
decode_frame: Final = _DECODER.decode
"""Raises msgspec.DecodeError for a frame that is not known here."""


def send_template(chat_id: str, sender: int) -> bytes:
    """A `send_message`, but for its number: that goes in twice, `template % (number, number)`."""
    return (
        b'{"type":"send_message","request_id":"%d","payload":{"client_message_id":"'
        + f"{sender:08x}-0000-4000-8000-".encode()
        + b'%012x","chat_id":"'
        + f'{chat_id}","content":"{CONTENT}"}}}}'.encode()
    )


def number_of(client_message_id: str) -> int:
    """Which message of its sender this is."""
    return int(client_message_id[24:], 16)


def ack_template(chat_id: str) -> bytes:
    """An `ack`, but for the sequence."""
    payload = f'{{"chat_id":"{chat_id}","last_acked_sequence":%d}}'
    return f'{{"type":"ack","payload":{payload}}}'.encode()


def sync_request(chat_id: str, after: int, request_id: str, limit: int = SYNC_LIMIT) -> bytes:
    return msgspec.json.encode(
        {
            "type": "sync_request",
            "request_id": request_id,
            "payload": {"chat_id": chat_id, "last_acked_sequence": after, "limit": limit},
        }
    )
