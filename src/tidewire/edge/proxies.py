"""Where a request really comes from, if a proxy that we trust says so. PURE."""

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

_MAPPED_PREFIX_BITS: Final = 96
"""How much of ::ffff:127.0.0.1 comes before the address of IPv4."""


class TrustedProxies:
    """Believes X-Forwarded-For as far as it was written by proxies that are trusted."""

    def __init__(self, networks: Sequence[str]) -> None:
        """Raises ValueError for what is no address and no network."""
        self._networks: list[IPv4Network | IPv6Network] = [
            _unmapped(ip_network(network, strict=False)) for network in networks
        ]

    def client_ip(self, peer_ip: str, forwarded_for: str | None) -> str:
        """The nearest address that is not a trusted proxy's: nobody can put another before it."""
        if forwarded_for is None or not self.is_trusted(peer_ip):
            return peer_ip
        client_ip = peer_ip
        for hop in reversed(forwarded_for.split(",")):
            hop_ip = hop.strip()
            if not _is_address(hop_ip):
                return client_ip
            client_ip = hop_ip
            if not self.is_trusted(hop_ip):
                return client_ip
        return client_ip

    def is_trusted(self, address: str) -> bool:
        """True if this is the address of a proxy that is believed. An address of IPv4 is the same
        one as IPv6 writes it (::ffff:127.0.0.1), as a port of both has it."""
        if not self._networks or not _is_address(address):
            return False
        parsed = ip_address(address)
        mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
        forms = (parsed,) if mapped is None else (parsed, mapped)
        return any(form in network for network in self._networks for form in forms)


def _unmapped(network: IPv4Network | IPv6Network) -> IPv4Network | IPv6Network:
    """A network of IPv4 that is written in IPv6, as itself."""
    if isinstance(network, IPv6Network) and network.prefixlen >= _MAPPED_PREFIX_BITS:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return IPv4Network((mapped, network.prefixlen - _MAPPED_PREFIX_BITS))
    return network


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
