"""Where the database is, and how long it may take. Inner budgets are shorter than outer ones."""

from dataclasses import dataclass
from typing import Final

from tidewire.domain.accounts import Secret

SENDS_PER_TRANSACTION_MAX: Final = 40
"""Two items for each message, and two more; DynamoDB takes 100 items and 4 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamoOptions:
    """The database of a cluster."""

    table_prefix: str = "tidewire_"
    """Before the name of every table: several stores can share an account."""
    region: str = ""
    """Empty: as the vendor's own settings say."""
    endpoint_url: str = ""
    """Empty: AWS. DynamoDB Local has one."""
    access_key: str = ""
    """The access key that belongs to the secret; without both, the machine's own credentials are
    used."""
    secret_key: Secret | None = None
    """Without them, the vendor's own chain of credentials: roles, files, variables."""
    attempt_ms: int = 1_000
    """How long one request may take."""
    budget_ms: int = 3_000
    """How long one act may take, with all its requests and retries."""
    connections_max: int = 64
    """How many connections to DynamoDB may be open at once."""

    def __post_init__(self) -> None:
        if not 0 < self.attempt_ms < self.budget_ms:
            raise ValueError("attempt_ms is below budget_ms")
        if bool(self.access_key) != (self.secret_key is not None):
            raise ValueError("access_key and secret_key come together")

    def client_arguments(self) -> dict[str, str | bool | None]:
        """The arguments of the vendor's client besides its configuration."""
        return {
            # Without TLS the vendor's client would still read all certificates of the machine:
            # 30 ms for nothing.
            "verify": False if self.endpoint_url.startswith("http://") else None,
            "region_name": self.region or None,
            "endpoint_url": self.endpoint_url or None,
            "aws_access_key_id": self.access_key or None,
            "aws_secret_access_key": None if self.secret_key is None else self.secret_key.reveal(),
        }
