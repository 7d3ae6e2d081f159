"""Where a request really comes from, if a proxy that we trust says so. PURE."""

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network


class TrustedProxies:
    """Believes X-Forwarded-For as far as it was written by proxies that are trusted."""

    def __init__(self, networks: Sequence[str]) -> None:
        """Raises ValueError for what is no address and no network."""
        self._networks: list[IPv4Network | IPv6Network] = [
            ip_network(network, strict=False) for network in networks
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
        """True if this is the address of a proxy that is believed."""
        if not self._networks or not _is_address(address):
            return False
        parsed = ip_address(address)
        return any(parsed in network for network in self._networks)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
