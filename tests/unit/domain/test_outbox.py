"""Where the row of a commit lies."""

import pytest

from tidewire.domain.chats import Chat, ChatType
from tidewire.domain.events import ChatRenamed, MessageAppended
from tidewire.domain.ids import ChatId, ClientMessageId, MessageId, UserId
from tidewire.domain.messages import Message
from tidewire.domain.outbox import SHARDS, OutboxKey, key_of_commit, shard_of

CHAT = ChatId("chat_1")
ANNA = UserId("user_anna")


def message(sequence: int) -> MessageAppended:
    stored = Message(
        chat_id=CHAT,
        sequence=sequence,
        prev_sequence=sequence - 1,
        message_id=MessageId(f"msg_{sequence}"),
        sender_id=ANNA,
        client_message_id=ClientMessageId("key"),
        content="hello",
        content_type="text/plain",
        created_at_ms=1,
    )
    return MessageAppended(stored, 1, None)


def renamed(version: int) -> ChatRenamed:
    chat = Chat(
        chat_id=CHAT,
        chat_type=ChatType.GROUP,
        name="team",
        created_by=ANNA,
        created_at_ms=1,
        updated_at_ms=1,
        membership_version=version,
        member_count=2,
        head=3,
    )
    return ChatRenamed(chat, ANNA, 1)


def test_shards_stay_the_same_and_are_all_used() -> None:
    assert shard_of(CHAT) == 16
    assert {shard_of(ChatId(f"chat_{n}")) for n in range(2000)} == set(range(SHARDS))


def test_commit_of_messages_lies_under_the_first_of_them() -> None:
    key = key_of_commit([message(4), message(7)])
    assert key == OutboxKey(16, "chat_1#s#0000000000000004")


def test_change_lies_under_its_version() -> None:
    assert key_of_commit([renamed(3)]) == OutboxKey(16, "chat_1#v#0000000000000003")


def test_two_changes_are_not_one_commit() -> None:
    with pytest.raises(AssertionError):
        key_of_commit([renamed(3), renamed(4)])
