"""Messages, their ticks, and the ids of replies."""

from typing import Any

import msgspec
import pytest

from tests.unit.client.stage import CHAT, TIME
from tidewire.client.model import (
    NAMES_MAX,
    Change,
    ChangeRow,
    Fleeting,
    Message,
    MessageRefused,
    MessageRow,
    Names,
    TicksMoved,
    change_of,
    entry_of,
    message_of,
    reply_id,
    with_now,
)
from tidewire.client.replica import Replica
from tidewire.domain.chats import ChatType
from tidewire.domain.delivery import Tick
from tidewire.domain.fold import AS_WRITTEN, MessageNow, Reaction
from tidewire.domain.ids import ClientMessageId, MessageId, UserId, is_uuid
from tidewire.domain.messages import EntryKind
from tidewire.wire.rest_models import MessageView, PersonView


def kept(*, is_own: int = 1) -> MessageRow:
    return MessageRow(
        1,
        CHAT,
        5,
        4,
        MessageId("msg_5"),
        UserId("user_me"),
        ClientMessageId("key"),
        "secret text",
        "text/plain",
        TIME,
        is_own,
        0,
    )


def replica() -> Replica:
    return Replica(chat_id=CHAT, chat_type=ChatType.DIRECT, waiting_max=1)


def test_tick_of_an_own_message_is_that_of_the_moment() -> None:
    here = replica()
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
    assert repr(message_of(kept(), replica())) == "Message(#5 of chat_1, by user_me: 'secret text')"
    shown = repr(message_of(msgspec.structs.replace(kept(), content=long), replica()))
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


VIEW = MessageView(
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
"""What the server says of the message that `kept` returns."""


def test_message_of_the_server_is_the_same_as_that_of_the_store() -> None:
    assert message_of(VIEW, None, own_id="user_me") == message_of(kept(), None)


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


def test_fleeting_keeps_the_latest_of_each_key_and_no_more_than_its_bound() -> None:
    fleeting = Fleeting(2)
    for chat_id in ("a", "b", "a", "c"):
        fleeting.put(("ticks", chat_id), TicksMoved(chat_id=chat_id))
    assert fleeting.take() == [TicksMoved(chat_id="a"), TicksMoved(chat_id="c")]
    assert fleeting.take() == []


# Messages that change.

EDITED = MessageNow(content="better", edited_sequence=7)
DELETED = MessageNow(deleted_sequence=8)
REACTED = MessageNow(
    reactions=(
        Reaction(emoji="🎉", count=0, sequence=6),
        Reaction(emoji="👍", count=2, sequence=5, is_own=True),
    )
)
SAID = '{"reply_to":3,"mentions":["user_you","@all"]}'


def changed(**fields: Any) -> MessageRow:
    return msgspec.structs.replace(kept(), **fields)


def amendment(extra: str, **fields: Any) -> MessageRow:
    return changed(kind="edit", target=5, extra=extra, sequence=9, content="", **fields)


def changing(row: MessageRow, names: Names | None = None) -> Change:
    change = change_of(row, names)
    assert change is not None
    return change


def test_message_is_as_it_is_now() -> None:
    message = message_of(changed(now=EDITED), None)
    assert (message.text, message.is_edited, message.is_deleted) == ("better", True, False)
    assert [one.emoji for one in message_of(changed(now=REACTED), None).reactions] == ["👍"]
    written = message_of(kept(), None)
    assert (written.is_edited, written.reactions, written.now) == (False, (), AS_WRITTEN)


def test_deleted_message_says_nothing_and_is_not_damaged() -> None:
    for row in (changed(now=DELETED), changed(content="", is_deleted=1)):
        assert row.is_erased
        message = message_of(msgspec.structs.replace(row, extra=SAID), None)
        assert (message.text, message.is_deleted, message.is_damaged) == ("", True, False)
        assert (message.mentions, message.reply_to) == ((), 3)
        assert repr(message).endswith("by user_me: deleted)")
    assert not kept().is_erased


def test_reply_has_whom_it_answers_and_whom_it_means() -> None:
    quoted = changed(sequence=3, now=EDITED)
    message = message_of(changed(extra=SAID, quoted=quoted), None)
    assert (message.reply_to, message.mentions) == (3, ("user_you", "@all"))
    assert message.quoted is not None
    assert (message.quoted.sequence, message.quoted.text) == (3, "better")
    assert message_of(kept(), None).quoted is None


def test_message_of_the_history_is_what_it_is_said_to_be() -> None:
    view = msgspec.structs.replace(VIEW, reply_to=3, mentions=(UserId("user_you"),))
    assert change_of(view, None) is None
    assert change_of(kept(), None) is None
    edit = msgspec.structs.replace(view, kind="edit", target=3)
    change = change_of(edit, None, "user_me")
    assert change is not None
    assert (change.target, change.text, change.is_own) == (3, "secret text", True)
    quoted = message_of(kept(), None)
    message = message_of(view, None, own_id="user_you", now=EDITED, quoted=quoted)
    assert (message.text, message.reply_to, message.quoted) == ("better", 3, quoted)
    assert (message.mentions, message.is_own) == (("user_you",), False)


def test_change_says_what_was_done_and_by_whom() -> None:
    names = Names()
    names.learn({"user_me": "Me"})
    row = amendment('{"kind":"react","emoji":"👍","is_on":false,"count":3}')
    change = changing(row, names)
    assert (change.kind, change.emoji, change.is_on) == (EntryKind.REACT, "👍", False)
    assert (change.sequence, change.sender_id, change.sender_name) == (9, "user_me", "Me")
    assert (change.is_own, change.created_at_ms) == (True, 1_935_660_007_412)
    assert repr(change) == "Change(react #9, by Me)"
    deletion = changing(amendment('{"kind":"delete","reason":"oops"}'))
    assert (deletion.kind, deletion.reason, deletion.sender_name) == ("delete", "oops", None)
    assert ChangeRow(row, None, AS_WRITTEN, AS_WRITTEN).position == row.position
    assert entry_of(row).count == 3


def test_change_can_be_applied_to_a_message_that_an_application_holds() -> None:
    message = message_of(kept(is_own=0), None)
    edit = changing(msgspec.structs.replace(amendment('{"kind":"edit"}'), content="better"))
    edited = edit.applied_to(message, "user_me")
    assert (edited.text, edited.is_edited) == ("better", True)
    react = changing(amendment('{"kind":"react","emoji":"👍","count":3}', is_own=1))
    reacted = react.applied_to(edited, "user_me")
    assert [(one.count, one.is_own) for one in reacted.reactions] == [(3, True)]
    assert reacted.text == "better"
    deleted = changing(amendment('{"kind":"delete"}')).applied_to(reacted, "user_me")
    assert (deleted.text, deleted.is_deleted, deleted.reactions) == ("", True, ())
    # What comes late changes nothing any more.
    assert edit.applied_to(deleted, "user_me").is_deleted


def test_damaged_message_that_was_edited_has_a_text() -> None:
    damaged = message_of(changed(content=""), None)
    assert damaged.is_damaged
    assert not with_now(damaged, EDITED).is_damaged
    assert not with_now(damaged, DELETED).is_damaged
    assert with_now(damaged, REACTED).is_damaged


def test_message_has_its_chat_do_what_is_asked_of_it() -> None:
    asked: list[tuple[object, ...]] = []

    class Acts:
        def edit(self, *given: object, base: int | None = None) -> None:
            asked.append(("edit", *given, base))

        def delete(self, *given: object, reason: str | None = None) -> None:
            asked.append(("delete", *given, reason))

        def react(self, *given: object) -> None:
            asked.append(("react", *given))

        def unreact(self, *given: object) -> None:
            asked.append(("unreact", *given))

    message = message_of(kept(), None, acts=Acts())  # type: ignore[arg-type]
    for wish in (
        message.edit("new", base=4),
        message.delete("oops"),
        message.react("👍"),
        message.unreact("👍"),
    ):
        assert wish is None
    assert [(one[0], one[-1]) for one in asked] == [
        ("edit", 4),
        ("delete", "oops"),
        ("react", "👍"),
        ("unreact", "👍"),
    ]
    assert all(one[1] is message for one in asked)
    with pytest.raises(AssertionError, match="no client"):
        _ = message_of(kept(), None).react("👍")
