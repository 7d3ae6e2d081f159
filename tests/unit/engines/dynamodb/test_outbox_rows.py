import pytest

from tests.unit.engines.dynamodb.samples import ANNA, BEN, CHAT, NOW_MS, a_chat, a_message
from tidewire.domain.chats import Role
from tidewire.domain.events import (
    ChangeEvent,
    ChatClosed,
    ChatCreated,
    ChatRenamed,
    MembershipChange,
    MembershipChanged,
)
from tidewire.domain.ids import ConnectionId
from tidewire.domain.outbox import (
    Lease,
    LeaseTable,
    PersistedMessages,
    Unreadable,
    change_key,
    messages_key,
    shard_of,
)
from tidewire.engines.dynamodb.outbox_rows import (
    change_row,
    lease_key,
    lease_table_of,
    messages_row,
    outbox_row_of,
    relay_key,
)
from tidewire.engines.dynamodb.rows import Value, pack, unpack

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
    ChatClosed(a_chat(), (ANNA, BEN), ANNA, NOW_MS),
]


def test_messages_come_back_by_their_sequences() -> None:
    origins = [None, ConnectionId("conn_1")]
    messages = [a_message(4, 3), a_message(7, 4)]
    row = messages_row(messages, origins, membership_version=3, now_ms=NOW_MS)
    found = outbox_row_of(unpack(pack(row)))
    assert found.content == PersistedMessages(CHAT, (4, 7), 3, (None, ConnectionId("conn_1")))
    assert (found.key.shard, found.created_at_ms) == (shard_of(CHAT), NOW_MS)
    assert found.key == messages_key(CHAT, 4)


@pytest.mark.parametrize("event", CHANGES, ids=lambda event: type(event).__name__)
def test_changes_come_back_whole(event: ChangeEvent) -> None:
    found = outbox_row_of(unpack(pack(change_row(event, now_ms=NOW_MS))))
    assert found.content == event
    assert found.key == change_key(CHAT, 3)


BROKEN: dict[str, dict[str, Value]] = {
    "no time": {"created_at": None},
    "time that is no number": {"created_at": "yesterday"},
    "no chat": {"chat_id": None},
    "no sequences": {"sequences": ()},
    "sequences that are no numbers": {"sequences": ("a", "b")},
    "sequences that are no list": {"sequences": 4},
    "no origins": {"origins": None},
    "fewer origins than messages": {"origins": ("conn_1",)},
    "neither messages nor an event": {"sequences": None},
    "an event of no known kind": {"sequences": None, "event": b"{}", "kind": "Something"},
    "an event that is no JSON": {"sequences": None, "event": b"{", "kind": "ChatCreated"},
    "an event without its fields": {"sequences": None, "event": b"{}", "kind": "ChatCreated"},
}


@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN)
def test_row_that_cannot_be_read_keeps_its_place(change: dict[str, Value]) -> None:
    messages = [a_message(4, 3), a_message(7, 4)]
    row = messages_row(messages, [None, None], membership_version=3, now_ms=NOW_MS) | change
    found = outbox_row_of(unpack(pack(row)))
    assert isinstance(found.content, Unreadable)
    assert (found.key, found.created_at_ms) == (messages_key(CHAT, 4), 0)


def test_leases_and_relays_that_have_run_out_count_as_absent() -> None:
    rows = [
        lease_key(3) | {"owner": "a", "until": 11},
        lease_key(4) | {"owner": "b", "until": 10},
        relay_key("a") | {"until": 11},
        relay_key("b") | {"until": 10},
    ]
    assert lease_table_of(rows, now_ms=10) == LeaseTable(("a",), (Lease(3, "a", 11),))
