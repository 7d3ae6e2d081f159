"""The commands `tidewire users …`, `tidewire tokens …`, `tidewire keys …` and `tidewire say`.

If a server is running, they ask it through its control socket; otherwise they open its data.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidewire.runtime import cli_options as cli
from tidewire.runtime.console import fail, print_json, say, tell, tell_copies

if TYPE_CHECKING:
    from collections.abc import Mapping


users_app: Final = typer.Typer(
    help="Make, list and lock accounts.", no_args_is_help=True, rich_markup_mode=None
)
tokens_app: Final = typer.Typer(
    help="Give out tokens for bots.", no_args_is_help=True, rich_markup_mode=None
)

keys_app: Final = typer.Typer(
    help="Change the keys that tokens are signed with.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Username = Annotated[str, cli.argument("USERNAME", "The user's name.")]
PasswordStdin = Annotated[
    bool, cli.option("Read the password from standard input, one line.", "--password-stdin")
]
YesOption = Annotated[bool, cli.option("Do not ask for confirmation.", "--yes")]
ExternalSub = Annotated[
    str | None,
    cli.option("The person's 'sub' at your identity provider.", "--external-sub", metavar="SUB"),
]


@users_app.callback()
def users() -> None:
    """Make, list and lock accounts.

    Works beside a running server and without one.
    """


@users_app.command("add")
def add_user(
    username: Username,
    display_name: Annotated[
        str | None, cli.option("What others see. Default: the user's name.", metavar="NAME")
    ] = None,
    password_stdin: PasswordStdin = False,
    no_password: Annotated[
        bool, cli.option("Cannot log in: for bots with a token.", "--no-password")
    ] = False,
    external_sub: ExternalSub = None,
    data_dir: cli.DataDirOption = None,
) -> None:
    """Make an account. Asks for its password.

    With --external-sub it is for a person of your identity provider, who has no
    password here: it is there, and can be added to chats, before the first login.
    """
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
    username: Annotated[str | None, cli.argument("[USERNAME]", "The user's name.")] = None,
    external_sub: ExternalSub = None,
    json: cli.JsonOption = False,
    data_dir: cli.DataDirOption = None,
) -> None:
    """Show one account, by its name or its external 'sub'."""
    if (username is None) == (external_sub is None):
        fail("name either a user or an --external-sub")
    user = operate_on(data_dir, "users.show", {"username": username, "external_sub": external_sub})
    if json:
        print_json(user)
    else:
        typer.echo(_line_of(user))


@users_app.command("list")
def list_users(json: cli.JsonOption = False, data_dir: cli.DataDirOption = None) -> None:
    """List all accounts by name."""
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
    username: Username, password_stdin: PasswordStdin = False, data_dir: cli.DataDirOption = None
) -> None:
    """Give a user another password. Ends all logins."""
    password = _password(username, password_stdin)
    arguments = {"username": username, "password": password}
    user = operate_on(data_dir, "users.passwd", arguments)
    tell(f"{user['username']} has another password; {_ended(user)}.")


@users_app.command("disable")
def disable_user(username: Username, data_dir: cli.DataDirOption = None) -> None:
    """Lock a user out, at once. Messages stay."""
    user = operate_on(data_dir, "users.disable", {"username": username})
    tell(f"{user['username']} is locked out; {_ended(user)}.")


@users_app.command("enable")
def enable_user(username: Username, data_dir: cli.DataDirOption = None) -> None:
    """Let a user in again."""
    user = operate_on(data_dir, "users.enable", {"username": username})
    tell(f"{user['username']} may log in again.")


@users_app.command("delete")
def delete_user(
    username: Username, yes: YesOption = False, data_dir: cli.DataDirOption = None
) -> None:
    """Delete an account, for ever. Messages stay.

    It leaves its groups; those it owns pass to the longest-serving admin, or else
    member, or close. Its messages are shown as of a deleted account, and its name
    stays taken.
    """
    _confirm(f"Delete the account of {username}, for ever?", is_meant=yes)
    user = operate_on(data_dir, "users.delete", {"username": username})
    tell(f"The account of {user['username']} is deleted; {_ended(user)}.")


@users_app.command("erase")
def erase_user(
    username: Username, yes: YesOption = False, data_dir: cli.DataDirOption = None
) -> None:
    """Delete an account and every message it has written, for ever.

    Each of its messages is deleted for all, in every chat it ever was in; its name
    is replaced by a pseudonym. If this is interrupted, run it again: it continues.
    Backups keep the messages; the known backups are listed at the end. Its
    reactions stay, and what it gave as the reason for deleting a message.
    """
    _confirm(f"Delete the account of {username} and all its messages, for ever?", is_meant=yes)
    done = operate_on(data_dir, "users.erase", {"username": username})
    tell(
        f"The account of {done['username']} is erased. Messages deleted: {done['messages']}, "
        f"in chats: {done['chats']}; {_ended(done)}."
    )
    if done["damaged"]:
        tell(
            f"Damaged messages that could not be deleted: {done['damaged']}. They are shown "
            "without their text, but their bytes stay; 'tidewire verify' names them."
        )
    tell("The bytes leave the files with the next 'tidewire compact'.")
    tell_copies(done["backups"])


@users_app.command("sessions")
def list_sessions(
    username: Username, json: cli.JsonOption = False, data_dir: cli.DataDirOption = None
) -> None:
    """List where a user is logged in, the oldest login first."""
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
def invite(data_dir: cli.DataDirOption = None) -> None:
    """Print a code that lets one person register.

    Needed where the setting accounts.registration is 'invite'.
    """
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
        int | None, cli.option("How long it is good for. Default: a year.", min=1, metavar="NUMBER")
    ] = None,
    json: cli.JsonOption = False,
    data_dir: cli.DataDirOption = None,
) -> None:
    """Print a long-lived access token of a user.

    The token has a session of its own: it ends when that is revoked, or when the
    user is disabled.
    """
    arguments = {"username": username, "label": label, "days": days}
    issued = operate_on(data_dir, "tokens.issue", arguments)
    if json:
        print_json(issued)
        return
    typer.echo(issued["token"])
    say(f"good until {issued['expires_at']}; it is not shown again")


@keys_app.callback()
def keys() -> None:
    """Change the keys that tokens are signed with.

    Works beside a running server and without one.
    """


@keys_app.command("list")
def list_keys(json: cli.JsonOption = False, data_dir: cli.DataDirOption = None) -> None:
    """List the keys by what tokens call them. The keys themselves are not shown."""
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
        cli.option(
            "When the new key begins to sign. Default: at once, in a cluster in 10 minutes.",
            min=0,
            metavar="MINUTES",
        ),
    ] = None,
    json: cli.JsonOption = False,
    data_dir: cli.DataDirOption = None,
) -> None:
    """Make a new key, without a logout.

    Tokens that are out there stay good: the old key checks them until the last
    of them has expired. In a cluster, give the file to every gateway before the
    new key signs; each of them reads it within a minute.

    If the old key was stolen, end it with 'tidewire keys drop'.
    """
    made = operate_on(data_dir, "keys.rotate", {"minutes": signs_in})
    if json:
        print_json(made)
        return
    minutes = made["signs_in_ms"] // 60_000
    when = f"signs tokens in {minutes} minutes" if minutes else "signs tokens from now on"
    tell(f"The key {made['key_id']} {when}. No user has to log in again.")
    for key in made["keys"][:-1]:
        tell(f"{key['key_id']} checks its tokens until {key['good_until']}.")
    if made["is_clustered"]:
        say(f"copy {made['file']} now to every gateway that does not use this very file")


@keys_app.command()
def drop(
    key_id: Annotated[str, cli.argument("KEY", "As 'keys list' shows it.")],
    data_dir: cli.DataDirOption = None,
) -> None:
    """End a key together with the tokens that it has signed.

    For a key that was stolen. Apps get new tokens by themselves and stay logged in;
    bots need new ones (tidewire tokens issue).
    """
    left = operate_on(data_dir, "keys.drop", {"key_id": key_id})
    tell(f"Tokens that {key_id} has signed are refused from now on.")
    if left["is_clustered"]:
        say(f"copy {left['file']} now to every gateway that does not use this very file")


def _use(key: "Mapping[str, Any]") -> str:
    until = f", until {key['good_until']}" if key["good_until"] else ""
    if key["is_signing"]:
        return f"signs tokens{until}"
    if key["good_until"]:
        return f"checks its tokens{until}"
    return f"will sign from {key['signs_from']}"


def say_hello(
    sender: Annotated[str, cli.argument("FROM", "Who says it.")],
    recipient: Annotated[str, cli.argument("TO", "To whom.")],
    text: Annotated[str, cli.argument("TEXT", "What.")],
    data_dir: cli.DataDirOption = None,
) -> None:
    """Send a message from one user to another.

    For trying things out, and for scripts on the server's own machine: it asks
    for no password. The two get a direct chat if they have none yet. From
    anywhere else, with a login: 'tidewire send'.
    """
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
    """Have the running server carry out the command, or do it here. Only the latter reads the
    settings: a shell beside a server need not have the secrets of the server's environment."""
    from tidewire.runtime import control

    place = cli.data_dir_or_default(None, data_dir)
    answer = control.ask(place, command, arguments)
    if answer is not None:
        return answer
    # Imported here: if a server is running none of it is needed, and it takes a while to load.
    import asyncio

    from tidewire.runtime.direct import operate_directly

    return asyncio.run(
        operate_directly(
            lambda: cli.load_settings(data_dir, is_serving=False).config,
            place,
            command,
            arguments,
            may_create=may_create,
        )
    )


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


def _confirm(question: str, *, is_meant: bool) -> None:
    if is_meant:
        return
    if not sys.stdin.isatty():
        fail("there is no terminal to confirm this on; give --yes")
    typer.confirm(question, abort=True, err=True)


def _ended(user: "Mapping[str, Any]") -> str:
    count = user["sessions_ended"]
    return {0: "no login was open", 1: "one login was ended"}.get(count, f"{count} logins ended")
