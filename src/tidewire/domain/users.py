"""People, as far as messages and chats need them. Passwords and sessions live elsewhere. PURE."""

import msgspec

from tidewire.domain.errors import InvalidOperation
from tidewire.domain.ids import UserId, is_safe_token
from tidewire.domain.limits import DISPLAY_NAME_CHARACTERS_MAX
from tidewire.domain.names import check_not_reserved, check_shown_name


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


def check_display_name(name: str) -> str:
    """The name if it may be one: 1 to 64 characters, all of them fit to be shown in a line."""
    return check_shown_name(name, "a display name", DISPLAY_NAME_CHARACTERS_MAX)
