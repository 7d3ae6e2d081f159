"""What a transaction does to messages that are there already, and which sends it takes. PURE.

An amendment changes the row of its target on condition that the row is as it was read. A second
amendment of the same target therefore waits for the next transaction, which reads the row anew.
Only reactions go together: otherwise each reaction to a popular message would take a transaction.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from tidewire.domain.amendments import NO_FACTS, TargetFacts, amend
from tidewire.domain.ids import ChatId, ClientMessageId, UserId
from tidewire.domain.messages import EntryKind, Message, SendMessage
from tidewire.engines.dynamodb import rows, schema
from tidewire.engines.dynamodb.entries import Mark, StoredMessage, counts_text, mark_row
from tidewire.engines.dynamodb.rows import Write

ITEMS_MAX: Final = 90
"""Rows of one transaction; DynamoDB takes 100. The deletion of a message with EDITS_MAX edits
fits."""
ITEMS_ALWAYS: Final = 2
"""The fence and the outbox row."""
ITEMS_PER_ENTRY: Final = 2
"""The entry and its key."""


class Erased(msgspec.Struct, frozen=True):
    """An entry whose content a deletion takes away: the message, or one of its edits."""

    sequence: int
    client_message_id: ClientMessageId
    has_key: bool
    """Its key is still there, with the hash of the content."""


MarkId = tuple[int, str, UserId]
"""Target, emoji and user."""


class Concerned(msgspec.Struct, frozen=True):
    """The rows that a batch depends on or changes, beside its own, as they were read."""

    targets: Mapping[int, StoredMessage] = {}
    """By sequence; only those that are messages of the chat."""
    texts: Mapping[int, str] = {}
    """By target: the text of its last edit, where a refusal must contain it."""
    marks: Mapping[MarkId, Mark] = {}
    erased: Mapping[int, Sequence[Erased]] = {}
    """By target of a deletion."""
    members: Collection[UserId] = ()
    """Users who are members; all mentioned users who are members are among them."""
    takes_entries: bool = True

    def facts(self, chat_id: ChatId) -> TargetFacts:
        """The facts for the rules; made anew for every try, because the rules change them."""
        targets = {
            (chat_id, sequence): stored.target(self.texts.get(sequence, stored.message.content))
            for sequence, stored in self.targets.items()
        }
        for mark in self.marks.values():
            target = targets.get((chat_id, mark.target))
            if target is not None and mark.is_on:
                target.on.add((mark.user_id, mark.emoji))
        members = {(chat_id, user_id) for user_id in self.members}
        return TargetFacts(targets, members, takes_entries=self.takes_entries)


NONE_CONCERNED: Final = Concerned()
"""For a batch of plain messages."""


class Plan:
    """The sends that one transaction stores, in their order."""

    def __init__(self, chat_id: ChatId, concerned: Concerned) -> None:
        self._concerned = concerned
        self._items = ITEMS_ALWAYS
        self._kinds: dict[int, EntryKind] = {}
        """By amended target: the kind of the amendment."""
        self._marks: set[MarkId] = set()
        is_plain = concerned is NONE_CONCERNED
        self.facts = NO_FACTS if is_plain else concerned.facts(chat_id)
        self.indexes: list[int] = []
        self.counts: list[int] = []
        """For each of `indexes`: how many users have the emoji after it, if it is a reaction."""

    def touches(self, send: SendMessage) -> bool:
        """Whether an earlier send of this transaction amends the same message: the outcome of this
        one is not certain before that one is stored."""
        return send.amends is not None and send.amends.target in self._kinds

    def must_wait(self, send: SendMessage) -> bool:
        if not self.touches(send):
            return False
        assert send.amends is not None
        is_reaction = send.amends.kind is EntryKind.REACT
        return not (is_reaction and self._kinds[send.amends.target] is EntryKind.REACT)

    def take(self, index: int, send: SendMessage) -> bool:
        """Take a send to store; False: the transaction has no room for it."""
        amends = send.amends
        items, count = ITEMS_PER_ENTRY, 0
        mark = None
        if amends is not None:
            items += amends.target not in self._kinds
            if amends.kind is EntryKind.DELETE:
                erased = self._concerned.erased[amends.target]
                items += len(erased) - 1 + sum(one.has_key for one in erased)
            elif amends.kind is EntryKind.REACT:
                mark = mark_id(send)
                items += mark not in self._marks
        if self._items + items > ITEMS_MAX:
            return False
        self._items += items
        if amends is not None:
            self._kinds[amends.target] = amends.kind
        if mark is not None:
            self._marks.add(mark)
            count = amend(self.facts.targets[send.chat_id, mark[0]], send, 0)
        self.indexes.append(index)
        self.counts.append(count)
        return True


def mark_id(send: SendMessage | Message) -> MarkId:
    """Which mark a reaction sets or takes back."""
    amends = send.amends
    assert amends is not None
    assert amends.emoji is not None
    return amends.target, amends.emoji, send.sender_id


def amendment_writes(messages: Sequence[Message], concerned: Concerned) -> list[Write]:
    """The writes to the targets of the entries, beside the entries themselves."""
    writes: list[Write] = []
    reactions: dict[int, list[Message]] = {}
    for message in messages:
        amends = message.amends
        if amends is None:
            continue
        stored = concerned.targets[amends.target]
        match amends.kind:
            case EntryKind.EDIT:
                edits = [*stored.edits, message.sequence]
                writes.append(_target_write(stored, edits=edits))
            case EntryKind.DELETE:
                writes += _erasure(stored, concerned.erased[amends.target], message.sequence)
            case EntryKind.REACT:
                reactions.setdefault(amends.target, []).append(message)
            case _:
                raise AssertionError("a message amends nothing")
    for target, on_target in reactions.items():
        writes += _reaction_writes(concerned.targets[target], on_target, concerned.marks)
    return writes


def _target_write(stored: StoredMessage, **fields: rows.Value) -> Write:
    """Change a message, if it is not deleted and has no other edits than those that were read."""
    message = stored.message
    return rows.change(
        schema.MESSAGES,
        {"chat_id": message.chat_id, "sequence": message.sequence},
        fields,
        where={"deleted_by": None, "edits": stored.edits or None},
    )


def _erasure(stored: StoredMessage, erased: Sequence[Erased], deleted_by: int) -> list[Write]:
    """Take the content away. `reacted_by` stays until the reactions are swept."""
    chat_id, target = stored.message.chat_id, stored.message.sequence
    gone = dict.fromkeys(("content", "mentions", "reactions"))
    writes = [_target_write(stored, deleted_by=deleted_by, **gone)]
    writes += [
        rows.change(
            schema.AMENDMENTS,
            {"chat_id": chat_id, "sequence": one.sequence},
            {"deleted_by": deleted_by, "content": None},
            where={"chat_id": rows.PRESENT},
        )
        for one in erased
        if one.sequence != target
    ]
    # A key that has expired meanwhile may belong to another entry by now.
    writes += [
        rows.change(
            schema.KEYS,
            {"chat_id": chat_id, "client_message_id": one.client_message_id},
            {"content_hash": None},
            where={"sequence": one.sequence},
        )
        for one in erased
        if one.has_key
    ]
    return writes


def _reaction_writes(
    stored: StoredMessage, reactions: Sequence[Message], marks: Mapping[MarkId, Mark]
) -> list[Write]:
    """All reactions of a transaction to one message: its counts once, each mark's last state."""
    chat_id, target = stored.message.chat_id, stored.message.sequence
    counts = dict(stored.counts)
    after: dict[MarkId, Mark] = {}
    for message in reactions:
        key = mark_id(message)
        assert message.amends is not None
        counts[key[1]] = (message.count, message.sequence)
        after[key] = Mark(*key, sequence=message.sequence, is_on=message.amends.is_on)
    writes = [
        rows.change(
            schema.MESSAGES,
            {"chat_id": chat_id, "sequence": target},
            {"reacted_by": reactions[-1].sequence, "reactions": counts_text(counts)},
            where={"deleted_by": None, "reacted_by": stored.reacted_by or None},
        )
    ]
    for key, mark in after.items():
        before = marks[key].sequence
        row = mark_row(chat_id, mark)
        if before:
            is_as_seen = "#sequence = :before"
            writes.append(rows.put(schema.REACTIONS, row, condition=is_as_seen, before=before))
        else:
            writes.append(rows.put_new(schema.REACTIONS, row))
    return writes


def unswept_after(message: Message, concerned: Concerned) -> list[int]:
    """The target of a deletion, if it has reactions: they must be swept now."""
    amends = message.amends
    if amends is None or amends.kind is not EntryKind.DELETE:
        return []
    stored = concerned.targets.get(amends.target)
    return [amends.target] if stored is not None and stored.reacted_by else []
