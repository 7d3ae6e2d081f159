"""An address counts as its customer: itself, or the network that one customer has whole."""

import pytest

from tidewire.domain.addresses import address_key


@pytest.mark.parametrize(
    ("ip", "key"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2::", "2001:db8:1:2::"),
        ("testclient", "unknown"),
        ("", "unknown"),
    ],
)
def test_address_counts_as_its_customer(ip: str, key: str) -> None:
    assert address_key(ip) == key
