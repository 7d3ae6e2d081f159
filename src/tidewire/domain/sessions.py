"""Rules of sessions: which ones end for a new login, and whether a refresh token is accepted. PURE.

Every engine reads the facts, calls these functions, and writes the decision.
"""

from collections.abc import Sequence

import msgspec

from tidewire.domain.accounts import (
    RefreshOtherDevice,
    RefreshOutcome,
    RefreshReused,
    RefreshRotated,
    RefreshUnknown,
    RotateRefresh,
    Session,
    SessionKind,
)
from tidewire.domain.ids import SessionId


class StoredSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session with the stored data of its refresh tokens."""

    session: Session
    refresh_hash: bytes | None
    previous_hash: bytes | None = None
    rotated_at_ms: int = 0

    def __repr__(self) -> str:
        return f"StoredSession({self.session!r})"


def judge_refresh(
    stored: StoredSession | None, command: RotateRefresh, *, now_ms: int
) -> RefreshOutcome:
    """The verdict on a refresh token, in the order of `ports.accounts.SessionStore`."""
    if stored is None or stored.refresh_hash is None:
        return RefreshUnknown()
    session = stored.session
    if _bounded(session, command, session.expires_at_ms) <= now_ms:
        return RefreshUnknown()
    is_current = command.presented_hash == stored.refresh_hash
    if not is_current and command.presented_hash != stored.previous_hash:
        return RefreshUnknown(session, stored.refresh_hash)
    if not is_current and now_ms - stored.rotated_at_ms > command.grace_ms:
        return RefreshReused(session)
    if command.device_id != session.device_id:
        return RefreshOtherDevice()
    if is_current:
        session = _refreshed(session, command, now_ms)
    return RefreshRotated(session, repeated=not is_current)


def _refreshed(session: Session, command: RotateRefresh, now_ms: int) -> Session:
    """The session after a refresh: active now, from this address and client, with a new lifetime.
    So an active device stays logged in."""
    expires_at_ms = max(session.expires_at_ms, now_ms + command.life_ms)
    return msgspec.structs.replace(
        session,
        generation=session.generation + 1,
        last_active_at_ms=max(session.last_active_at_ms, now_ms),
        expires_at_ms=_bounded(session, command, expires_at_ms),
        address=command.address or session.address,
        client=command.client or session.client,
    )


def _bounded(session: Session, command: RotateRefresh, expires_at_ms: int) -> int:
    """That instant, or the end of the session's longest lifetime if that comes earlier."""
    if command.life_ms_max is None:
        return expires_at_ms
    return min(expires_at_ms, session.created_at_ms + command.life_ms_max)


def make_room(
    sessions: Sequence[Session], session: Session, *, sessions_max: int, now_ms: int
) -> tuple[list[SessionId], list[SessionId]]:
    """The user's sessions that have expired, and those that end for this one.

    The session of the same device ends and, if there are too many, those that were not in use for
    the longest time. Bots' sessions do not count and do not end for a login.
    """
    if session.kind is not SessionKind.LOGIN:
        return [], []
    gone = [own.session_id for own in sessions if own.expires_at_ms <= now_ms]
    logins = sorted(
        (own for own in sessions if own.kind is SessionKind.LOGIN and own.expires_at_ms > now_ms),
        key=lambda own: (own.last_active_at_ms, own.session_id),
    )
    ended = [own.session_id for own in logins if own.device_id == session.device_id]
    others = [own.session_id for own in logins if own.device_id != session.device_id]
    ended += others[: max(0, len(others) - (sessions_max - 1))]
    return gone, ended
