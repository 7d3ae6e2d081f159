"""People, as far as messages and chats need them. Passwords and sessions live elsewhere. PURE."""

from typing import Final

import msgspec

from tidewire.domain.errors import Forbidden, InvalidOperation, UserNotFound
from tidewire.domain.ids import UserId, is_safe_token
from tidewire.domain.limits import DISPLAY_NAME_CHARACTERS_MAX, USERNAME_CHARACTERS_MAX
from tidewire.domain.names import check_not_reserved, check_shown_name

DELETED_NAME: Final = "Deleted account"
"""What a deleted account is called in chats and beside its messages, which stay."""
ERASED_PREFIX: Final = "erased-"
"""Before the letters of its id: the user name of an account that was erased."""


class User(msgspec.Struct, frozen=True, kw_only=True):
    user_id: UserId
    username: str
    display_name: str
    created_at_ms: int
    updated_at_ms: int
    disabled_at_ms: int | None = None
    """Set: the user cannot log in, and has no sessions left."""
    enabled_at_ms: int | None = None
    """When the user was last enabled again, after having been disabled."""
    deleted_at_ms: int | None = None
    """Set: the account was deleted. It is disabled too, for ever, and its user name stays taken."""

    @classmethod
    def made(
        cls, user_id: UserId, username: str, display_name: str | None, *, now_ms: int
    ) -> "User":
        """A new user, shown by the user name if there is no other."""
        return cls(
            user_id=user_id,
            username=username,
            display_name=display_name or username,
            created_at_ms=now_ms,
            updated_at_ms=now_ms,
        )

    @property
    def can_join(self) -> bool:
        """Whether the user can be put into a chat: not once the account was deleted."""
        return self.deleted_at_ms is None


class PendingDeletion(msgspec.Struct, frozen=True):
    """A deletion that was begun and is not finished."""

    user: User
    erases: bool = False
    """The person has asked that the messages go too, and the name."""


def as_deleted(user: User, *, now_ms: int) -> User:
    """The user once the account is deleted: what others see is DELETED_NAME. Again is the same."""
    if user.deleted_at_ms is not None:
        return user
    return msgspec.structs.replace(
        user,
        display_name=DELETED_NAME,
        updated_at_ms=now_ms,
        disabled_at_ms=now_ms if user.disabled_at_ms is None else user.disabled_at_ms,
        deleted_at_ms=now_ms,
    )


def as_erased(user: User, *, now_ms: int) -> User:
    """The deleted account under a pseudonym, so that nothing names the person any more. The name
    is free again: nothing is left that one could take for that person's. Again is the same."""
    if user.deleted_at_ms is None:
        raise InvalidOperation("only a deleted account can be erased; delete it first")
    pseudonym = ERASED_PREFIX + user.user_id[-26:].lower()
    if user.username == pseudonym:
        return user
    return msgspec.structs.replace(user, username=pseudonym, updated_at_ms=now_ms)


def as_renamed(user: User, display_name: str, *, now_ms: int) -> User:
    """The user under another display name. A deleted account is not found any more."""
    if not user.can_join:
        raise UserNotFound(user.user_id)
    return msgspec.structs.replace(user, display_name=display_name, updated_at_ms=now_ms)


def as_disabled(user: User, *, now_ms: int) -> User:
    """The user once disabled. Again is the same."""
    if user.disabled_at_ms is not None:
        return user
    return msgspec.structs.replace(user, disabled_at_ms=now_ms)


def as_enabled(user: User, *, now_ms: int) -> User:
    """The user once let in again, at a later time than ever before. Again is the same."""
    if user.disabled_at_ms is None:
        return user
    check_enable(user)
    enabled_at_ms = max(now_ms, (user.enabled_at_ms or user.created_at_ms) + 1)
    return msgspec.structs.replace(user, disabled_at_ms=None, enabled_at_ms=enabled_at_ms)


def check_may_log_in(user: User) -> None:
    if user.disabled_at_ms is not None:
        raise Forbidden("this account is disabled; ask the operator of this server")


def check_enable(user: User) -> None:
    """May a disabled user be let in again?"""
    if user.deleted_at_ms is not None:
        raise InvalidOperation("this account was deleted; it cannot be enabled again")


def check_username(username: str) -> str:
    """The name if it may be one: 1 to 64 letters, digits and . _ : - (no spaces)."""
    if not is_safe_token(username):
        raise InvalidOperation("a user name has 1 to 64 letters, digits and . _ : -")
    return username


def check_chosen_username(username: str) -> str:
    """The name if people may give it to themselves: none that passes for the server's own."""
    return check_not_reserved(check_username(username), "a user name")


def check_chosen_display_name(name: str) -> str:
    """The same for the name that others see."""
    return check_not_reserved(check_display_name(name), "a display name")


def fallback_username(user_id: UserId, wanted: str | None) -> str:
    """A name that is as good as unique, for an account whose own is taken (still to be recognised
    by it) or cannot be used here."""
    letters = user_id[-26:].lower()
    if wanted is None:
        return f"u-{letters}"
    return f"{wanted[: USERNAME_CHARACTERS_MAX - 11]}-{letters[-10:]}"


def check_display_name(name: str) -> str:
    """The name if it may be one: 1 to 64 characters, all of them fit to be shown in a line."""
    return check_shown_name(name, "a display name", DISPLAY_NAME_CHARACTERS_MAX)
