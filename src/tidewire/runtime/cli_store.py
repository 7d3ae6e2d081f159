"""The commands about a store: `verify`, `recover-counter`, `recover-log`, `backup`, `restore`,
`compact`."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidewire.runtime import cli_options as cli
from tidewire.runtime.cli_cluster import cluster_config
from tidewire.runtime.console import (
    EXIT_CHECK_FAILED,
    print_json,
    progress_bar,
    say,
    tell,
    tell_copies,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.table import Table

    from tidewire.ops.recover import Recovery
    from tidewire.ops.recover_log import LogRecovery, Missing, Tried
    from tidewire.ops.verify import CheckResult, Report
    from tidewire.ports.engine import Engine

CHATS_SHOWN: Final = 20
"""How many chats with missing messages are listed."""

DataDirArgument = Annotated[
    Path | None, cli.argument("[DATA_DIR]", "The directory that holds tidewire.db.")
]
ClusterOption = Annotated[
    bool, cli.option("The cluster's database, by the settings, and no DATA_DIR.", "--cluster")
]


def verify(
    store: Annotated[
        Path | None,
        cli.argument("[DATA_DIR]", "The directory that holds tidewire.db, or a backup file."),
    ] = None,
    data_dir: cli.DataDirOption = None,
    json: cli.JsonOption = False,
    cluster: ClusterOption = False,
) -> None:
    """Check every promise that a database can show.

    Works on a stopped server's data and beside a running one, which it does not
    slow down. Nothing is changed. The exit code is 0 if all is well, 1 if a check
    failed (the first offenders are listed), 2 if there is nothing to verify.
    """
    from tidewire.ops.verify import verify as verify_store
    from tidewire.runtime.clock import SystemClock

    engine, options, place = _looked_at(cli.one_data_dir(store, data_dir), cluster)
    inspect, name = engine.inspect, engine.named
    assert inspect is not None
    assert name is not None
    path = name(options, place)
    clock = SystemClock()
    started_ms = clock.monotonic_ms()
    with progress_bar() as progress:
        report = verify_store(lambda: inspect(options, place), progress)
    seconds = (clock.monotonic_ms() - started_ms) / 1000
    if json:
        _print_report(report, path, seconds)
    else:
        _show_report(report, seconds)
    if report.violations:
        raise typer.Exit(EXIT_CHECK_FAILED)


def _looked_at(store: Path | None, cluster: bool) -> "tuple[Engine, Any, Path]":
    """For the store that a command works on: its engine, the engine's options, and its place."""
    from tidewire.runtime.engines import engine_for

    if not cluster:
        engine = engine_for("inspect", is_shared=False)
        return engine, engine.options(), cli.data_dir_or_default(store, None)
    if store is not None:
        raise typer.BadParameter("--cluster takes no DATA_DIR")
    config = cluster_config()
    engine = engine_for("inspect", is_shared=True, options=config.engines)
    return engine, config.engines[engine.name], config.data_dir


def recover_counter(
    arguments: Annotated[
        list[str],
        cli.argument(
            "[DATA_DIR] CHAT_ID",
            "The chat whose counter is missing, after the directory that holds tidewire.db.",
        ),
    ],
    data_dir: cli.DataDirOption = None,
    apply: Annotated[
        bool, cli.option("Do it. Without this, only say what would be done.", "--apply")
    ] = False,
    cluster: ClusterOption = False,
) -> None:
    """Put the lost sequence counter of a chat back.

    A chat without its counter takes no messages. The new counter starts well
    above everything stored in the chat, so that no sequence is given out twice.
    A counter that is there is never changed. A running server does it itself.
    With --cluster there is no DATA_DIR: 'tidewire recover-counter --cluster CHAT_ID'.
    """
    *directory, chat_id = arguments
    place = _data_dir_before(directory, data_dir)
    _recover(*_looked_at(place, cluster), chat_id, apply=apply)


def _data_dir_before(directory: list[str], data_dir: Path | None) -> Path | None:
    """The data directory, which may stand before a command's main argument."""
    if len(directory) > 1:
        raise typer.BadParameter(f"too many arguments: {' '.join(directory[1:])}")
    return cli.one_data_dir(Path(directory[0]) if directory else None, data_dir)


def _recover(engine: "Engine", options: object, place: Path, chat_id: str, *, apply: bool) -> None:
    """With `apply`, recover through the server that runs there, if the store is its own."""
    import msgspec

    from tidewire.domain.ids import ChatId
    from tidewire.ops import recover
    from tidewire.runtime import control
    from tidewire.runtime.clock import SystemClock

    assert engine.repair is not None
    with closing(engine.repair(options, place)) as repair:
        is_own = apply and not engine.is_shared
        arguments = {"chat_id": chat_id, "apply": True}
        answer = control.ask(place, "recover-counter", arguments) if is_own else None
        if answer is not None:
            done = msgspec.convert(answer["recovery"], recover.Recovery)
        else:
            now_ms = SystemClock().wall_ms()
            done = recover.recover_counter(repair, ChatId(chat_id), apply=apply, now_ms=now_ms)
            if is_own:
                _note(place, "recover-counter", chat_id=chat_id)
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


def backup(
    arguments: Annotated[
        list[str],
        cli.argument(
            "[DATA_DIR] FILE",
            "The backup to write, which must not exist yet, after the directory that holds "
            "tidewire.db.",
        ),
    ],
    data_dir: cli.DataDirOption = None,
) -> None:
    """Copy the database of a live server into a file.

    The file is a whole database of one moment, and appears when it is complete.
    """
    from tidewire.runtime import control
    from tidewire.runtime.engines import engine_for

    *directory, last = arguments
    place, file = cli.data_dir_or_default(_data_dir_before(directory, data_dir), None), Path(last)
    with progress_bar() as progress:

        def show(done: int, total: int) -> None:
            progress("pages", done, total)

        asked = {"file": str(file.absolute())}
        if control.ask(place, "backup", asked, show) is None:
            engine = engine_for("backup", is_shared=False)
            assert engine.backup is not None
            engine.backup(place, file, show)
            _note(place, "backup")
    size_mb = file.stat().st_size / 1e6
    tell(f"{file}: {size_mb:.1f} MB. Check it with: tidewire verify {file}")


def restore(
    file: Annotated[Path, cli.argument("FILE", "A file that backup has written.")],
    directory: Annotated[
        Path | None, cli.argument("[DATA_DIR]", "Where the database goes. Must not have one yet.")
    ] = None,
    data_dir: cli.DataDirOption = None,
    keep_sessions: cli.KeepSessionsOption = False,
) -> None:
    """Put a backup into an empty data directory.

    Its epoch changes and all sequence counters jump ahead, so that no client takes
    a new message for one it has seen before the restore: clients sync anew.
    All users have to log in again: who was logged out since is not known.
    """
    from tidewire.runtime.engines import engine_for

    place = cli.data_dir_or_default(directory, data_dir)
    engine = engine_for("restore", is_shared=False)
    assert engine.restore is not None
    epoch = engine.restore(file, place, keep_sessions)
    _note(place, "restore")
    tell(f"{place} holds the backup now; its epoch is {epoch}.")
    if not keep_sessions:
        tell("All sessions have ended: people log in again, bots need new tokens.")


def compact(
    directory: DataDirArgument = None,
    data_dir: cli.DataDirOption = None,
) -> None:
    """Write the database anew, without what was deleted.

    A deleted text is overwritten when it is deleted, but a copy of it may be left in
    the write-ahead log, and in the unused part of a page. After this it is in no file
    of DATA_DIR, except backups. The server has to be stopped; the database needs its
    own size once more while this runs. May be stopped at any time and run again.
    """
    from tidewire.runtime.engines import engine_for

    place = cli.data_dir_or_default(directory, data_dir)
    engine = engine_for("compact", is_shared=False)
    assert engine.compact is not None
    with progress_bar() as progress:
        before, after = engine.compact(place, lambda done, total: progress("pages", done, total))
    _note(place, "compact")
    tell(f"{place}: {before / 1e6:.1f} MB before, {after / 1e6:.1f} MB now.")
    tell_copies(engine.copies(place) if engine.copies else ())


def recover_log(
    directory: DataDirArgument = None,
    data_dir: cli.DataDirOption = None,
    dry_run: Annotated[
        bool, cli.option("Only say what can be saved; change nothing.", "--dry-run")
    ] = False,
    keep_sessions: Annotated[
        bool,
        cli.option(
            "Leave people and bots logged in, also those whose logout may be lost.",
            "--keep-sessions",
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
    from tidewire.ops.recover_log import recover_log as recover

    place = cli.data_dir_or_default(directory, data_dir)
    done = recover(place, keep_sessions=keep_sessions, dry_run=dry_run, told=say)
    if done.epoch is not None:
        _note(place, "recover-log")
    for line in told_of(done, place, keep_sessions=keep_sessions):
        tell(line)


def told_of(done: "LogRecovery", data_dir: Path, *, keep_sessions: bool) -> "Iterator[str]":
    """The result of a recovery, one sentence a line."""
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


def _note(data_dir: Path, command: str, chat_id: str | None = None) -> None:
    """Record a command that was carried out without a server."""
    from tidewire.runtime.audit_files import note_command
    from tidewire.runtime.clock import SystemClock

    note_command(data_dir, command, SystemClock().wall_ms(), chat_id=chat_id)


def _print_report(report: "Report", path: Path, seconds: float) -> None:
    """One object; its fields are as stable as the command's options."""
    print_json(
        {
            "ok": report.violations == 0,
            "database": str(path),
            "epoch": report.epoch,
            "seconds": round(seconds, 3),
            "counts": report.counts,
            "violations": report.violations,
            "checks": report.checks,
        }
    )


def _show_report(report: "Report", seconds: float) -> None:
    """The table, the first offenders, and the verdict last, where it is seen."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    console.print(_table(report))
    for check in report.checks:
        if check.violations:
            _show_offenders(check)
    counts = report.counts
    looked_at = (
        f"{counts.messages:,} messages, {counts.chats:,} chats, {counts.positions:,} positions, "
        f"{len(report.checks)} checks, {seconds:.1f} s"
    )
    if report.violations == 0:
        tell(f"All is well: {looked_at}.")
        return
    failed = sum(check.violations > 0 for check in report.checks)
    tell(f"FAILED: {report.violations:,} violations of {failed} checks; {looked_at}.")
    tell(
        "What to do: keep a copy of the files as they are. A missing counter comes back with "
        "'tidewire recover-counter', and what a damaged write-ahead log still has with "
        "'tidewire recover-log'; for everything else restore the last backup that verifies."
    )


def _table(report: "Report") -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("check", "from"):
        table.add_column(name, no_wrap=True)
    for name in ("checked", "violations"):
        table.add_column(name, justify="right", no_wrap=True)
    for check in report.checks:
        checked = "not possible" if check.checked is None else f"{check.checked:,}"
        style = "bold red" if check.violations else None
        table.add_row(check.name, check.source, checked, f"{check.violations:,}", style=style)
    return table


def _show_offenders(check: "CheckResult") -> None:
    from tidewire.ops.invariants import BY_NAME

    tell(f"{check.name}: {BY_NAME[check.name].statement}")
    for offender in check.offenders:
        place = f"{offender.chat_id}: " if offender.chat_id else ""
        tell(f"- {place}{offender.found}", indent="  ")
    if check.violations > len(check.offenders):
        tell(f"- and {check.violations - len(check.offenders):,} more")
    tell("")
