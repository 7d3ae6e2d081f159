"""What appends have read of chats and authors, kept for the next ones.

The writer's connection alone changes the database. So what it has read, moved along with what it
has written, is as good as a read: until that connection changes something else, undoes something,
or another program has written to the file. SQLite tells all three, so that no writer has to: it
counts the rows that a connection has changed (`total_changes`), calls a hook when a transaction is
undone, and says whether others have changed the file (`data_version`).
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import apsw

from tidewire.domain.events import PositionsAdvanced

if TYPE_CHECKING:
    from tidewire.domain.append import Author, ChatEnd
    from tidewire.domain.ids import ChatId, UserId

AUTHORS_MAX: Final = 10_000
"""How many authors are kept, about 0.3 KB each; then all are read again as they are needed."""


class Known:
    """Used on the writer's thread alone, inside its transactions.

    Every use is a `look`, then whatever is to be read and written, then `keep`. If that is never
    reached, nothing is kept.
    """

    __slots__ = ("_changes", "_database", "_version", "authors", "chats")

    def __init__(self, database: apsw.Connection) -> None:
        self.authors: dict[tuple[ChatId, UserId], Author] = {}
        self.chats: dict[ChatId, ChatEnd] = {}
        self._database = database
        # How many rows were changed when all this was true; None: unknown.
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
        """Everything here is true again: all that was written since `look` has been followed."""
        self._changes = self._database.total_changes()

    def follow(self, moves: Iterable[PositionsAdvanced]) -> None:
        """Positions were written by something else than an append."""
        for move in moves:
            author = self.authors.get((move.chat_id, move.user_id))
            if author is not None:
                author.positions = move.positions

    def _forget(self) -> None:
        self._changes = None
        self.authors = {}
        self.chats = {}
