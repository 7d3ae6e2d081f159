"""The bodies of REST requests. PURE.

Unknown fields are ignored, wrong types and lengths are refused where the body is decoded. The
services refuse what a length cannot express (a name with a line break); OpenAPI describes it, too.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

from tidewire.domain import limits
from tidewire.domain.chats import ChatType
from tidewire.domain.ids import UserId
from tidewire.domain.messages import MessageBody
from tidewire.wire.fields import Cursor, SequenceNumber

UUID_PATTERN: Final = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
IDEMPOTENCY_FIELD: Final = "Idempotency-Key"

_MENTION_PATTERN: Final = "^(@all|[A-Za-z0-9_.:-]{1,64})$"
_EMOJI_PATTERN: Final = r"^[^\s\u0000-\u001f\u007f-\u009f]+$"
_USERNAME_PATTERN: Final = "^[A-Za-z0-9_.:-]+$"
# No controls and no line breaks; no space at either end.
_UNSEEN: Final = r"\u0000-\u001f\u007f-\u009f\u2028\u2029"
_SHOWN_PATTERN: Final = rf"^[^\s{_UNSEEN}]([^{_UNSEEN}]*[^\s{_UNSEEN}])?$"


def _told(**schema: Any) -> msgspec.Meta:
    """A rule that is only described here. The code that checks it is used by every edge."""
    return msgspec.Meta(extra_json_schema=schema)


Uuid = Annotated[str, msgspec.Meta(pattern=UUID_PATTERN, min_length=36, max_length=36)]
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Username = Annotated[str, msgspec.Meta(min_length=1, max_length=limits.USERNAME_CHARACTERS_MAX)]
NewUsername = Annotated[Username, _told(pattern=_USERNAME_PATTERN)]
DisplayName = Annotated[
    str,
    msgspec.Meta(min_length=1, max_length=limits.DISPLAY_NAME_CHARACTERS_MAX),
    _told(pattern=_SHOWN_PATTERN),
]
ChatName = Annotated[
    str,
    msgspec.Meta(min_length=1, max_length=limits.CHAT_NAME_CHARACTERS_MAX),
    _told(pattern=_SHOWN_PATTERN),
]
GivenPassword = Annotated[
    str, msgspec.Meta(min_length=1, max_length=limits.PASSWORD_CHARACTERS_MAX)
]
NewPassword = Annotated[
    str,
    msgspec.Meta(
        min_length=limits.PASSWORD_CHARACTERS_MIN, max_length=limits.PASSWORD_CHARACTERS_MAX
    ),
]
Token = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]


class RequestBody(msgspec.Struct, frozen=True, kw_only=True):
    def __repr__(self) -> str:
        """Without its fields: many of them are secrets."""
        return f"{type(self).__name__}(***)"


class Register(RequestBody, frozen=True, kw_only=True):
    username: NewUsername
    password: NewPassword
    device_id: Uuid
    display_name: DisplayName | None = None
    """What others see; the user name if it is left out."""
    invite: Token | None = None
    """The code of an invite, where one is needed."""


class Login(RequestBody, frozen=True, kw_only=True):
    username: Username
    password: GivenPassword
    device_id: Uuid


class Refresh(RequestBody, frozen=True, kw_only=True):
    refresh_token: Token
    device_id: Uuid | None = None
    """The device, unless the X-Device-ID header names it."""


class Logout(RequestBody, frozen=True, kw_only=True):
    """The access token says which session ends; the refresh token need not be shown."""

    refresh_token: Token | None = None


class ChangePassword(RequestBody, frozen=True, kw_only=True):
    current_password: GivenPassword
    new_password: NewPassword


class DeleteMe(RequestBody, frozen=True, kw_only=True):
    password: GivenPassword
    erase_messages: bool = False


class UpdateMe(RequestBody, frozen=True, kw_only=True):
    display_name: DisplayName


class LookupUsers(RequestBody, frozen=True, kw_only=True):
    usernames: Annotated[list[str], msgspec.Meta(min_length=1, max_length=limits.LOOKUP_NAMES_MAX)]


class CreateChat(RequestBody, frozen=True, kw_only=True):
    type: ChatType
    member_ids: Annotated[
        list[Id],
        msgspec.Meta(min_length=1, max_length=limits.GROUP_MEMBERS_MAX),
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
    """True: no member can add you to this group again, until you take that back."""


class TransferChat(RequestBody, frozen=True, kw_only=True):
    user_id: Id
    """The member who becomes the owner."""


class MuteChat(RequestBody, frozen=True, kw_only=True):
    duration_hours: Annotated[int, msgspec.Meta(ge=1, le=limits.MUTE_HOURS_MAX)] | None = None
    """None: until it is unmuted."""


_Content = Annotated[
    str,
    _told(
        minLength=1,
        maxLength=limits.CONTENT_BYTES_MAX,
        pattern=r"^[^\u0000]*$",
        description=f"1 to {limits.CONTENT_BYTES_MAX} bytes of UTF-8.",
    ),
]
_Key = Annotated[
    str,
    _told(
        pattern=UUID_PATTERN, description="A UUID. The same one again is the same request again."
    ),
]


class _PostedBody(MessageBody, frozen=True, kw_only=True):
    content: _Content
    content_type: Annotated[str, _told(enum=sorted(limits.CONTENT_TYPES))] = (
        limits.CONTENT_TYPE_DEFAULT
    )
    reply_to: Annotated[
        SequenceNumber | None,
        _told(description="The sequence of the message that this one answers."),
    ] = None
    mentions: Annotated[
        tuple[Annotated[UserId, _told(pattern=_MENTION_PATTERN)], ...],
        msgspec.Meta(max_length=limits.MENTIONS_MAX),
        _told(
            uniqueItems=True,
            description="Members who are meant; `@all`, from an admin of a group, means all.",
        ),
    ] = ()
    seen_sequence: Cursor | None = None
    """What the author had seen when the text was written."""


class PostMessage(_PostedBody, frozen=True):
    client_message_id: _Key


class EditMessage(RequestBody, frozen=True, kw_only=True):
    client_message_id: _Key
    content: _Content
    base: Annotated[
        Cursor | None,
        _told(description="The sequence of the edit that you saw last, 0 for none."),
    ] = None


class DeleteMessage(RequestBody, frozen=True, kw_only=True):
    client_message_id: _Key
    reason: Annotated[
        Annotated[str, msgspec.Meta(min_length=1, max_length=limits.REASON_CHARACTERS_MAX)] | None,
        _told(description="Why, for all members to read."),
    ] = None


class ReactToMessage(RequestBody, frozen=True, kw_only=True):
    client_message_id: _Key
    emoji: Annotated[
        str,
        _told(
            minLength=1,
            maxLength=limits.EMOJI_BYTES_MAX,
            pattern=_EMOJI_PATTERN,
            description=f"1 to {limits.EMOJI_BYTES_MAX} bytes of UTF-8.",
        ),
    ]
    is_on: Annotated[bool, _told(description="False takes the reaction back.")] = True


class AdvancePositions(RequestBody, frozen=True, kw_only=True):
    """At least one of the two. A read also acknowledges delivery."""

    last_acked_sequence: SequenceNumber | None = None
    last_read_sequence: SequenceNumber | None = None


REQUEST_BODIES: Final = (*RequestBody.__subclasses__(), PostMessage)

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
"""Rules between the fields of a body, for the description."""
