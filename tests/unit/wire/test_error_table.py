"""Every code and every reason has a row, and the rows agree with the contract and the domain."""

from collections.abc import Iterator

import pytest

from tidewire.domain import errors
from tidewire.domain.errors import ErrorCode, Retry, TidewireError
from tidewire.domain.ids import MessageId
from tidewire.domain.messages import Appended
from tidewire.wire.error_table import (
    CLOSE_TABLE,
    ERROR_TABLE,
    CloseCode,
    CloseReason,
    error_payload,
)

# The specification's codes that have an HTTP status, but for logins by one-time code.
CONTRACT_STATUSES = {
    400: "INVALID_MESSAGE BAD_REQUEST VALIDATION_ERROR INVALID_OPERATION CHAT_FULL",
    401: "UNAUTHORIZED DEVICE_MISMATCH INVALID_REFRESH_TOKEN",
    403: "FORBIDDEN NOT_A_MEMBER",
    404: "NOT_FOUND USER_NOT_FOUND",
    409: "CONFLICT IDEMPOTENCY_KEY_REUSED ALREADY_A_MEMBER",
    413: "PAYLOAD_TOO_LARGE MESSAGE_TOO_LARGE",
    415: "INVALID_CONTENT_TYPE",
    422: "UNPROCESSABLE_ENTITY INVALID_SEQUENCE",
    429: "RATE_LIMITED SLOW_CONSUMER",
    500: "INTERNAL_ERROR",
    503: "SERVICE_UNAVAILABLE",
}
CONTRACT_RETRIES = (
    "UNAUTHORIZED RATE_LIMITED INTERNAL_ERROR SERVICE_UNAVAILABLE SLOW_CONSUMER SERVER_BUSY"
)


def domain_errors(root: type[TidewireError] = TidewireError) -> Iterator[type[TidewireError]]:
    """Those of the domain; what other rooms add for themselves is their affair."""
    for kind in root.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield kind
            yield from domain_errors(kind)


def test_every_code_has_a_row_in_the_order_of_the_catalogue() -> None:
    assert list(ERROR_TABLE) == list(ErrorCode)


def test_every_reason_has_a_row() -> None:
    assert list(CLOSE_TABLE) == list(CloseReason)


def test_statuses_are_those_of_the_contract() -> None:
    for status, codes in CONTRACT_STATUSES.items():
        for code in codes.split():
            assert ERROR_TABLE[ErrorCode(code)].http_status == status, code


def test_retryable_codes_are_those_of_the_contract() -> None:
    retryable = {code for code, row in ERROR_TABLE.items() if row.retryable}
    assert retryable == set(CONTRACT_RETRIES.split())


def test_codes_that_end_a_connection_are_those_of_the_contract() -> None:
    closing = {code: row.close_code for code, row in ERROR_TABLE.items() if row.close_code}
    assert closing == {
        ErrorCode.UNAUTHORIZED: CloseCode.POLICY_VIOLATION,
        ErrorCode.SLOW_CONSUMER: CloseCode.POLICY_VIOLATION,
    }


def test_close_codes_are_those_of_the_contract_and_ours_say_what_to_do() -> None:
    policy = {CloseReason.TOKEN_EXPIRED, CloseReason.SESSION_REVOKED, CloseReason.SLOW_CONSUMER}
    for reason in policy:
        assert CLOSE_TABLE[reason].close_code == 1008
    assert CLOSE_TABLE[CloseReason.RATE_LIMITED].close_code == 1013
    assert CLOSE_TABLE[CloseReason.SERVER_SHUTDOWN].close_code == 1012
    for row in CLOSE_TABLE.values():
        if row.close_code >= 4000:
            assert row.reconnects == (row.close_code < 4500)


def test_sentences_are_sentences() -> None:
    sentences = [row.sentence for row in ERROR_TABLE.values()]
    sentences += [row.sentence for row in CLOSE_TABLE.values()]
    for sentence in sentences:
        assert sentence[0].isupper()
        assert sentence.endswith(".")


@pytest.mark.parametrize("kind", list(domain_errors()), ids=lambda kind: kind.__name__)
def test_retry_of_a_domain_error_agrees_with_its_row(kind: type[TidewireError]) -> None:
    # These carry no code of their own: a branch of the tree, and an error for the operator only.
    if kind in (errors.Refused, errors.Throttled, errors.StoreUnusable):
        assert kind.code is ErrorCode.INTERNAL_ERROR
        return
    # The one conflict that passes by itself: its answer carries a Retry-After.
    if kind is errors.RequestInProgress:
        assert kind.retry is Retry.AFTER
        return
    assert (kind.retry is not Retry.NEVER) == ERROR_TABLE[kind.code].retryable


def test_payload_has_code_sentence_and_details() -> None:
    payload = error_payload(errors.RateLimited("slower", retry_after_ms=1500))
    assert (payload.code, payload.message) == ("RATE_LIMITED", "slower")
    assert payload.details == {"retry_after_seconds": 2}


def test_payload_without_details_leaves_them_out() -> None:
    assert error_payload(errors.NotAMember()).details is None


def test_payload_of_a_silent_error_says_what_the_table_says() -> None:
    payload = error_payload(errors.Forbidden())
    assert payload.message == ERROR_TABLE[ErrorCode.FORBIDDEN].sentence


def test_payload_of_a_reused_key_has_the_original_with_its_time_as_text() -> None:
    original = Appended(MessageId("msg_1"), 318, 317, 1_935_660_007_412, deduplicated=True)
    assert error_payload(errors.KeyReused(original)).details == {
        "sequence": 318,
        "message_id": "msg_1",
        "created_at": "2031-05-04T11:20:07.412Z",
    }
    assert error_payload(errors.KeyReused()).details is None


def test_payload_of_an_internal_error_gives_nothing_away() -> None:
    payload = error_payload(errors.StoreUnusable("/var/lib/tidewire/messages.db is damaged"))
    assert payload.code == "INTERNAL_ERROR"
    assert payload.message == ERROR_TABLE[ErrorCode.INTERNAL_ERROR].sentence
    assert payload.details is None
