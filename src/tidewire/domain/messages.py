"""A message, the wish to send one, and what can come of it. PURE.

These values are built for every message, so they are msgspec structs: a frozen one costs a fraction
of a frozen dataclass to make.
"""

from collections.abc import Sequence

import msgspec

from tidewire.domain.errors import (
    InvalidContent,
    InvalidContentType,
    InvalidEncoding,
    InvalidMessage,
    MessageTooLarge,
    TidewireError,
)
from tidewire.domain.ids import ChatId, ClientMessageId, ConnectionId, MessageId, UserId, is_uuid
from tidewire.domain.limits import (
    CONTENT_BYTES_MAX,
    CONTENT_TYPE_DEFAULT,
    CONTENT_TYPES,
    SEQUENCE_MAX,
)


class SendMessage(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The wish to append one message to a chat.

    `message_id` is the id that the message gets if it is stored; an answer to a retry carries the
    first one's. `seen_sequence` is what the author had seen when the text was written.
    """

    chat_id: ChatId
    sender_id: UserId
    client_message_id: ClientMessageId
    content: str
    message_id: MessageId
    content_type: str = CONTENT_TYPE_DEFAULT
    seen_sequence: int | None = None
    origin_connection_id: ConnectionId | None = None


class Message(msgspec.Struct, frozen=True, gc=False):
    """A stored message. `prev_sequence` is the one before it in its chat, 0 for the first.

    Of one that `is_damaged` only the chat and the two numbers are sure: its bytes are not those
    that were stored, so its content is left out, and the rest is as it was found (`damage`).
    """

    chat_id: ChatId
    sequence: int
    prev_sequence: int
    message_id: MessageId
    sender_id: UserId
    client_message_id: ClientMessageId
    content: str
    content_type: str
    created_at_ms: int
    is_damaged: bool = False


class Appended(msgspec.Struct, frozen=True, gc=False):
    """The answer to a send that is in the store, now or since an earlier try (`deduplicated`)."""

    message_id: MessageId
    sequence: int
    prev_sequence: int
    created_at_ms: int
    deduplicated: bool


AppendOutcome = Appended | TidewireError
"""What became of one send of a batch: stored, or the refusal or fault that says why not."""


class MessagePage(msgspec.Struct, frozen=True):
    """Messages of one chat, ascending, none missing between them.

    `synced_through`: the reader is complete up to here. `head`: the last message of the chat when
    the page was read.
    """

    messages: Sequence[Message]
    synced_through: int
    has_more: bool
    head: int


def check_send(send: SendMessage) -> None:
    """Refuse what no store takes; raises the refusals about a message."""
    content = send.content
    if not content:
        raise InvalidMessage("content is empty; a message has 1 to 4096 bytes")
    # One letter has at most four bytes, so most texts need not be encoded to be measured.
    if len(content) * 4 > CONTENT_BYTES_MAX or not content.isascii():
        check_content_bytes(content)
    if "\x00" in content:
        raise InvalidContent("content has a NUL character")
    if send.content_type not in CONTENT_TYPES:
        raise InvalidContentType(send.content_type)
    if not is_uuid(send.client_message_id):
        raise InvalidMessage("client_message_id is not a UUID")
    if send.seen_sequence is not None and not 0 <= send.seen_sequence <= SEQUENCE_MAX:
        raise InvalidMessage("seen_sequence is not a sequence")


def check_content_bytes(content: str) -> None:
    """Refuse text that is too long in UTF-8, or that has no UTF-8 form at all."""
    try:
        size_bytes = len(content.encode())
    except UnicodeEncodeError as error:
        raise InvalidEncoding("content is not valid UTF-8 text") from error
    if size_bytes > CONTENT_BYTES_MAX:
        raise MessageTooLarge(size_bytes=size_bytes, size_bytes_max=CONTENT_BYTES_MAX)
