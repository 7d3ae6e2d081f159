"""Events survive the log, and whatever lies in the log never raises."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.wire.strategies import json_values, logged_events, texts, times_ms, words
from tidewire.domain.chats import ChatType, Role
from tidewire.domain.events import (
    LoggedEvent,
    MembershipChange,
    MembershipChanged,
    MessageAppended,
)
from tidewire.domain.ids import ChatId
from tidewire.domain.messages import Amendment, EntryKind
from tidewire.wire.event_records import (
    EVENT_TYPES,
    EntryPersistedRecord,
    EventRecord,
    MembershipChangedRecord,
    MessagePersistedRecord,
    RecordRefusal,
    UnknownRecord,
    decode_record,
    encode_record,
    event_of,
    record_of,
)

CHAT = ChatId("chat_01J9ZK4T7Q2M8V5RXB3N6C0DHE")

# The specification's example, then what we add to it.
MEMBERSHIP_CHANGED: dict[str, Any] = {
    "event_id": "evt_01J9ZKB7M2N4P6Q8R0S2T4V6W8",
    "event_type": "MembershipChanged",
    "event_version": 1,
    "event_time": "2031-05-04T11:31:40.020Z",
    "partition_key": CHAT,
    "producer_id": "chatmgmt-2",
    "trace_id": "5be1c0ffee77d3a1",
    "payload": {
        "chat_id": CHAT,
        "user_id": "user_01J9ZK0W3F6Y8P1GQS5TB2ADKM",
        "change_type": "removed",
        "role": "member",
        "changed_by": "user_01J9ZJX5A7C9E1F3G5H7J9K1MN",
        "member_count_after": 6,
        "changed_at": "2031-05-04T11:31:39.998Z",
        "membership_version": 9,
        "joined_sequence": 12,
        "chat_type": "group",
        "name": "lunch",
        "created_by": "user_01J9ZJX5A7C9E1F3G5H7J9K1MN",
        "created_at": "2031-05-01T08:00:00.000Z",
        "updated_at": "2031-05-04T11:31:39.998Z",
        "head": 318,
    },
}
MESSAGE_PERSISTED: dict[str, Any] = {
    **MEMBERSHIP_CHANGED,
    "event_type": "MessagePersisted",
    "payload": {
        "message_id": "msg_01J9ZKA2C4E6G8JMNPRTVXZ135",
        "chat_id": CHAT,
        "sequence": 318,
        "prev_sequence": 316,
        "sender_id": "user_01J9ZK0W3F6Y8P1GQS5TB2ADKM",
        "content": "lunch at noon?",
        "content_type": "text/plain",
        "client_message_id": "c0a8f3d2-5b1e-4f77-9a43-2d6e8b90c5f1",
        "created_at": "2031-05-04T11:20:07.398Z",
        "membership_version": 9,
        "origin_connection_id": "conn_01J9ZKA2C4E6G8JMNPRTVXZ135",
    },
}
ENTRY_PERSISTED: dict[str, Any] = {
    **MEMBERSHIP_CHANGED,
    "event_type": "EntryPersisted",
    "payload": {
        **{name: MESSAGE_PERSISTED["payload"][name] for name in MESSAGE_PERSISTED["payload"]},
        "kind": "edit",
        "target": 317,
    },
}
CHAT_FIELDS = ("chat_id", "chat_type", "name", "created_by", "created_at", "membership_version")
CHAT_CREATED: dict[str, Any] = {
    **MEMBERSHIP_CHANGED,
    "event_type": "ChatCreated",
    "payload": {
        **{name: MEMBERSHIP_CHANGED["payload"][name] for name in CHAT_FIELDS},
        "updated_at": "2031-05-01T08:00:00.000Z",
        "head": 0,
        "initial_members": ["user_1", "user_2"],
        "status": "active",
        "member_count": 2,
    },
}
CHAT_UPDATED: dict[str, Any] = {
    **MEMBERSHIP_CHANGED,
    "event_type": "ChatUpdated",
    "payload": {
        **{name: MEMBERSHIP_CHANGED["payload"][name] for name in CHAT_FIELDS},
        "updated_at": "2031-05-04T11:31:39.998Z",
        "head": 318,
        "member_count": 2,
        "changed_by": "user_1",
        "changed_at": "2031-05-04T11:31:39.998Z",
    },
}
CHAT_CLOSED: dict[str, Any] = {
    **MEMBERSHIP_CHANGED,
    "event_type": "ChatClosed",
    "payload": {
        **{name: MEMBERSHIP_CHANGED["payload"][name] for name in CHAT_FIELDS},
        "updated_at": "2031-05-04T11:31:39.998Z",
        "head": 318,
        "members": ["user_1", "user_2"],
        "closed_by": "user_1",
        "closed_at": "2031-05-04T11:31:39.998Z",
    },
}
EXAMPLES = [
    MESSAGE_PERSISTED,
    ENTRY_PERSISTED,
    MEMBERSHIP_CHANGED,
    CHAT_CREATED,
    CHAT_UPDATED,
    CHAT_CLOSED,
]


def decode(record: object) -> EventRecord | UnknownRecord | RecordRefusal:
    return decode_record(json.dumps(record).encode())


def record_with(example: dict[str, Any], **payload: object) -> dict[str, Any]:
    return {**example, "payload": {**example["payload"], **payload}}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["event_type"])
def test_record_has_the_fields_of_the_contract(example: dict[str, Any]) -> None:
    record = decode(example)
    assert not isinstance(record, UnknownRecord | RecordRefusal)
    assert json.loads(encode_record(record)) == example


def test_every_type_has_an_example_above() -> None:
    assert {example["event_type"] for example in EXAMPLES} == EVENT_TYPES


def test_leaving_is_a_removal_with_everything_that_a_push_needs() -> None:
    record = decode(MEMBERSHIP_CHANGED)
    assert isinstance(record, MembershipChangedRecord)
    event = event_of(record)
    assert isinstance(event, MembershipChanged)
    assert (event.change, event.role) == (MembershipChange.REMOVED, Role.MEMBER)
    assert event.chat.chat_type is ChatType.GROUP
    assert (event.chat.member_count, event.chat.membership_version, event.chat.head) == (6, 9, 318)


@given(logged_events, words, times_ms, words, texts)
def test_event_survives_the_log(
    event: LoggedEvent, event_id: str, now_ms: int, producer_id: str, trace_id: str
) -> None:
    record = record_of(
        event, event_id=event_id, now_ms=now_ms, producer_id=producer_id, trace_id=trace_id
    )
    decoded = decode_record(encode_record(record))
    assert decoded == record
    assert not isinstance(decoded, UnknownRecord | RecordRefusal)
    assert event_of(decoded) == event
    assert decoded.partition_key == decoded.payload.chat_id


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["event_type"])
def test_another_version_of_a_known_type_is_read_like_the_first(example: dict[str, Any]) -> None:
    newer = record_with({**example, "event_version": 7, "$schema": "x"}, shade="blue")
    record = decode(newer)
    assert not isinstance(record, UnknownRecord | RecordRefusal)
    assert record.event_version == 7


def test_unknown_type_is_told_apart_from_poison() -> None:
    assert decode({**MESSAGE_PERSISTED, "event_type": "Edited"}) == UnknownRecord("Edited", CHAT)
    unknown = {"event_type": "x" * 1000, "partition_key": "chat_1"}
    assert decode(unknown) == UnknownRecord("x" * 64, ChatId("chat_1"))


@pytest.mark.parametrize("key", [None, 7, "", "chat 1", "x" * 65])
def test_unknown_type_that_is_of_no_chat_is_poison(key: object) -> None:
    assert isinstance(decode({"event_type": "Edited", "partition_key": key}), RecordRefusal)


def test_unknown_kind_of_an_entry_is_unknown_whatever_it_has() -> None:
    pinned = record_with(ENTRY_PERSISTED, kind="pin", content="")
    assert decode(pinned) == UnknownRecord("EntryPersisted", CHAT)
    assert isinstance(decode(record_with(ENTRY_PERSISTED, kind="message")), UnknownRecord)


def test_record_of_0_1_0_is_a_message_with_nothing_beside_it() -> None:
    """The example is word for word one of that version's."""
    record = decode(MESSAGE_PERSISTED)
    assert isinstance(record, MessagePersistedRecord)
    event = event_of(record)
    assert isinstance(event, MessageAppended)
    message = event.message
    assert (message.amends, message.deleted_by, message.reply_to) == (None, None, None)
    assert (message.mentions, message.count, message.content) == ((), 0, "lunch at noon?")


def test_entry_is_no_message_in_the_log() -> None:
    record = decode(ENTRY_PERSISTED)
    assert isinstance(record, EntryPersistedRecord)
    event = event_of(record)
    assert isinstance(event, MessageAppended)
    assert event.message.amends == Amendment(kind=EntryKind.EDIT, target=317)
    assert encode_record(record_of(event, event_id="e", now_ms=0, producer_id="p", trace_id="t"))
    assert record_of(event, event_id="e", now_ms=0, producer_id="p", trace_id="t").payload == (
        record.payload
    )


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["event_type"])
def test_record_without_a_required_field_is_poison(example: dict[str, Any]) -> None:
    optional = {"name", "origin_connection_id"}
    for field in example:
        assert isinstance(
            decode({name: value for name, value in example.items() if name != field}),
            RecordRefusal,
        ), field
    for field in example["payload"].keys() - optional:
        payload = {k: value for k, value in example["payload"].items() if k != field}
        assert isinstance(decode({**example, "payload": payload}), RecordRefusal), field


@pytest.mark.parametrize(
    ("poison", "reason"),
    [
        ({**MESSAGE_PERSISTED, "partition_key": "chat_other"}, "partition_key is not the chat_id"),
        ({**MESSAGE_PERSISTED, "event_time": "yesterday"}, "a time is not ISO 8601"),
        (record_with(MESSAGE_PERSISTED, created_at="2031-13-01T00:00:00.000Z"), "a time is not"),
        (record_with(MESSAGE_PERSISTED, prev_sequence=318), "prev_sequence is not below"),
        (record_with(MESSAGE_PERSISTED, sequence=0), "`int` >= 1 - at `$.payload.sequence`"),
        (record_with(MESSAGE_PERSISTED, sequence=2**53), "`int` <= 9007199254740991"),
        (record_with(MESSAGE_PERSISTED, is_deleted=True, content=""), "do not agree"),
        (record_with(MESSAGE_PERSISTED, deleted_by=319), "do not agree"),
        (record_with(ENTRY_PERSISTED, target=318), "target is not below"),
        (record_with(ENTRY_PERSISTED, content=""), "content is missing"),
        (record_with(ENTRY_PERSISTED, kind="react", content=""), "emoji is missing"),
        (record_with(ENTRY_PERSISTED, kind=7), "Expected `str`"),
        (record_with(MEMBERSHIP_CHANGED, changed_at=""), "a time is not"),
        (record_with(MEMBERSHIP_CHANGED, updated_at=""), "a time is not"),
        (record_with(MEMBERSHIP_CHANGED, change_type="moved"), "Invalid enum value 'moved'"),
        (record_with(CHAT_CREATED, updated_at=""), "a time is not"),
        (record_with(CHAT_UPDATED, changed_at=""), "a time is not"),
        ({**MESSAGE_PERSISTED, "event_type": 5}, "Expected `str`"),
        ([], "Expected `object`"),
    ],
)
def test_record_that_breaks_a_rule_is_poison_with_a_reason(poison: object, reason: str) -> None:
    refusal = decode(poison)
    assert isinstance(refusal, RecordRefusal)
    assert reason in refusal.reason


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff",
        b'{"event_type":"MessagePersisted","payload":"\xff"}',
        b'{"event_type":' + b"[" * 100_000,
        b'{"event_type":"ChatCreated","payload":' + b"[" * 100_000,
        b'{"event_type":"\\ud800"}',
        b'{"event_type":"Edited","payload":' + b"9" * 10_000 + b"}",
    ],
)
def test_bytes_that_are_no_record_are_refused(data: bytes) -> None:
    assert isinstance(decode_record(data), RecordRefusal | UnknownRecord)


@given(st.binary())
def test_no_bytes_raise(data: bytes) -> None:
    assert isinstance(decode_record(data), RecordRefusal | UnknownRecord)


@given(st.sampled_from(EXAMPLES), st.data())
def test_no_mutation_of_a_record_raises(example: dict[str, Any], data: st.DataObject) -> None:
    field = data.draw(st.sampled_from([*example, *example["payload"]]))
    value = data.draw(json_values)
    mutant = (
        {**example, field: value} if field in example else record_with(example, **{field: value})
    )
    decoded = decode_record(msgspec.json.encode(mutant))
    if not isinstance(decoded, UnknownRecord | RecordRefusal):
        event_of(decoded)
