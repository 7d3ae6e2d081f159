"""The command `tidewire`. Each command imports what it needs, so that `--help` is quick."""

import sys
from typing import Annotated, Final

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
    cli_chat,
    cli_cluster,
    cli_schema,
    cli_serve,
    cli_store,
    cli_tools,
    cli_users,
)

app: Final = typer.Typer(
    name="tidewire",
    help="A self-hosted messaging server: stored once, in order, for good.",
    cls=cli_tools.CommandsAndTools,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
# The order of --help: commands that start the server, use it, administer it, show its settings and
# prepare a cluster, tools, and commands that look after its data.
app.command()(cli_serve.serve)
app.command()(cli_chat.chat)
app.command()(cli_chat.send)
app.command()(cli_chat.edit)
app.command()(cli_chat.delete)
app.command()(cli_chat.react)
app.command()(cli_chat.tail)
app.command()(cli_chat.passwd)
app.add_typer(cli_users.users_app, name="users")
app.add_typer(cli_users.tokens_app, name="tokens")
app.add_typer(cli_users.keys_app, name="keys")
app.command("say")(cli_users.say_hello)
app.command()(cli_audit.audit)
app.command()(cli_serve.config)
app.command()(cli_schema.schema)
app.add_typer(cli_cluster.cluster_app, name="cluster")
cli_tools.add_tools(app)
app.command()(cli_store.verify)
app.command("recover-counter")(cli_store.recover_counter)
app.command("recover-log")(cli_store.recover_log)
app.command()(cli_store.backup)
app.command()(cli_store.restore)
app.command()(cli_store.compact)


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


def main() -> None:
    """The entry point."""
    app(prog_name="tidewire")
