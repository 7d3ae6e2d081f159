"""The HTTP side of a WebSocket: reading the request for it, and refusing it. PURE.

The HTTP parser has checked the request already, so what is read here is well formed.
"""

import base64
import binascii
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

import msgspec

from tidewire.edge.peers import TrustedProxies
from tidewire.ports.transport import HandshakeRefusal, UpgradeRequest

HEAD_BYTES_MAX: Final = 16 * 1024
"""Limit for the target and the header fields of a WebSocket request together."""
WEBSOCKET_VERSION: Final = "13"
_REASONS: Final = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


def read_upgrade(
    target: bytes, fields: Sequence[tuple[bytes, bytes]], peer_ip: str, proxies: TrustedProxies
) -> UpgradeRequest | None:
    """The request with this target and these header fields, whose names are in lower case; None if
    it is too large or its target cannot be read as text."""
    if len(target) + sum(len(name) + len(value) + 4 for name, value in fields) > HEAD_BYTES_MAX:
        return None
    try:
        parts = urlsplit(target.decode("ascii"))
    except (UnicodeDecodeError, ValueError):
        return None
    headers: dict[str, str] = {}
    for name, value in fields:
        key, text = name.decode("latin-1"), value.strip().decode("latin-1")
        # Repeated headers are one list (RFC 9110, 5.3).
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    client_ip = proxies.client_ip(peer_ip, headers.get("x-forwarded-for"))
    return UpgradeRequest(path=parts.path, query=parts.query, headers=headers, client_ip=client_ip)


def upgrade_fault(method: str, request: UpgradeRequest) -> HandshakeRefusal | None:
    """The refusal of a request that is no valid WebSocket handshake (RFC 6455, 4.2.1), or None."""
    headers = request.headers
    if method != "GET":
        fault = "a WebSocket is asked for with GET"
    elif headers.get("sec-websocket-version") != WEBSOCKET_VERSION:
        fault = f"Sec-WebSocket-Version is not {WEBSOCKET_VERSION}"
    elif not _is_key(headers.get("sec-websocket-key", "")):
        fault = "Sec-WebSocket-Key is not 16 bytes in base64"
    elif "transfer-encoding" in headers or headers.get("content-length", "0").strip("0"):
        fault = "a request for a WebSocket has no body"
    else:
        return None
    return refusal(400, "invalid_request", fault)


def plain_head(request: UpgradeRequest) -> bytes:
    """The bare handshake, for picows. picows refuses some valid requests (Firefox sends
    `Connection: keep-alive, Upgrade`), and refuses in words of its own."""
    return (
        "GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: {WEBSOCKET_VERSION}\r\n"
        f"Sec-WebSocket-Key: {request.headers['sec-websocket-key']}\r\n\r\n"
    ).encode("ascii")


def _is_key(text: str) -> bool:
    try:
        return len(base64.b64decode(text.encode("ascii"), validate=True)) == 16
    except (UnicodeEncodeError, binascii.Error):
        return False


def refusal(status: int, error: str, message: str, retry_s: int | None = None) -> HandshakeRefusal:
    """A refusal by the edge itself."""
    return HandshakeRefusal(
        http_status=status, error=error, message=message, retry_after_seconds=retry_s
    )


def refusal_response(refusal: HandshakeRefusal) -> bytes:
    """The whole HTTP answer to a client that may not connect."""
    content: dict[str, object] = {"error": refusal.error, "message": refusal.message}
    if refusal.details:
        content["details"] = refusal.details
    if refusal.retry_after_seconds is not None:
        content["retry_after_seconds"] = refusal.retry_after_seconds
    body = msgspec.json.encode(content)
    lines = [
        f"HTTP/1.1 {refusal.http_status} {_REASONS.get(refusal.http_status, 'Refused')}",
        "content-type: application/json",
        f"content-length: {len(body)}",
        "cache-control: no-store",
        "connection: close",
    ]
    if refusal.retry_after_seconds is not None:
        lines.append(f"retry-after: {refusal.retry_after_seconds}")
    if refusal.http_status == 401:
        lines.append("www-authenticate: Bearer")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


TOO_MANY: Final = refusal(429, "rate_limited", "too many connections from this address", 5)
