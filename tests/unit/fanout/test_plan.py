"""The plan: who gets which frame, and that each is encoded once."""

import msgspec

from tests.unit.fanout.test_rosters import ANN, BEN, CEM, CHAT, changed, chat
from tidewire.domain.chats import ChatType, Roster, roster_of
from tidewire.domain.delivery import DigestEntry, Floors, lowest_of
from tidewire.domain.events import (
    ChatClosed,
    ChatCreated,
    ChatRenamed,
    LoggedEvent,
    MembershipChange,
    MembershipChanged,
    MessageAppended,
)
from tidewire.domain.ids import ChatId, ClientMessageId, ConnectionId, MessageId
from tidewire.domain.messages import Amendment, EntryKind, Message
from tidewire.fanout.plan import (
    closed_pushes,
    in_order_of_versions,
    own_status_push,
    push_of,
    status_pushes,
    typing_push,
)
from tidewire.ports.router import Push

ROSTER = Roster(CHAT, 1, (ANN, BEN, CEM))
MESSAGE = Message(
    CHAT,
    2,
    1,
    MessageId("msg_2"),
    ANN,
    ClientMessageId("5a0f6f1e-6c0e-4b1e-9a39-1f5b2f9a3c11"),
    "hello",
    "text/plain",
    1_900_000_000_000,
)


def frame(push: Push | None) -> dict[str, object]:
    assert push is not None
    decoded: dict[str, object] = msgspec.json.decode(push.framed[push.framed.index(b"{") :])
    return decoded


def payload(push: Push | None) -> dict[str, object]:
    found = frame(push)["payload"]
    assert isinstance(found, dict)
    return found


def pushed(
    event: MessageAppended | ChatCreated | ChatRenamed | MembershipChanged, roster: Roster
) -> Push:
    push = push_of(event, roster, now_ms=5)
    assert push is not None
    return push


def test_message_goes_to_everybody_but_the_connection_it_came_from() -> None:
    push = pushed(MessageAppended(MESSAGE, 1, ConnectionId("conn_1")), ROSTER)
    assert push.user_ids == (ANN, BEN, CEM)
    assert push.except_connection == "conn_1"
    assert frame(push)["type"] == "message"
    assert (payload(push)["sequence"], payload(push)["prev_sequence"]) == (2, 1)
    assert "request_id" not in frame(push)


def test_entry_is_pushed_as_what_it_is() -> None:
    reaction = msgspec.structs.replace(
        MESSAGE,
        content="",
        amends=Amendment(kind=EntryKind.REACT, target=1, emoji="👍"),
        count=2,
    )
    push = pushed(MessageAppended(reaction, 1, ConnectionId("conn_1")), ROSTER)
    assert (push.frame_type, frame(push)["type"]) == ("entry", "entry")
    assert (push.user_ids, push.except_connection) == ((ANN, BEN, CEM), "conn_1")
    said = payload(push)
    assert [said[name] for name in ("kind", "target", "emoji", "is_on", "count")] == [
        "react",
        1,
        "👍",
        True,
        2,
    ]


def test_late_push_of_an_erased_message_has_no_text() -> None:
    """A relay that publishes late finds a tombstone."""
    erased = msgspec.structs.replace(MESSAGE, content="", deleted_by=7)
    push = pushed(MessageAppended(erased, 1, None), ROSTER)
    assert push.frame_type == "message"
    assert (payload(push)["content"], payload(push)["is_deleted"]) == ("", True)


def test_message_is_not_pushed_to_a_member_who_joined_after_it() -> None:
    """The roster may be newer than the event: whoever was out then is not pushed it (B9)."""
    for joined, expected in ((1, (ANN, BEN, CEM)), (2, (ANN, BEN)), (7, (ANN, BEN))):
        roster = roster_of(CHAT, 4, {ANN: 0, BEN: 1, CEM: joined})
        push = pushed(MessageAppended(MESSAGE, 1, None), roster)
        assert tuple(push.user_ids) == expected


def test_changes_go_to_all_members_and_a_removal_to_the_removed_too() -> None:
    created = pushed(ChatCreated(chat(1), (ANN, BEN)), Roster(CHAT, 1, (ANN, BEN)))
    assert (created.user_ids, payload(created)["change"]) == ((ANN, BEN), "created")
    renamed = pushed(ChatRenamed(chat(2), ANN, 1), ROSTER)
    assert (renamed.user_ids, payload(renamed)["change"]) == ((ANN, BEN, CEM), "renamed")
    removed = pushed(changed(3, MembershipChange.REMOVED, CEM), Roster(CHAT, 3, (ANN, BEN)))
    assert removed.user_ids == (ANN, BEN, CEM)
    assert payload(removed)["change"] == "member_removed"


def test_change_that_a_later_one_has_undone_is_not_told() -> None:
    """In a cluster version 5 may come before version 4: the last word must be right (B8)."""
    with_cem, without = Roster(CHAT, 5, (ANN, BEN, CEM)), Roster(CHAT, 5, (ANN, BEN))
    for change, undone, stands in (
        (MembershipChange.REMOVED, with_cem, without),
        (MembershipChange.ADDED, without, with_cem),
        (MembershipChange.ROLE_CHANGED, without, with_cem),
    ):
        event = changed(4, change, CEM)
        assert push_of(event, undone, now_ms=5) is None
        assert push_of(event, stands, now_ms=5) is not None


def test_changes_of_a_chat_are_put_in_the_order_of_their_versions() -> None:
    other = ChatRenamed(chat(9, ChatId("chat_2")), ANN, 1)
    message = MessageAppended(MESSAGE, 1, None)
    created = ChatCreated(chat(1), (ANN,))
    added, removed = (
        changed(2, MembershipChange.ADDED, BEN),
        changed(3, MembershipChange.REMOVED, BEN),
    )
    closed = ChatClosed(chat(4), (ANN,), ANN, 1)
    mixed: list[LoggedEvent] = [closed, message, removed, other, added, message, created]
    assert in_order_of_versions(mixed) == [
        created,
        message,
        added,
        other,
        removed,
        message,
        closed,
    ]
    assert in_order_of_versions([]) == []


def test_closing_tells_every_member_of_its_own_removal() -> None:
    pushes = list(closed_pushes(ChatClosed(chat(7), (ANN, BEN), ANN, 1), now_ms=5))
    assert [push.user_ids for push in pushes] == [(ANN,), (BEN,)]
    told = [payload(push) for push in pushes]
    assert [one["user_id"] for one in told] == [ANN, BEN]
    for one in told:
        assert (one["change"], one["is_closed"], one["changed_by"]) == ("member_removed", True, ANN)
        assert (one["membership_version"], one["changed_at"]) == (7, "1970-01-01T00:00:00.001Z")


def test_typing_goes_to_the_others_only() -> None:
    push = typing_push(CHAT, BEN, ROSTER, is_typing=True, now_ms=5)
    assert push is not None
    assert push.user_ids == [ANN, CEM]
    assert payload(push) == {"chat_id": CHAT, "user_id": BEN, "is_typing": True}


def test_typing_of_an_outsider_or_over_a_block_goes_nowhere() -> None:
    roster = Roster(CHAT, 1, (ANN, CEM))
    assert typing_push(CHAT, BEN, roster, is_typing=True, now_ms=5) is None
    blocked = Roster(CHAT, 1, (ANN, BEN), has_block=True)
    assert typing_push(CHAT, BEN, blocked, is_typing=True, now_ms=5) is None


def test_status_is_the_minimum_over_the_others_as_each_sees_it() -> None:
    delivered = [(ANN, 1), (BEN, 4), (CEM, 6)]
    read = [(ANN, 1), (BEN, 0), (CEM, 6)]
    floors = Floors(CHAT, 1, 7, lowest_of(delivered), lowest_of(read))
    seen = {
        user_id: (payload(push)["others_delivered"], payload(push)["others_read"])
        for push in status_pushes(floors, [ANN, BEN, CEM], told=None, except_users=[], now_ms=5)
        for user_id in push.user_ids
    }
    assert seen == {ANN: (4, 0), BEN: (1, 1), CEM: (1, 0)}


def test_status_is_encoded_once_for_all_who_see_the_same() -> None:
    positions = [(ANN, 1), (BEN, 4), (CEM, 6)]
    floors = Floors(CHAT, 1, 7, lowest_of(positions), lowest_of(positions))
    pushes = list(status_pushes(floors, [BEN, CEM], told=None, except_users=[], now_ms=5))
    assert [push.user_ids for push in pushes] == [[BEN, CEM]]
    assert list(status_pushes(floors, [BEN], told=None, except_users=[BEN], now_ms=5)) == []


def test_own_status_has_the_own_numbers_and_the_unread_count() -> None:
    entry = DigestEntry(CHAT, ChatType.GROUP, 7, 1, 0, 5, 4, 3, 2, 1, mentions_unread=1)
    push = own_status_push(ANN, entry, now_ms=5)
    assert push.user_ids == (ANN,)
    assert payload(push) == {
        "chat_id": CHAT,
        "others_delivered": 3,
        "others_read": 2,
        "own_delivered": 5,
        "own_read": 4,
        "unread": 1,
        "mentions_unread": 1,
    }


def test_status_goes_only_to_those_to_whom_it_is_news() -> None:
    before = [(ANN, 1), (BEN, 4), (CEM, 6)]
    after = [(ANN, 1), (BEN, 5), (CEM, 6)]
    told = Floors(CHAT, 1, 7, lowest_of(before), lowest_of(before))
    floors = Floors(CHAT, 1, 7, lowest_of(after), lowest_of(after))
    online = [ANN, BEN, CEM]
    [push] = status_pushes(floors, online, told=told, except_users=[], now_ms=5)
    assert push.user_ids == [ANN]


def test_status_is_news_to_all_when_the_members_have_changed() -> None:
    """Who was told the last time is not known: one of these may have come since."""
    positions = [(ANN, 1), (BEN, 4), (CEM, 6)]
    told = Floors(CHAT, 1, 7, lowest_of(positions), lowest_of(positions))
    floors = Floors(CHAT, 2, 7, lowest_of(positions), lowest_of(positions))
    pushes = list(status_pushes(floors, [ANN, CEM], told=told, except_users=[], now_ms=5))
    assert [push.user_ids for push in pushes] == [[ANN], [CEM]]
