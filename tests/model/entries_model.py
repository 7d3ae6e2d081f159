"""What edits, deletions, reactions, replies and mentions should do, in the plainest way: each
question is answered by looking at the whole log of a chat.

Independent of `domain.amendments`: the rules stand here once more, naively, in the words of
decision 0023. What people see of it is computed in `tests.support.views`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from tests.support.views import about, users_of, view_of
from tidewire.domain.ids import SYSTEM, UserId
from tidewire.domain.messages import MENTION_ALL, EntryKind, Message, SendMessage

Answer = tuple[Any, ...]

MODERATES: Final = ("owner", "admin")


def refusal_of(log: Sequence[Message], roles: Mapping[UserId, str], send: SendMessage) -> Answer:
    """Why a member's send is refused; empty if it is not."""
    messages = {one.sequence: one for one in log if one.amends is None}
    is_admin = send.sender_id == SYSTEM or roles[send.sender_id] in MODERATES
    if send.reply_to is not None and send.reply_to not in messages:
        return ("TargetNotFound",)
    if MENTION_ALL in send.mentions and not is_admin:
        return ("Forbidden",)
    outside = [one for one in send.mentions if one != MENTION_ALL and one not in roles]
    if outside:
        return ("InvalidMention", sorted(outside))
    if send.amends is None:
        return ()
    target = messages.get(send.amends.target)
    if target is None:
        return ("TargetNotFound",)
    may = {
        EntryKind.EDIT: target.sender_id == send.sender_id,
        EntryKind.DELETE: target.sender_id == send.sender_id or is_admin,
        EntryKind.REACT: True,
    }
    if not may[send.amends.kind]:
        return ("Forbidden",)
    if target.deleted_by is not None:
        return ("MessageDeleted", target.deleted_by)
    edits = [one for one in about(log, target.sequence) if one.kind is EntryKind.EDIT]
    last = edits[-1].sequence if edits else 0
    if send.amends.kind is EntryKind.EDIT and send.base not in {None, last}:
        return ("EditConflict", (edits or [target])[-1].content, last)
    return ()


def moderated(log: Sequence[Message], send: SendMessage) -> UserId | None:
    """Whose message a deletion takes, if it is another's and no operator does it."""
    if send.amends is None or send.amends.kind is not EntryKind.DELETE or send.sender_id == SYSTEM:
        return None
    [author] = [one.sender_id for one in log if one.sequence == send.amends.target]
    return None if author == send.sender_id else author


def count_of(log: Sequence[Message], entry: Message) -> int:
    """How many users have the emoji of a reaction on its target, the reaction included."""
    if entry.amends is None or entry.amends.kind is not EntryKind.REACT:
        return 0
    return len(users_of(about([*log, entry], entry.amends.target), entry.amends.emoji))


def erased(log: Sequence[Message], deletion: Message) -> list[Message]:
    """The log after a deletion: the message and its edits have no text any more."""
    assert deletion.amends is not None
    target = deletion.amends.target
    return [
        replace(one, content="", mentions=(), deleted_by=deletion.sequence)
        if one.sequence == target
        or (one.kind is EntryKind.EDIT and one.amends is not None and one.amends.target == target)
        else one
        for one in log
    ]


def is_unread(message: Message, user: UserId) -> bool:
    """Whether one above what the user has read counts."""
    return message.amends is None and not message.is_deleted and message.sender_id != user


def mentions(message: Message, user: UserId) -> bool:
    return user in message.mentions or MENTION_ALL in message.mentions


def preview(log: Sequence[Message]) -> Answer | None:
    """The last message as a list of chats shows it."""
    messages = [one for one in log if one.amends is None]
    if not messages:
        return None
    text, now = view_of(log, SYSTEM)[messages[-1].sequence]
    return messages[-1].sequence, text, now.is_deleted
