"""What the vendor's client is told."""

import pytest

from tidewire.engines.dynamodb.options import DynamoOptions


@pytest.mark.parametrize("endpoint_url", ["", "https://dynamodb.example", "HTTPS://http://"])
def test_certificates_are_checked_wherever_there_is_tls(endpoint_url: str) -> None:
    """None is the vendor's default, which checks."""
    assert DynamoOptions(endpoint_url=endpoint_url).client_arguments()["verify"] is None


def test_no_certificates_are_read_where_there_is_no_tls() -> None:
    options = DynamoOptions(endpoint_url="http://127.0.0.1:8000")
    assert options.client_arguments()["verify"] is False
