"""The commands `tidewire chat`, `send`, `tail` and `passwd`: the client's side.

They talk to a server over its port, as any user does. What they need is the extra `chat`.
"""

import os
import sys
from collections.abc import Coroutine
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from tidewire.runtime.console import errors_told, fail, say, tell
from tidewire.runtime.settings import (
    CA_FILE_VARIABLE,
    PASSWORD_VARIABLE,
    URL_VARIABLE,
    USER_VARIABLE,
)

if TYPE_CHECKING:
    import ssl

    from tidewire.client import Client
    from tidewire.terminal.scripting import Result
    from tidewire.terminal.session import AskPassword, Wish

T = TypeVar("T")

URL_DEFAULT: Final = "http://127.0.0.1:8080"
EXTRA: Final = "chat"
EXIT_WAITED_IN_VAIN: Final = 3
EXIT_MAY_ARRIVE: Final = 4

UrlOption = Annotated[
    str,
    typer.Option(
        "--url", metavar="URL", envvar=URL_VARIABLE, help="The server.", show_envvar=False
    ),
]
UserOption = Annotated[
    str | None,
    typer.Option(
        "--user",
        metavar="NAME",
        envvar=USER_VARIABLE,
        help="Who you are. Default: TIDEWIRE_USER, or whoever the store belongs to.",
        show_envvar=False,
    ),
]
StoreOption = Annotated[
    Path | None,
    typer.Option(
        "--store",
        metavar="FILE",
        help="Where this login and its messages are kept. Default: a file for each server "
        "and user in XDG_DATA_HOME/tidewire, or ~/.local/share/tidewire.",
        show_default=False,
    ),
]
CaFileOption = Annotated[
    Path | None,
    typer.Option(
        "--ca-file",
        metavar="FILE",
        envvar=CA_FILE_VARIABLE,
        help="Trust the certificate authorities in this file (PEM), and no others.",
        show_envvar=False,
        show_default=False,
    ),
]
RegisterOption = Annotated[bool, typer.Option("--register", help="Make the account first.")]
InviteOption = Annotated[
    str | None,
    typer.Option("--invite", metavar="CODE", help="With --register, where a code is needed."),
]
ChatArgument = Annotated[
    str,
    typer.Argument(
        metavar="CHAT", help="@somebody, a user name, a group's name if only one has it, or an id."
    ),
]


class WaitFor(StrEnum):
    STORED = "stored"
    DELIVERED = "delivered"
    READ = "read"


def chat(
    url: UrlOption = URL_DEFAULT,
    user: UserOption = None,
    store: StoreOption = None,
    ca_file: CaFileOption = None,
    register: RegisterOption = False,
    invite: InviteOption = None,
    bell: Annotated[
        bool, typer.Option("--bell/--no-bell", help="Ring when a message comes unseen.")
    ] = True,
) -> None:
    """Chat in the terminal.

    Asks for the password the first time; TIDEWIRE_PASSWORD answers for scripts.
    What is written without a connection goes out when there is one again.
    """
    with errors_told(EXTRA):
        from tidewire.terminal import app as _  # noqa: F401 - before a password is asked for

        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            fail("the chat needs a terminal; for scripts there are 'tidewire send' and 'tail'")
        wish = _wish(url, user, store, ca_file, register, invite)
        ended = _run(_chat(wish, _password(register), has_bell=bell))
        if ended is not None:
            fail(ended)


async def _chat(wish: "Wish", ask_password: "AskPassword", *, has_bell: bool) -> str | None:
    from tidewire.client import ConnectionState
    from tidewire.runtime.clock import SystemClock
    from tidewire.terminal.app import ChatApp
    from tidewire.terminal.session import forget_login, open_session
    from tidewire.terminal.words import LOGIN_ENDED, state_words

    async with await open_session(wish, ask_password, say) as client:
        username = wish.username or await _username(client)
        path = client.driver.store.path
        application = ChatApp(
            client,
            username=username,
            zone=None,
            now_ms=SystemClock().wall_ms,
            has_bell=has_bell,
        )
        await application.run_async()
        status = client.status
    if status.state is not ConnectionState.CLOSED:
        return None
    if status.reason in LOGIN_ENDED:
        await forget_login(path)
        return f"{state_words(status)}; start again to log in"
    return state_words(status)


async def _username(client: "Client") -> str:
    return str(await client.driver.store.do(lambda tables: tables.meta("username")) or "")


def send(
    chat: ChatArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What; - reads standard input.")],
    wait: Annotated[
        WaitFor, typer.Option("--wait", help="How far it is to get before this ends.")
    ] = WaitFor.STORED,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="How long to wait.")
    ] = 30.0,
    message_id: Annotated[
        str | None,
        typer.Option(
            "--id",
            metavar="UUID",
            help="The same id again sends nothing twice. Default: a new one.",
        ),
    ] = None,
    url: UrlOption = URL_DEFAULT,
    user: UserOption = None,
    store: StoreOption = None,
    ca_file: CaFileOption = None,
) -> None:
    """Send a message as a user, and print its number.

    Over the network, with a login, as the chat does; 'tidewire say' is for the
    operator on the server's own machine, and asks for no password.

    Exit codes: 0 done; 2 not sent; 3 stored, but not delivered or read in time;
    4 it may or may not have arrived (send it again with the same --id).
    """
    with errors_told(EXTRA):
        from tidewire.terminal.scripting import Outcome

        text = sys.stdin.read().rstrip("\n") if text == "-" else text
        wish = _wish(url, user, store, ca_file)
        result = _run(_send(wish, chat, text, wait.value, timeout, message_id))
        if result.sequence is not None:
            typer.echo(result.sequence)
        match result.outcome:
            case Outcome.REACHED:
                return
            case Outcome.NEVER_LEFT:
                fail(f"not sent: no connection to {url} in {timeout:g} s")
            case Outcome.WAITED_IN_VAIN:
                say(f"stored, but not {wait.value} in {timeout:g} s")
                raise typer.Exit(EXIT_WAITED_IN_VAIN)
            case Outcome.MAY_ARRIVE:
                say(
                    f"no answer in {timeout:g} s: it may have arrived or not. It is kept, and goes "
                    "out, once, with the next command of this user"
                )
                raise typer.Exit(EXIT_MAY_ARRIVE)


async def _send(
    wish: "Wish", chat: str, text: str, wait: str, timeout_s: float, message_id: str | None
) -> "Result":
    from tidewire.terminal import scripting
    from tidewire.terminal.session import open_session

    async with await open_session(wish, _password(False), say) as client:
        return await scripting.send(
            client,
            chat,
            text,
            stage=scripting.Stage(wait),
            timeout_s=timeout_s,
            client_message_id=message_id,
        )


def tail(
    chat: ChatArgument,
    since: Annotated[
        int | None,
        typer.Option("--since", min=0, metavar="NUMBER", help="Begin after this message."),
    ] = None,
    lines: Annotated[
        int,
        typer.Option(
            "--lines", "-n", min=0, max=1000, metavar="COUNT", help="Begin with the last so many."
        ),
    ] = 10,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Go on, or end with what there is.")
    ] = True,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    url: UrlOption = URL_DEFAULT,
    user: UserOption = None,
    store: StoreOption = None,
    ca_file: CaFileOption = None,
) -> None:
    """Print a chat's messages as they come.

    They count as delivered, not as read. Ctrl-C ends it, and so does the end of
    whoever reads its output.
    """
    with errors_told(EXTRA):
        from tidewire.terminal.scripting import TailWish

        wish = TailWish(since=since, lines=lines, is_json=json, is_following=follow, zone=None)
        try:
            _run(_tail(_wish(url, user, store, ca_file), chat, wish))
        except BrokenPipeError:
            # Nobody reads any more: that is how a pipe ends, and no fault. Python would complain
            # once more when it closes stdout.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def _tail(who: "Wish", chat: str, wish: Any) -> None:
    from tidewire.runtime.pipes import reader_gone
    from tidewire.terminal.scripting import Tail
    from tidewire.terminal.session import open_session

    def show(line: str) -> None:
        typer.echo(line)
        sys.stdout.flush()

    async with await open_session(who, _password(False), say) as client, reader_gone(sys.stdout):
        await Tail(client, wish, show, say).run(chat)


def passwd(
    url: UrlOption = URL_DEFAULT,
    user: UserOption = None,
    store: StoreOption = None,
    ca_file: CaFileOption = None,
    password_stdin: Annotated[
        bool,
        typer.Option(
            "--password-stdin", help="Read two lines from standard input: current, then new."
        ),
    ] = False,
) -> None:
    """Change your own password. Ends all your other logins.

    Over the network, as the chat does; 'tidewire users passwd' is for the operator
    on the server's own machine, and asks for no current password.
    """
    with errors_told(EXTRA):
        wish = _wish(url, user, store, ca_file)
        current, new = _two_passwords(password_stdin)
        count = _run(_passwd(wish, current, new))
        ended = {0: "no other login was open", 1: "one other login was ended"}
        tell(f"Your password is changed; {ended.get(count, f'{count} other logins were ended')}.")


def _two_passwords(is_on_stdin: bool) -> tuple[str, str]:
    if is_on_stdin:
        current, new = (sys.stdin.readline().rstrip("\r\n") for _ in range(2))
        return current, new
    if not sys.stdin.isatty():
        fail("there is no terminal to ask for the passwords; give --password-stdin")
    current = typer.prompt("Current password", hide_input=True, err=True)
    new = typer.prompt(
        "New password", hide_input=True, confirmation_prompt="The same again", err=True
    )
    return current, new


async def _passwd(wish: "Wish", current: str, new: str) -> int:
    from tidewire.terminal.session import open_session

    # Without a login the current password makes one.
    async with await open_session(wish, lambda _: current, say) as client:
        return await client.change_password(current, new)


# What they have in common.


def _run(work: Coroutine[Any, Any, T]) -> T:
    import asyncio

    return asyncio.run(work)


def _wish(
    url: str,
    user: str | None,
    store: Path | None,
    ca_file: Path | None,
    is_new: bool = False,
    invite: str | None = None,
) -> "Wish":
    from tidewire.terminal.session import Wish

    data_home = os.environ.get("XDG_DATA_HOME", "")
    # Relative paths there are to be ignored, says the XDG specification.
    home = Path(data_home) if data_home.startswith("/") else Path.home() / ".local/share"
    return Wish(
        url=url,
        username=user,
        directory=home / "tidewire",
        store=store,
        is_new=is_new,
        invite=invite,
        ssl_context=None if ca_file is None else _trusting(ca_file),
    )


def _trusting(ca_file: Path) -> "ssl.SSLContext":
    import ssl

    try:
        return ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError as error:
        fail(f"{ca_file} holds no certificates in PEM form: {error.reason or error}")


def _password(is_new: bool) -> "AskPassword":
    def ask(username: str) -> str:
        given = os.environ.get(PASSWORD_VARIABLE)
        if given:
            return given
        if not sys.stdin.isatty():
            fail(
                "there is no login yet, and no terminal to ask for the password: "
                "set TIDEWIRE_PASSWORD"
            )
        password: str = typer.prompt(
            f"Password for {username}",
            hide_input=True,
            confirmation_prompt="The same again" if is_new else False,
            err=True,
        )
        return password

    return ask
