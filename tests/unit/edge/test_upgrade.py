"""The head of an upgrade: what is read from it, and how it is refused."""

import json

import pytest

from tidewire.edge.upgrade import HEAD_BYTES_MAX, parse_upgrade, refusal_response
from tidewire.ports.transport import HandshakeRefusal


def test_upgrade_is_read_with_lower_case_names_and_joined_repeats() -> None:
    head = (
        b"GET /v1/ws?a=1 HTTP/1.1\r\nHost: x\r\n"
        b"sec-websocket-protocol: a\r\nSec-WebSocket-Protocol:b\r\n\r\n"
    )
    request = parse_upgrade(head, "127.0.0.1")
    assert request is not None
    assert (request.path, request.query, request.client_ip) == ("/v1/ws", "a=1", "127.0.0.1")
    assert request.headers == {"host": "x", "sec-websocket-protocol": "a, b"}


@pytest.mark.parametrize(
    "head",
    [
        b"\r\n\r\n",
        b"GET /v1/ws\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
        b"GET //[ HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nx: " + b"y" * HEAD_BYTES_MAX + b"\r\n\r\n",
    ],
)
def test_upgrade_that_cannot_be_read_is_none(head: bytes) -> None:
    assert parse_upgrade(head, "127.0.0.1") is None


def parsed(refusal: HandshakeRefusal) -> tuple[list[str], dict[str, object]]:
    head, _, body = refusal_response(refusal).partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert f"content-length: {len(body)}" in lines
    return lines, json.loads(body)


def test_refusal_is_flat_json_and_closes() -> None:
    lines, body = parsed(
        HandshakeRefusal(
            http_status=401, error="invalid_token", message="no", details={"expired_at": "x"}
        )
    )
    assert lines[0] == "HTTP/1.1 401 Unauthorized"
    assert {"connection: close", "www-authenticate: Bearer"} <= set(lines)
    assert body == {"error": "invalid_token", "message": "no", "details": {"expired_at": "x"}}


def test_refusal_says_when_to_come_again() -> None:
    lines, body = parsed(
        HandshakeRefusal(http_status=429, error="rate_limited", message="no", retry_after_seconds=3)
    )
    assert "retry-after: 3" in lines
    assert body["retry_after_seconds"] == 3


def test_refusal_with_an_unusual_status_is_still_an_answer() -> None:
    lines, _ = parsed(HandshakeRefusal(http_status=418, error="x", message="y"))
    assert lines[0] == "HTTP/1.1 418 Refused"
