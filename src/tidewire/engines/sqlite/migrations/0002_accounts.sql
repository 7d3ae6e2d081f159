-- Accounts: passwords, sessions, invites, external identities, blocks, keys of REST requests.
-- Of every secret only a hash is kept.

-- Set: the user cannot log in, and has no sessions.
ALTER TABLE users ADD COLUMN disabled_at INTEGER;
-- When the user was last allowed back.
ALTER TABLE users ADD COLUMN enabled_at INTEGER;

CREATE TABLE credentials (
    user_id       TEXT    NOT NULL PRIMARY KEY,
    password_hash TEXT    NOT NULL,
    updated_at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE external_identities (
    issuer     TEXT    NOT NULL,
    subject    TEXT    NOT NULL,
    user_id    TEXT    NOT NULL UNIQUE,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (issuer, subject)
) STRICT, WITHOUT ROWID;

CREATE TABLE invites (
    code_hash  BLOB    NOT NULL PRIMARY KEY,
    created_by TEXT,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    used_by    TEXT,
    used_at    INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX invites_by_expiry ON invites (expires_at);

-- Schema 1 made this table, and nothing ever wrote to it.
DROP TABLE sessions;

CREATE TABLE sessions (
    session_id         TEXT    NOT NULL PRIMARY KEY,
    user_id            TEXT    NOT NULL,
    device_id          TEXT,
    kind               TEXT    NOT NULL CHECK (kind IN ('login', 'bot')),
    label              TEXT,
    refresh_token_hash BLOB,
    prev_token_hash    BLOB,
    rotated_at         INTEGER,
    token_generation   INTEGER NOT NULL CHECK (token_generation >= 0),
    created_at         INTEGER NOT NULL,
    last_active_at     INTEGER NOT NULL,
    expires_at         INTEGER NOT NULL,
    CHECK ((kind = 'login') = (device_id IS NOT NULL AND refresh_token_hash IS NOT NULL))
) STRICT, WITHOUT ROWID;

-- One session per device. Bots have no device, and any number of sessions.
CREATE UNIQUE INDEX sessions_by_device ON sessions (user_id, device_id);
CREATE INDEX sessions_by_expiry ON sessions (expires_at);

CREATE TABLE user_blocks (
    user_id    TEXT    NOT NULL,
    blocked_id TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (user_id, blocked_id)
) STRICT, WITHOUT ROWID;

-- Set on the membership of the blocked one in the pair's direct chat, so that an append sees it in
-- the row that it reads anyway.
ALTER TABLE chat_memberships ADD COLUMN blocked_at INTEGER;

CREATE TABLE request_keys (
    user_id         TEXT    NOT NULL,
    endpoint        TEXT    NOT NULL,
    request_key     TEXT    NOT NULL,
    body_hash       BLOB    NOT NULL,
    state           TEXT    NOT NULL CHECK (state IN ('pending', 'done')),
    response_status INTEGER,
    resource_id     TEXT,
    created_at      INTEGER NOT NULL,
    claimed_at      INTEGER NOT NULL,
    PRIMARY KEY (user_id, endpoint, request_key)
) STRICT, WITHOUT ROWID;

CREATE INDEX request_keys_by_age ON request_keys (created_at);
