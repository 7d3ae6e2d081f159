"""Translates DynamoDB's errors into ours. `backoff` says which requests are worth a retry."""

from typing import Any, Final

from botocore import exceptions as vendor

from tidewire.domain.errors import StoreUnavailable, StoreUnusable
from tidewire.engines.dynamodb.backoff import CODES, Hindrance
from tidewire.engines.dynamodb.rows import Row, unpack

CONNECTION_LOST: Final = (
    vendor.HTTPClientError,
    vendor.ConnectionError,
    vendor.IncompleteReadError,
    vendor.ResponseStreamingError,
    # Raised by `direct`; a timeout is one too.
    OSError,
)
"""No answer, or half of one: the database may have carried out the request."""

NO_CREDENTIALS: Final = (
    vendor.NoCredentialsError,
    vendor.PartialCredentialsError,
    vendor.CredentialRetrievalError,
    vendor.NoRegionError,
    vendor.TokenRetrievalError,
)

UNAVAILABLE: Final = {
    "InternalServerError": "DynamoDB reported a fault of its own",
    "InternalFailure": "DynamoDB reported a fault of its own",
    "ServiceUnavailable": "DynamoDB is not available",
    "ServiceUnavailableException": "DynamoDB is not available",
    "LimitExceededException": "a limit of the account was reached",
    "ResourceInUseException": "a table is being made or changed; try again",
    "AccessDeniedException": "the credentials do not allow this; see the rights of this role",
    "UnrecognizedClientException": "the credentials are not known",
    "InvalidSignatureException": "the credentials, or the clock of this machine, are wrong",
    "ExpiredTokenException": "the credentials have expired",
    "MissingAuthenticationTokenException": "there are no credentials",
    "IncompleteSignatureException": "the credentials are not complete",
}

OUR_BUGS: Final = frozenset(
    {"ValidationException", "SerializationException", "IdempotentParameterMismatchException"}
)
"""A request of ours is wrong; raised as it is."""


class AnswerLost(StoreUnavailable):
    """A request got no answer. Only its sender knows whether it may be sent again."""

    def __init__(self) -> None:
        super().__init__("the database did not answer in time; the same request may be sent again")


class ConditionFailed(Exception):
    """A row differs from what was expected; `row` is the row as it is, None if there is none."""

    def __init__(self, row: Row | None) -> None:
        super().__init__("a condition failed")
        self.row = row


class Cancelled(Exception):
    """A transaction was cancelled: for each write the code of the reason, and the row that failed
    its condition."""

    def __init__(self, codes: list[str], rows: list[Row | None]) -> None:
        super().__init__(f"the transaction was cancelled: {codes}")
        self.codes = codes
        self.rows = rows


def code_of(error: vendor.ClientError) -> str:
    code: str = error.response.get("Error", {}).get("Code", "")
    return code


def hindrance(error: Exception) -> Hindrance | None:
    """Why a request failed; None if a retry cannot help."""
    if isinstance(error, CONNECTION_LOST):
        return Hindrance.LOST
    if isinstance(error, vendor.ClientError):
        return CODES.get(code_of(error))
    return None


def translated_or_lost(error: Exception) -> Exception:
    """Our error for a request that may have been carried out, and that is not retried."""
    ours = translated(error)
    return ours if isinstance(ours, StoreUnavailable) else AnswerLost()


def translated(error: Exception) -> Exception:
    """Our error for the vendor's; the vendor's own if it is a bug of ours."""
    if isinstance(error, NO_CREDENTIALS):
        return StoreUnavailable(f"the database cannot be asked: {error}")
    if not isinstance(error, vendor.ClientError):
        return error
    return _translated_answer(error, code_of(error), error.response)


def _translated_answer(error: Exception, code: str, response: dict[str, Any]) -> Exception:
    if code == "ConditionalCheckFailedException":
        return ConditionFailed(_row(response))
    if code == "TransactionCanceledException":
        reasons: list[dict[str, Any]] = response.get("CancellationReasons", [])
        return Cancelled(
            [reason.get("Code", "None") for reason in reasons], [_row(one) for one in reasons]
        )
    if code == "ResourceNotFoundException":
        return StoreUnusable("a table is missing; run 'tidewire cluster init'")
    if code in UNAVAILABLE:
        return StoreUnavailable(f"{UNAVAILABLE[code]} ({code})")
    return error


def _row(answer: dict[str, Any]) -> Row | None:
    item = answer.get("Item")
    return unpack(item) if item else None
