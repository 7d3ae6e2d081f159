"""What may be asked over REST: the bodies of requests. PURE.

Unknown fields are ignored, wrong types and lengths are refused where the body is decoded. What a
length cannot say (a name with a line break) the services refuse; the description tells it too.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

from tidewire.domain.chats import ChatType
from tidewire.domain.limits import (
    CHAT_NAME_CHARACTERS_MAX,
    CONTENT_BYTES_MAX,
    CONTENT_TYPE_DEFAULT,
    CONTENT_TYPES,
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

_USERNAME_PATTERN: Final = "^[A-Za-z0-9_.:-]+$"
# No controls and no line breaks; no space at either end.
_UNSEEN: Final = r"\u0000-\u001f\u007f-\u009f\u2028\u2029"
_SHOWN_PATTERN: Final = rf"^[^\s{_UNSEEN}]([^{_UNSEEN}]*[^\s{_UNSEEN}])?$"


def _told(**schema: Any) -> msgspec.Meta:
    """What is described here, but judged elsewhere, where every edge asks."""
    return msgspec.Meta(extra_json_schema=schema)


Uuid = Annotated[str, msgspec.Meta(pattern=UUID_PATTERN, min_length=36, max_length=36)]
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Username = Annotated[str, msgspec.Meta(min_length=1, max_length=USERNAME_CHARACTERS_MAX)]
NewUsername = Annotated[Username, _told(pattern=_USERNAME_PATTERN)]
DisplayName = Annotated[
    str,
    msgspec.Meta(min_length=1, max_length=DISPLAY_NAME_CHARACTERS_MAX),
    _told(pattern=_SHOWN_PATTERN),
]
ChatName = Annotated[
    str,
    msgspec.Meta(min_length=1, max_length=CHAT_NAME_CHARACTERS_MAX),
    _told(pattern=_SHOWN_PATTERN),
]
GivenPassword = Annotated[str, msgspec.Meta(min_length=1, max_length=PASSWORD_CHARACTERS_MAX)]
NewPassword = Annotated[
    str, msgspec.Meta(min_length=PASSWORD_CHARACTERS_MIN, max_length=PASSWORD_CHARACTERS_MAX)
]
Token = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]


class RequestBody(msgspec.Struct, frozen=True, kw_only=True):
    pass


class Register(RequestBody, frozen=True, kw_only=True):
    username: NewUsername
    password: NewPassword
    device_id: Uuid
    display_name: DisplayName | None = None
    """What others see; the user name if it is left out."""
    invite: Token | None = None
    """The code of an invite, where one is needed."""

    def __repr__(self) -> str:
        return f"Register({self.username!r})"


class Login(RequestBody, frozen=True, kw_only=True):
    username: Username
    password: GivenPassword
    device_id: Uuid

    def __repr__(self) -> str:
        return f"Login({self.username!r})"


class Refresh(RequestBody, frozen=True, kw_only=True):
    refresh_token: Token
    device_id: Uuid | None = None
    """The device, unless the X-Device-ID header names it."""

    def __repr__(self) -> str:
        return "Refresh(***)"


class Logout(RequestBody, frozen=True, kw_only=True):
    """The access token says which session ends; the refresh token need not be shown."""

    refresh_token: Token | None = None

    def __repr__(self) -> str:
        return "Logout(***)"


class ChangePassword(RequestBody, frozen=True, kw_only=True):
    current_password: GivenPassword
    new_password: NewPassword

    def __repr__(self) -> str:
        return "ChangePassword(***)"


class DeleteMe(RequestBody, frozen=True, kw_only=True):
    password: GivenPassword

    def __repr__(self) -> str:
        return "DeleteMe(***)"


class UpdateMe(RequestBody, frozen=True, kw_only=True):
    display_name: DisplayName


class LookupUsers(RequestBody, frozen=True, kw_only=True):
    usernames: Annotated[list[str], msgspec.Meta(min_length=1, max_length=LOOKUP_NAMES_MAX)]


class CreateChat(RequestBody, frozen=True, kw_only=True):
    type: ChatType
    member_ids: Annotated[
        list[Id],
        msgspec.Meta(min_length=1, max_length=GROUP_MEMBERS_MAX),
        _told(uniqueItems=True),
    ]
    """The others: exactly one for a direct chat; without oneself."""
    name: ChatName | None = None
    """A group has one, a direct chat has none."""


class RenameChat(RequestBody, frozen=True, kw_only=True):
    name: ChatName


class AddMember(RequestBody, frozen=True, kw_only=True):
    user_id: Id
    role: Literal["member", "admin"] = "member"


class ChangeRole(RequestBody, frozen=True, kw_only=True):
    role: Literal["member", "admin"]


class LeaveChat(RequestBody, frozen=True, kw_only=True):
    do_not_add_again: bool = False
    """True: nobody can add you to this group again, until you take that back."""


class TransferChat(RequestBody, frozen=True, kw_only=True):
    user_id: Id
    """The member who becomes the owner."""


class MuteChat(RequestBody, frozen=True, kw_only=True):
    duration_hours: Annotated[int, msgspec.Meta(ge=1, le=MUTE_HOURS_MAX)] | None = None
    """None: until it is unmuted."""


class PostMessage(RequestBody, frozen=True, kw_only=True):
    client_message_id: Annotated[str, _told(pattern=UUID_PATTERN)]
    """A UUID. The same one again is the same message again."""
    content: Annotated[
        str,
        _told(
            minLength=1,
            maxLength=CONTENT_BYTES_MAX,
            pattern=r"^[^\u0000]*$",
            description=f"1 to {CONTENT_BYTES_MAX} bytes of UTF-8.",
        ),
    ]
    content_type: Annotated[str, _told(enum=sorted(CONTENT_TYPES))] = CONTENT_TYPE_DEFAULT
    seen_sequence: Cursor | None = None
    """What the author had seen when the text was written."""


class AdvancePositions(RequestBody, frozen=True, kw_only=True):
    """At least one of the two. A read also acknowledges delivery."""

    last_acked_sequence: SequenceNumber | None = None
    last_read_sequence: SequenceNumber | None = None


TOLD_BESIDE: Final[Mapping[type[RequestBody], Mapping[str, Any]]] = {
    CreateChat: {
        "anyOf": [
            {
                "properties": {
                    "type": {"const": "direct"},
                    "member_ids": {"maxItems": 1},
                    "name": {"type": "null"},
                }
            },
            {
                "properties": {"type": {"const": "group"}, "name": {"type": "string"}},
                "required": ["name"],
            },
        ]
    },
    AdvancePositions: {
        "anyOf": [
            {"properties": {name: {"type": "integer"}}, "required": [name]}
            for name in ("last_acked_sequence", "last_read_sequence")
        ]
    },
}
"""What fields have to do with each other, for the description."""
