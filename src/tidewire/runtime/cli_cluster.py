"""`tidewire cluster`: the tables and topics that a cluster rests on, by the server's settings."""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidewire.runtime.cli_options import ConfigOption, DataDirOption, SetOption, load_settings
from tidewire.runtime.console import EXIT_CHECK_FAILED, errors_told, fail, progress_bar, say, tell

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidewire.engines.dynamodb.database import Database
    from tidewire.engines.dynamodb.options import DynamoOptions
    from tidewire.runtime.config import Config

TABLE_ATTEMPT_MS: Final = 20_000
TABLE_BUDGET_MS: Final = 60_000
"""Making a table takes longer than writing a row."""

VENDORS: Final = ("aiobotocore", "confluent_kafka", "redis")
NO_BROKERS: Final = "kafka.bootstrap_servers is not set"

cluster_app: Final = typer.Typer(
    help="Make, check and mend what a cluster rests on.", no_args_is_help=True
)


def check_vendors() -> None:
    """End with a sentence if a vendor of the cluster is not installed."""
    from importlib.util import find_spec

    missing = [name for name in VENDORS if find_spec(name) is None]
    if missing:
        fail(f"{', '.join(missing)} is not installed; pip install 'tidewire[cluster]'")


def cluster_options() -> "DynamoOptions":
    """Where the database is, by the settings; ends with a sentence if its vendor is missing."""
    check_vendors()
    return load_settings(None).config.dynamodb


def _ask_database(
    options: "DynamoOptions", ask: "Callable[[Database], Awaitable[list[str]]]"
) -> list[str]:
    import asyncio
    from dataclasses import replace

    from tidewire.engines.dynamodb.database import Database

    patient = replace(options, attempt_ms=TABLE_ATTEMPT_MS, budget_ms=TABLE_BUDGET_MS)

    async def connected() -> list[str]:
        async with Database.connect(patient) as database:
            return await ask(database)

    return asyncio.run(connected())


def _config(data_dir: DataDirOption, file: ConfigOption, named: SetOption) -> "Config":
    cluster_options()
    return load_settings(data_dir, file, named=named).config


def _make_topics(config: "Config") -> list[str]:
    from tidewire.engines.kafka.topics import create_topics

    if not config.kafka.bootstrap_servers:
        fail(f"{NO_BROKERS}; no topic was made")
    return [f"topic {name}" for name in create_topics(config.kafka)]


def _check_topics(config: "Config") -> list[str]:
    from tidewire.engines.kafka.topics import check_topics

    if not config.kafka.bootstrap_servers:
        return [f"{NO_BROKERS}, so nobody can say how the topics are"]
    return check_topics(config.kafka)


def _check_redis(config: "Config") -> list[str]:
    import asyncio

    from tidewire.engines.redis.checking import check_redis

    if config.redis.url is None:
        return ["redis.url is not set, so nobody can say how Redis is"]
    return asyncio.run(check_redis(config.redis))


@cluster_app.command()
def init(
    data_dir: DataDirOption = None, config: ConfigOption = None, settings: SetOption = None
) -> None:
    """Make the tables and topics that are missing, and the store's epoch.

    What is there stays as it is: look at it with 'tidewire cluster check'.
    """
    with errors_told():
        from tidewire.engines.dynamodb.tables import create_tables

        wanted = _config(data_dir, config, settings)
        made = _ask_database(wanted.dynamodb, create_tables)
        if made:
            say(f"made: {', '.join(made)}")
        made += _make_topics(wanted)
        tell(f"Made: {', '.join(made)}." if made else "Nothing to do: everything is there.")


@cluster_app.command()
def check(
    data_dir: DataDirOption = None, config: ConfigOption = None, settings: SetOption = None
) -> None:
    """Say what differs from what is needed.

    Nothing is changed. The exit code is 0 if all is well and 1 if something differs.
    """
    with errors_told():
        from tidewire.engines.dynamodb.tables import check_tables

        wanted = _config(data_dir, config, settings)
        faults = [
            *_ask_database(wanted.dynamodb, check_tables),
            *_check_topics(wanted),
            *_check_redis(wanted),
        ]
        for fault in faults:
            tell(fault)
        if faults:
            raise typer.Exit(EXIT_CHECK_FAILED)
        tell("All tables and topics, and Redis, are as they must be.")


@cluster_app.command("new-key")
def new_key(
    data_dir: DataDirOption = None, config: ConfigOption = None, settings: SetOption = None
) -> None:
    """Let the next gateway that starts bring another key for tokens.

    All gateways sign with the same key (cluster.token_key_file); one that has
    another does not start. Stop all of them first. Everybody has to log in again.
    """
    with errors_told():
        from tidewire.engines.dynamodb.tables import disagree
        from tidewire.runtime.backbone import TOKEN_KEY

        wanted = _config(data_dir, config, settings)
        _ask_database(wanted.dynamodb, lambda database: disagree(database, TOKEN_KEY))
        tell("The key of the gateway that starts first is the key of all.")


@cluster_app.command("after-restore")
def after_restore(
    data_dir: DataDirOption = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    keep_sessions: Annotated[
        bool,
        typer.Option(
            "--keep-sessions",
            help="Leave people and bots logged in, also those logged out since the backup.",
        ),
    ] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="Do it. No server may run meanwhile.")
    ] = False,
) -> None:
    """Make tables that were restored from backups agree again.

    Heads are built from the messages, positions above them are lowered, counters
    jump ahead, and the store gets a new epoch, so that clients sync anew. Stop
    every server first, and start them when this is done.
    """
    with errors_told():
        options = _config(data_dir, config, settings).dynamodb
        if not apply:
            fail("this changes every chat of the store; stop all servers, then add --apply")

        from tidewire.engines.dynamodb.restoring import after_restore as mend
        from tidewire.runtime.clock import SystemClock

        with progress_bar() as progress:
            done = mend(
                options,
                now_ms=SystemClock().wall_ms(),
                keep_sessions=keep_sessions,
                progress=lambda count, total: progress("chats", count, total),
            )
        tell(
            f"{done.chats} chats: {done.heads_moved} heads moved, {done.positions_lowered} "
            f"positions lowered, {done.memberships_listed} entries of chat lists mended, "
            f"{done.events_forgotten} commits of the outbox forgotten. The epoch is {done.epoch}."
        )
        if not keep_sessions:
            tell(f"{done.sessions_ended} sessions have ended: people log in again.")
        say("check it with: tidewire verify --cluster")
