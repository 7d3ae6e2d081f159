"""Every error of the vendor has its place in ours; none comes through by accident."""

from collections.abc import Iterator
from typing import Any

import pytest
from botocore import exceptions as vendor

from tidewire.domain.errors import StoreUnavailable, StoreUnusable
from tidewire.engines.dynamodb.backoff import CODES, Hindrance
from tidewire.engines.dynamodb.errors import (
    CONNECTION_LOST,
    NO_CREDENTIALS,
    OUR_BUGS,
    UNAVAILABLE,
    AnswerLost,
    Cancelled,
    ConditionFailed,
    hindrance,
    translated,
    translated_or_lost,
)


def subclasses(kind: type[Exception]) -> Iterator[type[Exception]]:
    for subclass in kind.__subclasses__():
        yield subclass
        yield from subclasses(subclass)


SETTINGS = {
    # What a wrong configuration or a call that we never make can raise: shown as it is.
    kind
    for kind in subclasses(vendor.BotoCoreError)
    if not issubclass(kind, CONNECTION_LOST + NO_CREDENTIALS)
}


def answered(code: str, **more: Any) -> vendor.ClientError:
    return vendor.ClientError({"Error": {"Code": code, "Message": "said"}, **more}, "Operation")


def test_vendor_errors_of_a_connection_are_all_lost_answers() -> None:
    """By their names: one that a new version brings must be looked at."""
    suspicious = [
        kind.__name__
        for kind in SETTINGS
        if any(word in kind.__name__ for word in ("Connect", "Timeout", "Read", "HTTP", "SSL"))
    ]
    known = {
        # Of other services, or of a waiter or a metadata service that we do not use.
        "InvalidIMDSEndpointError",
        "InvalidIMDSEndpointModeError",
        "MetadataRetrievalError",
        "ReadOnlyPropertyError",
    }
    assert sorted(set(suspicious) - known) == []


@pytest.mark.parametrize("kind", [vendor.ReadTimeoutError, vendor.ConnectTimeoutError])
def test_connection_that_is_lost_may_be_tried_again(kind: type[vendor.BotoCoreError]) -> None:
    assert hindrance(kind(endpoint_url="there")) is Hindrance.LOST
    assert hindrance(TimeoutError()) is Hindrance.LOST


@pytest.mark.parametrize("code", CODES)
def test_refusal_for_now_may_be_tried_again(code: str) -> None:
    assert hindrance(answered(code)) is CODES[code]


@pytest.mark.parametrize("code", UNAVAILABLE)
def test_service_that_cannot_is_unavailable(code: str) -> None:
    assert hindrance(answered(code)) in (None, Hindrance.LOST)
    ours = translated_or_lost(answered(code))
    assert isinstance(ours, StoreUnavailable)
    assert not isinstance(ours, AnswerLost)
    assert code in str(ours)


def test_fault_of_the_database_may_have_happened_and_is_tried_again() -> None:
    """In a transaction under the same token (G7)."""
    for code in ("InternalServerError", "ServiceUnavailable"):
        assert hindrance(answered(code)) is Hindrance.LOST
    assert isinstance(translated_or_lost(TimeoutError()), AnswerLost)


@pytest.mark.parametrize("code", sorted(OUR_BUGS))
def test_request_that_is_wrong_is_raised_as_it_is(code: str) -> None:
    error = answered(code)
    assert translated(error) is error
    assert hindrance(error) is None


def test_missing_table_says_what_to_do() -> None:
    ours = translated(answered("ResourceNotFoundException"))
    assert isinstance(ours, StoreUnusable)
    assert "tidewire cluster init" in str(ours)


def test_missing_credentials_are_told() -> None:
    assert isinstance(translated(vendor.NoCredentialsError()), StoreUnavailable)


def test_condition_that_failed_carries_the_row() -> None:
    item = {"sequence": {"N": "4"}}
    ours = translated(answered("ConditionalCheckFailedException", Item=item))
    assert isinstance(ours, ConditionFailed)
    assert ours.row == {"sequence": 4}
    bare = translated(answered("ConditionalCheckFailedException"))
    assert isinstance(bare, ConditionFailed)
    assert bare.row is None


def test_cancelled_transaction_carries_reasons_and_rows() -> None:
    reasons = [{"Code": "None"}, {"Code": "ConditionalCheckFailed", "Item": {"a": {"S": "b"}}}]
    ours = translated(answered("TransactionCanceledException", CancellationReasons=reasons))
    assert isinstance(ours, Cancelled)
    assert (ours.codes, ours.rows) == (["None", "ConditionalCheckFailed"], [None, {"a": "b"}])


def test_error_of_nobody_is_raised_as_it_is() -> None:
    error = ValueError("ours")
    assert translated(error) is error
    assert hindrance(error) is None
