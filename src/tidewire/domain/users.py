"""People, as far as messages and chats need them. Passwords and sessions live elsewhere. PURE."""

from typing import Final

import msgspec

from tidewire.domain.errors import Forbidden, InvalidOperation, UserNotFound
from tidewire.domain.ids import UserId, is_safe_token
from tidewire.domain.limits import DISPLAY_NAME_CHARACTERS_MAX, USERNAME_CHARACTERS_MAX
from tidewire.domain.names import check_not_reserved, check_shown_name

DELETED_NAME: Final = "Deleted account"
"""The name of a deleted account in chats and beside its messages, which stay."""
ERASED_PREFIX: Final = "erased-"
"""The user name of an erased account is this and then the letters of its id."""


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
        """A new user; the display name is the user name if no other is given."""
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
    """The person has asked to have the messages and the name erased, too."""


def as_deleted(user: User, *, now_ms: int) -> User:
    """The user after the account is deleted: others see DELETED_NAME. Again changes nothing."""
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
    """The deleted account under a pseudonym, so that nothing names the person any more. The name is
    free again: nothing is left that could be mistaken for that person's. Again changes nothing."""
    if user.deleted_at_ms is None:
        raise InvalidOperation("only a deleted account can be erased; delete it first")
    pseudonym = ERASED_PREFIX + user.user_id[-26:].lower()
    if user.username == pseudonym:
        return user
    return msgspec.structs.replace(user, username=pseudonym, updated_at_ms=now_ms)


def as_renamed(user: User, display_name: str, *, now_ms: int) -> User:
    """The user with another display name. Raises UserNotFound for a deleted account."""
    if not user.can_join:
        raise UserNotFound(user.user_id)
    return msgspec.structs.replace(user, display_name=display_name, updated_at_ms=now_ms)


def as_disabled(user: User, *, now_ms: int) -> User:
    """The user after being disabled. Again changes nothing."""
    if user.disabled_at_ms is not None:
        return user
    return msgspec.structs.replace(user, disabled_at_ms=now_ms)


def as_enabled(user: User, *, now_ms: int) -> User:
    """The user after being enabled again, at a later time than ever before. Again changes
    nothing."""
    if user.disabled_at_ms is None:
        return user
    check_enable(user)
    enabled_at_ms = max(now_ms, (user.enabled_at_ms or user.created_at_ms) + 1)
    return msgspec.structs.replace(user, disabled_at_ms=None, enabled_at_ms=enabled_at_ms)


def check_may_log_in(user: User) -> None:
    if user.disabled_at_ms is not None:
        raise Forbidden("this account is disabled; ask the operator of this server")


def check_enable(user: User) -> None:
    """May a disabled user be enabled again?"""
    if user.deleted_at_ms is not None:
        raise InvalidOperation("this account was deleted; it cannot be enabled again")


def check_username(username: str) -> str:
    """Returns the name if it is valid: 1 to 64 letters, digits and . _ : - (no spaces)."""
    if not is_safe_token(username):
        raise InvalidOperation("a user name has 1 to 64 letters, digits and . _ : -")
    return username


def check_chosen_username(username: str) -> str:
    """Returns the name if people may give it to themselves: it must not look like the server's."""
    return check_not_reserved(check_username(username), "a user name")


def check_chosen_display_name(name: str) -> str:
    """The same for the name that others see."""
    return check_not_reserved(check_display_name(name), "a display name")


def fallback_username(user_id: UserId, wanted: str | None) -> str:
    """A practically unique name, for an account whose own name is taken (the result begins with it)
    or cannot be used here."""
    letters = user_id[-26:].lower()
    if wanted is None:
        return f"u-{letters}"
    return f"{wanted[: USERNAME_CHARACTERS_MAX - 11]}-{letters[-10:]}"


def check_display_name(name: str) -> str:
    """Returns the name if it is valid: 1 to 64 characters that can be shown in one line."""
    return check_shown_name(name, "a display name", DISPLAY_NAME_CHARACTERS_MAX)
