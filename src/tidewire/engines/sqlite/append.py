"""The append: dedup, membership, sequence, message, counter and the author's positions, as one act.

The hot path of the store. Whatever concerns the whole batch is asked in one statement, which reads
its questions out of one JSON array: a fifth of the cost of a statement each. All answers come in
one row, for the reason that `bulk` gives.
"""

from collections.abc import Sequence
from typing import Any, Final

import apsw
import msgspec

from tidewire.domain.access import blocked
from tidewire.domain.damage import message_checksum
from tidewire.domain.delivery import Positions, positions_after_append, read_by_reply
from tidewire.domain.errors import CounterMissing, KeyReused, NotAMember
from tidewire.domain.events import Event, MessageAppended, PositionsAdvanced
from tidewire.domain.ids import ChatId, ClientMessageId, UserId
from tidewire.domain.limits import APPEND_SENDS_MAX, SEQUENCE_MAX
from tidewire.domain.messages import Appended, AppendOutcome, Message, SendMessage
from tidewire.engines.sqlite.bulk import execute_rows, for_rows
from tidewire.engines.sqlite.positions import MOVE_POSITIONS
from tidewire.engines.sqlite.stored import checked_head, message_of_row, whole

FIND_KEYS: Final = """
SELECT question.key, message.chat_id, message.sequence, message.prev_sequence,
    message.message_id, message.sender_id, message.client_message_id, message.content,
    message.content_type, message.created_at, message.checksum
FROM json_each(?) AS question
CROSS JOIN messages AS message
    ON message.chat_id = question.value ->> 0
    AND message.client_message_id = question.value ->> 1
"""

FIND_AUTHORS: Final = """
SELECT json_group_array(json_array(
    question.key, chat.membership_version, counter.sequence_counter,
    (SELECT max(sequence) FROM messages WHERE chat_id = chat.chat_id),
    member.joined_sequence, member.blocked_at IS NOT NULL,
    state.last_acked_sequence, state.last_read_sequence
))
FROM json_each(?) AS question
CROSS JOIN chats AS chat ON chat.chat_id = question.value ->> 0
CROSS JOIN chat_memberships AS member
    ON member.chat_id = chat.chat_id AND member.user_id = question.value ->> 1
CROSS JOIN delivery_state AS state
    ON state.user_id = member.user_id AND state.chat_id = member.chat_id
LEFT JOIN chat_counters AS counter ON counter.chat_id = chat.chat_id
"""

# The index alone: where the row of a key is, whatever the row has become.
FIND_KEY: Final = """
SELECT position FROM messages INDEXED BY messages_by_key
WHERE chat_id = ? AND client_message_id = ?
"""

INSERT_MESSAGES: Final = for_rows(
    """
INSERT OR FAIL INTO messages (chat_id, sequence, prev_sequence, message_id, sender_id,
    client_message_id, content, content_type, created_at, checksum)
VALUES {rows}
""",
    columns=10,
)

MOVE_COUNTERS: Final = for_rows(
    """
WITH moved (chat_id, sequence_counter, updated_at) AS (VALUES {rows})
UPDATE OR FAIL chat_counters
SET sequence_counter = moved.sequence_counter, updated_at = moved.updated_at
FROM moved WHERE chat_counters.chat_id = moved.chat_id
""",
    columns=3,
)

_encode: Final = msgspec.json.Encoder().encode
_decode_authors: Final = msgspec.json.Decoder(
    list[tuple[int, int, int | None, int | None, int, int, int, int]]
).decode


class _ChatState:
    """A chat as this batch leaves it."""

    __slots__ = ("counter", "head", "membership_version", "moved")

    def __init__(self, membership_version: int, counter: int | None, head: int | None) -> None:
        self.membership_version = membership_version
        self.counter = counter
        self.head = head or 0
        self.moved = False

    @property
    def is_writable(self) -> bool:
        """A counter that is gone, or behind its own messages, would give a sequence out twice."""
        return self.counter is not None and self.head <= self.counter < SEQUENCE_MAX


class _Author:
    """A member as this batch leaves him."""

    __slots__ = ("chat", "is_blocked", "joined_sequence", "moved", "positions")

    def __init__(
        self, chat: _ChatState, joined_sequence: int, is_blocked: int, positions: Positions
    ) -> None:
        self.chat = chat
        self.joined_sequence = joined_sequence
        self.is_blocked = is_blocked
        self.positions = positions
        self.moved = False


def append(
    database: apsw.Connection, sends: Sequence[SendMessage], now_ms: int
) -> tuple[list[AppendOutcome], list[Event]]:
    """Inside the caller's transaction. See `MessageStore.append` for the contract."""
    assert len(sends) <= APPEND_SENDS_MAX
    keys = [(send.chat_id, send.client_message_id) for send in sends]
    assert len(set(keys)) == len(keys), "one key twice in a batch"
    stored = _find_keys(database, keys)
    authors = _find_authors(database, sends)
    outcomes: list[AppendOutcome] = []
    events: list[Event] = []
    rows: list[tuple[str | int, ...]] = []
    for index, send in enumerate(sends):
        first = stored.get(index) if stored else None
        if first is not None and first.sender_id == send.sender_id:
            outcomes.append(_own_key(send, first))
            continue
        author = authors.get((send.chat_id, send.sender_id))
        if author is None:
            outcomes.append(NotAMember())
        elif author.is_blocked:
            outcomes.append(blocked())
        elif not author.chat.is_writable:
            outcomes.append(CounterMissing(send.chat_id))
        elif first is not None:
            # Who sent a damaged one is not known either: a member may be its sender.
            outcomes.append(_own_key(send, first) if first.is_damaged else KeyReused())
        else:
            outcomes.append(_place(send, author, now_ms, rows, events))
    if rows:
        _write(database, rows, authors, now_ms)
    return outcomes, events


def _find_keys(
    database: apsw.Connection, keys: Sequence[tuple[ChatId, ClientMessageId]]
) -> dict[int, Message]:
    """The messages that are stored under these keys already, by the key's place in the list."""
    found: dict[int, Message | None] = {}
    try:
        for row in database.execute(FIND_KEYS, (_encode(keys).decode(),)):
            found[row[0]] = whole(row[1:])
    except UnicodeDecodeError:
        # Text that is none any more: nothing of the statement's answer can be had.
        found = dict.fromkeys(range(len(keys)))
    if None not in found.values():
        return found  # type: ignore[return-value]
    return {
        index: message
        for index in found
        if (message := found[index] or _find_key(database, *keys[index])) is not None
    }


def _find_key(
    database: apsw.Connection, chat_id: ChatId, client_message_id: ClientMessageId
) -> Message | None:
    """The message of one key, read the careful way."""
    position: Any = database.execute(FIND_KEY, (chat_id, client_message_id)).get
    return None if position is None else message_of_row(database, chat_id, position)


def _find_authors(
    database: apsw.Connection, sends: Sequence[SendMessage]
) -> dict[tuple[ChatId, UserId], _Author]:
    """The senders that are members, with what the chats and their positions are now."""
    pairs = list(dict.fromkeys([(send.chat_id, send.sender_id) for send in sends]))
    chats: dict[ChatId, _ChatState] = {}
    authors = {}
    found = _decode_authors(database.execute(FIND_AUTHORS, (_encode(pairs).decode(),)).get)
    for index, version, counter, head, joined, is_blocked, delivered, read in found:
        pair = pairs[index]
        chat = chats.get(pair[0])
        if chat is None:
            if head != counter and (head or 0) != counter:
                # A new message names the one before it: a wrong number would break the chain.
                head = checked_head(database, pair[0], head, counter)
            chat = chats[pair[0]] = _ChatState(version, counter, head)
        authors[pair] = _Author(chat, joined, is_blocked, Positions(delivered, read))
    return authors


def _own_key(send: SendMessage, first: Message) -> AppendOutcome:
    """The answer to an id that its own sender has used before."""
    original = Appended(
        first.message_id,
        first.sequence,
        first.prev_sequence,
        first.created_at_ms,
        deduplicated=True,
    )
    is_same = first.content == send.content and first.content_type == send.content_type
    # Of a damaged one nothing is left to compare.
    if is_same or first.is_damaged:
        return original
    return KeyReused(original)


def _place(
    send: SendMessage,
    author: _Author,
    now_ms: int,
    rows: list[tuple[str | int, ...]],
    events: list[Event],
) -> Appended:
    """Give the message its place and move its author along."""
    chat = author.chat
    assert chat.counter is not None
    prev = chat.head
    sequence = chat.counter = chat.head = chat.counter + 1
    chat.moved = True
    fields = (
        send.chat_id,
        sequence,
        prev,
        send.message_id,
        send.sender_id,
        send.client_message_id,
        send.content,
        send.content_type,
        now_ms,
    )
    message = Message(*fields)
    rows.append((*fields, message_checksum(*fields)))
    events.append(MessageAppended(message, chat.membership_version, send.origin_connection_id))
    before = author.positions
    author.positions = after = positions_after_append(
        before,
        joined_sequence=author.joined_sequence,
        prev_sequence=prev,
        sequence=sequence,
        seen_sequence=send.seen_sequence,
    )
    if after != before:
        author.moved = True
        # Only the reading of others' messages is news to anybody.
        if (
            read_by_reply(before, prev_sequence=prev, seen_sequence=send.seen_sequence)
            > before.read
        ):
            events.append(PositionsAdvanced(send.chat_id, send.sender_id, after))
    return Appended(send.message_id, sequence, prev, now_ms, deduplicated=False)


def _write(
    database: apsw.Connection,
    rows: list[tuple[str | int, ...]],
    authors: dict[tuple[ChatId, UserId], _Author],
    now_ms: int,
) -> None:
    execute_rows(database, INSERT_MESSAGES, rows)
    counters = {
        chat_id: author.chat.counter
        for (chat_id, _), author in authors.items()
        if author.chat.moved and author.chat.counter is not None
    }
    execute_rows(
        database,
        MOVE_COUNTERS,
        [(chat_id, counter, now_ms) for chat_id, counter in counters.items()],
    )
    execute_rows(
        database,
        MOVE_POSITIONS,
        [
            (user_id, chat_id, author.positions.delivered, author.positions.read, now_ms)
            for (chat_id, user_id), author in authors.items()
            if author.moved
        ],
    )
