"""Entries of the log as rows, and back: messages, amendments, their keys, reactions. PURE.

Messages lie in one table and what amends them in another, both under chat and sequence. So unread
messages are counted among messages alone, however many reactions lie between them, and the log of a
chat is the two together.

The row of a message also says how it was changed: the sequences of its edits, the number of users
of each emoji, the last reaction, its deletion. Every commit that changes these is conditional on
them: one row is always read as of one instant, a range of rows is not.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from tidewire.domain.amendments import Target
from tidewire.domain.append import EarlierSend
from tidewire.domain.fold import Reaction
from tidewire.domain.ids import ChatId, MessageId, UserId, place_in
from tidewire.domain.limits import REACTION_USERS_MAX
from tidewire.domain.messages import Amendment, Appended, EntryKind, Message, SendMessage
from tidewire.engines.dynamodb import schema
from tidewire.engines.dynamodb.rows import Row, Value

KEY_LIFE_SECONDS: Final = 7 * 24 * 3600
"""How long a client_message_id is remembered (ADR-004)."""

Counts = Mapping[str, tuple[int, int]]
"""By emoji that at least one user has: how many users, and the entry that led to this count."""

_decode_counts: Final = msgspec.json.Decoder(dict[str, tuple[int, int]]).decode


# Entries.


PLACED_ID: Final = "placed_id"
"""The attribute for an id that contains the sequence of its entry. The index covers the other
attribute, `message_id`, so such an id is not in the index."""


def table_of(amends: Amendment | None) -> str:
    return schema.MESSAGES if amends is None else schema.AMENDMENTS


def entry_row(message: Message, *, is_indexed: bool) -> dict[str, Value]:
    """A field that is not set has no attribute, so a plain message has those of 0.1.0. With
    `is_indexed` False an id with the sequence in it goes into the attribute without an index."""
    amends = message.amends
    is_placed = place_in(message.message_id) == message.sequence
    row: dict[str, Value] = {
        "chat_id": message.chat_id,
        "sequence": message.sequence,
        "prev_sequence": message.prev_sequence,
        PLACED_ID if is_placed and not is_indexed else "message_id": message.message_id,
        "sender_id": message.sender_id,
        "client_message_id": message.client_message_id,
        "content": message.content or None,
        "content_type": message.content_type,
        "created_at": message.created_at_ms,
        "reply_to": message.reply_to,
        "mentions": message.mentions or None,
        "deleted_by": message.deleted_by,
    }
    if amends is not None:
        is_reaction = amends.kind is EntryKind.REACT
        row |= {
            "kind": amends.kind,
            "target": amends.target,
            "reason": amends.reason,
            "emoji": amends.emoji,
            "is_on": amends.is_on if is_reaction else None,
            "count": message.count if is_reaction else None,
        }
    return row


def message_id_of(row: Row) -> str | None:
    """The id of an entry, whichever attribute it is in."""
    return row.get(PLACED_ID) or row.get("message_id")


def entry_of(row: Row) -> Message:
    """Raises ValueError if the row is not that of an entry."""
    found: dict[str, Any] = {"content": "", **row, "message_id": message_id_of(row)}
    if "created_at" in row:
        found["created_at_ms"] = row["created_at"]
    if "kind" in row:
        names = ("kind", "target", "emoji", "is_on", "reason")
        found["amends"] = {name: row[name] for name in names if name in row}
    return msgspec.convert(found, Message)


class StoredMessage(msgspec.Struct, frozen=True):
    """A message with the changes that its row names."""

    message: Message
    edits: tuple[int, ...] = ()
    reacted_by: int = 0
    """The last reaction, even if it was taken back; 0: none. If set on a deleted message: its
    reactions are not swept yet."""
    counts: Counts = {}

    @property
    def edited_by(self) -> int:
        return self.edits[-1] if self.edits else 0

    def target(self, content: str) -> Target:
        """The message as the rules need it; `content` is the text that people see now."""
        message = self.message
        return Target(
            message.sender_id,
            message.created_at_ms,
            content,
            edited_by=self.edited_by,
            edits=len(self.edits),
            deleted_by=message.deleted_by,
            counts={emoji: count for emoji, (count, _) in self.counts.items()},
        )


def stored_message_of(row: Row) -> StoredMessage:
    return StoredMessage(
        entry_of(row),
        tuple(row.get("edits", ())),
        row.get("reacted_by", 0),
        _decode_counts(row["reactions"]) if "reactions" in row else {},
    )


def counts_text(counts: Counts) -> str | None:
    """The attribute `reactions`; None: no user has any emoji on the message."""
    found = {emoji: one for emoji, one in counts.items() if one[0]}
    return msgspec.json.encode(found).decode() if found else None


# Keys.


def said_hash(body: SendMessage | Message) -> bytes:
    """The hash of everything that the client chose. Optional fields are added only if they are set,
    behind a NUL, which no content has: so the hash of a plain message is that of 0.1.0."""
    text = f"{body.content_type}\0{body.content}"
    more: dict[str, object] = {}
    if body.amends is not None:
        more |= {"kind": body.amends.kind, "target": body.amends.target}
        more |= {"emoji": body.amends.emoji, "reason": body.amends.reason}
        more |= {"is_off": None if body.amends.is_on else True}
    more |= {"reply_to": body.reply_to, "mentions": body.mentions or None}
    more = {name: value for name, value in more.items() if value is not None}
    if more:
        text += "\0" + msgspec.json.encode(more).decode()
    return hashlib.sha256(text.encode()).digest()


def key_row(message: Message) -> dict[str, Value]:
    """The row that answers a retry; it contains no text. The key of an erased entry has no hash
    any more."""
    return {
        "chat_id": message.chat_id,
        "client_message_id": message.client_message_id,
        "sequence": message.sequence,
        "prev_sequence": message.prev_sequence,
        "message_id": message.message_id,
        "sender_id": message.sender_id,
        "created_at": message.created_at_ms,
        "content_hash": None if message.is_deleted else said_hash(message),
        "ttl": message.created_at_ms // 1000 + KEY_LIFE_SECONDS,
    }


def earlier_send_of(row: Row | None, send: SendMessage, *, now_ms: int) -> EarlierSend | None:
    """What is stored under the key of a send; None if there is nothing or the key has expired:
    DynamoDB deletes expired rows up to two days late."""
    if row is None or row["ttl"] <= now_ms // 1000:
        return None
    answer = Appended(
        message_id=MessageId(row["message_id"]),
        sequence=row["sequence"],
        prev_sequence=row["prev_sequence"],
        created_at_ms=row["created_at"],
        deduplicated=True,
    )
    stored_hash = row.get("content_hash")
    is_same = stored_hash == said_hash(send)
    return EarlierSend(UserId(row["sender_id"]), answer, is_same, is_deleted=stored_hash is None)


# Reactions: one row for each user and emoji on a message. The key begins with the message, so the
# reactions to a page of messages are one range. Neither an emoji nor a user id has a space.


class Mark(msgspec.Struct, frozen=True):
    """An emoji of a user on a message, and the reaction that set it or took it back."""

    target: int
    emoji: str
    user_id: UserId
    sequence: int = 0
    """0: there was never a reaction."""
    is_on: bool = False


def mark_key(chat_id: ChatId, mark: Mark) -> dict[str, Value]:
    return {"chat_id": chat_id, "reaction": f"{mark.target:016d} {mark.emoji} {mark.user_id}"}


def mark_row(chat_id: ChatId, mark: Mark) -> dict[str, Value]:
    return mark_key(chat_id, mark) | {"sequence": mark.sequence, "is_on": mark.is_on}


def mark_of(row: Row) -> Mark:
    target, emoji, user_id = row["reaction"].split(" ")
    return Mark(int(target), emoji, UserId(user_id), row["sequence"], row["is_on"])


def marks_range(first: int, last: int) -> tuple[str, str]:
    """The keys of all reactions to the messages from `first` to `last`, these included."""
    return f"{first:016d} ", f"{last:016d}!"


def reactions_of(
    stored: StoredMessage, marks: Iterable[Mark], reader: UserId
) -> tuple[Reaction, ...]:
    """The reactions to a message, as a reader is told them. The counts are those of the message's
    own row; the marks may be older or newer than that row."""
    by_emoji: dict[str, list[Mark]] = {emoji: [] for emoji in stored.counts}
    for mark in marks:
        by_emoji.setdefault(mark.emoji, []).append(mark)
    found = []
    for emoji in sorted(by_emoji):
        own = [mark for mark in by_emoji[emoji] if mark.user_id == reader]
        on = sorted((mark.sequence, mark.user_id) for mark in by_emoji[emoji] if mark.is_on)
        count, sequence = stored.counts.get(emoji, (0, 0))
        if not count:
            # All users have taken it back. A mark that says otherwise is newer than the row: the
            # reader gets the entry that set it as an entry of its own.
            sequence = max(mark.sequence for mark in by_emoji[emoji])
            if on or sequence > stored.reacted_by:
                continue
        found.append(
            Reaction(
                emoji=emoji,
                count=count,
                sequence=sequence,
                is_own=bool(own) and own[0].is_on,
                own_sequence=own[0].sequence if own else 0,
                users=tuple(user_id for _, user_id in on[:REACTION_USERS_MAX]),
            )
        )
    return tuple(found)
