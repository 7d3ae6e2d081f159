"""What the commands that know a data directory have in common: their options, and the settings."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidewire.runtime.console import fail_all

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidewire.runtime.config import Loaded

DataDirOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="The server's data directory. Default: TIDEWIRE_DATA_DIR, or ./data.",
        show_default=False,
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Settings in TOML. Default: TIDEWIRE_CONFIG, or tidewire.toml in DATA_DIR.",
        show_default=False,
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any setting, as 'tidewire config' calls it. May be repeated.",
        show_default=False,
    ),
]


def one_data_dir(argument: Path | None, option: Path | None) -> Path | None:
    """The directory that was named, either way; None if it was not."""
    if argument is not None and option is not None and argument != option:
        raise typer.BadParameter(f"two data directories are named, {argument} and {option}")
    return argument if option is None else option


def data_dir_or_default(argument: Path | None, option: Path | None) -> Path:
    """The directory that was named, or the one that a server takes when none is."""
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
    """The settings, or all that is wrong with them and the end. Flags that are None are not set.
    `is_serving` as in `config.load`."""
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
