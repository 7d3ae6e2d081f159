"""News of chats as the processes of a cluster send them to each other. PURE."""

from typing import Final

import msgspec

from tidewire.domain.news import ChatNews

_DECODER: Final = msgspec.msgpack.Decoder(ChatNews)
encode_news: Final = msgspec.msgpack.Encoder().encode


def decode_news(body: bytes) -> ChatNews | None:
    """None: it is none that this version knows, and may be about anything."""
    try:
        return _DECODER.decode(body)
    except (ValueError, RecursionError):
        return None
