"""Trusted proxies: nobody outside of them can say where he comes from.

Probes are answered on the machine itself and with the token, never through a proxy.
"""

import pytest

from tidewire.domain.accounts import Secret
from tidewire.edge.peers import Insiders, TrustedProxies

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


TOKEN = (b"authorization", b"Bearer let-me-see")


def insiders(*proxies: str, token: str | None = "let-me-see") -> Insiders:
    return Insiders(TrustedProxies(proxies), None if token is None else Secret(token))


@pytest.mark.parametrize("peer_ip", ["127.0.0.1", "127.0.0.66", "::1", "::ffff:127.0.0.1"])
def test_machine_itself_is_inside(peer_ip: str) -> None:
    assert insiders().includes(peer_ip, [])


@pytest.mark.parametrize("peer_ip", ["192.0.2.1", "10.0.0.1", "2001:db8::1", "", "testclient"])
def test_everybody_else_is_outside(peer_ip: str) -> None:
    assert not insiders().includes(peer_ip, [(b"host", b"localhost")])


@pytest.mark.parametrize("name", [b"x-forwarded-for", b"forwarded", b"x-real-ip"])
def test_what_a_proxy_on_the_machine_passes_on_is_outside(name: bytes) -> None:
    assert not insiders().includes("127.0.0.1", [(name, b"127.0.0.1")])


def test_trusted_proxy_is_outside() -> None:
    assert not insiders("127.0.0.1").includes("127.0.0.1", [])


def test_token_is_inside_from_anywhere() -> None:
    assert insiders().includes("192.0.2.1", [TOKEN])
    assert insiders("127.0.0.1").includes("127.0.0.1", [(b"x-forwarded-for", b"192.0.2.1"), TOKEN])
    assert insiders().includes("192.0.2.1", [(b"authorization", b"bearer let-me-see")])


@pytest.mark.parametrize(
    "value", [b"Bearer let-me", b"Bearer let-me-see-more", b"Basic let-me-see", b"", b"Bearer \xff"]
)
def test_another_token_is_outside(value: bytes) -> None:
    assert not insiders().includes("192.0.2.1", [(b"authorization", value)])


def test_no_token_is_good_where_none_is_set() -> None:
    assert not insiders(token=None).includes("192.0.2.1", [(b"authorization", b"Bearer ")])
    assert not insiders(token=None).includes("192.0.2.1", [TOKEN])
