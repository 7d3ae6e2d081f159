"""Positions in the database: advancing them, and what is derived from them.

An advance costs the same in a chat of ten and of a thousand: the two lowest positions of a chat
come from an index that SQLite keeps.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import apsw
import msgspec

from tidewire.domain.chats import ChatType
from tidewire.domain.delivery import (
    Advance,
    Advanced,
    AdvanceOutcome,
    DeliveryStatus,
    DigestEntry,
    DigestPage,
    Floors,
    Lowest,
    MemberDelivery,
    Positions,
    is_hidden,
    summarise,
)
from tidewire.domain.errors import NotAMember, SequenceAboveHead, StoreDamaged
from tidewire.domain.events import Event, PositionsAdvanced
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.limits import UNREAD_MAX, UNREAD_SCAN_MAX
from tidewire.engines.sqlite.bulk import execute_rows, for_rows
from tidewire.engines.sqlite.chats import access_chat
from tidewire.engines.sqlite.stored import checked_head, message_at

FIND_POSITIONS: Final = """
SELECT json_group_array(json_array(
    question.key, state.last_acked_sequence, state.last_read_sequence,
    coalesce((SELECT max(sequence) FROM messages WHERE chat_id = member.chat_id), 0)
))
FROM json_each(?) AS question
CROSS JOIN chat_memberships AS member
    ON member.chat_id = question.value ->> 0 AND member.user_id = question.value ->> 1
CROSS JOIN delivery_state AS state
    ON state.user_id = member.user_id AND state.chat_id = member.chat_id
"""

# The condition repeats what was read in the same transaction: a position never falls.
MOVE_POSITIONS: Final = for_rows(
    """
WITH moved (user_id, chat_id, delivered, read, updated_at) AS (VALUES {rows})
UPDATE OR FAIL delivery_state
SET last_acked_sequence = moved.delivered, last_read_sequence = moved.read,
    updated_at = moved.updated_at
FROM moved
WHERE delivery_state.user_id = moved.user_id AND delivery_state.chat_id = moved.chat_id
    AND last_acked_sequence <= moved.delivered AND last_read_sequence <= moved.read
""",
    columns=5,
)

_LOWEST: Final = """
json((
        SELECT json_group_array(json_array(user_id, effective_{kind})) FROM (
            SELECT user_id, effective_{kind} FROM delivery_state
            WHERE chat_id = chat.chat_id AND joined_sequence IS NOT NULL
            ORDER BY effective_{kind}, user_id LIMIT 2
        )
    ))"""

FLOORS: Final = f"""
SELECT json_group_array(json_array(
    question.key,
    coalesce((SELECT max(sequence) FROM messages WHERE chat_id = chat.chat_id), 0),
    {_LOWEST.format(kind="delivered")},
    {_LOWEST.format(kind="read")}
))
FROM json_each(?) AS question
CROSS JOIN chats AS chat ON chat.chat_id = question.value AND chat.closed_at IS NULL
"""  # noqa: S608 - constants

FIND_MEMBER_POSITIONS: Final = """
SELECT user_id, joined_sequence, last_acked_sequence, last_read_sequence, updated_at
FROM delivery_state INDEXED BY delivered_floor
WHERE chat_id = ? AND joined_sequence IS NOT NULL
ORDER BY user_id
"""

# The lowest of the others is one of the two lowest of all, so the inner queries look at two rows.
_STANDINGS: Final = f"""
WITH mine AS (
    SELECT chat.chat_id, chat.chat_type,
        chat.membership_version - chat.block_changes AS shown_version, state.joined_sequence,
        state.last_acked_sequence, state.last_read_sequence, state.effective_read,
        state.hidden_through,
        coalesce((SELECT max(sequence) FROM messages WHERE chat_id = chat.chat_id), 0) AS head,
        (SELECT sequence_counter FROM chat_counters WHERE chat_id = chat.chat_id) AS counter
    FROM chat_memberships AS member
    CROSS JOIN chats AS chat ON chat.chat_id = member.chat_id
    CROSS JOIN delivery_state AS state
        ON state.user_id = member.user_id AND state.chat_id = member.chat_id
    WHERE member.user_id = ?1 AND member.chat_id {{compared}} ?2
    ORDER BY member.chat_id
    LIMIT ?3
)
SELECT chat_id, chat_type, counter, head, shown_version, joined_sequence,
    last_acked_sequence, last_read_sequence,
    coalesce((
        SELECT effective_delivered FROM delivery_state AS other
        WHERE other.chat_id = mine.chat_id AND other.joined_sequence IS NOT NULL
            AND other.user_id <> ?1
        ORDER BY effective_delivered LIMIT 1
    ), head),
    coalesce((
        SELECT effective_read FROM delivery_state AS other
        WHERE other.chat_id = mine.chat_id AND other.joined_sequence IS NOT NULL
            AND other.user_id <> ?1
        ORDER BY effective_read LIMIT 1
    ), head),
    (
        SELECT count(*) FROM (
            SELECT 1 FROM (
                SELECT sender_id FROM messages
                WHERE chat_id = mine.chat_id AND sequence > mine.effective_read
                ORDER BY sequence LIMIT {UNREAD_SCAN_MAX}
            ) WHERE sender_id <> ?1 LIMIT {UNREAD_MAX}
        )
    ),
    hidden_through
FROM mine
ORDER BY chat_id
"""  # noqa: S608 - constants
DIGEST: Final = _STANDINGS.format(compared=">")
STANDING: Final = _STANDINGS.format(compared="=")

_LowestRows = list[tuple[UserId, int]]

_decode_positions: Final = msgspec.json.Decoder(list[tuple[int, int, int, int]]).decode
_decode_floors: Final = msgspec.json.Decoder(list[tuple[int, int, _LowestRows, _LowestRows]]).decode


def advance(
    database: apsw.Connection, advances: Sequence[Advance], now_ms: int
) -> tuple[list[AdvanceOutcome], list[Event]]:
    """Inside the caller's transaction. See `PositionStore.advance` for the contract."""
    pairs = list(dict.fromkeys([(wish.chat_id, wish.user_id) for wish in advances]))
    question = msgspec.json.encode(pairs).decode()
    answer = database.execute(FIND_POSITIONS, (question,)).get
    found = {
        pairs[index]: (Positions(delivered, read), head)
        for index, delivered, read, head in _decode_positions(answer)
    }
    moved: dict[tuple[ChatId, UserId], Positions] = {}
    outcomes: list[AdvanceOutcome] = []
    for wish in advances:
        pair = (wish.chat_id, wish.user_id)
        if pair not in found:
            outcomes.append(NotAMember())
            continue
        before, head = found[pair]
        delivered = max(wish.delivered, wish.read)
        if delivered > head:
            outcomes.append(SequenceAboveHead(sequence=delivered, head=head))
            continue
        after = before.merged(Positions(delivered, wish.read))
        outcomes.append(Advanced(after, after != before))
        if after != before:
            found[pair] = (after, head)
            moved[pair] = after
    execute_rows(
        database,
        MOVE_POSITIONS,
        [
            (user_id, chat_id, after.delivered, after.read, now_ms)
            for (chat_id, user_id), after in moved.items()
        ],
    )
    return outcomes, [
        PositionsAdvanced(chat_id, user_id, after) for (chat_id, user_id), after in moved.items()
    ]


def floors(database: apsw.Connection, chat_ids: Sequence[ChatId]) -> list[Floors | None]:
    question = msgspec.json.encode(chat_ids).decode()
    found: list[Floors | None] = [None] * len(chat_ids)
    for index, head, delivered, read in _decode_floors(database.execute(FLOORS, (question,)).get):
        found[index] = Floors(chat_ids[index], head, _lowest(delivered), _lowest(read))
    return found


def delivery_status(
    database: apsw.Connection, reader: UserId, chat_id: ChatId, sequence: int | None
) -> DeliveryStatus:
    chat = access_chat(database, reader, chat_id).chat
    sequence = chat.head if sequence is None else sequence
    if sequence > chat.head:
        raise SequenceAboveHead(sequence=sequence, head=chat.head)
    message = message_at(database, chat_id, sequence)
    author_id = None if message is None or message.is_damaged else message.sender_id
    members = [
        MemberDelivery(
            user_id=user_id,
            joined_sequence=joined,
            positions=Positions(delivered, read),
            updated_at_ms=updated_at,
        )
        for user_id, joined, delivered, read, updated_at in database.execute(
            FIND_MEMBER_POSITIONS, (chat_id,)
        )
    ]
    return DeliveryStatus(
        chat_id=chat_id,
        chat_type=chat.chat_type,
        member_count=chat.member_count,
        summary=summarise(sequence, author_id=author_id, members=members),
        members=members,
    )


def digest(
    database: apsw.Connection, user_id: UserId, after: ChatId | None, count_max: int
) -> DigestPage:
    # One more than asked for tells if there is another page.
    rows: list[tuple[Any, ...]] = database.execute(
        DIGEST, (user_id, after or "", count_max + 1)
    ).fetchall()
    chat_ids = [after or "", *(row[0] for row in rows)]
    if any(one >= other for one, other in pairwise(chat_ids)):
        # Whoever asks for page after page would never come to an end.
        raise StoreDamaged(f"the chats of {user_id} are not in order")
    entries = _entries(database, rows[:count_max])
    return DigestPage(entries, entries[-1].chat_id if len(rows) > count_max else None)


def standing(database: apsw.Connection, user_id: UserId, chat_id: ChatId) -> DigestEntry | None:
    rows = database.execute(STANDING, (user_id, chat_id, 1)).fetchall()
    return next(iter(_entries(database, rows)), None)


def moved_at(
    database: apsw.Connection, user_id: UserId, chat_ids: Sequence[ChatId]
) -> dict[ChatId, int]:
    rows: list[Any] = database.execute(
        "SELECT chat_id, updated_at FROM delivery_state"
        " WHERE user_id = ? AND chat_id IN (SELECT value FROM json_each(?))",
        (user_id, msgspec.json.encode(chat_ids).decode()),
    ).fetchall()
    return dict(rows)


def _entries(database: apsw.Connection, rows: list[tuple[Any, ...]]) -> list[DigestEntry]:
    entries = []
    for chat_id, chat_type, counter, stored_head, *rest in rows:
        head = checked_head(database, chat_id, stored_head, counter)
        rest[-1] = is_hidden(rest[-1], head)
        entries.append(DigestEntry(chat_id, ChatType(chat_type), head, *rest))
    return entries


def _lowest(rows: _LowestRows) -> Lowest:
    if not rows:
        return Lowest(None, 0, None)
    return Lowest(rows[0][0], rows[0][1], rows[1][1] if len(rows) > 1 else None)
