"""Domain values become frames with the times, numbers and words of the contract."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.wire.strategies import amendments, messages, times_ms
from tidewire.domain.chats import Chat, ChatType, Role
from tidewire.domain.events import (
    ChatCreated,
    ChatRenamed,
    MembershipChange,
    MembershipChanged,
)
from tidewire.domain.ids import ChatId, ClientMessageId, MessageId, UserId
from tidewire.domain.messages import Amendment, Appended, EntryKind, Message, MessagePage
from tidewire.wire.codec import encode_plain_push, encode_server_frame
from tidewire.wire.frame_builders import (
    chat_update_frame,
    message_frame,
    plain_frame,
    send_message_ack_frame,
    sync_response_frame,
)
from tidewire.wire.server_frames import EntryFrame, MessageFrame, MessagePayload, SyncItem
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


def said_of(form: MessagePayload | SyncItem) -> dict[str, object]:
    """What a form says, as the reader of its JSON has it."""
    return {
        name: value for name, value in msgspec.to_builtins(form).items() if name != "content_type"
    }


def stored_of(message: Message) -> dict[str, object]:
    """What a form of an entry has to say: nothing that the entry does not have."""
    said: dict[str, object] = {
        "message_id": message.message_id,
        "chat_id": message.chat_id,
        "sequence": message.sequence,
        "prev_sequence": message.prev_sequence,
        "sender_id": message.sender_id,
        "client_message_id": message.client_message_id,
        "created_at": format_time_ms(message.created_at_ms),
        "content": message.content or None,
        "reply_to": message.reply_to,
        "mentions": message.mentions or None,
        "is_deleted": message.is_deleted or None,
    }
    if message.amends is not None:
        amends = message.amends
        said |= {"kind": amends.kind, "target": amends.target, "reason": amends.reason}
        if amends.kind is EntryKind.REACT:
            said |= {"emoji": amends.emoji, "is_on": amends.is_on, "count": message.count}
    return {name: value for name, value in said.items() if value is not None}


@given(messages, times_ms)
def test_push_says_what_is_stored_and_nothing_else(message: Message, now_ms: int) -> None:
    frame = message_frame(message, now_ms=now_ms)
    is_message = message.kind is EntryKind.MESSAGE
    assert isinstance(frame, MessageFrame if is_message else EntryFrame)
    # A message always has a content, for clients that know no tombstones.
    always = {"content": ""} if is_message else {}
    assert said_of(frame.payload) == {**always, **stored_of(message)}
    assert parse_time_ms(frame.timestamp) == now_ms


@given(amendments, times_ms)
def test_plain_push_continues_the_chain_and_says_nothing(message: Message, now_ms: int) -> None:
    entry = message_frame(message, now_ms=now_ms)
    assert isinstance(entry, EntryFrame)
    plain = plain_frame(entry)
    assert isinstance(plain, MessageFrame)
    assert plain.timestamp == entry.timestamp
    stored = stored_of(message)
    for name in ("target", "reason", "emoji", "is_on", "count"):
        stored.pop(name, None)
    assert said_of(plain.payload) == {**stored, "content": ""}
    # As it goes from one process to another.
    assert encode_plain_push(encode_server_frame(entry)) == encode_server_frame(plain)


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


@given(st.lists(messages, max_size=3), st.integers(0, 1000), st.booleans(), st.booleans())
def test_sync_response_names_the_next_sequence_only_when_there_is_more(
    page_messages: list[Message], synced_through: int, has_more: bool, has_entries: bool
) -> None:
    page = MessagePage(page_messages, synced_through, has_more, head=2000)
    frame = sync_response_frame(
        page, request_id="r-1", chat_id=CHAT, now_ms=NOW_MS, has_entries=has_entries
    )
    assert frame.request_id == "r-1"
    payload = frame.payload
    assert (payload.chat_id, payload.synced_through) == (CHAT, synced_through)
    assert payload.has_more is has_more
    assert payload.next_sequence == (synced_through + 1 if has_more else None)
    assert len(payload.messages) == len(page_messages)


@given(messages)
def test_sync_item_says_what_its_push_says(message: Message) -> None:
    push = message_frame(message, now_ms=NOW_MS)
    page = MessagePage([message], message.sequence, False, message.sequence)
    for has_entries in (True, False):
        frame = sync_response_frame(
            page, request_id="r-1", chat_id=CHAT, now_ms=NOW_MS, has_entries=has_entries
        )
        [item] = frame.payload.messages
        pushed = plain_frame(push) if isinstance(push, EntryFrame) and not has_entries else push
        said = said_of(pushed.payload)
        del said["chat_id"]
        if has_entries and not message.content:
            said.pop("content", None)
        assert said_of(item) == said


def test_old_client_can_read_every_item() -> None:
    """0.1.0 needs a content in each."""
    erased = Message(
        CHAT, 2, 1, MessageId("msg_1"), ANN, ClientMessageId("k"), "", "text/plain", NOW_MS
    )
    page = [
        msgspec.structs.replace(erased, deleted_by=9),
        msgspec.structs.replace(erased, is_damaged=True),
        msgspec.structs.replace(
            erased, content="new text", amends=Amendment(kind=EntryKind.EDIT, target=1)
        ),
    ]
    frame = sync_response_frame(
        MessagePage(page, 2, False, 2),
        request_id="r-1",
        chat_id=CHAT,
        now_ms=NOW_MS,
        has_entries=False,
    )
    for item in msgspec.json.decode(encode_server_frame(frame))["payload"]["messages"]:
        assert item["content"] == ""


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
