"""The tree of errors: codes, sentences, details, and what a client does with each."""

import pytest

from tidewire.domain import errors
from tidewire.domain.errors import (
    AuthFailure,
    ErrorCode,
    Refused,
    Retry,
    Throttled,
    TidewireError,
    Unavailable,
)
from tidewire.domain.ids import MessageId
from tidewire.domain.messages import Appended

ORIGINAL = Appended(MessageId("msg_1"), 318, 317, 1_935_660_007_412, deduplicated=True)

CASES: list[tuple[TidewireError, ErrorCode, dict[str, object], str]] = [
    (errors.InvalidMessage("no content"), ErrorCode.INVALID_MESSAGE, {}, "no content"),
    (errors.InvalidContent("a NUL"), ErrorCode.INVALID_CONTENT, {}, "a NUL"),
    (errors.InvalidEncoding("not UTF-8"), ErrorCode.INVALID_ENCODING, {}, "not UTF-8"),
    (errors.InvalidContentType("text/html"), ErrorCode.INVALID_CONTENT_TYPE, {}, "'text/html'"),
    (
        errors.MessageTooLarge(size_bytes=5000, size_bytes_max=4096),
        ErrorCode.MESSAGE_TOO_LARGE,
        {"max_bytes": 4096, "received_bytes": 5000},
        "5000 bytes",
    ),
    (
        errors.KeyReused(ORIGINAL),
        ErrorCode.IDEMPOTENCY_KEY_REUSED,
        {"sequence": 318, "message_id": "msg_1", "created_at_ms": 1_935_660_007_412},
        "the first one stays",
    ),
    (errors.KeyReused(), ErrorCode.IDEMPOTENCY_KEY_REUSED, {}, "the first one stays"),
    (errors.TargetNotFound(7), ErrorCode.TARGET_NOT_FOUND, {}, "the sequence 7"),
    (errors.MessageDeleted(9), ErrorCode.MESSAGE_DELETED, {"deleted_sequence": 9}, "deleted"),
    (
        errors.EditConflict(content="theirs", edited_by=8),
        ErrorCode.EDIT_CONFLICT,
        {"content": "theirs", "edited_sequence": 8},
        "edited meanwhile",
    ),
    (errors.EditTooLate(), ErrorCode.EDIT_TOO_LATE, {}, "too old"),
    (errors.TooManyEdits(40), ErrorCode.TOO_MANY_EDITS, {}, "40 times"),
    (errors.TooManyReactions(20), ErrorCode.TOO_MANY_REACTIONS, {}, "at most 20"),
    (
        errors.InvalidMention("user_b", "user_a"),
        ErrorCode.INVALID_MENTION,
        {"user_ids": ["user_a", "user_b"]},
        "user_a, user_b",
    ),
    (errors.NotAMember(), ErrorCode.NOT_A_MEMBER, {}, "not a member"),
    (errors.Forbidden("not you"), ErrorCode.FORBIDDEN, {}, "not you"),
    (errors.InvalidOperation("never"), ErrorCode.INVALID_OPERATION, {}, "never"),
    (errors.AlreadyAMember(), ErrorCode.ALREADY_A_MEMBER, {}, "already"),
    (errors.ChatIsFull(1000), ErrorCode.CHAT_FULL, {}, "1000 members"),
    (errors.UserNotFound("user_b", "user_a"), ErrorCode.USER_NOT_FOUND, {}, "user_a, user_b"),
    (errors.UsernameTaken("ann"), ErrorCode.CONFLICT, {}, "'ann'"),
    (errors.MessageNotFound(), ErrorCode.NOT_FOUND, {}, "no such message"),
    (errors.SessionNotFound(), ErrorCode.NOT_FOUND, {}, "no such session"),
    (
        errors.Unauthorized(AuthFailure.TOKEN_EXPIRED, expired_at_ms=5),
        ErrorCode.UNAUTHORIZED,
        {"reason": "token_expired", "expired_at_ms": 5},
        "expired",
    ),
    (
        errors.DeviceMismatch(),
        ErrorCode.DEVICE_MISMATCH,
        {"reason": "device_mismatch"},
        "another device",
    ),
    (errors.InvalidCredentials(), ErrorCode.INVALID_CREDENTIALS, {}, "is wrong"),
    (errors.InvalidRefreshToken(), ErrorCode.INVALID_REFRESH_TOKEN, {}, "log in again"),
    (errors.InvalidInvite(), ErrorCode.FORBIDDEN, {}, "invite"),
    (errors.RequestKeyReused(), ErrorCode.IDEMPOTENCY_KEY_REUSED, {}, "use a new one"),
    (
        errors.TooManyLogins(retry_after_ms=1_500),
        ErrorCode.SERVICE_UNAVAILABLE,
        {"retry_after_seconds": 2},
        "logging in",
    ),
    (
        errors.RequestInProgress(),
        ErrorCode.CONFLICT,
        {"retry_after_seconds": 1},
        "being carried out",
    ),
    (errors.IdentityUnavailable(), ErrorCode.SERVICE_UNAVAILABLE, {}, "identity provider"),
    (errors.SequenceAboveHead(sequence=9, head=7), ErrorCode.INVALID_SEQUENCE, {}, "9 is above"),
    (errors.CursorAhead(cursor=9, head=7), ErrorCode.CURSOR_AHEAD, {"head": 7}, "cursor 9"),
    (
        errors.RateLimited("slower", retry_after_ms=1),
        ErrorCode.RATE_LIMITED,
        {"retry_after_seconds": 1},
        "slower",
    ),
    (errors.Overloaded("full"), ErrorCode.SERVICE_UNAVAILABLE, {}, "full"),
    (errors.DeadlinePassed(), ErrorCode.SERVICE_UNAVAILABLE, {}, "send the same message again"),
    (errors.StoreUnavailable("gone"), ErrorCode.SERVICE_UNAVAILABLE, {}, "gone"),
    (errors.StoreDamaged("page 7"), ErrorCode.SERVICE_UNAVAILABLE, {}, "is damaged"),
    (errors.LogUnavailable("no log"), ErrorCode.SERVICE_UNAVAILABLE, {}, "no log"),
    (errors.StoreFull(), ErrorCode.SERVICE_UNAVAILABLE, {}, "disk is full"),
    (errors.CounterMissing("chat_1"), ErrorCode.SERVICE_UNAVAILABLE, {}, "recover-counter"),
    (errors.StoreUnusable("damaged"), ErrorCode.INTERNAL_ERROR, {}, "damaged"),
]


def kinds(root: type[TidewireError]) -> list[type[TidewireError]]:
    """The tree of the domain; what other rooms add for themselves is their affair."""
    below = (kind for child in root.__subclasses__() for kind in kinds(child))
    return [kind for kind in (root, *below) if kind.__module__ == errors.__name__]


@pytest.mark.parametrize(
    ("error", "code", "details", "sentence"), CASES, ids=lambda case: type(case).__name__
)
def test_error_has_code_details_and_sentence(
    error: TidewireError, code: ErrorCode, details: dict[str, object], sentence: str
) -> None:
    assert error.code is code
    assert error.details == details
    assert sentence in str(error)


def test_every_error_of_the_tree_has_a_case_above() -> None:
    branches = {TidewireError, Refused, Throttled, Unavailable}
    assert {type(error) for error, *_ in CASES} == set(kinds(TidewireError)) - branches


def test_every_error_stands_in_the_drawing_of_the_tree() -> None:
    drawing = errors.__doc__ or ""
    for kind in kinds(TidewireError):
        assert kind.__name__ in drawing


def test_branch_says_what_a_client_does() -> None:
    for branch, retry in (
        (Refused, Retry.NEVER),
        (Throttled, Retry.AFTER),
        (Unavailable, Retry.SAME_REQUEST),
    ):
        assert {kind.retry for kind in kinds(branch)} == {retry}


@pytest.mark.parametrize(
    ("retry_after_ms", "seconds"), [(0, 1), (1, 1), (1000, 1), (1001, 2), (60_000, 60)]
)
def test_wait_is_rounded_up_to_whole_seconds(retry_after_ms: int, seconds: int) -> None:
    details = errors.RateLimited("slower", retry_after_ms=retry_after_ms).details
    assert details == {"retry_after_seconds": seconds}


def test_unauthorized_says_what_its_reason_says_and_no_more() -> None:
    sentences = {str(errors.Unauthorized(reason)) for reason in AuthFailure}
    assert len(sentences) == len(AuthFailure)
    assert errors.Unauthorized.retry is Retry.SAME_REQUEST
    assert errors.DeviceMismatch.retry is Retry.NEVER


def test_refused_content_type_is_quoted_in_part_only() -> None:
    assert len(str(errors.InvalidContentType("x" * 10_000))) < 120


def test_codes_are_their_names() -> None:
    for code in ErrorCode:
        assert code.value == code.name


def test_store_is_away_only_if_all_of_it_is() -> None:
    assert errors.is_away(errors.StoreUnavailable("away"))
    assert errors.is_away(errors.Overloaded("full"))
    for part in (errors.StoreDamaged("a page"), errors.CounterMissing("chat_1")):
        assert not errors.is_away(part)
    assert not errors.is_away(errors.NotAMember())
