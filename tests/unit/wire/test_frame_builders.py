"""Domain values become frames with the times, numbers and words of the contract."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.wire.strategies import messages, times_ms
from tidewire.domain.chats import Chat, ChatType, Role
from tidewire.domain.events import (
    ChatCreated,
    ChatRenamed,
    MembershipChange,
    MembershipChanged,
)
from tidewire.domain.ids import ChatId, ClientMessageId, MessageId, UserId
from tidewire.domain.messages import Appended, Message, MessagePage
from tidewire.wire.frame_builders import (
    chat_update_frame,
    message_frame,
    send_message_ack_frame,
    sync_response_frame,
)
from tidewire.wire.timestamps import format_time_ms, parse_time_ms

CHAT = ChatId("chat_1")
ANN, BOB = UserId("user_ann"), UserId("user_bob")
NOW_MS = 1_935_660_007_412
NOW = "2031-05-04T11:20:07.412Z"
EARLIER = "2031-05-04T11:20:07.398Z"

GROUP = Chat(
    chat_id=CHAT,
    chat_type=ChatType.GROUP,
    name="lunch",
    created_by=ANN,
    created_at_ms=NOW_MS - 14,
    updated_at_ms=NOW_MS,
    membership_version=5,
    member_count=3,
    head=318,
)


def changed(change: MembershipChange) -> MembershipChanged:
    return MembershipChanged(
        chat=GROUP,
        user_id=BOB,
        change=change,
        role=Role.ADMIN,
        joined_sequence=300,
        changed_by=ANN,
        changed_at_ms=NOW_MS - 14,
    )


@given(messages, times_ms)
def test_message_push_says_what_is_stored(message: Message, now_ms: int) -> None:
    frame = message_frame(message, now_ms=now_ms)
    said = {name: getattr(frame.payload, name) for name in frame.payload.__struct_fields__}
    stored = {name: getattr(message, name) for name in message.__struct_fields__}
    assert said.pop("created_at") == format_time_ms(stored.pop("created_at_ms"))
    assert said == stored
    assert parse_time_ms(frame.timestamp) == now_ms


def test_send_ack_echoes_the_request_and_carries_the_stored_time() -> None:
    appended = Appended(MessageId("msg_1"), 318, 317, NOW_MS - 14, deduplicated=True)
    frame = send_message_ack_frame(
        appended,
        request_id="r-1",
        chat_id=CHAT,
        client_message_id=ClientMessageId("key"),
        now_ms=NOW_MS,
    )
    assert (frame.request_id, frame.timestamp) == ("r-1", NOW)
    payload = frame.payload
    assert (payload.chat_id, payload.client_message_id) == (CHAT, "key")
    assert (payload.message_id, payload.sequence, payload.prev_sequence) == ("msg_1", 318, 317)
    assert payload.created_at == EARLIER
    assert payload.deduplicated is True


@given(st.lists(messages, max_size=3), st.integers(0, 1000), st.booleans())
def test_sync_response_names_the_next_sequence_only_when_there_is_more(
    page_messages: list[Message], synced_through: int, has_more: bool
) -> None:
    page = MessagePage(page_messages, synced_through, has_more, head=2000)
    frame = sync_response_frame(page, request_id="r-1", chat_id=CHAT, now_ms=NOW_MS)
    assert frame.request_id == "r-1"
    payload = frame.payload
    assert (payload.chat_id, payload.synced_through) == (CHAT, synced_through)
    assert payload.has_more is has_more
    assert payload.next_sequence == (synced_through + 1 if has_more else None)
    for item, message in zip(payload.messages, page_messages, strict=True):
        said = {name: getattr(item, name) for name in item.__struct_fields__}
        stored = {name: getattr(message, name) for name in message.__struct_fields__}
        assert said.pop("created_at") == format_time_ms(stored.pop("created_at_ms"))
        del stored["chat_id"]
        assert said == stored


def test_chat_update_of_a_new_chat_tells_its_members_where_they_start() -> None:
    payload = chat_update_frame(ChatCreated(GROUP, (ANN, BOB)), now_ms=NOW_MS).payload
    assert (payload.change, payload.name, payload.chat_type) == ("created", "lunch", "group")
    assert (payload.changed_by, payload.changed_at) == (ANN, EARLIER)
    assert (payload.joined_sequence, payload.head, payload.membership_version) == (318, 318, 5)
    assert (payload.user_id, payload.role) == (None, None)


def test_chat_update_shows_the_version_that_blocks_do_not_move() -> None:
    chat = msgspec.structs.replace(GROUP, block_changes=2)
    payload = chat_update_frame(ChatRenamed(chat, BOB, NOW_MS), now_ms=NOW_MS).payload
    assert payload.membership_version == 3


def test_chat_update_of_a_new_name_says_who_gave_it() -> None:
    payload = chat_update_frame(ChatRenamed(GROUP, BOB, NOW_MS), now_ms=NOW_MS).payload
    assert (payload.change, payload.name) == ("renamed", "lunch")
    assert (payload.changed_by, payload.changed_at) == (BOB, NOW)
    assert (payload.user_id, payload.role, payload.joined_sequence) == (None, None, None)


def test_chat_update_of_a_member_says_what_became_of_him() -> None:
    for change, word in (
        (MembershipChange.ADDED, "member_added"),
        (MembershipChange.ROLE_CHANGED, "role_changed"),
    ):
        payload = chat_update_frame(changed(change), now_ms=NOW_MS).payload
        assert (payload.change, payload.user_id, payload.role) == (word, BOB, Role.ADMIN)
        assert (payload.joined_sequence, payload.changed_at) == (300, EARLIER)


def test_chat_update_of_a_removed_member_has_no_role_left() -> None:
    payload = chat_update_frame(changed(MembershipChange.REMOVED), now_ms=NOW_MS).payload
    assert (payload.change, payload.user_id, payload.changed_by) == ("member_removed", BOB, ANN)
    assert (payload.role, payload.joined_sequence) == (None, None)
