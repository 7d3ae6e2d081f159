"""The store of one process, in one SQLite file."""

from tidewire.engines.sqlite.database import DATABASE_NAME, SqliteOptions
from tidewire.engines.sqlite.storage import SqliteStorage

__all__ = ["DATABASE_NAME", "SqliteOptions", "SqliteStorage"]
