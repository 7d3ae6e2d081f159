"""People, as far as messages and chats need them. Passwords and sessions live elsewhere. PURE."""

import msgspec

from tidewire.domain.errors import InvalidOperation
from tidewire.domain.ids import UserId, is_safe_token
from tidewire.domain.limits import DISPLAY_NAME_CHARACTERS_MAX


class User(msgspec.Struct, frozen=True, kw_only=True):
    user_id: UserId
    username: str
    display_name: str
    created_at_ms: int
    updated_at_ms: int


def check_username(username: str) -> str:
    """The name if it may be one: 1 to 64 letters, digits and . _ : - (no spaces)."""
    if not is_safe_token(username):
        raise InvalidOperation(
            "a user name has 1 to 64 letters, digits, dots, dashes or underscores"
        )
    return username


def check_display_name(name: str) -> str:
    """The name if it may be shown: 1 to 64 printable characters without spaces at its ends."""
    if not name or len(name) > DISPLAY_NAME_CHARACTERS_MAX:
        raise InvalidOperation(f"a display name has 1 to {DISPLAY_NAME_CHARACTERS_MAX} characters")
    if name != name.strip() or not name.isprintable():
        raise InvalidOperation("a display name has no spaces at its ends, no control characters")
    return name
