"""Who may see the readiness and the metrics of a server: the machine itself, and a token. PURE."""

from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final

from tidewire.domain.accounts import Secret
from tidewire.edge.proxies import TrustedProxies

_FORWARDED: Final = (b"x-forwarded-for", b"forwarded", b"x-real-ip")
_BEARER: Final = b"bearer "

Headers = Iterable[tuple[bytes, bytes]]


class Insiders:
    """Tells a probe of the operator from a request that comes from outside."""

    def __init__(self, proxies: TrustedProxies, token: Secret | None = None) -> None:
        self._proxies = proxies
        self._token = token

    def includes(self, peer_ip: str, headers: Headers) -> bool:
        """Header names are in lower case. What a proxy passes on comes from outside, also if the
        proxy is on this machine."""
        is_forwarded = False
        for name, value in headers:
            if name == b"authorization" and self._is_token(value):
                return True
            is_forwarded = is_forwarded or name in _FORWARDED
        return not is_forwarded and not self._proxies.is_trusted(peer_ip) and _is_loopback(peer_ip)

    def _is_token(self, authorization: bytes) -> bool:
        if self._token is None or authorization[: len(_BEARER)].lower() != _BEARER:
            return False
        return Secret(authorization[len(_BEARER) :].decode("latin-1").strip()) == self._token


def _is_loopback(peer_ip: str) -> bool:
    try:
        address = ip_address(peer_ip)
    except ValueError:
        # No address: an application in the same process, such as a test.
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (address if mapped is None else mapped).is_loopback
