"""WebSocket framing towards clients: unmasked, so one framing serves everybody. PURE."""

from typing import Final

_TEXT: Final = 0x81
_SHORT_MAX: Final = 125
_MEDIUM_MAX: Final = 0xFFFF


def frame_text(payload: bytes) -> bytes:
    """A whole text message as one WebSocket frame (RFC 6455, 5.2)."""
    size = len(payload)
    if size <= _SHORT_MAX:
        return bytes((_TEXT, size)) + payload
    if size <= _MEDIUM_MAX:
        return bytes((_TEXT, 126, size >> 8, size & 0xFF)) + payload
    return bytes((_TEXT, 127)) + size.to_bytes(8, "big") + payload
