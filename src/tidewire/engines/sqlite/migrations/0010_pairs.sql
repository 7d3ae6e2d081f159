-- The positions of a direct chat leave the indexes of lowest positions (engines/sqlite/pairs.py).
-- Members are found by their memberships.
DROP VIEW pending_deliveries;
CREATE VIEW pending_deliveries (user_id, chat_id, first_undelivered_sequence) AS
SELECT user_id, chat_id, first_undelivered_sequence
FROM (
    SELECT
        member.user_id,
        member.chat_id,
        (
            SELECT message.sequence
            FROM messages AS message
            WHERE message.chat_id = member.chat_id
                AND message.sequence > state.effective_delivered
                AND message.sender_id <> member.user_id
            ORDER BY message.sequence
            LIMIT 1
        ) AS first_undelivered_sequence
    FROM chat_memberships AS member
    CROSS JOIN delivery_state AS state
        ON state.user_id = member.user_id AND state.chat_id = member.chat_id
)
WHERE first_undelivered_sequence IS NOT NULL;
