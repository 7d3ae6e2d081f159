-- Accounts that people delete.

-- Set: the account was deleted. The row stays: messages are by its id, and its name stays taken.
ALTER TABLE users ADD COLUMN deleted_at INTEGER;

-- Deletions that were begun: the account has still to leave its groups.
CREATE TABLE pending_deletions (
    user_id    TEXT    NOT NULL PRIMARY KEY,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
