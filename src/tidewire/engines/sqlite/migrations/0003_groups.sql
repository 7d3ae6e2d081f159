-- Groups that can be closed, versions that tell nothing of blocks, hidden chats, and groups that a
-- user does not want to be added to again.

-- The table is made anew, because a closed chat has no members and SQLite keeps a CHECK for ever.
CREATE TABLE chats_anew (
    chat_id            TEXT    NOT NULL PRIMARY KEY,
    chat_type          TEXT    NOT NULL CHECK (chat_type IN ('direct', 'group')),
    name               TEXT,
    created_by         TEXT    NOT NULL,
    created_at         INTEGER NOT NULL,
    updated_at         INTEGER NOT NULL,
    membership_version INTEGER NOT NULL CHECK (membership_version >= 1),
    member_count       INTEGER NOT NULL,
    -- How many of the version's steps were blocks. Members are shown the version without them.
    block_changes      INTEGER NOT NULL DEFAULT 0
        CHECK (block_changes BETWEEN 0 AND membership_version - 1),
    closed_at          INTEGER,
    CHECK (CASE WHEN closed_at IS NULL THEN member_count >= 1 ELSE member_count = 0 END)
) STRICT, WITHOUT ROWID;

INSERT INTO chats_anew (chat_id, chat_type, name, created_by, created_at, updated_at,
    membership_version, member_count)
SELECT chat_id, chat_type, name, created_by, created_at, updated_at,
    membership_version, member_count
FROM chats;

DROP TABLE chats;

ALTER TABLE chats_anew RENAME TO chats;

-- The user does not see the chat until there is a message above this one.
ALTER TABLE delivery_state ADD COLUMN hidden_through INTEGER;

-- Groups that a user has left for good: nobody adds the user again.
CREATE TABLE group_refusals (
    user_id    TEXT    NOT NULL,
    chat_id    TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (user_id, chat_id)
) STRICT, WITHOUT ROWID;
