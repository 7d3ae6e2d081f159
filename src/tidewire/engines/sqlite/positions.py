"""Positions in the database: advancing them, and what is derived from them.

An advance costs the same in a chat of ten and of a thousand: the two lowest positions of a group
come from an index that SQLite keeps. A direct chat's are in no index: there are only two.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import apsw
import msgspec

from tidewire.domain.advance import decide_advances
from tidewire.domain.chats import ChatType
from tidewire.domain.delivery import (
    Advance,
    AdvanceOutcome,
    DeliveryStatus,
    DigestEntry,
    DigestPage,
    Floors,
    MemberDelivery,
    Positions,
    is_hidden,
    lowest_of,
    status_of,
    status_sequence,
)
from tidewire.domain.errors import StoreDamaged
from tidewire.domain.events import PositionsAdvanced
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.limits import SEQUENCE_MAX, UNREAD_MAX, UNREAD_SCAN_MAX
from tidewire.domain.messages import MENTION_ALL
from tidewire.engines.sqlite.chats import access_chat
from tidewire.engines.sqlite.database import execute_rows, for_rows
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

# The rows of a move were read before, so each one conflicts and is updated; none is inserted. An
# UPDATE FROM would be plainer, but puts all rows into a table of its own first, which costs half as
# much again. The condition repeats a check of the same transaction: a position never falls.
MOVE_POSITIONS: Final = for_rows(
    """
INSERT OR FAIL INTO delivery_state (
    user_id, chat_id, last_acked_sequence, last_read_sequence, updated_at
) VALUES {rows}
ON CONFLICT (user_id, chat_id) DO UPDATE
SET last_acked_sequence = excluded.last_acked_sequence,
    last_read_sequence = excluded.last_read_sequence, updated_at = excluded.updated_at
WHERE last_acked_sequence <= excluded.last_acked_sequence
    AND last_read_sequence <= excluded.last_read_sequence
""",
    columns=5,
)

_PAIR: Final = """
chat_memberships AS member
                CROSS JOIN delivery_state AS state
                    ON state.user_id = member.user_id AND state.chat_id = member.chat_id"""

_LOWEST: Final = f"""
json(iif(
        chat.chat_type = 'direct',
        (
            SELECT json_group_array(json_array(member.user_id, state.effective_{{kind}}))
            FROM {_PAIR}
            WHERE member.chat_id = chat.chat_id
        ),
        (
            SELECT json_group_array(json_array(user_id, effective_{{kind}})) FROM (
                SELECT user_id, effective_{{kind}} FROM delivery_state
                WHERE chat_id = chat.chat_id AND joined_sequence IS NOT NULL
                ORDER BY effective_{{kind}}, user_id LIMIT 2
            )
        )
    ))"""  # noqa: S608 - constants

FLOORS: Final = f"""
SELECT json_group_array(json_array(
    question.key,
    chat.membership_version,
    coalesce((SELECT max(sequence) FROM messages WHERE chat_id = chat.chat_id), 0),
    {_LOWEST.format(kind="delivered")},
    {_LOWEST.format(kind="read")}
))
FROM json_each(?) AS question
CROSS JOIN chats AS chat ON chat.chat_id = question.value AND chat.closed_at IS NULL
"""  # noqa: S608 - constants

FIND_MEMBER_POSITIONS: Final = """
SELECT member.user_id, member.joined_sequence, last_acked_sequence, last_read_sequence, updated_at
FROM chat_memberships AS member
CROSS JOIN delivery_state AS state
    ON state.user_id = member.user_id AND state.chat_id = member.chat_id
WHERE member.chat_id = ?
ORDER BY member.user_id
"""

# The lowest of the others is one of the two lowest of all, so this looks at two rows.
_LOWEST_OF_OTHERS: Final = f"""
coalesce(iif(
        mine.chat_type = 'direct',
        (
            SELECT state.effective_{{kind}}
            FROM {_PAIR}
            WHERE member.chat_id = mine.chat_id AND member.user_id <> ?1
        ),
        (
            SELECT effective_{{kind}} FROM delivery_state AS other
            WHERE other.chat_id = mine.chat_id AND other.joined_sequence IS NOT NULL
                AND other.user_id <> ?1
            ORDER BY effective_{{kind}} LIMIT 1
        )
    ), head)"""  # noqa: S608 - constants

# A few entries are looked at one by one. Of many, most may be reactions, which must not hide a
# message and are too many to look at: then the messages are visited from the last one down, and
# `message_before` skips the entries between two of them.
_MESSAGE_BELOW: Final = """
SELECT iif(target IS NULL, sequence, message_before) FROM messages
                WHERE chat_id = mine.chat_id AND sequence < {border}
                ORDER BY sequence DESC LIMIT 1"""
_COUNT_OTHERS: Final = f"""
iif(
        (SELECT max(sequence) FROM messages WHERE chat_id = mine.chat_id)
            - mine.effective_{{kind}} <= {UNREAD_SCAN_MAX},
        (
            SELECT count(*) FROM (
                SELECT 1 FROM messages INDEXED BY messages_by_sequence
                WHERE chat_id = mine.chat_id AND sequence > mine.effective_{{kind}}
                    AND sender_id <> ?1 AND target IS NULL AND deleted_by IS NULL
                LIMIT {UNREAD_MAX}
            )
        ),
        (
            WITH RECURSIVE visited (sequence) AS (
                SELECT ({_MESSAGE_BELOW.format(border=SEQUENCE_MAX + 1)})
                UNION ALL
                SELECT ({_MESSAGE_BELOW.format(border="visited.sequence")})
                FROM visited WHERE visited.sequence > mine.effective_{{kind}}
                LIMIT {UNREAD_SCAN_MAX}
            )
            SELECT count(*) FROM (
                SELECT 1 FROM visited
                CROSS JOIN messages AS message
                    ON message.chat_id = mine.chat_id AND message.sequence = visited.sequence
                WHERE visited.sequence > mine.effective_{{kind}}
                    AND sender_id <> ?1 AND deleted_by IS NULL
                LIMIT {UNREAD_MAX}
            )
        )
    )"""  # noqa: S608 - constants
"""Messages of others above a position of the user ?1 in the chat of `mine`."""
UNREAD: Final = _COUNT_OTHERS.format(kind="read")
UNDELIVERED: Final = _COUNT_OTHERS.format(kind="delivered")

_MENTIONED: Final = """
SELECT sequence FROM mentions
            WHERE user_id = {user} AND chat_id = mine.chat_id
                AND sequence > mine.effective_read AND sender_id <> ?1"""
MENTIONS_UNREAD: Final = f"""
(
        SELECT count(*) FROM (
            {_MENTIONED.format(user="?1")}
            UNION
            {_MENTIONED.format(user=f"'{MENTION_ALL}'")}
            LIMIT {UNREAD_MAX}
        )
    )"""  # noqa: S608 - constants
"""Unread messages of others that mention the user ?1, or all."""

_STANDINGS: Final = f"""
WITH mine AS (
    SELECT chat.chat_id, chat.chat_type,
        chat.membership_version - chat.block_changes AS shown_version, member.joined_sequence,
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
SELECT json_group_array(json_array(
    chat_id, chat_type, counter, head, shown_version, joined_sequence,
    last_acked_sequence, last_read_sequence,
    {_LOWEST_OF_OTHERS.format(kind="delivered")},
    {_LOWEST_OF_OTHERS.format(kind="read")},
    {UNREAD},
    hidden_through,
    {MENTIONS_UNREAD}
))
FROM mine
"""  # noqa: S608 - constants
DIGEST: Final = _STANDINGS.format(compared=">")
STANDING: Final = _STANDINGS.format(compared="=")

_LowestRows = list[tuple[UserId, int]]

_StandingRow = tuple[
    ChatId, ChatType, int | None, int, int, int, int, int, int, int, int, int | None, int
]

_decode_standings: Final = msgspec.json.Decoder(list[_StandingRow]).decode
_decode_positions: Final = msgspec.json.Decoder(list[tuple[int, int, int, int]]).decode
_decode_floors: Final = msgspec.json.Decoder(
    list[tuple[int, int, int, _LowestRows, _LowestRows]]
).decode


def advance(
    database: apsw.Connection, advances: Sequence[Advance], now_ms: int
) -> tuple[list[AdvanceOutcome], Sequence[PositionsAdvanced]]:
    """Inside the caller's transaction. See `PositionStore.advance` for the contract."""
    pairs = list(dict.fromkeys([(wish.chat_id, wish.user_id) for wish in advances]))
    question = msgspec.json.encode(pairs).decode()
    answer = database.execute(FIND_POSITIONS, (question,)).get
    found = {
        pairs[index]: (Positions(delivered, read), head)
        for index, delivered, read, head in _decode_positions(answer)
    }
    decision = decide_advances(advances, found)
    move_positions(database, decision.moved, now_ms)
    return decision.outcomes, decision.events


def move_positions(
    database: apsw.Connection, moved: Mapping[tuple[ChatId, UserId], Positions], now_ms: int
) -> None:
    execute_rows(
        database,
        MOVE_POSITIONS,
        [
            (user_id, chat_id, after.delivered, after.read, now_ms)
            for (chat_id, user_id), after in moved.items()
        ],
    )


def floors(database: apsw.Connection, chat_ids: Sequence[ChatId]) -> list[Floors | None]:
    question = msgspec.json.encode(chat_ids).decode()
    found: list[Floors | None] = [None] * len(chat_ids)
    rows = _decode_floors(database.execute(FLOORS, (question,)).get)
    for index, version, head, delivered, read in rows:
        found[index] = Floors(chat_ids[index], version, head, lowest_of(delivered), lowest_of(read))
    return found


def delivery_status(
    database: apsw.Connection, reader: UserId, chat_id: ChatId, sequence: int | None
) -> DeliveryStatus:
    chat = access_chat(database, reader, chat_id).chat
    wanted = status_sequence(sequence, chat.head)
    message = message_at(database, chat_id, wanted)
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
    return status_of(chat_id, chat.chat_type, wanted, author_id=author_id, members=members)


def digest(
    database: apsw.Connection, user_id: UserId, *, after: ChatId | None, count_max: int
) -> DigestPage:
    # One more than asked for tells if there is another page.
    rows = _standings(database, DIGEST, user_id, after or "", count_max + 1)
    chat_ids = [after or "", *(row[0] for row in rows)]
    if any(one >= other for one, other in pairwise(chat_ids)):
        # A client that asks for page after page would never reach the end.
        raise StoreDamaged(f"the chats of {user_id} are not in order")
    entries = _entries(database, rows[:count_max])
    return DigestPage(entries, entries[-1].chat_id if len(rows) > count_max else None)


def standing(database: apsw.Connection, user_id: UserId, chat_id: ChatId) -> DigestEntry | None:
    rows = _standings(database, STANDING, user_id, chat_id, 1)
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


def _standings(
    database: apsw.Connection, query: str, user_id: UserId, chat_id: str, count_max: int
) -> list[_StandingRow]:
    # All rows in one: each step of SQLite releases the interpreter's lock. They come in the order
    # of `mine`; `digest` checks that.
    return _decode_standings(database.execute(query, (user_id, chat_id, count_max)).get)


def _entries(database: apsw.Connection, rows: list[_StandingRow]) -> list[DigestEntry]:
    entries = []
    for row in rows:
        chat_id, chat_type, counter, stored_head, version, joined, delivered, read = row[:8]
        others_delivered, others_read, unread, hidden_through, mentions_unread = row[8:]
        head = checked_head(database, chat_id, stored_head, counter)
        entries.append(
            DigestEntry(
                chat_id,
                chat_type,
                head,
                version,
                joined,
                delivered,
                read,
                others_delivered,
                others_read,
                unread,
                is_hidden(hidden_through, head),
                mentions_unread,
            )
        )
    return entries
