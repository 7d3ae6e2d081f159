"""A cache of what appends have read of chats and authors, for the next appends.

Only the writer's connection changes the database. So what it has read, updated with what it has
written, is as good as a new read: until that connection changes something else, undoes something,
or another program has written to the file. SQLite reports all three, so that no code that writes
has to: it counts the rows that a connection has changed (`total_changes`), calls a hook when a
transaction is undone, and says whether others have changed the file (`data_version`).
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import apsw

from tidewire.domain.events import PositionsAdvanced

if TYPE_CHECKING:
    from tidewire.domain.append import Author, ChatEnd
    from tidewire.domain.ids import ChatId, UserId

AUTHORS_MAX: Final = 10_000
"""How many authors are kept, about 0.3 KB each; with more, all are read again when needed."""


class Known:
    """Used on the writer's thread alone, inside its transactions.

    Every use is a `look`, then all reads and writes, then `keep`. If `keep` is not reached, nothing
    is kept.
    """

    __slots__ = ("_changes", "_database", "_version", "authors", "chats")

    def __init__(self, database: apsw.Connection) -> None:
        self.authors: dict[tuple[ChatId, UserId], Author] = {}
        self.chats: dict[ChatId, ChatEnd] = {}
        self._database = database
        # How many rows the connection had changed when the cache was valid; None: unknown.
        self._changes: int | None = None
        self._version: object = None
        database.set_rollback_hook(self._forget)

    def look(self) -> None:
        """Forget everything unless it is still true."""
        version: Any = self._database.execute("PRAGMA data_version").get
        is_as_it_was = self._changes == self._database.total_changes() and self._version == version
        if not is_as_it_was or len(self.authors) > AUTHORS_MAX:
            self._forget()
        self._changes = None
        self._version = version

    def keep(self) -> None:
        """Mark the cache as valid: it has followed everything that was written since `look`."""
        self._changes = self._database.total_changes()

    def follow(self, moves: Iterable[PositionsAdvanced]) -> None:
        """Take over positions that something other than an append has written."""
        for move in moves:
            author = self.authors.get((move.chat_id, move.user_id))
            if author is not None:
                author.positions = move.positions

    def _forget(self) -> None:
        self._changes = None
        self.authors = {}
        self.chats = {}
