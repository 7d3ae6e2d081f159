"""Positions in the database: advancing them, and what is derived from them.

An advance costs the same in a chat of ten and of a thousand: the two lowest positions of a chat
come from an index that SQLite keeps.
"""

from collections.abc import Sequence
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
    summarise,
)
from tidewire.domain.errors import NotAMember, SequenceAboveHead
from tidewire.domain.events import Event, PositionsAdvanced
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.limits import UNREAD_MAX, UNREAD_SCAN_MAX
from tidewire.engines.sqlite.chats import access_chat

FIND_POSITIONS: Final = """
SELECT question.key, state.last_acked_sequence, state.last_read_sequence,
    coalesce((SELECT max(sequence) FROM messages WHERE chat_id = member.chat_id), 0)
FROM json_each(?) AS question
CROSS JOIN chat_memberships AS member
    ON member.chat_id = question.value ->> 0 AND member.user_id = question.value ->> 1
CROSS JOIN delivery_state AS state
    ON state.user_id = member.user_id AND state.chat_id = member.chat_id
"""

# The condition repeats what was read in the same transaction: a position never falls.
MOVE: Final = """
UPDATE delivery_state SET last_acked_sequence = ?1, last_read_sequence = ?2, updated_at = ?3
WHERE user_id = ?4 AND chat_id = ?5 AND last_acked_sequence <= ?1 AND last_read_sequence <= ?2
"""

LOWEST: Final = """
SELECT user_id, effective_{kind} FROM delivery_state
WHERE chat_id = ? AND joined_sequence IS NOT NULL
ORDER BY effective_{kind}, user_id LIMIT 2
"""
LOWEST_DELIVERED: Final = LOWEST.format(kind="delivered")
LOWEST_READ: Final = LOWEST.format(kind="read")

FIND_MEMBER_POSITIONS: Final = """
SELECT user_id, joined_sequence, last_acked_sequence, last_read_sequence, updated_at
FROM delivery_state INDEXED BY delivered_floor
WHERE chat_id = ? AND joined_sequence IS NOT NULL
ORDER BY user_id
"""

# The lowest of the others is one of the two lowest of all, so the inner queries look at two rows.
_STANDINGS: Final = f"""
WITH mine AS (
    SELECT chat.chat_id, chat.chat_type, chat.membership_version, state.joined_sequence,
        state.last_acked_sequence, state.last_read_sequence, state.effective_read,
        coalesce((SELECT max(sequence) FROM messages WHERE chat_id = chat.chat_id), 0) AS head
    FROM chat_memberships AS member
    CROSS JOIN chats AS chat ON chat.chat_id = member.chat_id
    CROSS JOIN delivery_state AS state
        ON state.user_id = member.user_id AND state.chat_id = member.chat_id
    WHERE member.user_id = ?1 AND member.chat_id {{compared}} ?2
    ORDER BY member.chat_id
    LIMIT ?3
)
SELECT chat_id, chat_type, head, membership_version, joined_sequence,
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
    )
FROM mine
ORDER BY chat_id
"""  # noqa: S608 - constants
DIGEST: Final = _STANDINGS.format(compared=">")
STANDING: Final = _STANDINGS.format(compared="=")


def advance(
    database: apsw.Connection, advances: Sequence[Advance], now_ms: int
) -> tuple[list[AdvanceOutcome], list[Event]]:
    """Inside the caller's transaction. See `PositionStore.advance` for the contract."""
    pairs = list(dict.fromkeys([(wish.chat_id, wish.user_id) for wish in advances]))
    question = msgspec.json.encode(pairs).decode()
    found = {
        pairs[index]: (Positions(delivered, read), head)
        for index, delivered, read, head in database.execute(FIND_POSITIONS, (question,))
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
    database.executemany(
        MOVE,
        [
            (after.delivered, after.read, now_ms, user_id, chat_id)
            for (chat_id, user_id), after in moved.items()
        ],
    )
    return outcomes, [
        PositionsAdvanced(chat_id, user_id, after) for (chat_id, user_id), after in moved.items()
    ]


def floors(database: apsw.Connection, chat_id: ChatId) -> Floors | None:
    row = database.execute(
        "SELECT coalesce((SELECT max(sequence) FROM messages WHERE chat_id = chats.chat_id), 0)"
        " FROM chats WHERE chat_id = ?",
        (chat_id,),
    ).fetchone()
    if row is None:
        return None
    return Floors(
        chat_id,
        row[0],
        _lowest(database, LOWEST_DELIVERED, chat_id),
        _lowest(database, LOWEST_READ, chat_id),
    )


def delivery_status(
    database: apsw.Connection, reader: UserId, chat_id: ChatId, sequence: int | None
) -> DeliveryStatus:
    chat = access_chat(database, reader, chat_id).chat
    sequence = chat.head if sequence is None else sequence
    if sequence > chat.head:
        raise SequenceAboveHead(sequence=sequence, head=chat.head)
    author = database.execute(
        "SELECT sender_id FROM messages WHERE chat_id = ? AND sequence = ?", (chat_id, sequence)
    ).fetchone()
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
        summary=summarise(sequence, author_id=author[0] if author else None, members=members),
        members=members,
    )


def digest(
    database: apsw.Connection, user_id: UserId, after: ChatId | None, count_max: int
) -> DigestPage:
    # One more than asked for tells if there is another page.
    rows: list[tuple[Any, ...]] = database.execute(
        DIGEST, (user_id, after or "", count_max + 1)
    ).fetchall()
    entries = _entries(rows[:count_max])
    return DigestPage(entries, entries[-1].chat_id if len(rows) > count_max else None)


def standing(database: apsw.Connection, user_id: UserId, chat_id: ChatId) -> DigestEntry | None:
    rows = database.execute(STANDING, (user_id, chat_id, 1)).fetchall()
    return next(iter(_entries(rows)), None)


def _entries(rows: list[tuple[Any, ...]]) -> list[DigestEntry]:
    return [
        DigestEntry(chat_id, ChatType(chat_type), *numbers) for chat_id, chat_type, *numbers in rows
    ]


def _lowest(database: apsw.Connection, query: str, chat_id: ChatId) -> Lowest:
    rows: list[tuple[Any, ...]] = database.execute(query, (chat_id,)).fetchall()
    if not rows:
        return Lowest(None, 0, None)
    return Lowest(rows[0][0], rows[0][1], rows[1][1] if len(rows) > 1 else None)
