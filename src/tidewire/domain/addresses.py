"""What an address on the network counts as. PURE."""

import ipaddress
from functools import lru_cache
from typing import Final

UNKNOWN_ADDRESS: Final = "unknown"
"""What counts for an address that is none."""


@lru_cache(maxsize=4096)
def address_key(ip: str) -> str:
    """What an address counts as: itself, or its /64 network, which one customer has whole."""
    try:
        address = ipaddress.ip_address(ip)
    except ValueError:
        return UNKNOWN_ADDRESS
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address), 64), strict=False).network_address)
