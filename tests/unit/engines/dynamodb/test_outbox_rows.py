import pytest

from tests.unit.engines.dynamodb.samples import ANNA, BEN, CHAT, NOW_MS, a_chat, a_message
from tidewire.domain.chats import Role
from tidewire.domain.events import ChatCreated, ChatRenamed, MembershipChange, MembershipChanged
from tidewire.domain.ids import ChatId, ConnectionId
from tidewire.engines.dynamodb.outbox_rows import (
    SHARDS,
    ChangeEvent,
    PersistedMessages,
    change_row,
    messages_row,
    outbox_row_of,
    shard_of,
)
from tidewire.engines.dynamodb.rows import pack, unpack

CHANGES: list[ChangeEvent] = [
    ChatCreated(a_chat(), (ANNA, BEN)),
    ChatRenamed(a_chat(name="ä"), ANNA, NOW_MS),
    MembershipChanged(
        chat=a_chat(),
        user_id=BEN,
        change=MembershipChange.ADDED,
        role=Role.ADMIN,
        joined_sequence=7,
        changed_by=ANNA,
        changed_at_ms=NOW_MS,
    ),
]


def test_shards_stay_the_same_and_are_all_used() -> None:
    assert shard_of(CHAT) == 16
    assert {shard_of(ChatId(f"chat_{n}")) for n in range(2000)} == set(range(SHARDS))


def test_messages_come_back_by_their_sequences() -> None:
    origins = [None, ConnectionId("conn_1")]
    messages = [a_message(4, 3), a_message(7, 4)]
    row = messages_row(messages, origins, membership_version=3, now_ms=NOW_MS)
    found = outbox_row_of(unpack(pack(row)))
    assert found.content == PersistedMessages(CHAT, (4, 7), 3, (None, ConnectionId("conn_1")))
    assert (found.shard, found.created_at_ms) == (shard_of(CHAT), NOW_MS)
    assert found.row == "chat_1#s#0000000000000004"


@pytest.mark.parametrize("event", CHANGES, ids=lambda event: type(event).__name__)
def test_changes_come_back_whole(event: ChangeEvent) -> None:
    found = outbox_row_of(unpack(pack(change_row(event, now_ms=NOW_MS))))
    assert found.content == event
    assert found.row == "chat_1#v#0000000000000003"
