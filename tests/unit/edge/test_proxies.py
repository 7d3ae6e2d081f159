"""Trusted proxies: nobody outside of them can say where he comes from."""

import pytest

from tidewire.edge.proxies import TrustedProxies

PROXIES = TrustedProxies(["10.0.0.0/8", "::1"])


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("10.0.0.1", "203.0.113.7", "203.0.113.7"),
        ("::1", "203.0.113.7, 10.1.1.1", "203.0.113.7"),
        ("10.0.0.1", "1.1.1.1, 203.0.113.7", "203.0.113.7"),
        ("10.0.0.1", "10.0.0.9, 10.0.0.8", "10.0.0.9"),
        ("10.0.0.1", None, "10.0.0.1"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "203.0.113.7, nonsense", "10.0.0.1"),
        ("203.0.113.9", "1.1.1.1", "203.0.113.9"),
        ("unix", "1.1.1.1", "unix"),
    ],
)
def test_client_is_the_nearest_address_that_is_no_proxy(
    peer: str, forwarded: str | None, client: str
) -> None:
    assert PROXIES.client_ip(peer, forwarded) == client


def test_nobody_is_believed_when_no_proxy_is_trusted() -> None:
    assert TrustedProxies([]).client_ip("10.0.0.1", "1.1.1.1") == "10.0.0.1"


def test_what_is_no_network_is_refused() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        TrustedProxies(["nonsense"])


@pytest.mark.parametrize("network", ["127.0.0.1", "::ffff:127.0.0.1", "::ffff:127.0.0.0/104"])
@pytest.mark.parametrize("peer", ["127.0.0.1", "::ffff:127.0.0.1", "::ffff:7f00:1"])
def test_ipv4_address_is_the_same_in_ipv6(network: str, peer: str) -> None:
    proxies = TrustedProxies([network])
    assert proxies.is_trusted(peer)
    assert proxies.client_ip(peer, f"203.0.113.7, {peer}") == "203.0.113.7"
    assert not proxies.is_trusted("::ffff:203.0.113.7")
    assert not proxies.is_trusted("::127.0.0.1")


def test_network_of_everything_includes_addresses_in_either_form() -> None:
    assert TrustedProxies(["::/0"]).is_trusted("::ffff:127.0.0.1")
    assert TrustedProxies(["0.0.0.0/0"]).is_trusted("::ffff:127.0.0.1")
    assert not TrustedProxies(["0.0.0.0/0"]).is_trusted("::1")
