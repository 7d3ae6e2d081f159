"""What is said in words."""

import json
from datetime import UTC
from typing import Any

import msgspec
import pytest

from tidewire.client.effects import ConnectionState, Status
from tidewire.client.model import Change, Message
from tidewire.domain.fold import MessageNow, Reaction
from tidewire.domain.ids import ChatId, ClientMessageId, MessageId, UserId
from tidewire.domain.messages import EntryKind
from tidewire.terminal.words import (
    LOGIN_ENDED,
    Typists,
    change_line,
    json_change,
    json_line,
    mentioned,
    state_words,
    text_line,
    text_of,
    typing_words,
)


@pytest.mark.parametrize("state", ConnectionState)
def test_every_state_has_words(state: ConnectionState) -> None:
    assert state_words(Status(state))


@pytest.mark.parametrize(
    ("status", "waiting", "words"),
    [
        (Status(ConnectionState.READY), 2, "connected"),
        (Status(ConnectionState.SYNCING), 0, "connected, catching up"),
        (Status(ConnectionState.OFFLINE, "unreachable"), 0, "offline: no server there"),
        (Status(ConnectionState.OFFLINE, "unreachable"), 2, "offline: no server there · 2 to send"),
        (Status(ConnectionState.OFFLINE, "SOMETHING_NEW"), 0, "offline"),
        (Status(ConnectionState.CLOSED), 0, "ended: closed"),
        (Status(ConnectionState.CLOSED, "code_4999"), 0, "ended: code_4999"),
        (Status(ConnectionState.CLOSED, "session_revoked"), 0, "ended: this device was logged out"),
    ],
)
def test_state_words_say_why(status: Status, waiting: int, words: str) -> None:
    assert state_words(status, waiting) == words


@pytest.mark.parametrize("reason", sorted(LOGIN_ENDED))
def test_every_end_of_a_login_has_words(reason: str) -> None:
    assert reason not in state_words(Status(ConnectionState.CLOSED, reason))


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([], ""),
        (["Bob"], "Bob is typing…"),
        (["B\x1bb", "Eve"], "B^[b and Eve are typing…"),
        (["Bob", "Eve", "Mallory"], "3 people are typing…"),
    ],
)
def test_typing_words(names: list[str], words: str) -> None:
    assert typing_words(names) == words


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("", []),
        ("hi Bob, hi bob@example.org", []),
        ("@bob, @EVE and @Bob", ["1", "3"]),
        ("@Bob Smith!", ["2"]),
        ("@bobby and @evening", []),
        ("x@eve", []),
        ("@eve @bob smith @bob", ["3", "2", "1"]),
    ],
)
def test_names_after_an_at_sign_are_meant(text: str, ids: list[str]) -> None:
    assert mentioned(text, {"Bob": "1", "Bob Smith": "2", "Eve": "3"}) == ids


def test_typists_are_forgotten_after_their_time() -> None:
    typists = Typists(keep_ms=100, typists_max=10)
    typists.typed("chat", "bob", True, now_ms=0)
    typists.typed("chat", "eve", True, now_ms=50)
    typists.typed("other", "bob", True, now_ms=50)
    assert typists.typing_in("chat") == ["bob", "eve"]
    assert not typists.forget(99)
    assert typists.forget(100)
    assert typists.typing_in("chat") == ["eve"]


def test_typist_who_goes_on_is_kept_and_one_who_stops_is_not() -> None:
    typists = Typists(keep_ms=100, typists_max=10)
    typists.typed("chat", "bob", True, now_ms=0)
    typists.typed("chat", "bob", True, now_ms=90)
    assert not typists.forget(150)
    typists.typed("chat", "bob", False, now_ms=160)
    typists.typed("chat", "bob", False, now_ms=160)
    assert typists.typing_in("chat") == []


def test_typists_are_bounded() -> None:
    typists = Typists(keep_ms=100, typists_max=2)
    for name in ("bob", "eve", "zoe"):
        typists.typed("chat", name, True, now_ms=0)
    assert typists.typing_in("chat") == ["eve", "zoe"]
    assert len(typists) == 2


# What `tail` prints.

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


def with_fields(**fields: Any) -> Message:
    return msgspec.structs.replace(MESSAGE, text="Hello", **fields)


REACTED = MessageNow(
    content="Hello",
    edited_sequence=9,
    reactions=(
        Reaction(emoji="🎉", count=1, sequence=8, is_own=True),
        Reaction(emoji="👍", count=12, sequence=7),
    ),
)


def test_line_of_a_message_says_what_has_become_of_it() -> None:
    message = with_fields(reply_to=3, mentions=(UserId("user_2"),), now=REACTED)
    line = text_line(message, "Alice", UTC)
    assert line == "2026-11-16 12:00 #7 Alice (to #3, edited): Hello [🎉 1 👍 12]"
    told = json.loads(json_line(message, "Alice"))
    assert (told["reply_to"], told["mentions"], told["is_edited"]) == (3, ["user_2"], True)
    assert told["reactions"] == [
        {"emoji": "🎉", "count": 1, "is_own": True},
        {"emoji": "👍", "count": 12, "is_own": False},
    ]


def test_deleted_message_is_said_to_be_deleted() -> None:
    deleted = with_fields(is_deleted=True)
    assert text_of(deleted) == "[deleted]"
    assert text_line(deleted, "Alice", UTC) == "2026-11-16 12:00 #7 Alice: [deleted]"
    assert json.loads(json_line(deleted, "Alice"))["is_deleted"] is True


def change(kind: EntryKind, **fields: Any) -> Change:
    return Change(
        kind=kind,
        sequence=9,
        target=7,
        sender_id=UserId("user_1"),
        is_own=False,
        created_at_ms=MESSAGE.created_at_ms,
        **fields,
    )


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (change(EntryKind.EDIT, text="Hi\n#8 Eve: \x1b"), "edited #7: Hi\n    #8 Eve: ^["),
        (change(EntryKind.EDIT), "edited #7: [deleted]"),
        (change(EntryKind.DELETE), "deleted #7"),
        (change(EntryKind.DELETE, reason="a\nmistake"), "deleted #7 (a mistake)"),
        (change(EntryKind.REACT, emoji="👍", count=2), "reacted to #7: 👍 (2)"),
        (
            change(EntryKind.REACT, emoji="👍", is_on=False, count=0),
            "took back from #7: 👍 (0)",
        ),
    ],
)
def test_line_of_a_change(made: Change, words: str) -> None:
    assert change_line(made, "Al\nice", UTC) == f"2026-11-16 12:00 #9 Al ice {words}"


def test_change_as_json_has_what_its_kind_has() -> None:
    edit = json.loads(json_change(change(EntryKind.EDIT, text="Hi"), "chat_1", "Alice"))
    assert edit == {
        "kind": "edit",
        "chat_id": "chat_1",
        "sequence": 9,
        "target": 7,
        "sender_id": "user_1",
        "sender": "Alice",
        "is_own": False,
        "created_at": "2026-11-16T12:00:00.000Z",
        "text": "Hi",
    }
    reaction = change(EntryKind.REACT, emoji="👍", is_on=False, count=0)
    told = json.loads(json_change(reaction, "chat_1", "Alice"))
    assert (told["emoji"], told["is_on"], told["count"]) == ("👍", False, 0)
    told = json.loads(json_change(change(EntryKind.DELETE, reason="oops"), "chat_1", "Alice"))
    assert (told["kind"], told["reason"], "is_on" in told) == ("delete", "oops", False)
