"""`tidewire cluster`: manages the tables and topics that a cluster needs, by its settings."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidewire.runtime.cli_options import (
    ConfigOption,
    DataDirOption,
    KeepSessionsOption,
    SetOption,
    load_settings,
    option,
)
from tidewire.runtime.console import EXIT_CHECK_FAILED, fail, progress_bar, say, tell

if TYPE_CHECKING:
    from tidewire.runtime.config import Config

cluster_app: Final = typer.Typer(
    help="Make, check and mend what a cluster rests on.", no_args_is_help=True
)


def check_vendors() -> None:
    """Exit with an error sentence if a vendor of the cluster is not installed."""
    from tidewire.runtime.engines import missing_vendors, shared_engines

    missing = missing_vendors(shared_engines())
    if missing:
        fail(f"{', '.join(missing)} is not installed; pip install 'tidewire[cluster]'")


def cluster_config(
    data_dir: DataDirOption = None, file: ConfigOption = None, named: SetOption = None
) -> "Config":
    """The settings; exits with an error sentence if a vendor is missing."""
    check_vendors()
    return load_settings(data_dir, file, named=named).config


def _ask_all(config: "Config", ability: str) -> Iterator[list[str]]:
    """Call this ability of each engine of a cluster that has it; yields the answers."""
    from tidewire.runtime.engines import shared_engines

    for engine in shared_engines():
        act = getattr(engine, ability)
        if act is not None:
            yield act(config.engines[engine.name])


@cluster_app.command()
def init(
    data_dir: DataDirOption = None, config: ConfigOption = None, settings: SetOption = None
) -> None:
    """Make the tables and topics that are missing, and the store's epoch.

    Existing ones stay as they are: check them with 'tidewire cluster check'. A store
    of an earlier release is not upgraded: for that, use 'tidewire cluster upgrade'.
    """
    made: list[str] = []
    for more in _ask_all(cluster_config(data_dir, config, settings), "make"):
        made += more
        if more:
            say(f"made: {', '.join(more)}")
    tell(f"Made: {', '.join(made)}." if made else "Nothing to do: everything is there.")


@cluster_app.command()
def check(
    data_dir: DataDirOption = None, config: ConfigOption = None, settings: SetOption = None
) -> None:
    """List what differs from what a cluster needs.

    Nothing is changed. The exit code is 0 if all is well and 1 if something differs.
    """
    told = _ask_all(cluster_config(data_dir, config, settings), "check")
    faults = [fault for each in told for fault in each]
    for fault in faults:
        tell(fault)
    if faults:
        raise typer.Exit(EXIT_CHECK_FAILED)
    tell("All tables and topics, and Redis, are as they must be.")


@cluster_app.command()
def upgrade(
    data_dir: DataDirOption = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    apply: Annotated[bool, option("Do it. Every process is of this release.", "--apply")] = False,
) -> None:
    """Allow what is new in this release to be written into the store.

    The last step of an upgrade, while the new processes serve: a process of an
    earlier release would misread it. Older rows are converted to this release
    first. If this is interrupted, run it again: it continues where it was. There is
    no way back. Doing it again changes nothing.
    """
    wanted = cluster_config(data_dir, config, settings)
    if not apply:
        fail("replace every gateway and worker by one of this release first, then add --apply")
    done = [step for steps in _ask_all(wanted, "upgrade") for step in steps]
    tell(f"Upgraded: {', '.join(done)}." if done else "Nothing to do: it was upgraded before.")


@cluster_app.command("new-key")
def new_key(
    data_dir: DataDirOption = None, config: ConfigOption = None, settings: SetOption = None
) -> None:
    """Accept a new key for tokens from the next gateway that starts.

    All gateways sign with the same key (cluster.token_key_file); one that has
    another does not start. Stop all of them first. Everybody has to log in again.
    """
    from tidewire.runtime.backbone import TOKEN_KEY, ask

    ask(cluster_config(data_dir, config, settings), "forget_agreed", TOKEN_KEY)
    tell("All gateways now take the key of the one that starts first.")


@cluster_app.command("after-restore")
def after_restore(
    data_dir: DataDirOption = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    keep_sessions: KeepSessionsOption = False,
    apply: Annotated[bool, option("Do it. No server may run meanwhile.", "--apply")] = False,
) -> None:
    """Make tables that were restored from backups agree again.

    Heads are built from the messages, positions above them are lowered, counters
    jump ahead, and the store gets a new epoch, so that clients sync anew. Stop
    every server first, and start them when this is done.
    """
    wanted = cluster_config(data_dir, config, settings)
    if not apply:
        fail("this changes every chat of the store; stop all servers, then add --apply")

    from tidewire.runtime.backbone import ask
    from tidewire.runtime.clock import SystemClock

    with progress_bar() as progress:

        def show(done: int, total: int) -> None:
            progress("chats", done, total)

        now_ms = SystemClock().wall_ms()
        told, ended_count = ask(wanted, "after_restore", now_ms, keep_sessions, show)
    tell(told)
    if not keep_sessions:
        tell(f"{ended_count} sessions have ended: people log in again.")
    say("check it with: tidewire verify --cluster")
