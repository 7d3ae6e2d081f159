"""What `tidewire tail` prints. PURE."""

from datetime import datetime, tzinfo

import msgspec

from tidewire.client.model import Message
from tidewire.terminal.text import one_line, visible
from tidewire.terminal.words import DAMAGED
from tidewire.wire.timestamps import format_time_ms


class JsonLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message; fields are added, never renamed."""

    chat_id: str
    sequence: int
    message_id: str
    client_message_id: str
    sender_id: str
    sender: str
    is_own: bool
    created_at: str
    text: str
    is_damaged: bool = False
    """The server's copy is damaged; the text is empty."""


def json_line(message: Message, name: str) -> str:
    """One object without a line break. The text is as it was written."""
    return msgspec.json.encode(
        JsonLine(
            chat_id=message.chat_id,
            sequence=message.sequence,
            message_id=message.message_id,
            client_message_id=message.client_message_id,
            sender_id=message.sender_id,
            sender=name,
            is_own=message.is_own,
            created_at=format_time_ms(message.created_at_ms),
            text=message.text,
            is_damaged=message.is_damaged,
        )
    ).decode()


def text_line(message: Message, name: str, zone: tzinfo | None) -> str:
    """`09:41 #7 Bob: Hello`; further lines of a message are indented, so that nobody can write a
    line that looks like another's."""
    at = datetime.fromtimestamp(message.created_at_ms / 1000, zone)
    text = DAMAGED if message.is_damaged else visible(message.text)
    first, *others = text.split("\n")
    head = f"{at:%Y-%m-%d %H:%M} #{message.sequence} {one_line(name)}: {first}"
    return "\n".join([head, *(f"    {line}" for line in others)])
