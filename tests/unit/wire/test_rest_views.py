"""From the domain to what REST answers."""

import msgspec
import pytest

from tidewire.domain.accounts import Session
from tidewire.domain.chat_list import ChatListItem, LastMessage
from tidewire.domain.chats import Chat, ChatAccess, ChatType, Member, Role
from tidewire.domain.delivery import (
    DeliveryStatus,
    DeliverySummary,
    DigestEntry,
    MemberDelivery,
    Positions,
)
from tidewire.domain.fold import MessageNow
from tidewire.domain.ids import ChatId, ClientMessageId, MessageId, SessionId, UserId
from tidewire.domain.messages import Amendment, EntryKind, Message
from tidewire.domain.users import User
from tidewire.wire import rest_views as views

NOW_MS = 1_900_000_000_000
NOW = "2030-03-17T17:46:40.000Z"
ANNA = UserId("user_anna")
BERTA = UserId("user_berta")
CHAT_ID = ChatId("chat_crew")

anna = User(
    user_id=ANNA, username="anna", display_name="Anna", created_at_ms=NOW_MS, updated_at_ms=NOW_MS
)
chat = Chat(
    chat_id=CHAT_ID,
    chat_type=ChatType.GROUP,
    name="Crew",
    created_by=ANNA,
    created_at_ms=NOW_MS,
    updated_at_ms=NOW_MS,
    membership_version=3,
    member_count=2,
    head=9,
)
member = Member(
    user_id=ANNA, role=Role.OWNER, joined_at_ms=NOW_MS, joined_sequence=4, added_by=ANNA
)
names = {ANNA: anna}


def test_people_show_what_they_may() -> None:
    assert views.account_view(anna).username == "anna"
    assert set(msgspec.to_builtins(views.user_view(anna))) == {
        "user_id",
        "display_name",
        "created_at",
        "is_deleted",
    }
    assert views.found_user(anna).user_id == ANNA
    assert views.name_of(names, ANNA) == "Anna"
    assert views.name_of(names, BERTA) == BERTA


def test_session_knows_if_it_is_the_current_one() -> None:
    session = Session(
        session_id=SessionId("sess_a"),
        user_id=ANNA,
        device_id=None,
        created_at_ms=NOW_MS,
        last_active_at_ms=NOW_MS,
        expires_at_ms=NOW_MS,
    )
    assert views.session_view(session, current=SessionId("sess_a")).is_current
    assert not views.session_view(session, current=SessionId("sess_b")).is_current
    assert views.opened_session_view(session).expires_at == NOW


def test_chat_is_shown_with_or_without_members() -> None:
    summary = msgspec.to_builtins(views.chat_summary(chat))
    created = msgspec.to_builtins(views.created_chat_view(chat, [member], names))
    access = ChatAccess(chat, member)
    whole = msgspec.to_builtins(views.chat_view(access, Positions(8, 7), [member], names))
    shown = {"user_id": ANNA, "role": "owner", "display_name": "Anna", "joined_at": NOW}
    assert "members" not in summary
    assert created == {**summary, "members": [shown]}
    assert whole["members"] == [shown]
    assert whole["current_sequence"] == 9
    assert whole["my_membership"] == {
        "role": "owner",
        "joined_at": NOW,
        "joined_sequence": 4,
        "muted_until": None,
        "last_acked_sequence": 8,
        "last_read_sequence": 7,
    }


@pytest.mark.parametrize("other", [None, anna])
@pytest.mark.parametrize("last", [None, LastMessage(MessageId("msg_1"), 9, ANNA, "hello", NOW_MS)])
def test_list_entry_shows_what_there_is(other: User | None, last: LastMessage | None) -> None:
    item = ChatListItem(
        chat=chat,
        me=member,
        activity_at_ms=NOW_MS + 1,
        last_message=last,
        other=other,
        positions=Positions(8, 7),
        unread=2,
        undelivered=1,
    )
    entry = msgspec.to_builtins(views.chat_list_entry(item))
    assert entry["updated_at"] == "2030-03-17T17:46:40.001Z"
    assert (entry["pending_ack_count"], entry["unread_count"]) == (1, 2)
    assert ("other_member" in entry) is (other is not None)
    assert (entry["last_message"] is None) is (last is None)


def test_members_come_change_and_rest() -> None:
    assert views.added_member(CHAT_ID, member, names).added_by == ANNA
    assert views.changed_member(CHAT_ID, member, names, updated_by=BERTA).updated_by == BERTA
    assert views.mute_view(CHAT_ID, member).muted_until is None
    muted = msgspec.structs.replace(member, muted_until_ms=NOW_MS)
    assert views.mute_view(CHAT_ID, muted).muted_until == NOW


MESSAGE = Message(
    CHAT_ID,
    9,
    8,
    MessageId("msg_1"),
    ANNA,
    ClientMessageId("key"),
    "hello",
    "text/plain",
    NOW_MS,
    reply_to=7,
    mentions=(BERTA,),
)


def test_message_names_its_sender() -> None:
    view = views.message_view(MESSAGE, names)
    assert (view.sender.display_name, view.sequence, view.created_at) == ("Anna", 9, NOW)
    assert (view.reply_to, view.mentions, view.now) == (7, (BERTA,), None)
    assert "kind" not in msgspec.to_builtins(view)


def test_entry_says_what_it_is() -> None:
    amends = Amendment(kind=EntryKind.REACT, target=7, emoji="👍", is_on=False)
    reaction = msgspec.structs.replace(
        MESSAGE, content="", reply_to=None, mentions=(), amends=amends, count=2
    )
    shown = msgspec.to_builtins(views.message_view(reaction, names))
    said = ("kind", "target", "emoji", "is_on", "count")
    assert [shown[name] for name in said] == ["react", 7, "👍", False, 2]
    assert not shown.keys() & {"now", "is_deleted"}
    assert shown["content"] == ""


def test_message_that_was_deleted_meanwhile_has_no_text() -> None:
    """What has become of it is read after it."""
    now = MessageNow(deleted_sequence=12)
    shown = msgspec.to_builtins(views.message_view(MESSAGE, names, now))
    assert shown["now"] == {"deleted_sequence": 12}
    assert shown["is_deleted"] is True
    assert (shown["content"], "mentions" in shown) == ("", False)


def test_delivery_is_shown_as_numbers() -> None:
    entry = DigestEntry(CHAT_ID, ChatType.GROUP, 9, 3, 4, 8, 7, 6, 5, 2)
    state = views.delivery_state_view(entry, 1_900_000_000_000)
    assert state.updated_at == "2030-03-17T17:46:40.000Z"
    assert (state.last_acked_sequence, state.last_read_sequence) == (8, 7)
    assert (state.current_sequence, state.unread_count) == (9, 2)
    own = MemberDelivery(
        user_id=ANNA, joined_sequence=4, positions=Positions(8, 7), updated_at_ms=NOW_MS
    )
    assert views.watermark_view(CHAT_ID, own).updated_at == NOW
    summary = DeliverySummary(sequence=9, delivered_count=1, read_count=0, pending_count=0)
    status = DeliveryStatus(
        chat_id=CHAT_ID,
        chat_type=ChatType.GROUP,
        member_count=2,
        summary=summary,
        members=[own],
    )
    shown = views.delivery_status_view(status, names)
    assert shown.delivery_summary.all_delivered
    assert shown.members[0].display_name == "Anna"
