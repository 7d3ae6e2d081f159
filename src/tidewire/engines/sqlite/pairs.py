"""The migration that takes direct chats out of the indexes of lowest positions.

The two members of a direct chat are found by their memberships, so nothing asks these indexes for
them; but each message and each acknowledgement changed both. A row is in them only if it has a
`joined_sequence`. In a direct chat that is 0, and NULL means the same.
"""

from contextlib import closing
from pathlib import Path
from typing import Final

import apsw

from tidewire.engines.sqlite.database import SqliteOptions, connect_reader, single
from tidewire.engines.sqlite.errors import DAMAGED

FREE_PAIRS: Final = """
UPDATE OR FAIL delivery_state SET joined_sequence = NULL
WHERE joined_sequence = 0 AND chat_id IN (SELECT chat_id FROM chats WHERE chat_type = 'direct')
"""


def free_pairs(database: apsw.Connection, sql: str) -> None:
    """Inside the transaction of the migrations: run the file, then change the rows.

    Rows of a table that is damaged stay as they are: they are right, and only cost more.
    """
    has_rows = single(database, "PRAGMA user_version") > 0
    is_sound = has_rows and _is_sound(Path(database.filename))
    database.execute(sql).fetchall()
    if is_sound:
        database.execute(FREE_PAIRS).fetchall()


def _is_sound(path: Path) -> bool:
    """Uses a connection of its own: a transaction that has met damage cannot write any more."""
    with closing(connect_reader(path, SqliteOptions())) as reader:
        try:
            return all(
                reader.execute(f"PRAGMA integrity_check({table})").fetchall() == [("ok",)]
                for table in ("chats", "delivery_state")
            )
        except DAMAGED:
            return False
