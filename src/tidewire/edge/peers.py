"""Who a peer is: where a request really comes from, and who may see readiness and metrics. PURE."""

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from tidewire.domain.accounts import Secret

_MAPPED_PREFIX_BITS: Final = 96
"""How many bits of ::ffff:127.0.0.1 come before the IPv4 address."""
_FORWARDED: Final = (b"x-forwarded-for", b"forwarded", b"x-real-ip")
_BEARER: Final = b"bearer "

Headers = Iterable[tuple[bytes, bytes]]


class TrustedProxies:
    """Believes the part of X-Forwarded-For that trusted proxies wrote."""

    def __init__(self, networks: Sequence[str]) -> None:
        """Raises ValueError for a text that is neither an address nor a network."""
        self._networks = [_as_ipv4(ip_network(network, strict=False)) for network in networks]

    def client_ip(self, peer_ip: str, forwarded_for: str | None) -> str:
        """The nearest address that is not a trusted proxy's. A client cannot forge it: what a
        client writes into the header is farther away."""
        if forwarded_for is None or not self.is_trusted(peer_ip):
            return peer_ip
        client_ip = peer_ip
        for hop in reversed(forwarded_for.split(",")):
            hop_ip = hop.strip()
            if not _forms(hop_ip):
                return client_ip
            client_ip = hop_ip
            if not self.is_trusted(hop_ip):
                return client_ip
        return client_ip

    def is_trusted(self, address: str) -> bool:
        """True if this is the address of a trusted proxy."""
        if not self._networks:
            return False
        forms = _forms(address)
        return any(form in network for network in self._networks for form in forms)


class Insiders:
    """Tells the operator's probes from requests from outside: a probe comes from this machine, or
    with a token."""

    def __init__(self, proxies: TrustedProxies, token: Secret | None = None) -> None:
        self._proxies = proxies
        self._token = token

    def includes(self, peer_ip: str, headers: Headers) -> bool:
        """True for a probe. Header names are in lower case. Without the token, a request through a
        proxy comes from outside, even if the proxy is on this machine."""
        is_forwarded = False
        for name, value in headers:
            if name == b"authorization" and self._is_token(value):
                return True
            is_forwarded = is_forwarded or name in _FORWARDED
        if is_forwarded or self._proxies.is_trusted(peer_ip):
            return False
        return any(form.is_loopback for form in _forms(peer_ip))

    def _is_token(self, authorization: bytes) -> bool:
        if self._token is None or authorization[: len(_BEARER)].lower() != _BEARER:
            return False
        return Secret(authorization[len(_BEARER) :].decode("latin-1").strip()) == self._token


def _forms(text: str) -> tuple[IPv4Address | IPv6Address, ...]:
    """The address; for an IPv4 address in IPv6 form (::ffff:127.0.0.1), as a port of both
    reports it, both forms. Empty if it is no address, as for an application in this process."""
    try:
        address = ip_address(text)
    except ValueError:
        return ()
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (address,) if mapped is None else (address, mapped)


def _as_ipv4(network: IPv4Network | IPv6Network) -> IPv4Network | IPv6Network:
    """Convert an IPv4 network in IPv6 form to IPv4; return others as they are."""
    if isinstance(network, IPv6Network) and network.prefixlen >= _MAPPED_PREFIX_BITS:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return IPv4Network((mapped, network.prefixlen - _MAPPED_PREFIX_BITS))
    return network
