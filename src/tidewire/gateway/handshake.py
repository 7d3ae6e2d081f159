"""Reads the credentials in a request to connect, before any lookup. PURE.

Browsers cannot set headers on a WebSocket, so they send their token and device as subprotocols
(`tidewire.v1`, `bearer.<jwt>`, `device.<uuid>`); the answer names `tidewire.v1` only. Others send
`Authorization` and `X-Device-ID`. Features are offered in either way (`wire.features`).
"""

import re
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import msgspec

from tidewire.domain.ids import is_uuid
from tidewire.gateway.options import GatewayOptions
from tidewire.ports.transport import HandshakeRefusal, UpgradeRequest
from tidewire.wire.features import FEATURE_PREFIX, FEATURES_HEADER, Feature, known_features
from tidewire.wire.server_frames import PROTOCOL_VERSION

SUBPROTOCOL: Final = f"tidewire.v{PROTOCOL_VERSION}"
TOKEN_CHARACTERS_MAX: Final = 8 * 1024

_PATH: Final = re.compile(r"/v([0-9]{1,9})/ws")
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=\-]+")
_BEARER: Final = "bearer."
_DEVICE: Final = "device."
_QUERY_FIELDS_MAX: Final = 20
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}


class Credentials(msgspec.Struct, frozen=True):
    """The identity that a client claims. The answer must name `subprotocol`."""

    token: str
    device_id: str
    subprotocol: str | None
    features: tuple[Feature, ...] = ()


def read_credentials(
    request: UpgradeRequest, options: GatewayOptions
) -> Credentials | HandshakeRefusal:
    """The token and the device in a request, or why it is refused as it stands. Never raises."""
    version = _PATH.fullmatch(request.path)
    if version is None:
        return invalid_request("connect to /v1/ws")
    if int(version[1]) != PROTOCOL_VERSION:
        return HandshakeRefusal(
            http_status=400,
            error="unsupported_version",
            message=f"this server speaks version {PROTOCOL_VERSION}",
            details={
                "supported_versions": [PROTOCOL_VERSION],
                "requested_version": int(version[1]),
            },
        )
    if not is_origin_allowed(request, options.origins_allowed):
        return invalid_request("pages of this origin may not connect")
    found = _find(request, options)
    if isinstance(found, HandshakeRefusal):
        return found
    token, device_id, subprotocol = found
    if len(token) > TOKEN_CHARACTERS_MAX or _TOKEN.fullmatch(token) is None:
        return invalid_request("the token is not one")
    if not is_uuid(device_id):
        return invalid_request("the device id is missing or not a UUID")
    # A UUID has several spellings, and a device may have only one connection.
    return Credentials(token, device_id.lower(), subprotocol, _features(request))


def _find(
    request: UpgradeRequest, options: GatewayOptions
) -> tuple[str, str, str | None] | HandshakeRefusal:
    """Token, device and subprotocol, from wherever they stand; not validated yet."""
    headers = request.headers
    try:
        query = dict(parse_qsl(request.query, max_num_fields=_QUERY_FIELDS_MAX))
    except ValueError:
        return invalid_request("the query cannot be read")
    if "token" in query and not options.is_token_in_url_allowed:
        return invalid_request("a token in the URL ends up in logs; send it in a header")
    offered = _names(request, "sec-websocket-protocol")
    subprotocol = SUBPROTOCOL if SUBPROTOCOL in offered else None
    authorization = headers.get("authorization")
    if authorization is not None:
        scheme, _, token = authorization.strip().partition(" ")
        if scheme.lower() != "bearer":
            return invalid_request("Authorization is not 'Bearer <token>'")
        return token.strip(), headers.get("x-device-id", ""), subprotocol
    tokens = [name.removeprefix(_BEARER) for name in offered if name.startswith(_BEARER)]
    if tokens:
        if subprotocol is None:
            return invalid_request(f"offer the subprotocol {SUBPROTOCOL} beside the token")
        devices = [name.removeprefix(_DEVICE) for name in offered if name.startswith(_DEVICE)]
        return tokens[0], devices[0] if devices else "", subprotocol
    if "token" in query:
        return query["token"], query.get("device_id", ""), subprotocol
    return HandshakeRefusal(
        http_status=401, error="invalid_token", message="a token is needed to connect"
    )


def _features(request: UpgradeRequest) -> tuple[Feature, ...]:
    """The features that are offered, by header or by subprotocol, and known here."""
    offered = _names(request, FEATURES_HEADER.lower())
    offered += (
        name.removeprefix(FEATURE_PREFIX)
        for name in _names(request, "sec-websocket-protocol")
        if name.startswith(FEATURE_PREFIX)
    )
    return known_features(offered)


def _names(request: UpgradeRequest, header: str) -> list[str]:
    """The names that a header lists."""
    return [name.strip() for name in request.headers.get(header, "").split(",")]


def is_origin_allowed(request: UpgradeRequest, origins_allowed: tuple[str, ...]) -> bool:
    """False for a page of another site. Only browsers send an origin, and they do not let
    a page lie about it."""
    origin = request.headers.get("origin")
    if origin is None or "*" in origins_allowed:
        return True
    origin = origin.strip().lower()
    if origin in (allowed.lower().rstrip("/") for allowed in origins_allowed):
        return True
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    default_port = _DEFAULT_PORTS.get(parts.scheme)
    if default_port is None or not parts.netloc:
        return False
    host = request.headers.get("host", "").strip().lower()
    return parts.netloc.removesuffix(default_port) == host.removesuffix(default_port)


def invalid_request(message: str) -> HandshakeRefusal:
    return HandshakeRefusal(http_status=400, error="invalid_request", message=message)
