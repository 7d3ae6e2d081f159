"""What may be asked over REST: the bodies of requests. PURE.

Unknown fields are ignored, wrong types and lengths are refused where the body is decoded. What a
length cannot say (a name with a line break) the services refuse.
"""

from typing import Annotated, Final, Literal

import msgspec

from tidewire.domain.chats import ChatType
from tidewire.domain.limits import (
    CHAT_NAME_CHARACTERS_MAX,
    CONTENT_TYPE_DEFAULT,
    DISPLAY_NAME_CHARACTERS_MAX,
    GROUP_MEMBERS_MAX,
    LOOKUP_NAMES_MAX,
    MUTE_HOURS_MAX,
    PASSWORD_CHARACTERS_MAX,
    PASSWORD_CHARACTERS_MIN,
    USERNAME_CHARACTERS_MAX,
)
from tidewire.wire.fields import Cursor, SequenceNumber

UUID_PATTERN: Final = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
IDEMPOTENCY_FIELD: Final = "Idempotency-Key"

Uuid = Annotated[str, msgspec.Meta(pattern=UUID_PATTERN, min_length=36, max_length=36)]
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Username = Annotated[str, msgspec.Meta(min_length=1, max_length=USERNAME_CHARACTERS_MAX)]
DisplayName = Annotated[str, msgspec.Meta(min_length=1, max_length=DISPLAY_NAME_CHARACTERS_MAX)]
ChatName = Annotated[str, msgspec.Meta(min_length=1, max_length=CHAT_NAME_CHARACTERS_MAX)]
GivenPassword = Annotated[str, msgspec.Meta(min_length=1, max_length=PASSWORD_CHARACTERS_MAX)]
NewPassword = Annotated[
    str, msgspec.Meta(min_length=PASSWORD_CHARACTERS_MIN, max_length=PASSWORD_CHARACTERS_MAX)
]
Token = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]


class _Body(msgspec.Struct, frozen=True, kw_only=True):
    pass


class Register(_Body, frozen=True, kw_only=True):
    username: Username
    password: NewPassword
    device_id: Uuid
    display_name: DisplayName | None = None
    """What others see; the user name if it is left out."""
    invite: Token | None = None
    """The code of an invite, where one is needed."""

    def __repr__(self) -> str:
        return f"Register({self.username!r})"


class Login(_Body, frozen=True, kw_only=True):
    username: Username
    password: GivenPassword
    device_id: Uuid

    def __repr__(self) -> str:
        return f"Login({self.username!r})"


class Refresh(_Body, frozen=True, kw_only=True):
    refresh_token: Token
    device_id: Uuid | None = None
    """The device, unless the X-Device-ID header names it."""

    def __repr__(self) -> str:
        return "Refresh(***)"


class Logout(_Body, frozen=True, kw_only=True):
    """The access token says which session ends; the refresh token need not be shown."""

    refresh_token: Token | None = None

    def __repr__(self) -> str:
        return "Logout(***)"


class UpdateMe(_Body, frozen=True, kw_only=True):
    display_name: DisplayName


class LookupUsers(_Body, frozen=True, kw_only=True):
    usernames: Annotated[list[str], msgspec.Meta(min_length=1, max_length=LOOKUP_NAMES_MAX)]


class CreateChat(_Body, frozen=True, kw_only=True):
    type: ChatType
    member_ids: Annotated[list[Id], msgspec.Meta(min_length=1, max_length=GROUP_MEMBERS_MAX)]
    """The others: exactly one for a direct chat; without oneself."""
    name: ChatName | None = None
    """A group has one, a direct chat has none."""


class RenameChat(_Body, frozen=True, kw_only=True):
    name: ChatName


class AddMember(_Body, frozen=True, kw_only=True):
    user_id: Id
    role: Literal["member", "admin"] = "member"


class ChangeRole(_Body, frozen=True, kw_only=True):
    role: Literal["member", "admin"]


class MuteChat(_Body, frozen=True, kw_only=True):
    duration_hours: Annotated[int, msgspec.Meta(ge=1, le=MUTE_HOURS_MAX)] | None = None
    """None: until it is unmuted."""


class PostMessage(_Body, frozen=True, kw_only=True):
    client_message_id: str
    """A UUID. The same one again is the same message again."""
    content: str
    content_type: str = CONTENT_TYPE_DEFAULT
    seen_sequence: Cursor | None = None
    """What the author had seen when the text was written."""


class AdvancePositions(_Body, frozen=True, kw_only=True):
    """At least one of the two. A read also acknowledges delivery."""

    last_acked_sequence: SequenceNumber | None = None
    last_read_sequence: SequenceNumber | None = None
