"""How often a refused request is tried again, and after how long. PURE."""

from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from random import Random


class Hindrance(StrEnum):
    """Why a request has to be tried again."""

    THROTTLED = "throttled"
    """Refused for its rate; nothing happened."""
    CONFLICT = "conflict"
    """Another transaction works on one of the rows; nothing happened."""
    LOST = "lost"
    """No answer, or the database reports a fault: the request may have been carried out."""
    PARTIAL = "partial"
    """A committed transaction is visible in part only: queries are only read-committed."""


class Pace(msgspec.Struct, frozen=True):
    tries: int
    first_ms: int
    most_ms: int


PACES: Final = {
    Hindrance.THROTTLED: Pace(tries=3, first_ms=100, most_ms=5_000),
    Hindrance.CONFLICT: Pace(tries=5, first_ms=50, most_ms=500),
    # An attempt that found no answer has waited long enough already.
    Hindrance.LOST: Pace(tries=2, first_ms=10, most_ms=50),
    Hindrance.PARTIAL: Pace(tries=50, first_ms=10, most_ms=100),
}

CODES: Final = {
    "ProvisionedThroughputExceededException": Hindrance.THROTTLED,
    "ProvisionedThroughputExceeded": Hindrance.THROTTLED,
    "ThrottlingException": Hindrance.THROTTLED,
    "ThrottlingError": Hindrance.THROTTLED,
    "RequestLimitExceeded": Hindrance.THROTTLED,
    "TransactionConflictException": Hindrance.CONFLICT,
    "TransactionConflict": Hindrance.CONFLICT,
    "TransactionInProgressException": Hindrance.CONFLICT,
    "InternalServerError": Hindrance.LOST,
    "InternalFailure": Hindrance.LOST,
    "ServiceUnavailable": Hindrance.LOST,
    "ServiceUnavailableException": Hindrance.LOST,
}
"""By DynamoDB's code, of an error or of the reason of a cancelled transaction."""

CONDITION_FAILED: Final = "ConditionalCheckFailed"
"""The reason of a transaction that was cancelled because a row is not as it was expected."""


def delay_ms(pace: Pace, tried: int, random: "Random") -> int:
    """How long to wait after `tried` tries: random, below a bound that doubles each time."""
    bound = min(pace.most_ms, pace.first_ms << tried)
    return random.randint(bound // 2, bound)


def hindrance_of(codes: list[str]) -> Hindrance | None:
    """Why a transaction was cancelled, if the same request is worth a retry; None if a condition
    failed, or if the reason is permanent."""
    kinds = [CODES.get(code) for code in codes if code not in ("None", "")]
    if not kinds or None in kinds:
        return None
    return Hindrance.THROTTLED if Hindrance.THROTTLED in kinds else Hindrance.CONFLICT
