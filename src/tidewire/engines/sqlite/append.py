"""The append: dedup, membership, sequence, message, counter and the author's positions, as one act.

The hot path of the store. What has to be read for all sends of a batch is read in one statement: a
fifth of the cost of a statement each. Authors are read once, as long as what is `known` of them
stays true.
"""

from collections.abc import Sequence
from typing import Any, Final

import apsw
import msgspec
from msgspec.structs import astuple

from tidewire.domain.amendments import NO_FACTS
from tidewire.domain.append import AppendDecision, Author, ChatEnd, decide_append
from tidewire.domain.damage import message_checksum, plain_checksum
from tidewire.domain.delivery import NOWHERE, Positions
from tidewire.domain.events import Event
from tidewire.domain.ids import SYSTEM, ChatId, ClientMessageId
from tidewire.domain.limits import APPEND_SENDS_MAX
from tidewire.domain.messages import AppendOutcome, Message, SendMessage
from tidewire.domain.rows import NOT_PLAIN, row_of
from tidewire.engines.sqlite.amendments import Found, find_facts, messages_before, write_amendments
from tidewire.engines.sqlite.database import ask_rows, execute_rows, for_questions, for_rows
from tidewire.engines.sqlite.known import Known
from tidewire.engines.sqlite.positions import move_positions
from tidewire.engines.sqlite.stored import COLUMNS, checked_head, message_of_row, whole

FIND_KEYS: Final = for_questions(
    f"""
WITH question (number, chat_id, client_message_id) AS (VALUES {{rows}})
SELECT number, {", ".join(f"message.{column}" for column in COLUMNS)}
FROM question
CROSS JOIN messages AS message
    ON message.chat_id = question.chat_id
    AND message.client_message_id = question.client_message_id
""",  # noqa: S608 - constants
    columns=2,
)

FIND_AUTHORS: Final = """
SELECT json_group_array(json_array(
    question.key, chat.membership_version, counter.sequence_counter,
    (SELECT max(sequence) FROM messages WHERE chat_id = chat.chat_id),
    member.joined_sequence, member.blocked_at IS NOT NULL, member.role IN ('owner', 'admin'),
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

FIND_END: Final = """
SELECT membership_version,
    (SELECT sequence_counter FROM chat_counters WHERE chat_counters.chat_id = chats.chat_id),
    (SELECT max(sequence) FROM messages WHERE messages.chat_id = chats.chat_id)
FROM chats WHERE chat_id = ?
"""

# Reads the index alone: it says where the row of a key is, even if the row is damaged.
FIND_KEY: Final = """
SELECT position FROM messages INDEXED BY messages_by_key
WHERE chat_id = ? AND client_message_id = ?
"""

# The id of a new message carries its place: it needs no entry in the index of ids.
_INSERT: Final = "INSERT OR FAIL INTO messages (is_placed, {columns}) VALUES {{rows}}"
_PLAIN_COLUMNS: Final = (*COLUMNS[:NOT_PLAIN], "checksum")
INSERT_MESSAGES: Final = for_rows(
    _INSERT.format(columns=", ".join(_PLAIN_COLUMNS)), columns=len(_PLAIN_COLUMNS), first="1"
)
_ENTRY_COLUMNS: Final = (*COLUMNS, "message_before")
INSERT_ENTRIES: Final = for_rows(
    _INSERT.format(columns=", ".join(_ENTRY_COLUMNS)), columns=len(_ENTRY_COLUMNS), first="1"
)

MOVE_COUNTERS: Final = for_rows(
    """
WITH moved (chat_id, sequence_counter, updated_at) AS (VALUES {rows})
UPDATE OR FAIL chat_counters
SET sequence_counter = moved.sequence_counter, updated_at = moved.updated_at
FROM moved WHERE chat_counters.chat_id = moved.chat_id
""",
    columns=3,
    one="""
UPDATE OR FAIL chat_counters SET sequence_counter = ?2, updated_at = ?3 WHERE chat_id = ?1
""",
)

_encode: Final = msgspec.json.Encoder().encode
_decode_authors: Final = msgspec.json.Decoder(
    list[tuple[int, int, int | None, int | None, int, int, int, int, int]]
).decode


def append(
    database: apsw.Connection, sends: Sequence[SendMessage], now_ms: int, known: Known
) -> tuple[list[AppendOutcome], list[Event]]:
    """Inside the caller's transaction. See `MessageStore.append` for the contract."""
    assert len(sends) <= APPEND_SENDS_MAX
    keys = [(send.chat_id, send.client_message_id) for send in sends]
    assert len(set(keys)) == len(keys), "one key twice in a batch"
    known.look()
    stored = _find_keys(database, keys)
    _find_authors(database, sends, known)
    amending = [
        send
        for send in sends
        if send.amends is not None or send.reply_to is not None or send.mentions
    ]
    found = find_facts(database, amending) if amending else None
    facts = NO_FACTS if found is None else found.facts
    decision = decide_append(sends, stored, known.authors, now_ms, facts)
    if decision.messages:
        _write(database, decision, now_ms, found)
    known.keep()
    return decision.outcomes, decision.events


def _find_keys(
    database: apsw.Connection, keys: Sequence[tuple[ChatId, ClientMessageId]]
) -> dict[int, Message]:
    """The messages that are stored under these keys already, by the key's place in the list."""
    found: dict[int, Message | None] = {}
    try:
        for index, row in ask_rows(database, FIND_KEYS, keys):
            found[index] = whole(row)
    except UnicodeDecodeError:
        # A text is not UTF-8 any more: nothing of the statement's answer can be read.
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


def _find_authors(database: apsw.Connection, sends: Sequence[SendMessage], known: Known) -> None:
    """Have all senders who are members in `known`, with their chats and positions as of now."""
    authors, chats = known.authors, known.chats
    wanted = dict.fromkeys([(send.chat_id, send.sender_id) for send in sends])
    pairs = [pair for pair in wanted if pair not in authors]
    if not pairs:
        return
    for pair in pairs:
        if pair[1] == SYSTEM and (end := chats.get(pair[0]) or _find_end(database, pair[0])):
            chats[pair[0]] = end
            authors[pair] = Author(end, 0, NOWHERE, is_blocked=False, is_admin=True)
    found = _decode_authors(database.execute(FIND_AUTHORS, (_encode(pairs).decode(),)).get)
    for index, version, counter, head, joined, is_blocked, is_admin, delivered, read in found:
        pair = pairs[index]
        chat = chats.get(pair[0])
        if chat is None:
            if head != counter and (head or 0) != counter:
                # A new message names the one before it: a wrong number would break the chain.
                head = checked_head(database, pair[0], head, counter)
            chat = chats[pair[0]] = ChatEnd(version, counter, head or 0)
        authors[pair] = Author(
            chat,
            joined,
            Positions(delivered, read),
            is_blocked=bool(is_blocked),
            is_admin=bool(is_admin),
        )


def _find_end(database: apsw.Connection, chat_id: ChatId) -> ChatEnd | None:
    """The end of a chat, for entries that the server itself writes; None if there is no chat."""
    row: Any = database.execute(FIND_END, (chat_id,)).fetchone()
    if row is None:
        return None
    version, counter, head = row
    return ChatEnd(version, counter, checked_head(database, chat_id, head, counter))


def _write(
    database: apsw.Connection, decision: AppendDecision, now_ms: int, found: Found | None
) -> None:
    messages = decision.messages
    if found is None:
        rows = [(*astuple(message)[:NOT_PLAIN], plain_checksum(message)) for message in messages]
        execute_rows(database, INSERT_MESSAGES, rows)
    else:
        before = messages_before(messages, found)
        rows = [
            (*row_of(message), message_checksum(message), message_before)
            for message, message_before in zip(messages, before, strict=True)
        ]
        execute_rows(database, INSERT_ENTRIES, rows)
        write_amendments(database, decision, found)
    execute_rows(
        database,
        MOVE_COUNTERS,
        [(chat_id, counter, now_ms) for chat_id, counter in decision.counters.items()],
    )
    move_positions(database, decision.positions, now_ms)
