"""What the memory engine keeps of accounts. Like the other tables, it outlives the store."""

from dataclasses import dataclass, field

from tidewire.domain.accounts import (
    ExternalIdentity,
    Invite,
    RequestKey,
    Session,
)
from tidewire.domain.ids import SessionId, UserId
from tidewire.domain.sessions import StoredSession


@dataclass(slots=True)
class InviteRow:
    invite: Invite
    used_by: UserId | None = None


@dataclass(slots=True)
class SessionRow:
    session: Session
    refresh_hash: bytes | None
    previous_hash: bytes | None = None
    rotated_at_ms: int = 0

    @property
    def stored(self) -> StoredSession:
        return StoredSession(
            session=self.session,
            refresh_hash=self.refresh_hash,
            previous_hash=self.previous_hash,
            rotated_at_ms=self.rotated_at_ms,
        )


@dataclass(slots=True, kw_only=True)
class RequestRow:
    body_hash: bytes
    resource_id: str | None
    created_at_ms: int
    claimed_at_ms: int
    http_status: int | None = None
    """None: pending."""


@dataclass(slots=True)
class AccountTables:
    """Everything about accounts that a MemoryStorage stores."""

    passwords: dict[UserId, str] = field(default_factory=dict)
    places: dict[UserId, tuple[str, ...]] = field(default_factory=dict)
    external_users: dict[ExternalIdentity, UserId] = field(default_factory=dict)
    invites: dict[bytes, InviteRow] = field(default_factory=dict)
    sessions: dict[SessionId, SessionRow] = field(default_factory=dict)
    pending_deletions: dict[UserId, None] = field(default_factory=dict)
    blocks: dict[UserId, dict[UserId, None]] = field(default_factory=dict)
    requests: dict[RequestKey, RequestRow] = field(default_factory=dict)

    def is_blocked(self, *, user_id: UserId, blocked_id: UserId) -> bool:
        return blocked_id in self.blocks.get(user_id, {})
