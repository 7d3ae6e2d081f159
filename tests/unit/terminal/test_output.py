"""What `tail` prints."""

import json
from datetime import UTC

import msgspec

from tidewire.client.model import Message
from tidewire.domain.ids import ChatId, ClientMessageId, MessageId, UserId
from tidewire.terminal.output import json_line, text_line

MESSAGE = Message(
    chat_id=ChatId("chat_1"),
    sequence=7,
    message_id=MessageId("msg_1"),
    sender_id=UserId("user_1"),
    client_message_id=ClientMessageId("id"),
    text='Hi "Bob"\n#8 Eve: no \x1b[2J\u2028',
    created_at_ms=1_794_830_400_000,
    is_own=False,
)


def test_json_line_is_one_line_with_the_text_as_it_was() -> None:
    line = json_line(MESSAGE, "Al\nice")
    assert "\n" not in line
    assert json.loads(line) == {
        "chat_id": "chat_1",
        "sequence": 7,
        "message_id": "msg_1",
        "client_message_id": "id",
        "sender_id": "user_1",
        "sender": "Al\nice",
        "is_own": False,
        "created_at": "2026-11-16T12:00:00.000Z",
        "text": MESSAGE.text,
    }


def test_text_line_cannot_be_mistaken_for_anothers() -> None:
    assert text_line(MESSAGE, "Al\nice", UTC).split("\n") == [
        '2026-11-16 12:00 #7 Al ice: Hi "Bob"',
        "    #8 Eve: no ^[[2J",
        "    ",
    ]


def test_damaged_message_is_said_to_be_damaged() -> None:
    damaged = msgspec.structs.replace(MESSAGE, text="", is_damaged=True)
    assert json.loads(json_line(damaged, "Alice"))["is_damaged"] is True
    line = text_line(damaged, "Alice", UTC)
    assert line == "2026-11-16 12:00 #7 Alice: [damaged on the server: its text is lost]"
