"""The rules for entries that refer to an earlier message (edits, deletions, reactions, replies),
and for mentions. PURE.

An engine reads the facts inside its transaction, or under its fence, and calls `judge_amendment`;
`amend` applies a stored amendment to its target. Membership is checked before both (`append`).
"""

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from tidewire.domain.errors import (
    EditConflict,
    EditTooLate,
    Forbidden,
    InvalidMention,
    InvalidOperation,
    MessageDeleted,
    Refused,
    TargetNotFound,
    TooManyEdits,
    TooManyReactions,
)
from tidewire.domain.ids import SYSTEM, ChatId, UserId
from tidewire.domain.limits import EDITS_MAX, REACTION_KINDS_MAX
from tidewire.domain.messages import MENTION_ALL, Amendment, EntryKind, SendMessage

# Looking an enum member up takes longer than comparing it, and each entry is compared often.
_EDIT: Final = EntryKind.EDIT
_DELETE: Final = EntryKind.DELETE
_REACT: Final = EntryKind.REACT


class Target(msgspec.Struct, eq=False):
    """A message that an entry refers to, with the changes that the batch has made so far."""

    author_id: UserId
    created_at_ms: int
    content: str
    """The text that people see now."""
    edited_by: int = 0
    """The last edit, 0 if there is none."""
    edits: int = 0
    deleted_by: int | None = None
    is_damaged: bool = False
    """Its bytes are not those that were stored: the author is as it was found, the text is lost.
    The only amendment that it can get is a deletion."""
    counts: dict[str, int] = {}
    """How many users have set an emoji on it, by emoji; only emoji that are in use."""
    on: set[tuple[UserId, str]] = set()
    """The reactions that are set, as user and emoji; only those that the batch asks about."""


class TargetFacts(msgspec.Struct, frozen=True):
    """What a batch has to know about other entries and other members. A sequence that is not a
    message of the chat has no target."""

    targets: Mapping[tuple[ChatId, int], Target] = {}
    members: Collection[tuple[ChatId, UserId]] = ()
    """Those of the mentioned users who are members."""
    takes_entries: bool = True
    """False: other processes of the server may be too old to know more than plain messages."""


NO_FACTS: Final = TargetFacts()
"""For a batch of plain messages."""


class Erasure(msgspec.Struct, frozen=True, gc=False):
    """The contents of a message and of all its edits must be erased, in the transaction of the
    deletion; its reactions no longer count."""

    chat_id: ChatId
    target: int
    deleted_by: int


def judge_amendment(send: SendMessage, *, is_admin: bool, facts: TargetFacts) -> Refused | None:
    """Why a member's send may not be stored, or None. Its fields were checked before."""
    if not facts.takes_entries:
        # Not an error that clients retry by themselves: an operator has to act first.
        return InvalidOperation(
            "edits, deletions, reactions, replies and mentions are not possible yet: "
            "this server is being upgraded"
        )
    if send.reply_to is not None:
        # A deleted message can be replied to: the reply was written before the deletion, or is
        # about it.
        target = facts.targets.get((send.chat_id, send.reply_to))
        if target is None or target.is_damaged:
            return TargetNotFound(send.reply_to)
    if send.mentions:
        return _judge_mentions(send, is_admin=is_admin, facts=facts)
    if send.amends is None:
        return None
    target = facts.targets.get((send.chat_id, send.amends.target))
    if target is None or (target.is_damaged and send.amends.kind is not EntryKind.DELETE):
        return TargetNotFound(send.amends.target)
    return _judge_target(send, send.amends, target, is_admin=is_admin)


def _judge_mentions(send: SendMessage, *, is_admin: bool, facts: TargetFacts) -> Refused | None:
    if MENTION_ALL in send.mentions and not is_admin:
        return Forbidden("only admins of a group can mention all its members")
    outside = [
        user_id
        for user_id in send.mentions
        if user_id != MENTION_ALL and (send.chat_id, user_id) not in facts.members
    ]
    return InvalidMention(*outside) if outside else None


def _judge_target(
    send: SendMessage, amends: Amendment, target: Target, *, is_admin: bool
) -> Refused | None:
    kind = amends.kind
    if kind is not _REACT and target.author_id != send.sender_id:
        if kind is _EDIT:
            return Forbidden("only its author can edit a message")
        if not is_admin:
            return Forbidden("only its author, or an admin of the group, can delete a message")
    if target.deleted_by is not None:
        return MessageDeleted(target.deleted_by)
    if kind is _REACT:
        is_new_kind = amends.is_on and amends.emoji not in target.counts
        is_full = is_new_kind and len(target.counts) >= REACTION_KINDS_MAX
        return TooManyReactions(REACTION_KINDS_MAX) if is_full else None
    if kind is _EDIT:
        if target.created_at_ms < send.targets_since_ms:
            return EditTooLate()
        if send.base is not None and send.base != target.edited_by:
            return EditConflict(content=target.content, edited_by=target.edited_by)
        return TooManyEdits(EDITS_MAX) if target.edits >= EDITS_MAX else None
    assert kind is _DELETE, "a message amends nothing"
    return None


def amend(target: Target, send: SendMessage, sequence: int) -> int:
    """Update a target by an amendment that is stored under a sequence. Returns, for a reaction, how
    many users have set its emoji on the target now; else 0."""
    amends = send.amends
    assert amends is not None
    if amends.kind is _REACT:
        assert amends.emoji is not None
        return _react(target, send.sender_id, amends.emoji, is_on=amends.is_on)
    if amends.kind is _EDIT:
        target.edited_by, target.content = sequence, send.content
        target.edits += 1
    else:
        assert amends.kind is _DELETE, "a message amends nothing"
        target.deleted_by, target.content = sequence, ""
    return 0


def moderated_by(send: SendMessage, target: Target) -> UserId | None:
    """The author of the message that a send deletes, if that is another user. None for a deletion
    by SYSTEM: it is the operator's, and there is a record of it already."""
    amends = send.amends
    if amends is None or amends.kind is not _DELETE or send.sender_id == SYSTEM:
        return None
    return None if target.author_id == send.sender_id else target.author_id


def _react(target: Target, user_id: UserId, emoji: str, *, is_on: bool) -> int:
    """Set or take back a reaction, and return the emoji's count. Setting it twice changes nothing,
    nor does taking back one that is not set."""
    mark, counts = (user_id, emoji), target.counts
    if is_on != (mark in target.on):
        counts[emoji] = counts.get(emoji, 0) + (1 if is_on else -1)
        if is_on:
            target.on.add(mark)
        else:
            target.on.discard(mark)
        if not counts[emoji]:
            del counts[emoji]
    return counts.get(emoji, 0)
