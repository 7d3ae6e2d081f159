"""The commands `tidewire users …`, `tidewire tokens …` and `tidewire say`.

Beside a running server they ask it, through its control socket; otherwise they open its data.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidewire.runtime.cli_options import DataDirOption, data_dir_or_default, load_settings
from tidewire.runtime.console import errors_told, fail, say, tell

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidewire.runtime.config import Config

users_app: Final = typer.Typer(
    help="Make, list and lock accounts.", no_args_is_help=True, rich_markup_mode=None
)
tokens_app: Final = typer.Typer(
    help="Give out tokens for bots.", no_args_is_help=True, rich_markup_mode=None
)

Username = Annotated[str, typer.Argument(metavar="USERNAME", help="The user's name.")]
PasswordStdin = Annotated[
    bool,
    typer.Option("--password-stdin", help="Read the password from standard input, one line."),
]
ExternalSub = Annotated[
    str | None,
    typer.Option(
        "--external-sub", metavar="SUB", help="The person's 'sub' at your identity provider."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for programs.")]


@users_app.callback()
def users() -> None:
    """Make, list and lock accounts.

    Works beside a running server and without one.
    """


@users_app.command("add")
def add_user(
    username: Username,
    display_name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What others see. Default: the user's name."),
    ] = None,
    password_stdin: PasswordStdin = False,
    no_password: Annotated[
        bool, typer.Option("--no-password", help="Cannot log in: for bots with a token.")
    ] = False,
    external_sub: ExternalSub = None,
    data_dir: DataDirOption = None,
) -> None:
    """Make an account. Asks for its password.

    With --external-sub it is for a person of your identity provider, who has no
    password here: it is there, and can be added to chats, before the first login.
    """
    with errors_told():
        if no_password + password_stdin + (external_sub is not None) > 1:
            fail("--no-password, --password-stdin and --external-sub exclude each other")
        is_without = no_password or external_sub is not None
        password = None if is_without else _password(username, password_stdin)
        arguments: dict[str, object] = {
            "username": username,
            "password": password,
            "display_name": display_name,
        }
        if external_sub is not None:
            arguments["external_sub"] = external_sub
        user = operate_on(data_dir, "users.add", arguments, may_create=True)
        if user["username"] != username:
            say(f"the name {username} was taken in the very moment")
        tell(f"{user['username']} has an account now; the id is {user['user_id']}.")


@users_app.command("show")
def show_user(
    username: Annotated[
        str | None, typer.Argument(metavar="[USERNAME]", help="The user's name.")
    ] = None,
    external_sub: ExternalSub = None,
    json: JsonOption = False,
    data_dir: DataDirOption = None,
) -> None:
    """Show one account, by its name or its external 'sub'."""
    with errors_told():
        if (username is None) == (external_sub is None):
            fail("name either a user or an --external-sub")
        user = operate_on(
            data_dir, "users.show", {"username": username, "external_sub": external_sub}
        )
        if json:
            print_json(user)
        else:
            typer.echo(_line_of(user))


@users_app.command("list")
def list_users(json: JsonOption = False, data_dir: DataDirOption = None) -> None:
    """List all accounts by name."""
    with errors_told():
        found: list[Mapping[str, Any]] = []
        after: str | None = None
        while page := operate_on(data_dir, "users.list", {"after": after})["users"]:
            found += page
            after = page[-1]["username"]
        if json:
            print_json({"users": found})
            return
        for user in found:
            typer.echo(_line_of(user))
        if not found:
            say("there are no accounts yet; make one with 'tidewire users add NAME'")


@users_app.command("passwd")
def set_password(
    username: Username, password_stdin: PasswordStdin = False, data_dir: DataDirOption = None
) -> None:
    """Give a user another password. Ends all logins."""
    with errors_told():
        password = _password(username, password_stdin)
        arguments = {"username": username, "password": password}
        user = operate_on(data_dir, "users.passwd", arguments)
        tell(f"{user['username']} has another password; {_ended(user)}.")


@users_app.command("disable")
def disable_user(username: Username, data_dir: DataDirOption = None) -> None:
    """Lock a user out, at once. Messages stay."""
    with errors_told():
        user = operate_on(data_dir, "users.disable", {"username": username})
        tell(f"{user['username']} is locked out; {_ended(user)}.")


@users_app.command("enable")
def enable_user(username: Username, data_dir: DataDirOption = None) -> None:
    """Let a user in again."""
    with errors_told():
        user = operate_on(data_dir, "users.enable", {"username": username})
        tell(f"{user['username']} may log in again.")


@users_app.command("delete")
def delete_user(
    username: Username,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask whether it is meant.")] = False,
    data_dir: DataDirOption = None,
) -> None:
    """Delete an account, for ever. Messages stay.

    It leaves its groups; those it owns pass to the longest-serving admin, or else
    member, or close. Its messages are shown as of a deleted account, and its name
    stays taken.
    """
    with errors_told():
        if not yes:
            if not sys.stdin.isatty():
                fail("there is no terminal to ask whether this is meant; give --yes")
            typer.confirm(f"Delete the account of {username}, for ever?", abort=True, err=True)
        user = operate_on(data_dir, "users.delete", {"username": username})
        tell(f"The account of {user['username']} is deleted; {_ended(user)}.")


@users_app.command("sessions")
def list_sessions(
    username: Username, json: JsonOption = False, data_dir: DataDirOption = None
) -> None:
    """List where a user is logged in, the oldest login first."""
    with errors_told():
        found = operate_on(data_dir, "users.sessions", {"username": username})
        if json:
            print_json(found)
            return
        for session in found["sessions"]:
            name = session["label"] or session["client"] or "an unknown client"
            place = f" from {session['address']}" if session["address"] else ""
            typer.echo(f"{session['session_id']}  {name}{place}, {session['last_active_at']}")
        if not found["sessions"]:
            say(f"{username} is not logged in anywhere")


@users_app.command("invite")
def invite(data_dir: DataDirOption = None) -> None:
    """Print a code that lets one person register.

    Needed where the setting accounts.registration is 'invite'.
    """
    with errors_told():
        made = operate_on(data_dir, "users.invite", {}, may_create=True)
        typer.echo(made["code"])
        say(f"good for one account, until {made['expires_at']}; it is not shown again")


@tokens_app.callback()
def tokens() -> None:
    """Give out tokens for bots."""


@tokens_app.command("issue")
def issue_token(
    username: Username,
    label: Annotated[
        str, typer.Option(metavar="TEXT", help="What it is for, in the list of sessions.")
    ] = "bot",
    days: Annotated[
        int | None,
        typer.Option(min=1, metavar="NUMBER", help="How long it is good for. Default: a year."),
    ] = None,
    json: JsonOption = False,
    data_dir: DataDirOption = None,
) -> None:
    """Print a long-lived access token of a user.

    The token has a session of its own: it ends when that is revoked, or when the
    user is disabled.
    """
    with errors_told():
        arguments = {"username": username, "label": label, "days": days}
        issued = operate_on(data_dir, "tokens.issue", arguments)
        if json:
            print_json(issued)
            return
        typer.echo(issued["token"])
        say(f"good until {issued['expires_at']}; it is not shown again")


def say_hello(
    sender: Annotated[str, typer.Argument(metavar="FROM", help="Who says it.")],
    recipient: Annotated[str, typer.Argument(metavar="TO", help="To whom.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What.")],
    data_dir: DataDirOption = None,
) -> None:
    """Send a message from one user to another.

    For trying things out, and for scripts on the server's own machine: nobody is
    asked for a password. The two get a direct chat if they have none yet. From
    anywhere else, with a login: 'tidewire send'.
    """
    with errors_told():
        arguments = {"sender": sender, "recipient": recipient, "text": text}
        said = operate_on(data_dir, "say", arguments)
        tell(f"Stored for good: message {said['sequence']} in {said['chat_id']}.")


def operate_on(
    data_dir: Path | None,
    command: str,
    arguments: "Mapping[str, object]",
    *,
    may_create: bool = False,
) -> "Mapping[str, Any]":
    """Have the running server do it, or do it here. The settings are read in the latter case only:
    a shell beside a server need not have the secrets of its environment."""
    from tidewire.runtime.operate import operate

    def settings() -> "Config":
        return load_settings(data_dir, is_serving=False).config

    place = data_dir_or_default(None, data_dir)
    return operate(place, settings, command, arguments, may_create=may_create)


def _password(username: str, is_on_stdin: bool) -> str:
    if is_on_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    if not sys.stdin.isatty():
        fail("there is no terminal to ask for the password; give --password-stdin")
    password: str = typer.prompt(
        f"Password for {username}", hide_input=True, confirmation_prompt="The same again"
    )
    return password


def _line_of(user: "Mapping[str, Any]") -> str:
    locked = f", disabled {user['disabled_at']}" if user["disabled_at"] else ""
    locked = f", deleted {user['deleted_at']}" if user["deleted_at"] else locked
    named = f" ({user['display_name']})" if user["display_name"] != user["username"] else ""
    return f"{user['username']}{named}  {user['user_id']}{locked}"


def _ended(user: "Mapping[str, Any]") -> str:
    count = user["sessions_ended"]
    return {0: "no login was open", 1: "one login was ended"}.get(count, f"{count} logins ended")


def print_json(value: "Mapping[str, Any]") -> None:
    import msgspec

    typer.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
