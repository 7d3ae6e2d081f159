"""The HTTP side of a WebSocket: reading the request for it, and refusing it. PURE.

uvicorn's parser has checked the request already and hands it on written anew, so what is read here
is well formed; what is written here goes to whoever asked.
"""

import base64
import binascii
from typing import Final
from urllib.parse import urlsplit

import msgspec

from tidewire.ports.transport import HandshakeRefusal, UpgradeRequest

HEAD_BYTES_MAX: Final = 16 * 1024
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


def parse_upgrade(head: bytes, client_ip: str) -> UpgradeRequest | None:
    """The request in a head that ends with an empty line; None if it cannot be read as text."""
    lines = head.partition(b"\r\n\r\n")[0].split(b"\r\n")
    parts = lines[0].split(b" ")
    if len(parts) != 3 or len(head) > HEAD_BYTES_MAX:
        return None
    try:
        target = urlsplit(parts[1].decode("ascii"))
    except (UnicodeDecodeError, ValueError):
        return None
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, _, value = line.partition(b":")
        key = name.decode("latin-1").lower()
        text = value.strip().decode("latin-1")
        # Repeated headers are one list (RFC 9110, 5.3).
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return UpgradeRequest(
        path=target.path, query=target.query, headers=headers, client_ip=client_ip
    )


def upgrade_fault(head: bytes, request: UpgradeRequest) -> HandshakeRefusal | None:
    """What is wrong with the request as a WebSocket handshake (RFC 6455, 4.2.1), if anything is."""
    headers = request.headers
    if not head.startswith(b"GET "):
        return _fault("a WebSocket is asked for with GET")
    if headers.get("sec-websocket-version") != WEBSOCKET_VERSION:
        return _fault(f"Sec-WebSocket-Version is not {WEBSOCKET_VERSION}")
    if not _is_key(headers.get("sec-websocket-key", "")):
        return _fault("Sec-WebSocket-Key is not 16 bytes in base64")
    if "transfer-encoding" in headers or headers.get("content-length", "0").strip("0"):
        return _fault("a request for a WebSocket has no body")
    return None


def plain_head(request: UpgradeRequest) -> bytes:
    """The handshake and nothing else, for picows, which refuses what others send rightly (Firefox:
    `Connection: keep-alive, Upgrade`) and says so in words of its own."""
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


def _fault(message: str) -> HandshakeRefusal:
    return HandshakeRefusal(http_status=400, error="invalid_request", message=message)


def refusal_response(refusal: HandshakeRefusal) -> bytes:
    """The whole HTTP answer to somebody who may not connect."""
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
