"""The key under which limits count a network address. PURE."""

import ipaddress
from functools import lru_cache
from typing import Final

UNKNOWN_ADDRESS: Final = "unknown"
"""The key for a text that is not an IP address."""


@lru_cache(maxsize=4096)
def address_key(ip: str) -> str:
    """The key of an address: IPv4 the address itself, IPv6 its /64, which one customer owns."""
    try:
        address = ipaddress.ip_address(ip)
    except ValueError:
        return UNKNOWN_ADDRESS
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address), 64), strict=False).network_address)
