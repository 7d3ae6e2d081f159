"""SQLite's errors in our words: most specific first, every class of the vendor placed.

What stands in `OUR_BUGS` means that a statement of ours is wrong; it is raised as it is.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import apsw

from tidewire.domain.errors import StoreFull, StoreUnavailable, StoreUnusable, TidewireError

DAMAGED: Final = (apsw.CorruptError, apsw.NotADBError)
"""The file is not what it should be: nothing read from it can be trusted."""

UNAVAILABLE: Final[dict[type[apsw.Error], str]] = {
    apsw.BusyError: "another program holds the database; try again",
    apsw.LockedError: "another program holds the database; try again",
    apsw.InterruptError: "the read took too long and was stopped",
    apsw.AbortError: "the operation was aborted",
    apsw.IOError: "the disk could not be read or written",
    apsw.CantOpenError: "the database file cannot be opened",
    apsw.ReadOnlyError: "the database is read-only",
    apsw.PermissionsError: "the database file may not be accessed",
    apsw.AuthError: "the database file may not be accessed",
    apsw.NoMemError: "there is not enough memory",
    apsw.NoLFSError: "the file system takes no files this large",
    apsw.ProtocolError: "the database's locks are in a strange state",
    apsw.SchemaChangeError: "another program changed the database; try again",
    apsw.InternalError: "SQLite reported an internal error",
}

OUR_BUGS: Final = (
    apsw.SQLError,
    apsw.ConstraintError,
    apsw.MismatchError,
    apsw.MisuseError,
    apsw.RangeError,
    apsw.TooBigError,
    apsw.FormatError,
    apsw.EmptyError,
    apsw.NotFoundError,
    apsw.BindingsError,
    apsw.ConnectionClosedError,
    apsw.ConnectionNotClosedError,
    apsw.CursorClosedError,
    apsw.ExecTraceAbort,
    apsw.ExecutionCompleteError,
    apsw.ExtensionLoadingError,
    apsw.ForkingViolationError,
    apsw.IncompleteExecutionError,
    apsw.InvalidContextError,
    apsw.NoFTS5Error,
    apsw.ThreadingViolationError,
    apsw.VFSFileClosedError,
    apsw.VFSNotImplementedError,
)


def damaged_sentence(error: apsw.Error) -> str:
    return (
        f"the database file is damaged ({error}); stop the server, keep a copy of the files, "
        "run 'tidewire verify' to see how far it goes, and restore the last backup"
    )


def translated(error: apsw.Error) -> TidewireError | None:
    """Our error for SQLite's, or None if it is a bug of ours."""
    if isinstance(error, apsw.FullError):
        return StoreFull()
    if isinstance(error, DAMAGED):
        return StoreUnusable(damaged_sentence(error))
    for kind, sentence in UNAVAILABLE.items():
        if isinstance(error, kind):
            return StoreUnavailable(f"{sentence} ({error})")
    return None


@contextmanager
def translate_errors() -> Iterator[None]:
    """Let only errors of ours through."""
    try:
        yield
    except apsw.Error as error:
        ours = translated(error)
        if ours is None:
            raise
        raise ours from error
