"""The file of a client's store: who may open it, its tables, and the migration of an older one.

A store has a schema version, its `user_version`. A new store gets every step in turn, an older one
the steps that it lacks, in the transaction that opens it: after a crash it has the old version or
the new one. A newer version is refused.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import apsw

from tidewire.client.errors import StoreUnusable

MEMORY: Final = ":memory:"
APPLICATION_ID: Final = 0x54574343
"""The letters TWCC: a Tidewire client's."""

_SCHEMA: Final = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE chats (
    number INTEGER PRIMARY KEY, chat_id TEXT NOT NULL UNIQUE, chat_type TEXT NOT NULL, name TEXT,
    membership_version INTEGER NOT NULL, is_member INTEGER NOT NULL, start INTEGER NOT NULL,
    cursor INTEGER NOT NULL, head INTEGER NOT NULL, delivered INTEGER NOT NULL,
    read INTEGER NOT NULL, others_delivered INTEGER NOT NULL, others_read INTEGER NOT NULL,
    unread INTEGER NOT NULL,
    doubted_through INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE messages (
    position INTEGER PRIMARY KEY, chat INTEGER NOT NULL, sequence INTEGER NOT NULL,
    prev_sequence INTEGER NOT NULL, message_id TEXT NOT NULL, sender_id TEXT NOT NULL,
    client_message_id TEXT NOT NULL, content TEXT NOT NULL, content_type TEXT NOT NULL,
    created_at TEXT NOT NULL, is_own INTEGER NOT NULL, is_gone INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX messages_by_sequence ON messages (chat, sequence) WHERE is_gone = 0;
CREATE INDEX messages_by_own_id ON messages (client_message_id) WHERE is_own = 1;
CREATE TABLE happenings (position INTEGER PRIMARY KEY, kind TEXT NOT NULL, body TEXT NOT NULL);
CREATE TABLE outbox (
    client_message_id TEXT PRIMARY KEY, number INTEGER NOT NULL, chat_id TEXT NOT NULL,
    content TEXT NOT NULL, content_type TEXT NOT NULL, seen_sequence INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL, left_at_ms INTEGER, state TEXT NOT NULL, code TEXT, reason TEXT
) WITHOUT ROWID;
"""

_ENTRIES: Final = """
-- Messages become entries of a log. `kind` is null for a message; `target` is there if the entry
-- amends that message, and null in an entry that is only held. `extra` is that of `domain.rows`.
ALTER TABLE messages RENAME TO entries;
ALTER TABLE entries ADD COLUMN kind TEXT;
ALTER TABLE entries ADD COLUMN target INTEGER;
ALTER TABLE entries ADD COLUMN extra TEXT;
ALTER TABLE entries ADD COLUMN is_deleted INTEGER NOT NULL DEFAULT 0;
ALTER TABLE entries ADD COLUMN is_mention INTEGER NOT NULL DEFAULT 0;
-- Many reactions neither hide a message nor cost a scan.
CREATE INDEX messages_alone ON entries (chat, sequence) WHERE kind IS NULL AND is_gone = 0;
CREATE INDEX entries_by_target ON entries (chat, target, sequence) WHERE target IS NOT NULL;
CREATE INDEX entries_gone ON entries (chat, sequence) WHERE is_gone = 1;
CREATE INDEX mentions ON entries (chat, sequence) WHERE is_mention = 1;

-- What has become of messages, held or not: the fold of the entries that are held. Only a deletion
-- may also be known from elsewhere, and stays for ever.
CREATE TABLE nows (
    in_chat INTEGER NOT NULL, of_sequence INTEGER NOT NULL, new_content TEXT,
    edited_sequence INTEGER NOT NULL, deleted_sequence INTEGER NOT NULL, reactions TEXT,
    PRIMARY KEY (in_chat, of_sequence)
) WITHOUT ROWID;
CREATE INDEX nows_deleted ON nows (in_chat, of_sequence) WHERE deleted_sequence > 0;

ALTER TABLE chats ADD COLUMN mentions_unread INTEGER NOT NULL DEFAULT 0;
ALTER TABLE outbox ADD COLUMN reply_to INTEGER;
ALTER TABLE outbox ADD COLUMN mentions TEXT NOT NULL DEFAULT '[]';
ALTER TABLE outbox ADD COLUMN amends TEXT;
ALTER TABLE outbox ADD COLUMN base INTEGER;
ALTER TABLE outbox ADD COLUMN target_key TEXT;
CREATE INDEX outbox_amendments ON outbox (chat_id) WHERE amends IS NOT NULL;
CREATE INDEX refusals ON happenings (position) WHERE kind = 'refused';

-- To a client that did not know entries the server told them as messages without content, which are
-- of no use now. They are fetched again, as what they are: the chat is synced from there on.
UPDATE chats SET cursor = max(start, min(cursor, first_one)) FROM (
    SELECT chat, min(prev_sequence) AS first_one FROM entries
    WHERE content = '' AND is_gone = 0 GROUP BY chat
) WHERE number = chat;
DELETE FROM entries WHERE content = '' AND is_gone = 0;
"""


def _steps() -> tuple[str, ...]:
    return (_SCHEMA, _ENTRIES)


SCHEMA_VERSION: Final = len(_steps())


def connect(path: str) -> apsw.Connection:
    """Open the file, new or old, for this process alone. Raises StoreUnusable."""
    is_file = path != MEMORY
    try:
        if is_file:
            # The tokens are in here: no other user may read the file, from its first instant on. A
            # file that exists is not opened: closing it would release our locks on it.
            with suppress(FileExistsError):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            Path(path).chmod(0o600)
        database = apsw.Connection(path)
    except (OSError, apsw.Error) as error:
        raise StoreUnusable(f"cannot open the store {path}: {error}") from error
    try:
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("PRAGMA wal_autocheckpoint = 4000")
        database.execute("PRAGMA temp_store = memory")
        database.execute("PRAGMA trusted_schema = OFF")
        # Deleted data must not stay in the free space of the file.
        database.execute("PRAGMA secure_delete = ON")
        database.execute("BEGIN EXCLUSIVE")
        _make_schema(database, path)
        database.execute("COMMIT")
        # A process that was killed may have left erased texts in the write-ahead log.
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except (apsw.BusyError, apsw.LockedError) as error:
        database.close()
        raise StoreUnusable(
            f"the store {path} is in use by another process; "
            "end that one first, or give this one a store of its own"
        ) from error
    except apsw.Error as error:
        database.close()
        raise StoreUnusable(f"the store {path} cannot be used: {error}") from error
    except StoreUnusable:
        database.close()
        raise
    database.create_scalar_function("folded", _folded, 1, deterministic=True)
    return database


def _make_schema(database: apsw.Connection, path: str) -> None:
    version, application_id = (
        single(database, "PRAGMA user_version"),
        single(database, "PRAGMA application_id"),
    )
    is_new = version == 0 and application_id == 0
    if is_new and single(database, "SELECT count(*) FROM sqlite_schema"):
        raise StoreUnusable(f"{path} is a database of some other program; name another file")
    if is_new:
        database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    elif application_id != APPLICATION_ID:
        raise StoreUnusable(f"{path} is a database of some other program; name another file")
    elif version > SCHEMA_VERSION:
        raise StoreUnusable(
            f"{path} was written by a newer Tidewire (its form is {version}, this one knows "
            f"{SCHEMA_VERSION}); install that one"
        )
    for step in _steps()[version:]:
        database.execute(step)
    database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def single(database: apsw.Connection, query: str) -> Any:
    """The one value that a query has."""
    row = database.execute(query).fetchone()
    assert row is not None
    return row[0]


def _folded(*texts: object) -> str:
    return str(texts[0]).casefold()
