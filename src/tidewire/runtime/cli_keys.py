"""The commands `tidewire keys …`: what access tokens are signed with.

Beside a running server they ask it, through its control socket; otherwise they open its data.
"""

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidewire.runtime.cli_options import DataDirOption
from tidewire.runtime.cli_users import JsonOption, operate_on, print_json
from tidewire.runtime.console import errors_told, say, tell

if TYPE_CHECKING:
    from collections.abc import Mapping

keys_app: Final = typer.Typer(
    help="Change the keys that tokens are signed with.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@keys_app.callback()
def keys() -> None:
    """Change the keys that tokens are signed with.

    Works beside a running server and without one.
    """


@keys_app.command("list")
def list_keys(json: JsonOption = False, data_dir: DataDirOption = None) -> None:
    """List the keys by what tokens call them. The keys themselves are not shown."""
    with errors_told():
        listed = operate_on(data_dir, "keys.list", {})
        if json:
            print_json(listed)
            return
        for key in listed["keys"]:
            typer.echo(f"{key['key_id']}  {_use(key)}")


@keys_app.command()
def rotate(
    signs_in: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="MINUTES",
            help="When the new key begins to sign. Default: at once, in a cluster in 10 minutes.",
        ),
    ] = None,
    json: JsonOption = False,
    data_dir: DataDirOption = None,
) -> None:
    """Make a new key, without a logout.

    Tokens that are out there stay good: the old key checks them until the last
    of them has expired. In a cluster, give the file to every gateway before the
    new key signs; each of them reads it within a minute.

    If the old key was stolen, end it with 'tidewire keys drop'.
    """
    with errors_told():
        made = operate_on(data_dir, "keys.rotate", {"minutes": signs_in})
        if json:
            print_json(made)
            return
        minutes = made["signs_in_ms"] // 60_000
        when = f"signs tokens in {minutes} minutes" if minutes else "signs tokens from now on"
        tell(f"The key {made['key_id']} {when}. Nobody has to log in again.")
        for key in made["keys"][:-1]:
            tell(f"{key['key_id']} checks its tokens until {key['good_until']}.")
        if made["is_clustered"]:
            say(f"copy {made['file']} to every gateway that has no part in this one, now")


@keys_app.command()
def drop(
    key_id: Annotated[str, typer.Argument(metavar="KEY", help="As 'keys list' shows it.")],
    data_dir: DataDirOption = None,
) -> None:
    """End a key together with the tokens that it has signed.

    For a key that was stolen. Apps get new tokens by themselves and stay logged in;
    bots need new ones (tidewire tokens issue).
    """
    with errors_told():
        left = operate_on(data_dir, "keys.drop", {"key_id": key_id})
        tell(f"Tokens that {key_id} has signed are refused from now on.")
        if left["is_clustered"]:
            say(f"copy {left['file']} to every gateway that has no part in this one, now")


def _use(key: "Mapping[str, Any]") -> str:
    until = f", until {key['good_until']}" if key["good_until"] else ""
    if key["is_signing"]:
        return f"signs tokens{until}"
    if key["good_until"]:
        return f"checks its tokens{until}"
    return f"will sign from {key['signs_from']}"
