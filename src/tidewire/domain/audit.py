"""The audit trail's words: what was done, by whom, to whom, from where and when. PURE.

A record never holds a password, a token or the text of a message. Names of actions are promised
(docs/operations.md): programs filter by them.
"""

from enum import StrEnum
from typing import Final

import msgspec

from tidewire.domain.ids import ChatId, SessionId

OPERATOR: Final = "operator"
"""The actor of the commands that are run on the server's own machine."""


class AuditAction(StrEnum):
    """What was done. New names may be added; an old one keeps its meaning."""

    LOGIN = "login"
    LOGIN_FAILED = "login.failed"
    REGISTER_FAILED = "register.failed"
    SESSION_ENDED = "session.ended"
    TOKEN_ISSUED = "token.issued"  # noqa: S105 - the name of an action
    PASSWORD_CHANGED = "password.changed"  # noqa: S105 - the name of an action
    PASSWORD_FAILED = "password.failed"  # noqa: S105 - the name of an action
    ACCOUNT_CREATED = "account.created"
    ACCOUNT_DISABLED = "account.disabled"
    ACCOUNT_ENABLED = "account.enabled"
    ACCOUNT_DELETED = "account.deleted"
    INVITE_CREATED = "invite.created"
    MEMBER_ADDED = "member.added"
    MEMBER_REMOVED = "member.removed"
    MEMBER_LEFT = "member.left"
    ROLE_CHANGED = "role.changed"
    GROUP_CREATED = "group.created"
    GROUP_RENAMED = "group.renamed"
    GROUP_HANDED_OVER = "group.handed_over"
    GROUP_CLOSED = "group.closed"
    MESSAGE_DELETED = "message.deleted"
    KEY_ROTATED = "key.rotated"
    OPERATOR_COMMAND = "operator.command"


FAILURES: Final = frozenset(
    {AuditAction.LOGIN_FAILED, AuditAction.REGISTER_FAILED, AuditAction.PASSWORD_FAILED}
)
"""Actions that strangers can cause without limit. They are kept apart, so that a flood of them does
not push other records out."""


REPEATABLE: Final = FAILURES | {
    AuditAction.LOGIN,
    AuditAction.PASSWORD_CHANGED,
    AuditAction.SESSION_ENDED,
    AuditAction.MEMBER_ADDED,
    AuditAction.MEMBER_REMOVED,
    AuditAction.MEMBER_LEFT,
    AuditAction.ROLE_CHANGED,
    AuditAction.GROUP_CREATED,
    AuditAction.GROUP_RENAMED,
    AuditAction.GROUP_HANDED_OVER,
    AuditAction.GROUP_CLOSED,
    AuditAction.MESSAGE_DELETED,
}
"""Actions that one person can repeat without end: limited per minute, the rest is counted."""


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the trail."""

    at_ms: int
    action: AuditAction
    actor: str | None = None
    """A user id, or OPERATOR. None: an unknown person, for example after a failed login."""
    target: str | None = None
    """What it was done to: most often a user id."""
    address: str | None = None
    """The client's IP address. None for commands on the server's own machine."""
    chat_id: ChatId | None = None
    sequence: int | None = None
    """Of a message in the chat."""
    session_id: SessionId | None = None
    command: str | None = None
    """The operator's command, without its arguments."""
    reason: str | None = None
    """Why, or how, in a word that programs can compare."""
    count: int | None = None
    """How many, where one record stands for several (sessions that ended, failures of a minute)."""
