"""Bodies of requests: what is ignored, what is refused, and what never shows itself."""

import msgspec
import pytest

from tidewire.domain.chats import ChatType
from tidewire.wire.rest_requests import (
    AddMember,
    CreateChat,
    Login,
    Logout,
    MuteChat,
    PostMessage,
    Refresh,
    Register,
)

DEVICE = "00000001-0000-4000-8000-000000000000"


def test_unknown_fields_are_ignored_and_defaults_filled_in() -> None:
    body = b'{"type":"group","member_ids":["user_a"],"colour":"blue"}'
    assert msgspec.json.decode(body, type=CreateChat) == CreateChat(
        type=ChatType.GROUP, member_ids=["user_a"], name=None
    )
    assert msgspec.json.decode(b'{"user_id":"user_a"}', type=AddMember).role == "member"
    assert msgspec.json.decode(b"{}", type=MuteChat).duration_hours is None
    message = b'{"client_message_id":"x","content":"y"}'
    assert msgspec.json.decode(message, type=PostMessage).content_type == "text/plain"


@pytest.mark.parametrize("hours", [b"0", b"8761", b"1.5", b'"1"'])
def test_mute_of_another_length_is_refused(hours: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"duration_hours":%s}' % hours, type=MuteChat)
    assert msgspec.json.decode(b'{"duration_hours":8760}', type=MuteChat).duration_hours == 8760


def test_secrets_do_not_show_themselves() -> None:
    secret = "correct horse"
    for body in (
        Register(username="anna", password=secret, device_id=DEVICE, invite=secret),
        Login(username="anna", password=secret, device_id=DEVICE),
        Refresh(refresh_token=secret),
        Logout(refresh_token=secret),
    ):
        assert secret not in repr(body)
