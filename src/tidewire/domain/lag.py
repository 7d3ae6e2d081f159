"""The backlog of the event log: chats of which a push is late. PURE."""

from collections.abc import Iterable

from tidewire.domain.events import (
    ChatClosed,
    LoggedEvent,
    MembershipChange,
    MembershipChanged,
    MessageAppended,
)
from tidewire.domain.ids import ChatId, UserId

Former = tuple[UserId, ...]
"""Users whom an event concerns though they are not members of its chat after it."""
Behind = dict[ChatId, Former]
"""Chats with events that have not been pushed yet, each with its former members."""


def subject_of(event: LoggedEvent) -> tuple[ChatId, Former]:
    """The chat of an event, and the users who must be told of it besides the members."""
    if isinstance(event, MessageAppended):
        return event.message.chat_id, ()
    chat_id = event.chat.chat_id
    if isinstance(event, ChatClosed):
        return chat_id, event.member_ids
    if isinstance(event, MembershipChanged) and event.change is MembershipChange.REMOVED:
        return chat_id, (event.user_id,)
    return chat_id, ()


def gathered(subjects: Iterable[tuple[ChatId, Former]]) -> Behind:
    """The subjects, merged so that each chat appears once."""
    behind: Behind = {}
    for chat_id, former in subjects:
        known = behind.get(chat_id, ())
        behind[chat_id] = (*known, *(one for one in former if one not in known))
    return behind


def merged(one: Behind | None, other: Behind | None) -> Behind | None:
    """Both backlogs in one. None, as an argument or result, stands for "it may be any chat"."""
    if one is None or other is None:
        return None
    return gathered([*one.items(), *other.items()])
