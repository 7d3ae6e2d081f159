-- Accounts whose people have asked, as they deleted them, that their messages go too.
CREATE TABLE pending_erasures (
    user_id    TEXT    NOT NULL PRIMARY KEY,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
