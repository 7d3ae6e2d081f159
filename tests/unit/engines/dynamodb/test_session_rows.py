from tests.unit.engines.dynamodb.samples import ANNA, NOW_MS
from tidewire.domain.accounts import Session, SessionKind
from tidewire.domain.ids import SessionId
from tidewire.engines.dynamodb.rows import pack, unpack
from tidewire.engines.dynamodb.session_rows import session_of, session_row, user_session_row

LOGIN = Session(
    session_id=SessionId("sess_1"),
    user_id=ANNA,
    device_id="device",
    generation=2,
    created_at_ms=NOW_MS,
    last_active_at_ms=NOW_MS + 1,
    expires_at_ms=NOW_MS + 1,
)
BOT = Session(
    session_id=SessionId("sess_2"),
    user_id=ANNA,
    device_id=None,
    kind=SessionKind.BOT,
    label="a bot",
    created_at_ms=NOW_MS,
    last_active_at_ms=NOW_MS,
    expires_at_ms=NOW_MS + 1000,
)


def test_sessions_come_back_as_they_were() -> None:
    for session, refresh_hash in ((LOGIN, b"hash"), (BOT, None)):
        row = unpack(pack(session_row(session, refresh_hash=refresh_hash)))
        assert session_of(row) == session
        assert row.get("refresh_token_hash") == refresh_hash


def test_rows_are_deleted_no_earlier_than_they_expire() -> None:
    second = NOW_MS // 1000
    assert user_session_row(LOGIN)["ttl"] == second + 1
    assert session_row(BOT, refresh_hash=None)["ttl"] == second + 1
