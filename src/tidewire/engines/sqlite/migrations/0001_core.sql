-- The core: messages, chats, members, positions, people.
-- Times are milliseconds since 1970 (UTC); ids are text, so that the file can be read with a shell.

CREATE TABLE store_meta (
    key   TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE users (
    user_id      TEXT    NOT NULL PRIMARY KEY,
    username     TEXT    NOT NULL COLLATE NOCASE UNIQUE,
    display_name TEXT    NOT NULL,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE sessions (
    session_id         TEXT    NOT NULL PRIMARY KEY,
    user_id            TEXT    NOT NULL,
    device_id          TEXT    NOT NULL,
    refresh_token_hash BLOB    NOT NULL,
    prev_token_hash    BLOB,
    token_family       TEXT    NOT NULL,
    token_generation   INTEGER NOT NULL DEFAULT 0,
    created_at         INTEGER NOT NULL,
    last_active_at     INTEGER NOT NULL,
    expires_at         INTEGER NOT NULL,
    UNIQUE (user_id, device_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE chats (
    chat_id            TEXT    NOT NULL PRIMARY KEY,
    chat_type          TEXT    NOT NULL CHECK (chat_type IN ('direct', 'group')),
    name               TEXT,
    created_by         TEXT    NOT NULL,
    created_at         INTEGER NOT NULL,
    updated_at         INTEGER NOT NULL,
    membership_version INTEGER NOT NULL CHECK (membership_version >= 1),
    member_count       INTEGER NOT NULL CHECK (member_count >= 1)
) STRICT, WITHOUT ROWID;

-- The last sequence given out. Made with its chat, never deleted; a missing row blocks the chat.
CREATE TABLE chat_counters (
    chat_id                 TEXT    NOT NULL PRIMARY KEY,
    sequence_counter        INTEGER NOT NULL CHECK (sequence_counter >= 0),
    created_at              INTEGER NOT NULL,
    updated_at              INTEGER NOT NULL,
    recovered_at            INTEGER,
    recovered_from_sequence INTEGER
) STRICT, WITHOUT ROWID;

-- The position is the order of commit over all chats.
CREATE TABLE messages (
    position          INTEGER NOT NULL PRIMARY KEY,
    chat_id           TEXT    NOT NULL,
    sequence          INTEGER NOT NULL CHECK (sequence > prev_sequence),
    prev_sequence     INTEGER NOT NULL CHECK (prev_sequence >= 0),
    message_id        TEXT    NOT NULL,
    sender_id         TEXT    NOT NULL,
    client_message_id TEXT    NOT NULL,
    content           TEXT    NOT NULL,
    content_type      TEXT    NOT NULL,
    created_at        INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX messages_by_sequence ON messages (chat_id, sequence);
-- The idempotency key: one client_message_id in a chat is one message, for ever.
CREATE UNIQUE INDEX messages_by_key ON messages (chat_id, client_message_id);
CREATE UNIQUE INDEX messages_by_id ON messages (message_id);

CREATE TABLE chat_memberships (
    chat_id         TEXT    NOT NULL,
    user_id         TEXT    NOT NULL,
    role            TEXT    NOT NULL CHECK (role IN ('owner', 'admin', 'member')),
    joined_at       INTEGER NOT NULL,
    joined_sequence INTEGER NOT NULL CHECK (joined_sequence >= 0),
    added_by        TEXT    NOT NULL,
    muted_until     INTEGER,
    PRIMARY KEY (chat_id, user_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX user_chats ON chat_memberships (user_id, chat_id);

-- Two positions per user and chat; the row outlives the membership. While the user is a member,
-- joined_sequence repeats that of his membership, so that the effective positions can be indexed:
-- the two lowest of a chat are found without looking at the rest.
CREATE TABLE delivery_state (
    user_id             TEXT    NOT NULL,
    chat_id             TEXT    NOT NULL,
    last_acked_sequence INTEGER NOT NULL DEFAULT 0 CHECK (last_acked_sequence >= 0),
    last_read_sequence  INTEGER NOT NULL DEFAULT 0 CHECK (last_read_sequence >= 0),
    updated_at          INTEGER NOT NULL,
    joined_sequence     INTEGER,
    effective_delivered INTEGER NOT NULL
        GENERATED ALWAYS AS (max(last_acked_sequence, coalesce(joined_sequence, 0))) VIRTUAL,
    effective_read      INTEGER NOT NULL
        GENERATED ALWAYS AS (max(last_read_sequence, coalesce(joined_sequence, 0))) VIRTUAL,
    PRIMARY KEY (user_id, chat_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX delivered_floor ON delivery_state (chat_id, effective_delivered)
    WHERE joined_sequence IS NOT NULL;
CREATE INDEX read_floor ON delivery_state (chat_id, effective_read)
    WHERE joined_sequence IS NOT NULL;

CREATE TABLE direct_chat_index (
    pair_key   TEXT    NOT NULL PRIMARY KEY,
    chat_id    TEXT    NOT NULL UNIQUE,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Who still has to receive what. Derived, never stored: a second copy could only be wrong.
CREATE VIEW pending_deliveries (user_id, chat_id, first_undelivered_sequence) AS
SELECT user_id, chat_id, first_undelivered_sequence
FROM (
    SELECT
        state.user_id,
        state.chat_id,
        (
            SELECT message.sequence
            FROM messages AS message
            WHERE message.chat_id = state.chat_id
                AND message.sequence > state.effective_delivered
                AND message.sender_id <> state.user_id
            ORDER BY message.sequence
            LIMIT 1
        ) AS first_undelivered_sequence
    FROM delivery_state AS state
    WHERE state.joined_sequence IS NOT NULL
)
WHERE first_undelivered_sequence IS NOT NULL;
