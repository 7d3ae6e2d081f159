"""People, as far as messages and chats need them. Passwords and sessions live elsewhere. PURE."""

from typing import Final

import msgspec

from tidewire.domain.errors import InvalidOperation
from tidewire.domain.ids import UserId, is_safe_token
from tidewire.domain.limits import DISPLAY_NAME_CHARACTERS_MAX, USERNAME_CHARACTERS_MAX
from tidewire.domain.names import check_not_reserved, check_shown_name

DELETED_NAME: Final = "Deleted account"
"""What a deleted account is called in chats and beside its messages, which stay."""


class User(msgspec.Struct, frozen=True, kw_only=True):
    user_id: UserId
    username: str
    display_name: str
    created_at_ms: int
    updated_at_ms: int
    disabled_at_ms: int | None = None
    """Set: he cannot log in, and none of his sessions is left."""
    enabled_at_ms: int | None = None
    """When he was last allowed back, if he ever was disabled."""
    deleted_at_ms: int | None = None
    """Set: the account was deleted. It is disabled too, for ever, and its user name stays taken."""

    @property
    def can_join(self) -> bool:
        """Whether the user can be put into a chat: not once the account was deleted."""
        return self.deleted_at_ms is None


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
