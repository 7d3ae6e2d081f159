"""The reads of an inspection. Each is one short read transaction; each follows an index.

`newest` is the position of the last message when the inspection began: positions only grow, so
nothing that came later is among the rows.
"""

from typing import Final

from tidewire.engines.sqlite.stored import COLUMNS, IS_INDEXED, RAW

# Chats by id, and also those that only a counter, a member or a message names. The last two step
# from id to id through an index; they do not look at every row.
CHAT_IDS: Final = """
WITH RECURSIVE
of_messages (chat_id) AS (
    SELECT min(chat_id) FROM messages WHERE chat_id > :after
    UNION ALL
    SELECT (SELECT min(m.chat_id) FROM messages AS m WHERE m.chat_id > of_messages.chat_id)
    FROM of_messages WHERE of_messages.chat_id IS NOT NULL LIMIT :count
),
of_members (chat_id) AS (
    SELECT min(chat_id) FROM chat_memberships WHERE chat_id > :after
    UNION ALL
    SELECT (SELECT min(m.chat_id) FROM chat_memberships AS m WHERE m.chat_id > of_members.chat_id)
    FROM of_members WHERE of_members.chat_id IS NOT NULL LIMIT :count
)
SELECT chat_id FROM (
    SELECT * FROM (SELECT chat_id FROM chats WHERE chat_id > :after ORDER BY 1 LIMIT :count)
    UNION
    SELECT * FROM (SELECT chat_id FROM chat_counters WHERE chat_id > :after ORDER BY 1 LIMIT :count)
    UNION
    SELECT chat_id FROM of_messages WHERE chat_id IS NOT NULL
    UNION
    SELECT chat_id FROM of_members WHERE chat_id IS NOT NULL
)
ORDER BY chat_id LIMIT :count
"""

_LOWEST: Final = """
    iif(
        (SELECT chat_type FROM chats WHERE chats.chat_id = wanted.chat_id) = 'direct',
        (
            SELECT min(s.effective_{position}) FROM chat_memberships AS m
            CROSS JOIN delivery_state AS s ON s.user_id = m.user_id AND s.chat_id = m.chat_id
            WHERE m.chat_id = wanted.chat_id
        ),
        (
            SELECT min(effective_{position}) FROM delivery_state AS s INDEXED BY {position}_floor
            WHERE s.chat_id = wanted.chat_id AND s.joined_sequence IS NOT NULL
        )
    )
"""
"""The lowest position of a chat's members; a direct chat is in no index of them."""

CHAT: Final = f"""
SELECT
    wanted.chat_id,
    (SELECT chat_type FROM chats WHERE chats.chat_id = wanted.chat_id),
    coalesce((SELECT member_count FROM chats WHERE chats.chat_id = wanted.chat_id), 0),
    (SELECT sequence_counter FROM chat_counters AS c WHERE c.chat_id = wanted.chat_id),
    coalesce((SELECT max(sequence) FROM messages AS m WHERE m.chat_id = wanted.chat_id), 0),
    (SELECT pair_key FROM direct_chat_index AS d WHERE d.chat_id = wanted.chat_id),
    {_LOWEST.format(position="delivered")},
    {_LOWEST.format(position="read")},
    (
        SELECT group_concat(m.user_id) FROM chat_memberships AS m
        WHERE m.chat_id = wanted.chat_id AND m.blocked_at IS NOT NULL
    ),
    (
        SELECT group_concat(b.blocked_id) FROM chats
        CROSS JOIN chat_memberships AS m ON m.chat_id = chats.chat_id
        CROSS JOIN chat_memberships AS other
            ON other.chat_id = chats.chat_id AND other.user_id <> m.user_id
        CROSS JOIN user_blocks AS b ON b.user_id = m.user_id AND b.blocked_id = other.user_id
        WHERE chats.chat_id = wanted.chat_id AND chats.chat_type = 'direct'
    ),
    coalesce((SELECT closed_at FROM chats WHERE chats.chat_id = wanted.chat_id), 0) <> 0,
    coalesce((SELECT membership_version FROM chats WHERE chats.chat_id = wanted.chat_id), 1),
    coalesce((SELECT block_changes FROM chats WHERE chats.chat_id = wanted.chat_id), 0),
    (
        SELECT group_concat(r.user_id) FROM chat_memberships AS m
        CROSS JOIN group_refusals AS r ON r.user_id = m.user_id AND r.chat_id = m.chat_id
        WHERE m.chat_id = wanted.chat_id
    )
FROM (SELECT ? AS chat_id) AS wanted
"""  # noqa: S608 - constants

MEMBERS: Final = """
SELECT
    m.chat_id, m.user_id, m.role, m.joined_sequence, s.last_acked_sequence, s.last_read_sequence
FROM chat_memberships AS m
LEFT JOIN delivery_state AS s ON s.user_id = m.user_id AND s.chat_id = m.chat_id
WHERE m.chat_id > :after AND m.chat_id <= :last
ORDER BY m.chat_id, m.user_id
"""

_COLUMNS: Final = ", ".join(COLUMNS[1:])

# A message is identified by its position: if two have the same sequence, the border of a chunk does
# not lose one of them.
_MESSAGES: Final = """
SELECT position, {columns}
FROM messages
WHERE chat_id = :chat AND sequence >= :after
    AND (sequence > :after OR position > :after_position) AND position <= :newest
ORDER BY sequence, position LIMIT :count
"""
MESSAGES: Final = _MESSAGES.format(columns=_COLUMNS)
# The same for damaged rows: text comes as bytes, so no value can fail to be decoded.
MESSAGES_RAW: Final = _MESSAGES.format(columns=RAW)

# KEYS and IDS read the index alone, because it answers a retry, or a lookup by id.
KEYS: Final = """
SELECT client_message_id, position FROM messages INDEXED BY messages_by_key
WHERE chat_id = :chat AND client_message_id >= :after
    AND (client_message_id > :after OR position > :after_position) AND position <= :newest
ORDER BY client_message_id, position LIMIT :count
"""

# The same for all chats of a page at once, if they have few messages together. To count them is
# cheap: it looks at one index and stops at the limit.
COUNT_AHEAD: Final = """
SELECT count(*) FROM (
    SELECT 1 FROM messages INDEXED BY messages_by_sequence
    WHERE chat_id > :after AND chat_id <= :last LIMIT :count
)
"""

MESSAGES_AHEAD: Final = f"""
SELECT chat_id, position, {_COLUMNS}
FROM messages INDEXED BY messages_by_sequence
WHERE chat_id > :after AND chat_id <= :last AND position <= :newest
ORDER BY chat_id, sequence, position
"""  # noqa: S608 - constants

KEYS_AHEAD: Final = """
SELECT chat_id, client_message_id, position FROM messages INDEXED BY messages_by_key
WHERE chat_id > :after AND chat_id <= :last AND position <= :newest
ORDER BY chat_id, client_message_id, position
"""

IDS: Final = f"""
SELECT message_id, position FROM messages INDEXED BY messages_by_id
WHERE ({IS_INDEXED})
    AND message_id >= :after AND (message_id > :after OR position > :after_position)
    AND position <= :newest
ORDER BY message_id, position LIMIT :count
"""  # noqa: S608 - constants

# The ids that are in no index, with the place that they have to carry.
PLACED_IDS: Final = f"""
SELECT CAST(message_id AS BLOB), position, sequence FROM messages
WHERE position > :after AND position <= :newest AND NOT ({IS_INDEXED})
ORDER BY position LIMIT :count
"""  # noqa: S608 - constants

# A row of a direct chat does not repeat its membership's `joined_sequence`.
POSITIONS: Final = """
SELECT
    s.user_id, s.chat_id, s.last_acked_sequence, s.last_read_sequence,
    coalesce(s.joined_sequence, (
        SELECT m.joined_sequence FROM chats
        WHERE chats.chat_id = s.chat_id AND chat_type = 'direct'
    )),
    m.joined_sequence,
    coalesce((SELECT max(sequence) FROM messages WHERE messages.chat_id = s.chat_id), 0),
    (SELECT sequence_counter FROM chat_counters AS c WHERE c.chat_id = s.chat_id),
    EXISTS (SELECT 1 FROM chats WHERE chats.chat_id = s.chat_id),
    s.hidden_through
FROM delivery_state AS s
LEFT JOIN chat_memberships AS m ON m.chat_id = s.chat_id AND m.user_id = s.user_id
WHERE (s.user_id, s.chat_id) > (:after, :after_chat)
ORDER BY s.user_id, s.chat_id LIMIT :count
"""

PAIRS: Final = """
SELECT d.pair_key, d.chat_id, (SELECT chat_type FROM chats WHERE chats.chat_id = d.chat_id)
FROM direct_chat_index AS d WHERE d.pair_key > :after ORDER BY d.pair_key LIMIT :count
"""

# Messages that change. Text comes as bytes, so no value can fail to be decoded. Invalid JSON counts
# as empty: the message fails its checksum, and is reported because of that.


def _entry(table: str) -> str:
    """The columns in which an entry says what it is."""
    return (
        f"{table}.sequence, {table}.target, CAST({table}.extra AS BLOB), "
        f"CAST({table}.sender_id AS BLOB), {table}.content <> '', {table}.deleted_by"
    )


BORDER: Final = """
SELECT sequence FROM messages INDEXED BY messages_by_sequence
WHERE chat_id = :chat AND sequence > :after ORDER BY sequence LIMIT 1 OFFSET :count
"""

CHANGES: Final = f"""
WITH some AS (
    SELECT *, iif(json_valid(extra), extra, '{{}}') AS said FROM messages
    WHERE chat_id = :chat AND sequence > :after AND sequence <= :through AND position <= :newest
        AND (target IS NOT NULL OR extra IS NOT NULL OR deleted_by IS NOT NULL)
)
SELECT {_entry("some")},
    target.sequence, target.target IS NULL, target.content <> '', target.deleted_by,
    (
        SELECT deletion.target FROM messages AS deletion
        WHERE deletion.chat_id = some.chat_id AND deletion.sequence = some.deleted_by
            AND json_valid(deletion.extra) AND deletion.extra ->> 'kind' = 'delete'
    ),
    coalesce(
        (
            SELECT sequence FROM edits
            WHERE edits.chat_id = some.chat_id AND edits.target = some.target
                AND edits.sequence = some.sequence
        ),
        (
            SELECT sequence FROM reactions AS own
            WHERE own.chat_id = some.chat_id AND own.target = some.target
                AND own.emoji = some.said ->> 'emoji' AND own.user_id = some.sender_id
        )
    ),
    iif(
        some.said ->> 'emoji' IS NULL OR EXISTS (
            SELECT 1 FROM reactions AS later
            WHERE later.chat_id = some.chat_id AND later.target = some.target
                AND later.emoji = some.said ->> 'emoji' AND later.sequence > some.sequence
        ),
        NULL,
        (
            SELECT count(*) FROM reactions AS equal
            WHERE equal.chat_id = some.chat_id AND equal.target = some.target
                AND equal.emoji = some.said ->> 'emoji' AND equal.is_on
        )
    ),
    (
        SELECT CAST(group_concat(mention.user_id, ' ') AS BLOB)
        FROM json_each(some.said, '$.mentions') AS one
        CROSS JOIN mentions AS mention
            ON mention.user_id = one.value AND mention.chat_id = some.chat_id
            AND mention.sequence = some.sequence
    ),
    some.message_before,
    iif(before.target IS NULL, before.sequence, before.message_before)
FROM some
LEFT JOIN messages AS target
    ON target.chat_id = some.chat_id
    AND target.sequence = coalesce(some.target, some.said ->> 'reply_to')
LEFT JOIN messages AS before
    ON before.chat_id = some.chat_id AND before.sequence = some.prev_sequence
ORDER BY some.sequence
"""  # noqa: S608 - constants

_WITH_ENTRY: Final = f"""
    {_entry("entry")}, {{deleted}}
FROM {{table}} AS kept
LEFT JOIN messages AS entry
    ON entry.chat_id = kept.chat_id AND entry.sequence = kept.sequence
"""
_TARGET_DELETED: Final = """
EXISTS (
        SELECT 1 FROM messages AS target
        WHERE target.chat_id = kept.chat_id AND target.sequence = kept.target
            AND target.deleted_by IS NOT NULL
    )"""
KEPT_EDITS: Final = f"""
SELECT kept.chat_id, kept.target, kept.sequence, NULL, NULL, NULL,
{_WITH_ENTRY.format(table="edits", deleted=_TARGET_DELETED)}
WHERE (kept.chat_id, kept.target, kept.sequence) > (:after, :after_target, :after_sequence)
ORDER BY kept.chat_id, kept.target, kept.sequence LIMIT :count
"""
KEPT_REACTIONS: Final = f"""
SELECT kept.chat_id, kept.target, kept.sequence, kept.user_id, kept.emoji, kept.is_on,
{_WITH_ENTRY.format(table="reactions", deleted=_TARGET_DELETED)}
WHERE (kept.chat_id, kept.target, kept.emoji, kept.user_id)
    > (:after, :after_target, :after_emoji, :after_user)
ORDER BY kept.chat_id, kept.target, kept.emoji, kept.user_id LIMIT :count
"""
KEPT_MENTIONS: Final = f"""
SELECT kept.chat_id, NULL, kept.sequence, kept.user_id, NULL, NULL,
{_WITH_ENTRY.format(table="mentions", deleted="entry.deleted_by IS NOT NULL")}
WHERE (kept.user_id, kept.chat_id, kept.sequence) > (:after, :after_chat, :after_sequence)
ORDER BY kept.user_id, kept.chat_id, kept.sequence LIMIT :count
"""
