"""News of chats as the processes of a cluster send them to each other. PURE."""

from typing import Final

import msgspec

from tidewire.domain.news import ChatNews

_DECODER: Final = msgspec.msgpack.Decoder(ChatNews)
encode_news: Final = msgspec.msgpack.Encoder().encode


def decode_news(body: bytes) -> ChatNews | None:
    """The news in these bytes. None: this version cannot read it, so it may be about any chat."""
    try:
        return _DECODER.decode(body)
    except (ValueError, RecursionError):
        return None
