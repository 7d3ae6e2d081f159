"""Sessions as rows, and back. PURE."""

from tidewire.domain.accounts import Session, SessionKind
from tidewire.domain.ids import SessionId, UserId
from tidewire.domain.sessions import StoredSession
from tidewire.engines.dynamodb.rows import Row, Value


def session_row(session: Session, *, refresh_hash: bytes | None) -> dict[str, Value]:
    return {
        "session_id": session.session_id,
        "user_id": session.user_id,
        "device_id": session.device_id,
        "kind": session.kind.value,
        "label": session.label,
        "refresh_token_hash": refresh_hash,
        "token_generation": session.generation,
        "rotated_at": 0,
        "created_at": session.created_at_ms,
        **moving_fields(session),
    }


def moving_fields(session: Session) -> dict[str, Value]:
    """What a refresh changes, its tokens aside."""
    fields: dict[str, Value] = {
        "last_active_at": session.last_active_at_ms,
        "expires_at": session.expires_at_ms,
        "ttl": _ttl(session),
    }
    if session.address is not None:
        fields["address"] = session.address
    if session.client is not None:
        fields["client"] = session.client
    return fields


def user_session_row(session: Session) -> dict[str, Value]:
    """What lists a user's sessions: an index that does not lag."""
    return {
        "user_id": session.user_id,
        "session_id": session.session_id,
        "ttl": _ttl(session),
    }


def session_of(row: Row) -> Session:
    return Session(
        session_id=SessionId(row["session_id"]),
        user_id=UserId(row["user_id"]),
        device_id=row.get("device_id"),
        kind=SessionKind(row["kind"]),
        label=row.get("label"),
        generation=row["token_generation"],
        created_at_ms=row["created_at"],
        last_active_at_ms=row["last_active_at"],
        expires_at_ms=row["expires_at"],
        address=row.get("address"),
        client=row.get("client"),
    )


def stored_of(row: Row) -> StoredSession:
    return StoredSession(
        session=session_of(row),
        refresh_hash=row.get("refresh_token_hash"),
        previous_hash=row.get("prev_token_hash"),
        rotated_at_ms=row["rotated_at"],
    )


def _ttl(session: Session) -> int:
    """The second after it has expired: never deleted early."""
    return -(-session.expires_at_ms // 1000)
