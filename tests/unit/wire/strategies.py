"""What hypothesis draws for the wire: valid ids, texts, frames and events."""

from typing import Any, TypeVar

import msgspec
from hypothesis import strategies as st

from tidewire.domain.chats import Chat, ChatType, Role
from tidewire.domain.delivery import DigestEntry
from tidewire.domain.events import (
    ChatClosed,
    ChatCreated,
    ChatRenamed,
    LoggedEvent,
    MembershipChange,
    MembershipChanged,
    MessageAppended,
)
from tidewire.domain.ids import ChatId, ClientMessageId, ConnectionId, MessageId, UserId
from tidewire.domain.limits import CONTENT_BYTES_MAX, PAGE_MESSAGES_MAX, SEQUENCE_MAX, UNREAD_MAX
from tidewire.domain.messages import MENTION_ALL, Amendment, EntryKind, Message
from tidewire.wire import client_frames as client
from tidewire.wire import server_frames as server
from tidewire.wire.client_frames import ClientFrame
from tidewire.wire.server_frames import ServerFrame
from tidewire.wire.timestamps import WIRE_TIME_MS_MAX, format_time_ms

Payload = TypeVar("Payload")

words = st.text("abcXYZ0189_.:-", min_size=1, max_size=64)
chat_ids = words.map(ChatId)
user_ids = words.map(UserId)
message_ids = words.map(MessageId)
connection_ids = words.map(ConnectionId)
client_message_ids = st.uuids().map(lambda uuid: ClientMessageId(str(uuid)))

# Everything that has a UTF-8 form. NUL is refused in content, but may stand elsewhere.
texts = st.text(st.characters(codec="utf-8"))
contents = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1).filter(
    lambda text: len(text.encode()) <= CONTENT_BYTES_MAX
)

sequences = st.integers(1, SEQUENCE_MAX)
cursors = st.integers(0, SEQUENCE_MAX)
counts = st.integers(0, SEQUENCE_MAX)
times_ms = st.integers(0, WIRE_TIME_MS_MAX)
times = times_ms.map(format_time_ms)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)

_empty = st.just(client.EmptyPayload())
_typing = st.builds(client.TypingPayload, chat_id=chat_ids)
_stamp = st.none() | times

emoji = st.text("👍🎉❤️🏽\u200d", min_size=1, max_size=8)
reasons = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=200)
mentions = st.lists(user_ids | st.just(MENTION_ALL), max_size=3, unique=True).map(tuple)


def _amend_payloads(
    kind: type[Payload], **fields: st.SearchStrategy[Any]
) -> st.SearchStrategy[Payload]:
    return st.builds(
        kind,
        client_message_id=client_message_ids,
        chat_id=chat_ids,
        target=sequences,
        is_first=st.booleans(),
        **fields,
    )


client_frames: st.SearchStrategy[ClientFrame] = st.one_of(
    st.builds(
        client.SendMessageFrame,
        request_id=words,
        timestamp=_stamp,
        payload=st.builds(
            client.SendMessagePayload,
            client_message_id=client_message_ids,
            chat_id=chat_ids,
            content=contents,
            content_type=st.just("text/plain"),
            seen_sequence=st.none() | cursors,
            reply_to=st.none() | sequences,
            mentions=mentions,
        ),
    ),
    st.builds(
        client.EditMessageFrame,
        request_id=words,
        timestamp=_stamp,
        payload=_amend_payloads(
            client.EditMessagePayload, content=contents, base=st.none() | cursors
        ),
    ),
    st.builds(
        client.DeleteMessageFrame,
        request_id=words,
        timestamp=_stamp,
        payload=_amend_payloads(client.DeleteMessagePayload, reason=st.none() | reasons),
    ),
    st.builds(
        client.ReactFrame,
        request_id=words,
        timestamp=_stamp,
        payload=_amend_payloads(client.ReactPayload, emoji=emoji, is_on=st.booleans()),
    ),
    st.builds(
        client.AckFrame,
        timestamp=_stamp,
        payload=st.builds(client.AckPayload, chat_id=chat_ids, last_acked_sequence=sequences),
    ),
    st.builds(
        client.ReadFrame,
        timestamp=_stamp,
        payload=st.builds(client.ReadPayload, chat_id=chat_ids, last_read_sequence=sequences),
    ),
    st.builds(
        client.SyncRequestFrame,
        request_id=words,
        timestamp=_stamp,
        payload=st.builds(
            client.SyncRequestPayload,
            chat_id=chat_ids,
            last_acked_sequence=cursors,
            limit=st.integers(1, PAGE_MESSAGES_MAX),
        ),
    ),
    st.builds(client.DigestRequestFrame, request_id=words, timestamp=_stamp, payload=_empty),
    st.builds(
        client.HeartbeatFrame, request_id=st.none() | words, timestamp=_stamp, payload=_empty
    ),
    st.builds(client.TypingStartFrame, timestamp=_stamp, payload=_typing),
    st.builds(client.TypingStopFrame, timestamp=_stamp, payload=_typing),
)


def _entries(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Message]:
    """`back` is how far below an entry its target is."""

    def entry(
        prev: int, step: int, back: int, amends: Amendment | None = None, **rest: Any
    ) -> Message:
        sequence = min(prev + step, SEQUENCE_MAX)
        if amends is not None:
            amends = msgspec.structs.replace(amends, target=max(1, sequence - back))
        return Message(sequence=sequence, prev_sequence=prev, amends=amends, **rest)

    return st.builds(
        entry,
        prev=st.integers(1, SEQUENCE_MAX - 1),
        step=st.integers(1, 1000),
        back=st.integers(1, 1000),
        chat_id=chat_ids,
        message_id=message_ids,
        sender_id=user_ids,
        client_message_id=client_message_ids,
        content_type=st.just("text/plain"),
        created_at_ms=times_ms,
        **fields,
    )


_nothing = st.just("")
_edit = st.just(Amendment(kind=EntryKind.EDIT, target=1))
plain_messages = _entries(content=contents, reply_to=st.none() | sequences, mentions=mentions)
tombstones = _entries(content=_nothing, deleted_by=sequences) | _entries(
    content=_nothing, amends=_edit, deleted_by=sequences
)
amendments = st.one_of(
    _entries(content=contents, amends=_edit),
    _entries(
        content=_nothing,
        amends=st.builds(
            Amendment, kind=st.just(EntryKind.DELETE), target=st.just(1), reason=st.none() | reasons
        ),
    ),
    _entries(
        content=_nothing,
        count=counts,
        amends=st.builds(
            Amendment,
            kind=st.just(EntryKind.REACT),
            target=st.just(1),
            emoji=emoji,
            is_on=st.booleans(),
        ),
    ),
)
messages = plain_messages | tombstones | amendments
"""Entries of every kind."""

_stored: dict[str, st.SearchStrategy[Any]] = {
    "message_id": message_ids,
    "sequence": sequences,
    "prev_sequence": cursors,
    "sender_id": user_ids,
    "client_message_id": client_message_ids,
    "content": contents | _nothing,
    "content_type": st.just("text/plain"),
    "created_at": times,
    "reply_to": st.none() | sequences,
    "mentions": mentions,
    "is_damaged": st.booleans(),
    "is_deleted": st.booleans(),
    "kind": st.none() | words,
    "target": st.none() | sequences,
    "reason": st.none() | reasons,
    "emoji": st.none() | emoji,
    "is_on": st.none() | st.booleans(),
    "count": st.none() | counts,
}
_sync_items = st.builds(server.SyncItem, **_stored)
_digest_entries = st.builds(
    DigestEntry,
    chat_id=chat_ids,
    chat_type=st.sampled_from(ChatType),
    head=cursors,
    membership_version=counts,
    joined_sequence=cursors,
    delivered=cursors,
    read=cursors,
    others_delivered=cursors,
    others_read=cursors,
    unread=st.integers(0, UNREAD_MAX),
    mentions_unread=st.integers(0, UNREAD_MAX),
)

_answers: st.SearchStrategy[ServerFrame] = st.one_of(
    st.builds(
        server.SendMessageAckFrame,
        request_id=words,
        timestamp=times,
        payload=st.builds(
            server.SendMessageAckPayload,
            client_message_id=client_message_ids,
            message_id=message_ids,
            chat_id=chat_ids,
            sequence=sequences,
            prev_sequence=cursors,
            created_at=times,
            deduplicated=st.booleans(),
        ),
    ),
    st.builds(
        server.SyncResponseFrame,
        request_id=words,
        timestamp=times,
        payload=st.builds(
            server.SyncResponsePayload,
            chat_id=chat_ids,
            messages=st.lists(_sync_items, max_size=3),
            synced_through=cursors,
            has_more=st.booleans(),
            next_sequence=st.none() | sequences,
        ),
    ),
    st.builds(
        server.HeartbeatAckFrame,
        request_id=st.none() | words,
        timestamp=times,
        payload=st.builds(server.HeartbeatAckPayload, server_time=times),
    ),
    st.builds(
        server.ErrorFrame,
        request_id=st.none() | words,
        timestamp=times,
        payload=st.builds(
            server.ErrorPayload,
            code=words,
            message=texts,
            details=st.none() | st.dictionaries(texts, json_values, max_size=3),
        ),
    ),
    st.builds(
        server.ChatDigestFrame,
        request_id=st.none() | words,
        timestamp=times,
        payload=st.builds(
            server.ChatDigestPayload,
            digest_id=words,
            page=counts,
            last=st.booleans(),
            chats=st.lists(_digest_entries, max_size=3),
        ),
    ),
)

pushes: st.SearchStrategy[ServerFrame] = st.one_of(
    st.builds(
        server.ConnectionEstablishedFrame,
        timestamp=times,
        payload=st.builds(
            server.ConnectionEstablishedPayload,
            connection_id=connection_ids,
            user_id=user_ids,
            device_id=words,
            server_time=times,
            heartbeat_interval_ms=counts,
            protocol_version=st.just(server.PROTOCOL_VERSION),
            epoch=words,
        ),
    ),
    st.builds(
        server.MessageFrame,
        timestamp=times,
        payload=st.builds(server.MessagePayload, chat_id=chat_ids, **_stored),
    ),
    st.builds(
        server.EntryFrame,
        timestamp=times,
        payload=st.builds(server.MessagePayload, chat_id=chat_ids, **_stored),
    ),
    st.builds(
        server.ConnectionClosingFrame,
        timestamp=times,
        payload=st.builds(
            server.ConnectionClosingPayload, reason=words, message=texts, reconnect_delay_ms=counts
        ),
    ),
    st.builds(
        server.TypingIndicatorFrame,
        timestamp=times,
        payload=st.builds(
            server.TypingIndicatorPayload,
            chat_id=chat_ids,
            user_id=user_ids,
            is_typing=st.booleans(),
        ),
    ),
    st.builds(
        server.StatusUpdateFrame,
        timestamp=times,
        payload=st.builds(
            server.StatusUpdatePayload,
            chat_id=chat_ids,
            others_delivered=cursors,
            others_read=cursors,
            own_delivered=st.none() | cursors,
            own_read=st.none() | cursors,
            unread=st.none() | st.integers(0, UNREAD_MAX),
            mentions_unread=st.none() | st.integers(0, UNREAD_MAX),
        ),
    ),
    st.builds(
        server.ChatUpdateFrame,
        timestamp=times,
        payload=st.builds(
            server.ChatUpdatePayload,
            chat_id=chat_ids,
            membership_version=counts,
            change=words,
            chat_type=st.sampled_from(ChatType),
            name=st.none() | texts,
            user_id=st.none() | user_ids,
            role=st.none() | st.sampled_from(Role),
            joined_sequence=st.none() | cursors,
            head=cursors,
            changed_by=user_ids,
            changed_at=times,
        ),
    ),
    st.builds(
        server.ResyncFrame,
        timestamp=times,
        payload=st.builds(server.ResyncPayload, reason=words, delay_ms=counts),
    ),
)

server_frames: st.SearchStrategy[ServerFrame] = _answers | pushes

chats = st.builds(
    Chat,
    chat_id=chat_ids,
    chat_type=st.sampled_from(ChatType),
    name=st.none() | texts,
    created_by=user_ids,
    created_at_ms=times_ms,
    updated_at_ms=times_ms,
    membership_version=counts,
    member_count=counts,
    head=cursors,
    block_changes=counts,
)

logged_events: st.SearchStrategy[LoggedEvent] = st.one_of(
    st.builds(
        MessageAppended,
        message=messages,
        membership_version=counts,
        origin_connection_id=st.none() | connection_ids,
    ),
    st.builds(ChatCreated, chat=chats, member_ids=st.lists(user_ids, max_size=4).map(tuple)),
    st.builds(ChatRenamed, chat=chats, changed_by=user_ids, changed_at_ms=times_ms),
    st.builds(
        MembershipChanged,
        chat=chats,
        user_id=user_ids,
        change=st.sampled_from(MembershipChange),
        role=st.sampled_from(Role),
        joined_sequence=cursors,
        changed_by=user_ids,
        changed_at_ms=times_ms,
    ),
    st.builds(
        ChatClosed,
        chat=chats.map(lambda chat: msgspec.structs.replace(chat, member_count=0)),
        member_ids=st.lists(user_ids, max_size=4).map(tuple),
        closed_by=user_ids,
        closed_at_ms=times_ms,
    ),
)
