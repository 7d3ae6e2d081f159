"""The stored data of accounts: credentials, sessions, blocks, and the keys of REST requests.

The rules of `ports.storage` for all methods hold here, too: a write is durable when it returns, a
refusal has written nothing, and the same call again after StoreUnavailable is safe. Methods here
get only the hashes of secrets, never the secrets.
"""

from collections.abc import Sequence
from typing import Protocol

from tidewire.domain.accounts import (
    BlockChange,
    Credentials,
    ExternalIdentity,
    Invite,
    NewAccount,
    OpenedSession,
    OpenSession,
    RefreshOutcome,
    RequestClaim,
    RequestKey,
    RotateRefresh,
    Session,
)
from tidewire.domain.ids import SessionId, UserId
from tidewire.domain.users import PendingDeletion, User


class CredentialStore(Protocol):
    """Who can log in, and how."""

    async def register(self, account: NewAccount, *, now_ms: int) -> User:
        """Make a user with a password, and use up the invite if there is one, in one act.

        If the user_id exists, that user is returned, whatever the rest says. An invite is good for
        one user, even if many use it at once. Raises InvalidInvite (unknown, used or expired), and
        only then UsernameTaken: without an invite a caller does not learn which names exist, and a
        taken name does not use the invite up.
        """
        ...

    async def add_invite(self, invite: Invite) -> None:
        """Keep an invite. The same code again changes nothing."""
        ...

    async def is_invite_open(self, code_hash: bytes, *, now_ms: int) -> bool:
        """True if a person could register with this invite now."""
        ...

    async def credentials(self, username: str) -> Credentials | None:
        """The user of this name and the hash of the password, of one instant."""
        ...

    async def credentials_of(self, user_id: UserId) -> Credentials | None:
        """The same by id."""
        ...

    async def set_password(
        self,
        user_id: UserId,
        password_hash: str,
        *,
        expected_hash: str | None,
        keep: SessionId | None,
        now_ms: int,
    ) -> list[SessionId]:
        """Set a user's password and end all logins of the user but `keep`. Returns the ended ones.

        Bots keep their sessions: they never knew the password. With `expected_hash`, only if that
        is still the stored hash, else raises InvalidCredentials. Raises UserNotFound.
        """
        ...

    async def external_user(self, identity: ExternalIdentity) -> User | None:
        """The user of an external identity, if it was seen before."""
        ...

    async def ensure_external_user(
        self, identity: ExternalIdentity, user: User, *, fallback_username: str
    ) -> User:
        """The user of an external identity, made from `user` if it is seen for the first time.

        If the name is taken, the user is called `fallback_username`. Two calls at once return the
        same user.
        """
        ...

    async def disable_user(self, user_id: UserId, *, now_ms: int) -> list[SessionId]:
        """Keep a user from logging in and end all sessions, bots' too; returns the ended ones.

        Again changes nothing. Raises UserNotFound.
        """
        ...

    async def enable_user(self, user_id: UserId, *, now_ms: int) -> User:
        """Let a user log in again, and note when: always later than the last such time and than the
        creation of the account, whatever the clock says. Changes nothing for a user who is not
        disabled. Raises UserNotFound, and what `users.check_enable` raises."""
        ...


class DeletionStore(Protocol):
    """The deletion of accounts, in steps that may be repeated: the account is marked, the caller
    removes it from its groups and removes its blocks, and then the deletion is finished."""

    async def begin_deletion(
        self, user_id: UserId, *, now_ms: int, erases: bool = False
    ) -> list[SessionId]:
        """Mark a user as deleted (`users.as_deleted`), forget the password and known places, and
        end all sessions, bots' too, in one act. Returns the ended ones. `erases` is stored, too.

        From here on the user cannot log in, cannot be added to a chat (UserNotFound) and cannot be
        renamed; the user name and an external identity stay taken. `pending_deletions` names the
        user until `finish_deletion`. Again changes nothing. Raises UserNotFound.
        """
        ...

    async def erase_name(self, user_id: UserId, *, now_ms: int) -> User:
        """Give a deleted account a pseudonym for its user name (`users.as_erased`), which is free
        from then on. Again changes nothing. Raises UserNotFound, InvalidOperation."""
        ...

    async def pending_deletions(self, *, count_max: int) -> list[PendingDeletion]:
        """Deletions that were begun and are not finished, in no order."""
        ...

    async def finish_deletion(self, user_id: UserId) -> None:
        """Note that nothing is left to do for this user. Again changes nothing."""
        ...


class SessionStore(Protocol):
    """Logins. A session that does not exist, or has expired, is over."""

    async def open_session(
        self, command: OpenSession, *, sessions_max: int, now_ms: int
    ) -> OpenedSession:
        """Open a session. It ends one of the same device and, if there are more than
        `sessions_max`, those that were not in use for the longest time.

        Bots' sessions are not counted and not ended. If the session_id exists, that session is
        returned. With a password, `places` are added to those of the account in the same act
        (`login_places.remember_places`). Raises UserNotFound; Forbidden for a disabled user;
        InvalidCredentials if the password was changed since it was checked.
        """
        ...

    async def session(self, session_id: SessionId) -> Session | None: ...

    async def sessions(self, user_id: UserId, *, now_ms: int) -> list[Session]:
        """The user's sessions that have not expired, the oldest first."""
        ...

    async def rotate_refresh(self, command: RotateRefresh, *, now_ms: int) -> RefreshOutcome:
        """Exchange a refresh token for the next one. Verdicts, first that fits:

        no session, expired, or without refresh tokens  → RefreshUnknown without a session
        the current token, another device               → RefreshOtherDevice
        the current token                               → RefreshRotated; it is the previous one now
        the previous one in its grace, another device   → RefreshOtherDevice
        the previous one in its grace                   → RefreshRotated, repeated
        the previous one later                          → RefreshReused; the session is deleted
        anything else                                   → RefreshUnknown with the session

        If two calls come at once with one token, one rotates and the other is repeated.
        """
        ...

    async def revoke_session(self, user_id: UserId, session_id: SessionId) -> bool:
        """End a session of this user. False if there is no such session."""
        ...

    async def revoke_sessions(self, user_id: UserId, *, keep: SessionId | None) -> list[SessionId]:
        """End all logins of a user but `keep`, and no bots' sessions. Returns the ended ones."""
        ...

    async def touch_sessions(self, session_ids: Sequence[SessionId], *, now_ms: int) -> None:
        """Note that these were in use. The time never moves back; unknown sessions are skipped."""
        ...


class BlockStore(Protocol):
    """Blocks between users. A block acts on the pair's direct chat: the sends of the blocked user
    are refused (`MessageStore.append`), and neither of the two can begin one."""

    async def block(self, user_id: UserId, blocked_id: UserId, *, now_ms: int) -> BlockChange:
        """Block a user. Again changes nothing.

        The mark on the other's membership and the chat's version are set in the same act; no event
        tells of it.
        Raises UserNotFound, InvalidOperation (oneself, or too many).
        """
        ...

    async def unblock(self, user_id: UserId, blocked_id: UserId) -> BlockChange:
        """Undo a block. Changes nothing for a user who is not blocked."""
        ...

    async def blocked_users(
        self, user_id: UserId, *, after: UserId | None, count_max: int
    ) -> list[UserId]:
        """The users whom the user blocks, by id, from above `after`."""
        ...


class RequestStore(Protocol):
    """Idempotency-Keys of REST requests (A-05). A record older than REQUEST_KEY_LIFE_MS counts as
    absent; one that has been pending for REQUEST_PENDING_MS_MAX is taken over."""

    async def claim_request(
        self, key: RequestKey, body_hash: bytes, *, resource_id: str | None, now_ms: int
    ) -> RequestClaim:
        """Claim a request, or learn its state. If equal requests come at once, one gets the claim.

        `resource_id` is the id that the caller would use; a caller that resumes a request gets the
        id of the first caller instead. Another body is RequestMismatch, whatever the state.
        """
        ...

    async def finish_request(
        self, key: RequestKey, *, http_status: int, resource_id: str | None
    ) -> None:
        """Keep the outcome of a claimed request for those who ask again."""
        ...

    async def release_request(self, key: RequestKey) -> None:
        """Forget a claimed request that made nothing. A finished one stays."""
        ...


class AccountStore(
    CredentialStore, DeletionStore, SessionStore, BlockStore, RequestStore, Protocol
):
    """All of it: what an engine provides."""

    async def sweep_accounts(self, *, now_ms: int, count_max: int) -> int:
        """Delete some expired sessions, invites and request keys, at most `count_max` rows of each.
        Returns how many rows were deleted. They counted as absent before."""
        ...
