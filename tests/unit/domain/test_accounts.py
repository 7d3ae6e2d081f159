"""Secrets never show themselves; passwords and devices have a form."""

import msgspec
import pytest

from tidewire.domain.accounts import (
    Credentials,
    NewAccount,
    OpenSession,
    RefreshUnknown,
    RequestClaim,
    RequestClaimed,
    RequestMismatch,
    RequestPending,
    RequestReplayed,
    Secret,
    Session,
    StoredRequest,
    check_device_id,
    check_password,
    clean_client,
    external_session_id,
    judge_request,
)
from tidewire.domain.errors import InvalidOperation
from tidewire.domain.ids import SESSION_PREFIX, SessionId, UserId, has_form
from tidewire.domain.limits import REQUEST_KEY_LIFE_MS, REQUEST_PENDING_MS_MAX
from tidewire.domain.users import User

USER = User(
    user_id=UserId("user_01J9ZK4T7Q2M8V5RXB3N6C0DHE"),
    username="ann",
    display_name="Ann",
    created_at_ms=1,
    updated_at_ms=1,
)
SESSION = Session(
    session_id=SessionId("sess_1"),
    user_id=USER.user_id,
    device_id="d",
    created_at_ms=1,
    last_active_at_ms=1,
    expires_at_ms=2,
)


def test_secret_shows_itself_only_when_asked() -> None:
    secret = Secret("hunter2hunter2")
    for shown in (repr(secret), str(secret), f"{secret}", "%s" % secret, repr([secret])):  # noqa: UP031
        assert "hunter2" not in shown
    assert secret.reveal() == "hunter2hunter2"


def test_secret_is_equal_to_the_same_secret_only() -> None:
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    with pytest.raises(TypeError):
        hash(Secret("a"))


@pytest.mark.parametrize(
    "value",
    [
        Credentials(user=USER, password_hash="$argon2id$secret"),
        NewAccount(user=USER, password_hash="$argon2id$secret", invite_hash=b"secret"),
        OpenSession(
            session=SESSION,
            refresh_hash=b"secret",
            password_hash="secret",
            rehashed="secret",
        ),
        RefreshUnknown(SESSION, b"secret"),
    ],
)
def test_values_with_hashes_do_not_show_them(value: object) -> None:
    assert "secret" not in repr(value)


@pytest.mark.parametrize("password", ["x" * 8, "x" * 1024, "pass word 🔑", "ÄÖÜäöüßé"])
def test_password_is_taken_as_it_is(password: str) -> None:
    assert check_password(Secret(password)).reveal() == password


@pytest.mark.parametrize("password", ["", "x" * 7, "x" * 1025, "\ud800" * 8])
def test_password_that_is_none_is_refused(password: str) -> None:
    with pytest.raises(InvalidOperation) as refusal:
        check_password(Secret(password))
    assert "xxx" not in str(refusal.value)


def test_device_id_is_a_uuid_in_lower_case() -> None:
    assert (
        check_device_id("C0A8F3D2-5B1E-4F77-9A43-2D6E8B90C5F1")
        == "c0a8f3d2-5b1e-4f77-9a43-2d6e8b90c5f1"
    )
    for device_id in ("", "phone", "c0a8f3d25b1e4f779a432d6e8b90c5f1", "c0a8f3d2-5b1e\n"):
        with pytest.raises(InvalidOperation):
            check_device_id(device_id)


def test_external_session_is_named_after_its_user_and_when_he_was_allowed_back() -> None:
    assert external_session_id(USER) == "sess_01J9ZK4T7Q2M8V5RXB3N6C0DHE"
    others = {
        external_session_id(msgspec.structs.replace(USER, enabled_at_ms=at_ms))
        for at_ms in (1_800_000_000_000, 1_800_000_000_001)
    }
    assert len(others) == 2
    assert all(has_form(session_id, SESSION_PREFIX) for session_id in others)
    assert all(session_id[15:] == external_session_id(USER)[15:] for session_id in others)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (None, None),
        ("", None),
        (" \t\r\n", None),
        ("curl/8.5", "curl/8.5"),
        ("a\x1b[31m\nb\u202ec", "a [31m b c"),
        ("x" * 5_000, "x" * 120),
        ("y" * 119 + " z", "y" * 119),
    ],
)
def test_client_is_cleaned_and_bounded(given: str | None, kept: str | None) -> None:
    assert clean_client(given) == kept


def request(**changed: object) -> StoredRequest:
    fields: dict[str, object] = {
        "body_hash": b"body",
        "resource_id": "chat_1",
        "http_status": None,
        "created_at_ms": 0,
        "claimed_at_ms": 0,
    }
    return StoredRequest(**(fields | changed))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("stored", "now_ms", "expected"),
    [
        (None, 1, None),
        (request(), REQUEST_KEY_LIFE_MS, None),
        (request(body_hash=b"other", http_status=201), 1, RequestMismatch()),
        (request(http_status=201), REQUEST_KEY_LIFE_MS - 1, RequestReplayed(201, "chat_1")),
        (request(), REQUEST_PENDING_MS_MAX - 1, RequestPending()),
        (request(), REQUEST_PENDING_MS_MAX, RequestClaimed("chat_1", resumed=True)),
        (request(claimed_at_ms=5), REQUEST_PENDING_MS_MAX, RequestPending()),
    ],
)
def test_request_with_a_known_key_is_answered_by_what_became_of_the_first(
    stored: StoredRequest | None, now_ms: int, expected: RequestClaim | None
) -> None:
    assert judge_request(stored, b"body", now_ms=now_ms) == expected
