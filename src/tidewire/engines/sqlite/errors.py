"""Translates SQLite's errors into ours: most specific first, with every class of the vendor.

An error in `OUR_BUGS` means that a statement of ours is wrong; it is raised as it is.

Damage is reported in two ways. A program that opens the database cannot go on: StoreUnusable. Later
only the request that met the damage fails: StoreDamaged.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import apsw
import msgspec

from tidewire.domain.errors import (
    StoreDamaged,
    StoreFull,
    StoreUnavailable,
    StoreUnusable,
    TidewireError,
)

DAMAGED: Final = (apsw.CorruptError, apsw.NotADBError)
"""The file is not what it should be: nothing read from it can be trusted."""

NONSENSE: Final = (UnicodeDecodeError, msgspec.DecodeError)
"""Raised for a stored value that has changed: text that is not UTF-8, or no number any more."""

DAMAGE: Final = (*DAMAGED, apsw.IOError, *NONSENSE, StoreDamaged)
"""What an act may meet in some rows only: acts on other rows need not fail because of it."""

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


_NO_INDEX: Final = frozenset(
    {apsw.SQLITE_IOERR_SHMOPEN, apsw.SQLITE_IOERR_SHMSIZE, apsw.SQLITE_IOERR_SHMMAP}
)


def lacks_room_for_index(error: BaseException | None) -> bool:
    """Whether there is no room for the file through which processes share the log's index."""
    return isinstance(error, apsw.IOError) and getattr(error, "extendedresult", None) in _NO_INDEX


def damaged_sentence(error: Exception) -> str:
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


def failure_of(error: Exception) -> Exception:
    """The error that a request gets when it meets this error."""
    if isinstance(error, (*DAMAGED, *NONSENSE)):
        failure: Exception = StoreDamaged(str(error))
    elif isinstance(error, apsw.Error):
        failure = translated(error) or error
    else:
        return error
    if failure is not error:
        failure.__cause__ = error
    return failure


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise our errors in place of SQLite's; a bug of ours is raised as it is."""
    try:
        yield
    except UnicodeDecodeError as error:
        # Our program writes only valid UTF-8, so this is damage.
        raise StoreUnusable(damaged_sentence(error)) from error
    except apsw.Error as error:
        ours = translated(error)
        if ours is None:
            raise
        raise ours from error
