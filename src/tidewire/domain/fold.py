"""What people see of a message: a function of the entries about it, in their order. PURE.

A reader folds each entry into the state that it shows, as the entry arrives (`fold`). A page of
history has the state of its messages at some moment (`now`), and a reader joins that with its own
state (`join`): every part has the sequence of its entry, and for each part the higher sequence
counts. So an old state and the entries since then give the current state, in whatever order they
arrive and however often.

A deletion is final: nothing is shown of a message after it, neither text nor reactions.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from tidewire.domain.ids import UserId
from tidewire.domain.limits import REACTION_USERS_MAX
from tidewire.domain.messages import EntryKind, Message


class Reaction(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One emoji on a message. `count` 0: all users took it back, so it is not shown.

    Its fields may be given by position, because a page may have a thousand of these.
    """

    emoji: str
    count: int
    sequence: int
    """The entry that `count` comes from."""
    is_own: bool = False
    own_sequence: int = 0
    """The reader's own last entry with this emoji, 0 if there is none."""
    users: tuple[UserId, ...] = ()
    """Some of those who have it, at most REACTION_USERS_MAX, in no order."""


class MessageNow(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The current state of a message. By default it is as it was written."""

    content: str | None = None
    """The text of the last edit; None: as it was written, or deleted."""
    edited_sequence: int = 0
    deleted_sequence: int = 0
    reactions: tuple[Reaction, ...] = ()
    """Sorted by emoji."""

    @property
    def is_deleted(self) -> bool:
        return self.deleted_sequence > 0

    @property
    def is_edited(self) -> bool:
        return self.edited_sequence > 0 and not self.is_deleted

    @property
    def shown_reactions(self) -> tuple[Reaction, ...]:
        return tuple(reaction for reaction in self.reactions if reaction.count)


AS_WRITTEN: Final = MessageNow()


def fold(now: MessageNow, entry: Message, reader: UserId) -> MessageNow:
    """The state of an entry's target after the entry, for a reader. The entry may be an old one."""
    amends = entry.amends
    assert amends is not None
    match amends.kind:
        case EntryKind.EDIT:
            # An edit without content was erased: a deletion follows, or has come already.
            after = MessageNow(content=entry.content or None, edited_sequence=entry.sequence)
        case EntryKind.DELETE:
            after = MessageNow(deleted_sequence=entry.sequence)
        case EntryKind.REACT:
            assert amends.emoji is not None
            after = MessageNow(
                reactions=(_reacted(now, entry, amends.emoji, amends.is_on, reader),)
            )
        case _:
            return now
    return join(now, after)


def join(one: MessageNow, other: MessageNow) -> MessageNow:
    """The later of each part. Neither the order of the two matters, nor whether they overlap."""
    deleted_sequence = max(one.deleted_sequence, other.deleted_sequence)
    if deleted_sequence:
        return MessageNow(deleted_sequence=deleted_sequence)
    edited = max(one, other, key=_edited)
    return MessageNow(
        content=edited.content,
        edited_sequence=edited.edited_sequence,
        reactions=_joined(one.reactions, other.reactions),
    )


def _joined(one: Iterable[Reaction], other: Iterable[Reaction]) -> tuple[Reaction, ...]:
    found = {reaction.emoji: reaction for reaction in one}
    for reaction in other:
        held = found.get(reaction.emoji)
        found[reaction.emoji] = reaction if held is None else _later(held, reaction)
    return tuple(found[emoji] for emoji in sorted(found))


def _edited(now: MessageNow) -> tuple[int, str]:
    # If one edit comes with its text and without, the text counts: the other copy is damaged.
    return now.edited_sequence, now.content or ""


def _counted(reaction: Reaction) -> tuple[int, int, tuple[UserId, ...]]:
    # Two reactions of one entry may name different users; the order of the two must not matter.
    return reaction.sequence, len(reaction.users), reaction.users


def _later(one: Reaction, other: Reaction) -> Reaction:
    counted = max(one, other, key=_counted)
    own = one if one.own_sequence >= other.own_sequence else other
    return msgspec.structs.replace(counted, is_own=own.is_own, own_sequence=own.own_sequence)


def _reacted(now: MessageNow, entry: Message, emoji: str, is_on: bool, reader: UserId) -> Reaction:
    held = next((one for one in now.reactions if one.emoji == emoji), None)
    users = () if held is None else held.users
    users = tuple(user_id for user_id in users if user_id != entry.sender_id)
    if is_on and len(users) < REACTION_USERS_MAX:
        users = (*users, entry.sender_id)
    is_reader = entry.sender_id == reader
    return Reaction(
        emoji=emoji,
        count=entry.count,
        sequence=entry.sequence,
        is_own=is_on and is_reader,
        own_sequence=entry.sequence if is_reader else 0,
        users=users,
    )
