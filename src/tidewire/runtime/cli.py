"""The command `tidewire`. Each command imports what it needs, so that `--help` is quick."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

try:
    import typer
except ModuleNotFoundError as missing:
    sys.exit(
        f"tidewire: {missing.name} is not installed; pip install 'tidewire[chat]' for the chat in "
        "the terminal, 'tidewire[server]' for the server"
    )

from tidewire import __version__
from tidewire.runtime import (
    cli_audit,
    cli_bench,
    cli_chat,
    cli_cluster,
    cli_keys,
    cli_recover_log,
    cli_serve,
    cli_users,
)
from tidewire.runtime.cli_options import DataDirOption, data_dir_or_default, one_data_dir
from tidewire.runtime.console import (
    EXIT_CHECK_FAILED,
    Commands,
    errors_told,
    progress_bar,
    tell,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidewire.ops.recover import Recovery
    from tidewire.ports.inspection import Inspector

app: Final = typer.Typer(
    name="tidewire",
    help="A self-hosted messaging server: stored once, in order, for good.",
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
# First what starts it, then what one does with it, what it needs, what looks after it: the order of
# --help.
app.command()(cli_serve.serve)
app.command()(cli_chat.chat)
app.command()(cli_chat.send)
app.command()(cli_chat.tail)
app.command()(cli_chat.passwd)
app.add_typer(cli_users.users_app, name="users")
app.add_typer(cli_users.tokens_app, name="tokens")
app.add_typer(cli_keys.keys_app, name="keys")
app.command("say")(cli_users.say_hello)
app.command()(cli_audit.audit)
app.command()(cli_serve.config)
app.add_typer(cli_cluster.cluster_app, name="cluster")
app.add_typer(cli_bench.bench_app, name="bench")

ClusterOption = Annotated[
    bool,
    typer.Option("--cluster", help="The cluster's database, by the settings, and no DATA_DIR."),
]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tidewire {__version__}")
        raise typer.Exit


@app.callback()
def tidewire(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """A self-hosted messaging server: stored once, in order, for good."""


@app.command()
def verify(
    store: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DATA_DIR]",
            help="The directory that holds tidewire.db, or a backup file.",
            show_default=False,
        ),
    ] = None,
    data_dir: DataDirOption = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON, for programs.")
    ] = False,
    cluster: ClusterOption = False,
) -> None:
    """Check every promise that a database can show.

    Works on a stopped server's data and beside a running one, which it does not
    slow down. Nothing is changed. The exit code is 0 if all is well, 1 if a check
    failed (the first offenders are listed), 2 if there is nothing to verify.
    """
    with errors_told():
        from tidewire.ops.verify import verify as verify_store
        from tidewire.runtime import verify_output
        from tidewire.runtime.clock import SystemClock

        path, inspect = _inspected(one_data_dir(store, data_dir), cluster)
        clock = SystemClock()
        started_ms = clock.monotonic_ms()
        with progress_bar() as progress:
            report = verify_store(inspect, progress)
        seconds = (clock.monotonic_ms() - started_ms) / 1000
        if json:
            typer.echo(verify_output.as_json(report, path, seconds))
        else:
            verify_output.show(report, seconds)
        if report.violations:
            raise typer.Exit(EXIT_CHECK_FAILED)


def _inspected(store: Path | None, cluster: bool) -> "tuple[Path, Callable[[], Inspector]]":
    """What is looked at, by its name, and how it is opened."""
    if cluster:
        if store is not None:
            raise typer.BadParameter("--cluster takes no DATA_DIR")
        options = cli_cluster.cluster_options()

        from tidewire.engines.dynamodb.inspect import DynamoInspector

        return Path(options.table_prefix), lambda: DynamoInspector(options)

    from tidewire.engines.sqlite.database import DATABASE_NAME
    from tidewire.engines.sqlite.inspect import SqliteInspector

    store = data_dir_or_default(store, None)
    path = store if store.is_file() else store / DATABASE_NAME
    return path, lambda: SqliteInspector(path)


@app.command("recover-counter")
def recover_counter(
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="[DATA_DIR] CHAT_ID",
            help="The chat whose counter is missing, after the directory that holds tidewire.db.",
            show_default=False,
        ),
    ],
    data_dir: DataDirOption = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Do it. Without this, only say what would be done.")
    ] = False,
    cluster: ClusterOption = False,
) -> None:
    """Put the lost sequence counter of a chat back.

    A chat without its counter takes no messages. The new counter starts well
    above everything stored in the chat, so that no sequence is given out twice.
    A counter that is there is never changed. A running server does it itself.
    With --cluster there is no DATA_DIR: 'tidewire recover-counter --cluster CHAT_ID'.
    """
    with errors_told():
        *directory, chat_id = arguments
        if cluster:
            if directory or data_dir is not None:
                raise typer.BadParameter("--cluster takes no DATA_DIR")
            _recover_in_cluster(chat_id, apply=apply)
            return
        _recover_here(_data_dir_before(directory, data_dir), chat_id, apply=apply)


def _data_dir_before(directory: list[str], data_dir: Path | None) -> Path:
    """The directory that may stand before what a command is about."""
    if len(directory) > 1:
        raise typer.BadParameter(f"too many arguments: {' '.join(directory[1:])}")
    return data_dir_or_default(Path(directory[0]) if directory else None, data_dir)


def _recover_in_cluster(chat_id: str, *, apply: bool) -> None:
    options = cli_cluster.cluster_options()

    from tidewire.domain.ids import ChatId
    from tidewire.engines.dynamodb.repair import DynamoCounterRepair
    from tidewire.ops import recover
    from tidewire.runtime.clock import SystemClock

    repair = DynamoCounterRepair(options)
    try:
        now_ms = SystemClock().wall_ms()
        done = recover.recover_counter(repair, ChatId(chat_id), apply=apply, now_ms=now_ms)
    finally:
        repair.close()
    tell(_recovery_text(done))


def _recover_here(data_dir: Path, chat_id: str, *, apply: bool) -> None:
    import msgspec

    from tidewire.domain.ids import ChatId
    from tidewire.engines.sqlite.database import DATABASE_NAME
    from tidewire.engines.sqlite.repair import SqliteCounterRepair
    from tidewire.ops import recover
    from tidewire.runtime import control
    from tidewire.runtime.audit_files import note_command
    from tidewire.runtime.clock import SystemClock

    repair = SqliteCounterRepair(data_dir / DATABASE_NAME)
    answer = None
    if apply:
        arguments = {"chat_id": chat_id, "apply": True}
        answer = control.ask(data_dir, "recover-counter", arguments)
    if answer is not None:
        done = msgspec.convert(answer["recovery"], recover.Recovery)
    else:
        now_ms = SystemClock().wall_ms()
        done = recover.recover_counter(repair, ChatId(chat_id), apply=apply, now_ms=now_ms)
        if apply:
            note_command(data_dir, "recover-counter", now_ms, chat_id=chat_id)
    tell(_recovery_text(done))


def _recovery_text(done: "Recovery") -> str:
    evidence, chat_id = done.evidence, done.chat_id
    if evidence.counter is not None:
        return (
            f"Nothing to do: {chat_id} has its counter, {evidence.counter}, and its last message "
            f"is {evidence.highest_message}."
        )
    seen = f"the last message is {evidence.highest_message}"
    if evidence.highest_position > evidence.highest_message:
        seen += f", but a member had got {evidence.highest_position} (a message is lost)"
    if done.outcome == "recovered":
        return (
            f"Recovered: {chat_id} had no counter, {seen}. Its counter is now {done.counter}; the "
            f"next message gets {done.counter + 1}. Find out who deleted the row: Tidewire "
            "never does."
        )
    return (
        f"{chat_id} has no counter, {seen}. The counter would be put at {done.counter}. Nothing "
        "was changed: run this again with --apply."
    )


app.command("recover-log")(cli_recover_log.recover_log)


@app.command()
def backup(
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="[DATA_DIR] FILE",
            help="The backup to write, which must not exist yet, after the directory that holds "
            "tidewire.db.",
            show_default=False,
        ),
    ],
    data_dir: DataDirOption = None,
) -> None:
    """Copy the database of a live server into a file.

    The file is a whole database of one moment, and appears when it is complete.
    """
    with errors_told():
        from tidewire.engines.sqlite.backup import backup as backup_store
        from tidewire.runtime import control
        from tidewire.runtime.audit_files import note_command
        from tidewire.runtime.clock import SystemClock

        *directory, last = arguments
        place, file = _data_dir_before(directory, data_dir), Path(last)
        with progress_bar() as progress:

            def show(done: int, total: int) -> None:
                progress("pages", done, total)

            asked = {"file": str(file.absolute())}
            if control.ask(place, "backup", asked, show) is None:
                backup_store(place, file, show)
                note_command(place, "backup", SystemClock().wall_ms())
        size_mb = file.stat().st_size / 1e6
        tell(f"{file}: {size_mb:.1f} MB. Check it with: tidewire verify {file}")


@app.command()
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that backup has written.")],
    directory: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DATA_DIR]",
            help="Where the database goes. Must not have one yet.",
            show_default=False,
        ),
    ] = None,
    data_dir: DataDirOption = None,
    keep_sessions: Annotated[
        bool,
        typer.Option(
            "--keep-sessions",
            help="Leave people and bots logged in, also those logged out since the backup.",
        ),
    ] = False,
) -> None:
    """Put a backup into an empty data directory.

    Its epoch changes and all sequence counters jump ahead, so that no client takes
    a new message for one it has seen before the restore: clients sync anew.
    Everybody has to log in again, because nobody knows who was logged out since.
    """
    with errors_told():
        from tidewire.engines.sqlite.backup import restore as restore_store
        from tidewire.runtime.audit_files import note_command
        from tidewire.runtime.clock import SystemClock

        place = data_dir_or_default(directory, data_dir)
        epoch = restore_store(file, place, keep_sessions=keep_sessions)
        note_command(place, "restore", SystemClock().wall_ms())
        tell(f"{place} holds the backup now; its epoch is {epoch}.")
        if not keep_sessions:
            tell("All sessions have ended: people log in again, bots need new tokens.")


def main() -> None:
    """The entry point."""
    app(prog_name="tidewire")
