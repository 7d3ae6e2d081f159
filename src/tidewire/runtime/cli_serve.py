"""The commands `tidewire serve` and `tidewire config`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidewire.runtime import cli_options as cli
from tidewire.runtime.console import print_json, tell

if TYPE_CHECKING:
    from tidewire.runtime.settings import Setting

DataDirArgument = Annotated[
    Path | None, cli.argument("[DATA_DIR]", "Where everything is kept; --data-dir says the same.")
]
HostOption = Annotated[
    str | None, cli.option("The address to listen on. Default: 127.0.0.1.", metavar="ADDRESS")
]
PortOption = Annotated[
    int | None, cli.option("The port; 0 takes a free one. Default: 8080.", metavar="NUMBER")
]
CertOption = Annotated[
    Path | None, cli.option("A certificate chain (PEM), for HTTPS.", "--tls-cert", metavar="FILE")
]
KeyOption = Annotated[
    Path | None, cli.option("The key of that certificate.", "--tls-key", metavar="FILE")
]
ProcessesOption = Annotated[
    int | None,
    cli.option(
        "Gateway processes on the port, beside one for the store; 1 (the default): one for all.",
        metavar="NUMBER",
    ),
]
RoleOption = Annotated[
    str | None,
    cli.option(
        "A part of a cluster: gateway, fanout, or all (both). Default: single, no cluster.",
        metavar="ROLE",
    ),
]


def serve(
    directory: DataDirArgument = None,
    data_dir: cli.DataDirOption = None,
    host: HostOption = None,
    port: PortOption = None,
    tls_cert: CertOption = None,
    tls_key: KeyOption = None,
    processes: ProcessesOption = None,
    role: RoleOption = None,
    config: cli.ConfigOption = None,
    named: cli.SetOption = None,
) -> None:
    """Run the server.

    Makes the data directory if it is not there. Ctrl-C or SIGTERM ends it in
    order: what was taken in is stored and answered first. A second signal ends it
    at once, which loses nothing that was acknowledged either.

    A cluster needs DynamoDB, Kafka and Redis (dynamodb.*, kafka.*, redis.url), and
    'tidewire cluster init' once.
    """
    flags = {
        "server.host": host,
        "server.port": port,
        "server.processes": processes,
        "server.tls_cert": tls_cert,
        "server.tls_key": tls_key,
        "cluster.role": role,
    }
    loaded = cli.load_settings(cli.one_data_dir(directory, data_dir), config, flags, named)
    if loaded.config.cluster.role.is_clustered:
        from tidewire.runtime.cli_cluster import check_vendors

        check_vendors()
    from tidewire.runtime.serve import run

    exit_code = run(loaded.config, typer.echo)
    raise typer.Exit(exit_code)


def config(
    directory: DataDirArgument = None,
    data_dir: cli.DataDirOption = None,
    file: cli.ConfigOption = None,
    named: cli.SetOption = None,
    changed: Annotated[
        bool, cli.option("Only those that are not the default.", "--changed")
    ] = False,
    json: Annotated[bool, cli.option("Print them as JSON, for programs.", "--json")] = False,
) -> None:
    """Show all settings, and where each of them comes from.

    A flag overrules the environment, that overrules the file, that overrules the
    default. A setting NAME.FIELD is TIDEWIRE_NAME_FIELD in the environment, and
    FIELD under [NAME] in the file. Secrets are not shown.
    """
    loaded = cli.load_settings(cli.one_data_dir(directory, data_dir), file, named=named)
    from tidewire.runtime.settings import DEFAULT, variable_of

    shown = [one for one in loaded.settings if not changed or one.source != DEFAULT]
    if json:
        rows = {
            one.name: {
                "value": one.shown,
                "source": one.source,
                "environment": variable_of(one.name),
            }
            for one in shown
        }
        print_json(rows)
    else:
        _print(shown)


def _print(settings: "list[Setting]") -> None:
    section = ""
    for setting in settings:
        head, _, _ = setting.name.partition(".")
        if head != section and section:
            tell("")
        section = head
        source = "" if setting.source == "default" else f"  ({setting.source})"
        typer.echo(f"{setting.name} = {setting.shown}{source}")
