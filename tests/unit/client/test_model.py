"""Messages, their ticks, and the ids of replies."""

import msgspec

from tests.unit.client.stage import CHAT, TIME
from tidewire.client.model import (
    NAMES_MAX,
    Kept,
    Message,
    MessageRefused,
    Names,
    message_of,
    message_of_view,
    reply_id,
)
from tidewire.client.places import Place, PlaceRecord
from tidewire.domain.chats import ChatType
from tidewire.domain.delivery import Tick
from tidewire.domain.ids import ClientMessageId, MessageId, UserId, is_uuid
from tidewire.wire.rest_models import MessageView, PersonView


def kept(*, is_own: int = 1) -> Kept:
    return Kept(
        1, CHAT, 5, 4, "msg_5", "user_me", "key", "secret text", "text/plain", TIME, is_own, 0
    )


def place() -> Place:
    return Place(PlaceRecord(chat_id=CHAT, chat_type=ChatType.DIRECT), waiting_max=1)


def test_tick_of_an_own_message_is_that_of_the_moment() -> None:
    here = place()
    message = message_of(kept(), here)
    assert str(message.tick) == "sent"
    here.others_delivered = 5
    assert str(message.tick) == "delivered"
    here.others_read = 5
    assert str(message.tick) == "read"
    assert message_of(kept(is_own=0), here).tick is None
    assert message_of(kept(), None).tick is Tick.SENT


def test_repr_has_the_beginning_of_the_text() -> None:
    long = "Lunch at noon? " * 20
    refused = MessageRefused(
        chat_id=CHAT, client_message_id="key", text=long, code="FORBIDDEN", reason="no"
    )
    assert repr(refused).endswith("FORBIDDEN: 'Lunch at noon? Lunch at noon? Lunch at …')")
    assert repr(message_of(kept(), place())) == "Message(#5 of chat_1, by user_me: 'secret text')"
    shown = repr(message_of(msgspec.structs.replace(kept(), content=long), place()))
    assert long[:39] + "…" in shown
    assert long[:40] not in shown


def test_message_has_its_authors_name_once_it_is_known() -> None:
    names = Names()
    message = message_of(kept(), None, names)
    assert message_of(kept(), None).sender_name is None
    assert "by user_me: " in repr(message)
    assert names.learn({"user_me": "Me", "user_you": "You"}) == {
        "user_me": "Me",
        "user_you": "You",
    }
    assert message.sender_name == "Me"
    assert "by Me: " in repr(message)
    assert names.learn({"user_me": "Myself", "user_you": "You"}) == {"user_me": "Myself"}
    assert str(message.sender_name) == "Myself"
    assert hash(message) != hash(message_of(kept(), None, Names()))


def test_names_are_bounded() -> None:
    names = Names()
    names.learn({f"user_{number}": "x" for number in range(NAMES_MAX)})
    names.learn({"user_new": "New"})
    assert names.get("user_0") is None
    assert names.get("user_new") == "New"


def test_time_of_a_message_is_an_instant_of_utc() -> None:
    message = message_of(kept(), None)
    assert message.created_at.isoformat(timespec="milliseconds") == "2031-05-04T11:20:07.412+00:00"
    assert message.created_at_ms == 1_935_660_007_412


def test_message_without_a_text_is_damaged() -> None:
    assert not message_of(kept(), None).is_damaged
    assert message_of(msgspec.structs.replace(kept(), content=""), None).is_damaged


def test_message_of_the_server_is_the_same_as_that_of_the_store() -> None:
    view = MessageView(
        message_id=MessageId("msg_5"),
        chat_id=CHAT,
        sequence=5,
        prev_sequence=4,
        sender_id=UserId("user_me"),
        sender=PersonView(user_id=UserId("user_me"), display_name="Me"),
        client_message_id=ClientMessageId("key"),
        content="secret text",
        content_type="text/plain",
        created_at=TIME,
    )
    assert message_of_view(view, None, "user_me") == message_of(kept(), None)


def test_message_without_content_is_a_damaged_one() -> None:
    assert not message_of(kept(), None).is_damaged
    damaged = message_of(msgspec.structs.replace(kept(), content=""), None)
    assert damaged.is_damaged
    assert damaged.text == ""


def reply(own_id: str, message_id: str, part: int = 0) -> str:
    message = Message(
        chat_id=CHAT,
        sequence=1,
        message_id=MessageId(message_id),
        sender_id=UserId("x"),
        client_message_id=ClientMessageId("x"),
        text="",
        created_at_ms=0,
        is_own=False,
    )
    return reply_id(own_id, message, part)


def test_reply_id_is_always_the_same_and_never_anothers() -> None:
    ids = [
        reply("user_me", "msg_1"),
        reply("user_me", "msg_2"),
        reply("user_you", "msg_1"),
        reply("user_me", "msg_1", 1),
    ]
    assert len(set(ids)) == 4
    assert reply("user_me", "msg_1") == ids[0]
    for made in ids:
        assert is_uuid(made)
        assert made[14] == "4"
        assert made[19] in "89ab"
