"""Whom a commit concerns whose push is late."""

from tests.unit.ingest.events import ANNA, CHAT, a_message, a_rename
from tidewire.domain.chats import Role
from tidewire.domain.events import ChatClosed, MembershipChange, MembershipChanged
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.lag import gathered, merged, subject_of

BEN = UserId("user_ben")
OTHER = ChatId("chat_2")


def a_change(change: MembershipChange) -> MembershipChanged:
    return MembershipChanged(
        chat=a_rename(4).chat,
        user_id=BEN,
        change=change,
        role=Role.MEMBER,
        joined_sequence=1,
        changed_by=ANNA,
        changed_at_ms=1,
    )


def test_message_and_most_changes_concern_the_members() -> None:
    for event in (a_message(1), a_rename(4), a_change(MembershipChange.ADDED)):
        assert subject_of(event) == (CHAT, ())


def test_removed_member_and_members_of_a_closed_group_are_concerned_too() -> None:
    assert subject_of(a_change(MembershipChange.REMOVED)) == (CHAT, (BEN,))
    closed = ChatClosed(a_rename(4).chat, (ANNA, BEN), ANNA, 1)
    assert subject_of(closed) == (CHAT, (ANNA, BEN))


def test_chat_is_gathered_once_with_all_its_former_members() -> None:
    found = gathered([(CHAT, ()), (OTHER, (ANNA,)), (CHAT, (BEN,)), (CHAT, (ANNA, BEN))])
    assert found == {CHAT: (BEN, ANNA), OTHER: (ANNA,)}


def test_what_both_tell_is_merged_and_any_chat_stays_any() -> None:
    assert merged({CHAT: ()}, {CHAT: (BEN,), OTHER: ()}) == {CHAT: (BEN,), OTHER: ()}
    assert merged(None, {CHAT: ()}) is None
    assert merged({CHAT: ()}, None) is None
