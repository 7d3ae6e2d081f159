"""The head of an upgrade: what is read from it, and how it is refused."""

import json

import pytest

from tidewire.edge.peers import TrustedProxies
from tidewire.edge.upgrade import (
    HEAD_BYTES_MAX,
    plain_head,
    read_upgrade,
    refusal_response,
    upgrade_fault,
)
from tidewire.ports.transport import HandshakeRefusal, UpgradeRequest

NO_PROXIES = TrustedProxies([])


def test_upgrade_is_read_with_joined_repeats() -> None:
    fields = [
        (b"host", b"x"),
        (b"sec-websocket-protocol", b" a "),
        (b"sec-websocket-protocol", b"b"),
        (b"x-forwarded-for", b"198.51.100.7"),
    ]
    request = read_upgrade(b"/v1/ws?a=1", fields, "127.0.0.1", NO_PROXIES)
    assert request is not None
    assert (request.path, request.query, request.client_ip) == ("/v1/ws", "a=1", "127.0.0.1")
    assert request.headers == {
        "host": "x",
        "sec-websocket-protocol": "a, b",
        "x-forwarded-for": "198.51.100.7",
    }
    request = read_upgrade(b"/v1/ws", fields, "127.0.0.1", TrustedProxies(["127.0.0.1"]))
    assert request is not None
    assert request.client_ip == "198.51.100.7"


@pytest.mark.parametrize(
    ("target", "value"), [(b"/\xff", b""), (b"//[", b""), (b"/", b"y" * HEAD_BYTES_MAX)]
)
def test_upgrade_that_cannot_be_read_is_none(target: bytes, value: bytes) -> None:
    assert read_upgrade(target, [(b"x", value)], "127.0.0.1", NO_PROXIES) is None


def test_only_spaces_of_http_are_taken_off_a_value() -> None:
    request = read_upgrade(b"/v1/ws", [(b"x", b" a\xa0 ")], "127.0.0.1", NO_PROXIES)
    assert request is not None
    assert request.headers["x"] == "a\xa0"


KEY = "AAECAwQFBgcICQoLDA0ODw=="


def asked(method: str = "GET", **headers: str) -> tuple[str, UpgradeRequest]:
    """A handshake, right but for these headers."""
    sent = {"sec-websocket-version": "13", "sec-websocket-key": KEY}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    fields = [(name.encode(), value.encode("latin-1")) for name, value in sent.items()]
    request = read_upgrade(b"/v1/ws", fields, "127.0.0.1", NO_PROXIES)
    assert request is not None
    return method, request


def test_handshake_without_fault_is_passed_on_plainly() -> None:
    method, request = asked(connection="keep-alive, Upgrade", cookie="a=b", content_length="0")
    assert upgrade_fault(method, request) is None
    assert plain_head(request).split(b"\r\n") == [
        b"GET / HTTP/1.1",
        b"Upgrade: websocket",
        b"Connection: Upgrade",
        b"Sec-WebSocket-Version: 13",
        b"Sec-WebSocket-Key: " + KEY.encode(),
        b"",
        b"",
    ]


@pytest.mark.parametrize(
    ("handshake", "sentence"),
    [
        (asked(method="POST"), "asked for with GET"),
        (asked(sec_websocket_version="8"), "Version is not 13"),
        (asked(sec_websocket_key=""), "16 bytes"),
        (asked(sec_websocket_key="AAAA"), "16 bytes"),
        (asked(sec_websocket_key="not base64 at all!"), "16 bytes"),
        (asked(sec_websocket_key="\xff" + KEY[1:]), "16 bytes"),
        (asked(content_length="5"), "no body"),
        (asked(transfer_encoding="chunked"), "no body"),
    ],
)
def test_faulty_handshake_is_told_what_is_wrong(
    handshake: tuple[str, UpgradeRequest], sentence: str
) -> None:
    fault = upgrade_fault(*handshake)
    assert fault is not None
    assert (fault.http_status, fault.error) == (400, "invalid_request")
    assert sentence in fault.message


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
