"""What the commands share: options, arguments, and loading the settings."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidewire.runtime.console import fail_all

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidewire.runtime.config import Loaded


def option(told: str, *names: str, **more: Any) -> Any:
    """An option with its help text, which itself names the default."""
    return typer.Option(*names, help=told, show_default=False, show_envvar=False, **more)


def argument(metavar: str, told: str, **more: Any) -> Any:
    """An argument with its help text."""
    return typer.Argument(metavar=metavar, help=told, show_default=False, **more)


DataDirOption = Annotated[
    Path | None,
    option(
        "The server's data directory. Default: TIDEWIRE_DATA_DIR, or ./data.",
        "--data-dir",
        metavar="DIR",
    ),
]
ConfigOption = Annotated[
    Path | None,
    option(
        "Settings in TOML. Default: TIDEWIRE_CONFIG, or tidewire.toml in DATA_DIR.",
        "--config",
        metavar="FILE",
    ),
]
SetOption = Annotated[
    list[str] | None,
    option(
        "Any setting, as 'tidewire config' calls it. May be repeated.",
        "--set",
        metavar="NAME=VALUE",
    ),
]
JsonOption = Annotated[bool, option("Print the result as JSON, for programs.", "--json")]

KeepSessionsOption = Annotated[
    bool,
    option(
        "Leave people and bots logged in, also those logged out since the backup.",
        "--keep-sessions",
    ),
]


def one_data_dir(argument: Path | None, option: Path | None) -> Path | None:
    """The directory that was named as argument or as option; None if it was named as neither."""
    if argument is not None and option is not None and argument != option:
        raise typer.BadParameter(f"two data directories are named, {argument} and {option}")
    return argument if option is None else option


def data_dir_or_default(argument: Path | None, option: Path | None) -> Path:
    """The directory that was named, or else the one that a server uses by default."""
    from tidewire.runtime.config import default_data_dir

    return one_data_dir(argument, option) or default_data_dir()


def load_settings(
    data_dir: Path | None,
    file: Path | None = None,
    flags: "Mapping[str, object] | None" = None,
    named: list[str] | None = None,
    *,
    is_serving: bool = True,
) -> "Loaded":
    """The settings. If they are wrong, prints every fault and exits. Flags that are None are not
    set. `is_serving` as in `config.load`."""
    from tidewire.runtime.config import BadConfig, load

    given = {name: str(value) for name, value in (flags or {}).items() if value is not None}
    for text in named or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="'--set'")
        given[name.strip()] = value
    try:
        return load(data_dir=data_dir, file=file, flags=given, is_serving=is_serving)
    except BadConfig as bad:
        fail_all(bad.faults)
