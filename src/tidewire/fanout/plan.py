"""Makes pushes: from an event and the members of its chat to frames and their users. PURE.

A frame is encoded and framed once, however many connections get it.
"""

from collections.abc import Iterator, Sequence

from tidewire.domain.chats import Roster
from tidewire.domain.delivery import DigestEntry, Floors, Positions
from tidewire.domain.events import (
    ChatClosed,
    ChatCreated,
    ChatRenamed,
    LoggedEvent,
    MembershipChange,
    MembershipChanged,
    MessageAppended,
)
from tidewire.domain.ids import ChatId, UserId
from tidewire.ports.router import Push
from tidewire.wire.codec import encode_message_push, encode_server_frame
from tidewire.wire.frame_builders import chat_closed_frame, chat_update_frame
from tidewire.wire.framing import frame_text
from tidewire.wire.server_frames import (
    ENTRY_TYPE,
    MESSAGE_TYPE,
    ServerFrame,
    StatusUpdateFrame,
    StatusUpdatePayload,
    TypingIndicatorFrame,
    TypingIndicatorPayload,
)
from tidewire.wire.timestamps import format_time_ms


def push_of(
    event: MessageAppended | ChatCreated | ChatRenamed | MembershipChanged,
    roster: Roster,
    *,
    now_ms: int,
) -> Push | None:
    """The push of an event; None for a membership change that a later one has undone. The later one
    has its own push, and in a cluster the two may come in reverse order: then the client would end
    with the wrong one. The sender's other devices get the message, its own connection does
    not (D-08). A removed member is told of the removal and of nothing after it. The roster may be
    newer than the event: a member who joined after a message was stored does not get it pushed."""
    if isinstance(event, MessageAppended):
        message = event.message
        framed = frame_text(encode_message_push(message, now_ms))
        readers = roster.readers_of(message.sequence)
        frame_type = MESSAGE_TYPE if message.amends is None else ENTRY_TYPE
        return Push(readers, frame_type, framed, event.origin_connection_id)
    user_ids = roster.user_ids
    if isinstance(event, MembershipChanged):
        is_removal = event.change is MembershipChange.REMOVED
        if (event.user_id in user_ids) == is_removal:
            return None
        if is_removal:
            user_ids = (*user_ids, event.user_id)
    return _push(user_ids, chat_update_frame(event, now_ms=now_ms))


def in_order_of_versions(events: Sequence[LoggedEvent]) -> list[LoggedEvent]:
    """The same events, with the changes of each chat sorted by version among the places that they
    hold. Messages stay where they are: readers order them by the chain."""
    places: dict[ChatId, list[int]] = {}
    for index, event in enumerate(events):
        if not isinstance(event, MessageAppended):
            places.setdefault(event.chat.chat_id, []).append(index)
    ordered = list(events)
    for indexes in places.values():
        if len(indexes) > 1:
            found = sorted((events[index] for index in indexes), key=_version_of)
            for index, event in zip(indexes, found, strict=True):
                ordered[index] = event
    return ordered


def _version_of(event: LoggedEvent) -> int:
    assert not isinstance(event, MessageAppended)
    return event.chat.membership_version


def closed_pushes(event: ChatClosed, *, now_ms: int) -> Iterator[Push]:
    """The pushes of a group's end: the event names its members, and each gets its own frame."""
    for user_id in event.member_ids:
        yield _push((user_id,), chat_closed_frame(event, user_id, now_ms=now_ms))


def typing_push(
    chat_id: ChatId, user_id: UserId, roster: Roster, *, is_typing: bool, now_ms: int
) -> Push | None:
    """Tell the others that a user types; None if the user is no member, or the chat has a block."""
    if user_id not in roster.user_ids or roster.has_block:
        return None
    frame = TypingIndicatorFrame(
        timestamp=format_time_ms(now_ms),
        payload=TypingIndicatorPayload(chat_id=chat_id, user_id=user_id, is_typing=is_typing),
    )
    others = [other for other in roster.user_ids if other != user_id]
    return _push(others, frame)


def status_pushes(
    floors: Floors,
    online: Sequence[UserId],
    *,
    told: Floors | None,
    except_users: Sequence[UserId],
    now_ms: int,
) -> Iterator[Push]:
    """The others' boundaries for every connected member for whom they have changed. If the members
    have changed since the last update, all get them, because one may not have been there then.

    There are few different answers, because the two lowest positions decide them all: one for the
    lowest in delivered, one for the lowest in read, one for all others.
    """
    answers: dict[tuple[int, int], list[UserId]] = {}
    if told is not None and told.membership_version != floors.membership_version:
        told = None
    for user_id in online:
        boundaries = _boundaries(floors, user_id)
        if user_id in except_users or (told and boundaries == _boundaries(told, user_id)):
            continue
        answers.setdefault(boundaries, []).append(user_id)
    for (delivered, read), user_ids in answers.items():
        payload = StatusUpdatePayload(
            chat_id=floors.chat_id, others_delivered=delivered, others_read=read
        )
        yield _push(user_ids, _status(payload, now_ms))


def _boundaries(floors: Floors, viewer: UserId) -> tuple[int, int]:
    return (
        floors.delivered.boundary(viewer, floors.head),
        floors.read.boundary(viewer, floors.head),
    )


def own_numbers_push(
    user_id: UserId, floors: Floors, own: Positions, unread: tuple[int, int], *, now_ms: int
) -> Push:
    """As `own_status_push`, from numbers in memory; `unread` counts messages, and mentions."""
    delivered, read = _boundaries(floors, user_id)
    payload = StatusUpdatePayload(
        chat_id=floors.chat_id,
        others_delivered=delivered,
        others_read=read,
        own_delivered=own.delivered,
        own_read=own.read,
        unread=unread[0],
        mentions_unread=unread[1],
    )
    return _push((user_id,), _status(payload, now_ms))


def own_status_push(user_id: UserId, entry: DigestEntry, *, now_ms: int) -> Push:
    """A user's own numbers, for all devices: reading on the phone clears the laptop."""
    payload = StatusUpdatePayload(
        chat_id=entry.chat_id,
        others_delivered=entry.others_delivered,
        others_read=entry.others_read,
        own_delivered=entry.delivered,
        own_read=entry.read,
        unread=entry.unread,
        mentions_unread=entry.mentions_unread,
    )
    return _push((user_id,), _status(payload, now_ms))


def _status(payload: StatusUpdatePayload, now_ms: int) -> StatusUpdateFrame:
    return StatusUpdateFrame(timestamp=format_time_ms(now_ms), payload=payload)


def _push(user_ids: Sequence[UserId], frame: ServerFrame) -> Push:
    frame_type = str(frame.__struct_config__.tag)
    return Push(user_ids, frame_type, frame_text(encode_server_frame(frame)))
