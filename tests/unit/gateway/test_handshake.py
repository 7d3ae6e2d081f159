"""What a request to connect says about itself: credentials, version, origin."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.unit.gateway.fakes import DEVICE
from tidewire.gateway.handshake import (
    SUBPROTOCOL,
    TOKEN_CHARACTERS_MAX,
    Credentials,
    is_origin_allowed,
    read_credentials,
)
from tidewire.gateway.options import GatewayOptions
from tidewire.ports.transport import HandshakeRefusal, UpgradeRequest
from tidewire.wire.features import Feature

OPTIONS = GatewayOptions()
URL_OPTIONS = GatewayOptions(is_token_in_url_allowed=True)
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ1In0.c2lnbmF0dXJl_-"
BEARER = {"authorization": f"Bearer {JWT}", "x-device-id": DEVICE}
BROWSER = {"sec-websocket-protocol": f"tidewire.v1, bearer.{JWT}, device.{DEVICE}"}


def request(
    headers: dict[str, str] | None = None, *, path: str = "/v1/ws", query: str = ""
) -> UpgradeRequest:
    return UpgradeRequest(
        path=path,
        query=query,
        headers=BEARER if headers is None else headers,
        client_ip="192.0.2.1",
    )


def refusal(outcome: Credentials | HandshakeRefusal) -> tuple[int, str]:
    assert isinstance(outcome, HandshakeRefusal)
    return outcome.http_status, outcome.error


def test_credentials_come_from_headers() -> None:
    assert read_credentials(request(), OPTIONS) == Credentials(JWT, DEVICE, None)


def test_credentials_come_from_subprotocols_and_the_answer_names_ours_only() -> None:
    assert read_credentials(request(BROWSER), OPTIONS) == Credentials(JWT, DEVICE, "tidewire.v1")


def test_credentials_in_headers_leave_the_subprotocol_to_be_named() -> None:
    headers = {**BEARER, "sec-websocket-protocol": "chat, tidewire.v1"}
    assert read_credentials(request(headers), OPTIONS) == Credentials(JWT, DEVICE, SUBPROTOCOL)


@pytest.mark.parametrize(
    "headers",
    [
        {**BEARER, "x-tidewire-features": "batch"},
        {**BEARER, "x-tidewire-features": "of-next-year ,batch,batch,"},
        {**BEARER, "sec-websocket-protocol": "tidewire.v1, with.batch"},
        {"sec-websocket-protocol": BROWSER["sec-websocket-protocol"] + ", with.x, with.batch"},
    ],
)
def test_features_are_offered_by_header_or_subprotocol(headers: dict[str, str]) -> None:
    credentials = read_credentials(request(headers), OPTIONS)
    assert isinstance(credentials, Credentials)
    assert credentials.features == (Feature.BATCH,)
    is_named = "sec-websocket-protocol" in headers
    assert credentials.subprotocol == (SUBPROTOCOL if is_named else None), "and no feature"


def test_feature_that_is_not_known_is_no_reason_to_refuse() -> None:
    headers = {**BEARER, "x-tidewire-features": "entries-of-next-year, \x7f;?"}
    assert read_credentials(request(headers), OPTIONS) == Credentials(JWT, DEVICE, None)


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_scheme_may_be_written_in_any_case(scheme: str) -> None:
    headers = {**BEARER, "authorization": f"{scheme}  {JWT} "}
    assert read_credentials(request(headers), OPTIONS) == Credentials(JWT, DEVICE, None)


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": f"Bearer {JWT}"},
        {"authorization": f"Bearer {JWT}", "x-device-id": "my phone"},
        {"authorization": f"Basic {JWT}", "x-device-id": DEVICE},
        {"authorization": "Bearer", "x-device-id": DEVICE},
        {"authorization": f"Bearer {JWT} x", "x-device-id": DEVICE},
        {"authorization": "Bearer " + "a" * (TOKEN_CHARACTERS_MAX + 1), "x-device-id": DEVICE},
        {"sec-websocket-protocol": f"bearer.{JWT}, device.{DEVICE}"},
        {"sec-websocket-protocol": f"tidewire.v1, bearer.{JWT}"},
        {"sec-websocket-protocol": f"tidewire.v1, bearer., device.{DEVICE}"},
    ],
)
def test_malformed_credentials_are_an_invalid_request(headers: dict[str, str]) -> None:
    assert refusal(read_credentials(request(headers), OPTIONS)) == (400, "invalid_request")


def test_request_without_a_token_is_unauthorised() -> None:
    headers = {"x-device-id": DEVICE}
    assert refusal(read_credentials(request(headers), OPTIONS)) == (401, "invalid_token")


def test_token_in_the_url_is_refused_also_beside_a_good_one() -> None:
    query = f"token={JWT}&device_id={DEVICE}"
    assert refusal(read_credentials(request({}, query=query), OPTIONS))[0] == 400
    assert refusal(read_credentials(request(query=query), OPTIONS))[0] == 400
    message = read_credentials(request({}, query=query), OPTIONS)
    assert isinstance(message, HandshakeRefusal)
    assert JWT not in message.message


def test_token_in_the_url_is_taken_if_that_is_switched_on() -> None:
    query = f"token={JWT}&device_id={DEVICE}"
    assert read_credentials(request({}, query=query), URL_OPTIONS) == Credentials(JWT, DEVICE, None)
    assert refusal(read_credentials(request({}, query=f"token={JWT}"), URL_OPTIONS))[0] == 400


def test_query_with_too_many_fields_is_refused() -> None:
    query = "&".join(f"a{index}=1" for index in range(100))
    assert refusal(read_credentials(request(query=query), OPTIONS)) == (400, "invalid_request")


def test_other_version_is_told_which_there_are() -> None:
    outcome = read_credentials(request(path="/v2/ws"), OPTIONS)
    assert isinstance(outcome, HandshakeRefusal)
    assert refusal(outcome) == (400, "unsupported_version")
    assert outcome.details == {"supported_versions": [1], "requested_version": 2}


@pytest.mark.parametrize("path", ["/ws", "/v1/wss", "/v1/ws/", "/v/ws", "/v1" + "0" * 30 + "/ws"])
def test_other_path_is_refused(path: str) -> None:
    assert refusal(read_credentials(request(path=path), OPTIONS)) == (400, "invalid_request")


@pytest.mark.parametrize(
    ("origin", "host", "allowed", "passes"),
    [
        (None, "chat.test", (), True),
        ("https://chat.test", "chat.test", (), True),
        ("https://chat.test:443", "chat.test", (), True),
        ("http://chat.test", "chat.test:80", (), True),
        ("http://127.0.0.1:8080", "127.0.0.1:8080", (), True),
        ("https://CHAT.test", "chat.TEST", (), True),
        ("https://evil.test", "chat.test", (), False),
        ("https://chat.test.evil.test", "chat.test", (), False),
        ("https://evilchat.test", "chat.test", (), False),
        ("https://chat.test", "evilchat.test", (), False),
        ("https://evilapp.test", "chat.test", ("https://app.test",), False),
        ("https://sub.app.test", "chat.test", ("https://app.test",), False),
        ("https://chat.test:8443", "chat.test", (), False),
        ("null", "chat.test", (), False),
        ("null", "", (), False),
        ("https://", "", (), False),
        ("https://[", "chat.test", (), False),
        ("file://chat.test", "chat.test", (), False),
        ("https://app.test", "chat.test", ("https://app.test/",), True),
        ("https://app.test", "chat.test", ("https://other.test",), False),
        ("https://evil.test", "chat.test", ("*",), True),
    ],
)
def test_origin_is_the_servers_own_or_on_the_list(
    origin: str | None, host: str, allowed: tuple[str, ...], passes: bool
) -> None:
    headers = {"host": host} if origin is None else {"host": host, "origin": origin}
    assert is_origin_allowed(request(headers), allowed) is passes


def test_cross_origin_request_is_refused_whatever_its_token() -> None:
    headers = {**BROWSER, "host": "chat.test", "origin": "https://evil.test"}
    assert refusal(read_credentials(request(headers), OPTIONS)) == (400, "invalid_request")


@given(
    st.dictionaries(
        st.sampled_from(
            ["authorization", "x-device-id", "sec-websocket-protocol", "origin", "host"]
        ),
        st.text(max_size=40),
    ),
    st.text(max_size=40),
    st.text(max_size=20),
)
def test_nothing_that_a_peer_sends_raises(headers: dict[str, str], query: str, path: str) -> None:
    for options in (OPTIONS, URL_OPTIONS):
        read_credentials(request(headers, query=query, path=path), options)
        read_credentials(request(headers, query=query), options)


def test_device_in_any_spelling_of_its_uuid_is_one_device() -> None:
    for spelled in (DEVICE.upper(), DEVICE.title(), DEVICE):
        found = read_credentials(
            request({"authorization": f"Bearer {JWT}", "x-device-id": spelled}), OPTIONS
        )
        assert isinstance(found, Credentials)
        assert found.device_id == DEVICE.lower()
