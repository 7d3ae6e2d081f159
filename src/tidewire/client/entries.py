"""Entries of a chat as the server sends them: which kind they are, and what they mean here. PURE.

A message is shown; an edit, a deletion or a reaction is folded into the message that it names
(`domain.fold`). An entry of any other kind, and a damaged one that is no message, is only held: it
moves the cursor and the acknowledgements, and shows nothing.
"""

from collections.abc import Iterable
from typing import Any, Final

from tidewire.domain.ids import ChatId
from tidewire.domain.messages import MENTION_ALL, Amendment, EntryKind, Message
from tidewire.wire.rest_models import MessageView
from tidewire.wire.server_frames import MessagePayload, SyncItem

Item = SyncItem | MessagePayload
"""An entry as it came: in a page, or pushed."""

_KINDS: Final = {kind.value: kind for kind in EntryKind}


def kind_of(item: Item | MessageView) -> EntryKind | None:
    """The kind of an entry for this device; None if it is only held."""
    if item.kind is None:
        return EntryKind.MESSAGE
    kind = _KINDS.get(item.kind)
    if kind is EntryKind.MESSAGE:
        return kind
    if kind is None or item.target is None or item.is_damaged:
        return None
    is_whole = kind is not EntryKind.REACT or (
        item.emoji is not None and item.is_on is not None and item.count is not None
    )
    # A server that was not offered `entries` names the kind and leaves the rest out.
    return kind if is_whole and item.target < item.sequence else None


def amendment_of(chat_id: ChatId, item: Item | MessageView) -> Message | None:
    """The entry as a value of the domain, if it amends a message; else None."""
    kind = kind_of(item)
    if kind is None or kind is EntryKind.MESSAGE:
        return None
    assert item.target is not None
    is_reaction = kind is EntryKind.REACT
    return entry_as(
        chat_id,
        item,
        item.content if kind is EntryKind.EDIT else "",
        amends=Amendment(
            kind=kind,
            target=item.target,
            emoji=item.emoji if is_reaction else None,
            is_on=bool(item.is_on) if is_reaction else True,
            reason=item.reason if kind is EntryKind.DELETE else None,
        ),
        count=item.count or 0,
    )


def entry_as(chat_id: ChatId, item: Item | MessageView, content: str, **more: Any) -> Message:
    """An entry from the server as a value of the domain, without its time."""
    return Message(
        chat_id,
        item.sequence,
        item.prev_sequence,
        item.message_id,
        item.sender_id,
        item.client_message_id,
        content,
        item.content_type,
        0,
        **more,
    )


def may_be_unread(item: Item, own_id: str) -> bool:
    """Whether an entry counts as unread until it is read: a message of another user that is not
    erased, as the server counts."""
    return item.sender_id != own_id and not item.is_deleted and kind_of(item) is EntryKind.MESSAGE


def mentions_user(mentions: Iterable[str], user_id: str) -> bool:
    return any(one in (user_id, MENTION_ALL) for one in mentions)
