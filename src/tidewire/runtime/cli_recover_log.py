"""The command `tidewire recover-log`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidewire.runtime.cli_options import DataDirOption, data_dir_or_default
from tidewire.runtime.console import errors_told, say, tell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidewire.ops.recover_log import LogRecovery, Missing, Tried

CHATS_SHOWN: Final = 20
"""How many chats with missing messages are listed."""


def recover_log(
    directory: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DATA_DIR]",
            help="The directory that holds tidewire.db.",
            show_default=False,
        ),
    ] = None,
    data_dir: DataDirOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what can be saved; change nothing.")
    ] = False,
    keep_sessions: Annotated[
        bool,
        typer.Option(
            "--keep-sessions",
            help="Leave people and bots logged in, also those whose logout may be lost.",
        ),
    ] = False,
) -> None:
    """Save what a damaged write-ahead log still has.

    For a server that does not start because tidewire.db-wal is damaged. Builds the
    states that may be whole, as copies, and keeps the fullest one that SQLite and
    'tidewire verify' find nothing wrong with; lists which messages are missing. As
    after a restore, the epoch changes and all sequence counters jump ahead, and
    everybody has to log in again. The damaged files are kept in the directory
    'damaged-EPOCH' beside it. Takes room for two more copies of the database. May be
    stopped at any time and run again.
    """
    with errors_told():
        from tidewire.ops.recover_log import recover_log as recover
        from tidewire.runtime.audit_files import note_command
        from tidewire.runtime.clock import SystemClock

        place = data_dir_or_default(directory, data_dir)
        done = recover(place, keep_sessions=keep_sessions, dry_run=dry_run, told=say)
        if done.epoch is not None:
            note_command(place, "recover-log", SystemClock().wall_ms())
        for line in told_of(done, place, keep_sessions=keep_sessions):
            tell(line)


def told_of(done: "LogRecovery", data_dir: Path, *, keep_sessions: bool) -> "Iterator[str]":
    """What a recovery has come to, a sentence a line."""
    if done.damage is not None:
        yield f"The log was damaged: {done.damage}."
        for tried in done.tried:
            yield f"- {_tried(tried)}"
        assert done.kept is not None
        yield f"Best: {done.kept.name}, {done.kept.messages:,} messages."
        yield from _missing(done.missing)
    if done.epoch is not None:
        yield f"{data_dir} holds the recovered database now; its epoch is {done.epoch}."
        yield f"The damaged files are in {done.aside}; delete them when nothing is missed."
        if not keep_sessions:
            yield "All sessions have ended: people log in again, bots need new tokens."
    elif done.is_resumed:
        yield "An earlier recovery was interrupted; run this without --dry-run, and it is finished."
    elif done.damage is not None:
        yield "Nothing was changed (--dry-run)."
    else:
        yield f"Nothing to do: the log in {data_dir} is not damaged."


def _tried(tried: "Tried") -> str:
    if tried.fault is not None:
        return f"{tried.name}: not whole ({tried.fault})"
    damaged = f" ({tried.damaged:,} of them damaged)" if tried.damaged else ""
    return (
        f"{tried.name}: whole, {tried.messages:,} messages{damaged}, {tried.transactions:,} "
        "transactions of the log"
    )


def _missing(missing: "list[Missing]") -> "Iterator[str]":
    if not missing:
        yield "No message is known to be missing."
        return
    count = sum(one.last - one.first + 1 for one in missing)
    yield f"Missing, as far as can be known: {count:,} messages of {len(missing):,} chats."
    for one in missing[:CHATS_SHOWN]:
        numbers = f"{one.first}" if one.first == one.last else f"{one.first} to {one.last}"
        yield f"- {one.chat_id}: sequence {numbers}"
    if len(missing) > CHATS_SHOWN:
        yield f"- and {len(missing) - CHATS_SHOWN:,} more chats"
