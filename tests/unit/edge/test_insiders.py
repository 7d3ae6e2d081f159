"""Probes are answered on the machine itself and with the token, never through a proxy."""

import pytest

from tidewire.domain.accounts import Secret
from tidewire.edge.insiders import Insiders
from tidewire.edge.proxies import TrustedProxies

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
