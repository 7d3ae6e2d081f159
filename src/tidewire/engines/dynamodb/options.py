"""Where the database is, and how long it may take. Inner budgets are shorter than outer ones."""

from dataclasses import dataclass
from typing import Final

SENDS_PER_TRANSACTION_MAX: Final = 40
"""Two items a message, and two more; DynamoDB takes 100 items and 4 MB."""

GATEWAY_BUDGET_MS: Final = 5_000
"""How long the planes wait for the store (P-12)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamoOptions:
    table_prefix: str = "tidewire_"
    region: str | None = None
    """None: as the vendor's own settings say."""
    endpoint_url: str | None = None
    """None: AWS. DynamoDB Local has one."""
    access_key: str | None = None
    secret_key: str | None = None
    """None: the vendor's own chain of credentials."""
    attempt_ms: int = 1_000
    """How long one request may take."""
    budget_ms: int = 3_000
    """How long one act may take, with all its requests and retries."""
    connections_max: int = 64

    def __post_init__(self) -> None:
        assert 0 < self.attempt_ms < self.budget_ms
