"""The commands `tidewire serve` and `tidewire config`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidewire.runtime.cli_options import (
    ConfigOption,
    DataDirOption,
    SetOption,
    load_settings,
    one_data_dir,
)
from tidewire.runtime.console import errors_told, tell

if TYPE_CHECKING:
    from tidewire.runtime.settings import Setting

DataDirArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="[DATA_DIR]",
        help="Where everything is kept; --data-dir says the same.",
        show_default=False,
    ),
]
HostOption = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="The address to listen on. Default: 127.0.0.1."),
]
PortOption = Annotated[
    int | None,
    typer.Option(metavar="NUMBER", help="The port; 0 takes a free one. Default: 8080."),
]
CertOption = Annotated[
    Path | None,
    typer.Option("--tls-cert", metavar="FILE", help="A certificate chain (PEM), for HTTPS."),
]
KeyOption = Annotated[
    Path | None, typer.Option("--tls-key", metavar="FILE", help="The key of that certificate.")
]
RoleOption = Annotated[
    str | None,
    typer.Option(
        metavar="ROLE",
        help="A part of a cluster: gateway, fanout, or all (both). Default: single, no cluster.",
    ),
]


def serve(
    directory: DataDirArgument = None,
    data_dir: DataDirOption = None,
    host: HostOption = None,
    port: PortOption = None,
    tls_cert: CertOption = None,
    tls_key: KeyOption = None,
    role: RoleOption = None,
    config: ConfigOption = None,
    named: SetOption = None,
) -> None:
    """Run the server.

    Makes the data directory if it is not there. Ctrl-C or SIGTERM ends it in
    order: what was taken in is stored and answered first. A second signal ends it
    at once, which loses nothing that was acknowledged either.

    A cluster needs DynamoDB, Kafka and Redis (dynamodb.*, kafka.*, redis.url), and
    'tidewire cluster init' once.
    """
    with errors_told():
        flags = {
            "server.host": host,
            "server.port": port,
            "server.tls_cert": tls_cert,
            "server.tls_key": tls_key,
            "cluster.role": role,
        }
        loaded = load_settings(one_data_dir(directory, data_dir), config, flags, named)
        if loaded.config.cluster.role.is_clustered:
            from tidewire.runtime.cli_cluster import check_vendors

            check_vendors()
        from tidewire.runtime.serve import run

        exit_code = run(loaded.config, typer.echo)
    raise typer.Exit(exit_code)


def config(
    directory: DataDirArgument = None,
    data_dir: DataDirOption = None,
    file: ConfigOption = None,
    named: SetOption = None,
    changed: Annotated[
        bool, typer.Option("--changed", help="Only those that are not the default.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print them as JSON, for programs.")] = False,
) -> None:
    """Show all settings, and where each of them comes from.

    A flag overrules the environment, that overrules the file, that overrules the
    default. A setting NAME.FIELD is TIDEWIRE_NAME_FIELD in the environment, and
    FIELD under [NAME] in the file. Secrets are not shown.
    """
    with errors_told():
        loaded = load_settings(one_data_dir(directory, data_dir), file, named=named)
        from tidewire.runtime.settings import DEFAULT

        shown = [one for one in loaded.settings if not changed or one.source != DEFAULT]
        if json:
            _print_json(shown)
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


def _print_json(settings: "list[Setting]") -> None:
    import msgspec

    rows = {
        one.name: {"value": one.shown, "source": one.source, "environment": _variable(one.name)}
        for one in settings
    }
    typer.echo(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode())


def _variable(name: str) -> str:
    from tidewire.runtime.settings import ENVIRONMENT_PREFIX

    return ENVIRONMENT_PREFIX + name.replace(".", "_").upper()
