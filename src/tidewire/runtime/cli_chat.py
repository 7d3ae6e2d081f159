"""The client's side of the command: `tidewire chat`, `send`, `edit`, `delete`, `react`, `tail` and
`passwd`.

They talk to a server over its port, as any user does. They need the extra `chat`.
"""

import os
import stat
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TextIO, TypeVar

import typer

from tidewire.runtime.cli_options import argument, option
from tidewire.runtime.console import fail, say, tell
from tidewire.runtime.settings import (
    CA_FILE_VARIABLE,
    PASSWORD_VARIABLE,
    URL_VARIABLE,
    USER_VARIABLE,
)

if TYPE_CHECKING:
    import ssl

    from tidewire.client import Chat, Client, Sent
    from tidewire.terminal.scripting import Result
    from tidewire.terminal.session import AskPassword, Wish

T = TypeVar("T")

URL_DEFAULT: Final = "http://127.0.0.1:8080"
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
    option(
        "Who you are. Default: TIDEWIRE_USER, or the owner of the store.",
        "--user",
        metavar="NAME",
        envvar=USER_VARIABLE,
    ),
]
StoreOption = Annotated[
    Path | None,
    option(
        "Where this login and its messages are kept. Default: a file for each server "
        "and user in XDG_DATA_HOME/tidewire, or ~/.local/share/tidewire.",
        "--store",
        metavar="FILE",
    ),
]
CaFileOption = Annotated[
    Path | None,
    option(
        "Trust the certificate authorities in this file (PEM), and no others.",
        "--ca-file",
        metavar="FILE",
        envvar=CA_FILE_VARIABLE,
    ),
]
RegisterOption = Annotated[bool, option("Make the account first.", "--register")]
InviteOption = Annotated[
    str | None, option("With --register, where a code is needed.", "--invite", metavar="CODE")
]
ChatArgument = Annotated[
    str,
    argument("CHAT", "@name, the name of a user or of a group if only one has it, or an id."),
]


NumberArgument = Annotated[
    int, argument("NUMBER", "The message, as 'send' and 'tail' print its number.", min=1)
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="How long to wait.")
]
IdOption = Annotated[
    str | None,
    option("The same id sent twice is stored once. Default: a new id.", "--id", metavar="UUID"),
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
    import asyncio

    from tidewire.terminal import app as _  # noqa: F401 - before a password is asked for

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        fail("the chat needs a terminal; for scripts there are 'tidewire send' and 'tail'")
    wish = _wish(url, user, store, ca_file, register, invite)
    ended = asyncio.run(_chat(wish, _password(register), has_bell=bell))
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
    text: Annotated[str, argument("TEXT", "The text; - reads standard input.")],
    wait: Annotated[
        WaitFor, typer.Option("--wait", help="How far it is to get before this ends.")
    ] = WaitFor.STORED,
    timeout: TimeoutOption = 30.0,
    message_id: IdOption = None,
    reply_to: Annotated[
        int | None, option("The message that it answers.", "--reply-to", min=1, metavar="NUMBER")
    ] = None,
    mention: Annotated[
        list[str] | None,
        option("A member to mention, or @all. Can be repeated.", "--mention", metavar="NAME"),
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
    from tidewire.terminal import scripting

    text = _text(text)
    result = _with_client(
        _wish(url, user, store, ca_file),
        lambda client: scripting.send(
            client,
            chat,
            text,
            stage=scripting.Stage(wait),
            timeout_s=timeout,
            client_message_id=message_id,
            reply_to=reply_to,
            mentions=mention or (),
        ),
    )
    _report(result, url, timeout, wait)


def edit(
    chat: ChatArgument,
    number: NumberArgument,
    text: Annotated[str, argument("TEXT", "The new text; - reads standard input.")],
    timeout: TimeoutOption = 30.0,
    message_id: IdOption = None,
    url: UrlOption = URL_DEFAULT,
    user: UserOption = None,
    store: StoreOption = None,
    ca_file: CaFileOption = None,
) -> None:
    """Edit your own message, and print the number of the edit.

    Exit codes as of 'send': 0 done; 2 not done; 4 it may or may not have arrived.
    """
    text = _text(text)
    _change(
        _wish(url, user, store, ca_file),
        chat,
        lambda found: found.edit(number, text, client_message_id=message_id),
        timeout,
    )


def delete(
    chat: ChatArgument,
    number: NumberArgument,
    reason: Annotated[
        str | None, option("Why; all members can read it.", "--reason", metavar="TEXT")
    ] = None,
    timeout: TimeoutOption = 30.0,
    message_id: IdOption = None,
    url: UrlOption = URL_DEFAULT,
    user: UserOption = None,
    store: StoreOption = None,
    ca_file: CaFileOption = None,
) -> None:
    """Delete a message, and print the number of the deletion.

    One of your own, or any of a group that you are an admin of. It cannot be undone.

    Exit codes as of 'send': 0 done; 2 not done; 4 it may or may not have arrived.
    """
    _change(
        _wish(url, user, store, ca_file),
        chat,
        lambda found: found.delete(number, reason=reason, client_message_id=message_id),
        timeout,
    )


def react(
    chat: ChatArgument,
    number: NumberArgument,
    emoji: Annotated[str, argument("EMOJI", "One emoji.")],
    off: Annotated[bool, option("Take the reaction back.", "--off")] = False,
    timeout: TimeoutOption = 30.0,
    message_id: IdOption = None,
    url: UrlOption = URL_DEFAULT,
    user: UserOption = None,
    store: StoreOption = None,
    ca_file: CaFileOption = None,
) -> None:
    """React to a message, and print the number of the reaction.

    Exit codes as of 'send': 0 done; 2 not done; 4 it may or may not have arrived.
    """

    def act(found: "Chat") -> "Awaitable[Sent]":
        if off:
            return found.unreact(number, emoji, client_message_id=message_id)
        return found.react(number, emoji, client_message_id=message_id)

    _change(_wish(url, user, store, ca_file), chat, act, timeout)


def _change(
    wish: "Wish", chat: str, act: "Callable[[Chat], Awaitable[Sent]]", timeout_s: float
) -> None:
    from tidewire.terminal import scripting

    result = _with_client(
        wish, lambda client: scripting.carry_out(client, chat, act, timeout_s=timeout_s)
    )
    _report(result, wish.url, timeout_s, WaitFor.STORED)


def _text(text: str) -> str:
    return sys.stdin.read().rstrip("\n") if text == "-" else text


def _report(result: "Result", url: str, timeout: float, wait: WaitFor) -> None:
    """Print the message's number, and exit with the code of the outcome."""
    from tidewire.terminal.scripting import Outcome

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


def tail(
    chat: ChatArgument,
    since: Annotated[
        int | None, option("Begin after this message.", "--since", min=0, metavar="NUMBER")
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
    json: Annotated[bool, option("One JSON object a line.", "--json")] = False,
    url: UrlOption = URL_DEFAULT,
    user: UserOption = None,
    store: StoreOption = None,
    ca_file: CaFileOption = None,
) -> None:
    """Print a chat's messages as they come.

    They count as delivered, not as read. Ctrl-C ends it, and so does the end of
    the program that reads its output.
    """
    from tidewire.terminal.scripting import Tail, TailWish

    wish = TailWish(since=since, lines=lines, is_json=json, is_following=follow, zone=None)

    def show(line: str) -> None:
        typer.echo(line)
        sys.stdout.flush()

    async def work(client: "Client") -> None:
        async with _reader_gone(sys.stdout):
            await Tail(client, wish, show, say).run(chat)

    try:
        _with_client(_wish(url, user, store, ca_file), work)
    except BrokenPipeError:
        # The reader has gone: that is how a pipe ends, and no error. Python would report it
        # once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@asynccontextmanager
async def _reader_gone(stream: TextIO) -> AsyncIterator[None]:
    """Cancel the body and raise BrokenPipeError when the other end of a pipe is closed."""
    import asyncio

    mode = os.fstat(stream.fileno()).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        yield
        return
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    is_gone = False

    def gone() -> None:
        nonlocal is_gone
        is_gone = True
        loop.remove_reader(stream)
        task.cancel()

    # The writing end of a pipe becomes readable only when its reader has gone, which is an error.
    loop.add_reader(stream, gone)
    try:
        yield
    except asyncio.CancelledError:
        if is_gone:
            task.uncancel()
            raise BrokenPipeError from None
        raise
    finally:
        loop.remove_reader(stream)


def passwd(
    url: UrlOption = URL_DEFAULT,
    user: UserOption = None,
    store: StoreOption = None,
    ca_file: CaFileOption = None,
    password_stdin: Annotated[
        bool, option("Read two lines from standard input: current, then new.", "--password-stdin")
    ] = False,
) -> None:
    """Change your own password. Ends all your other logins.

    Over the network, as the chat does; 'tidewire users passwd' is for the operator
    on the server's own machine, and asks for no current password.
    """
    wish = _wish(url, user, store, ca_file)
    current, new = _two_passwords(password_stdin)
    # If there is no login yet, the current password makes one.
    count = _with_client(
        wish, lambda client: client.change_password(current, new), lambda _: current
    )
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


# What they have in common.


def _with_client(
    wish: "Wish",
    work: "Callable[[Client], Awaitable[T]]",
    ask_password: "AskPassword | None" = None,
) -> T:
    """Do something with a client that has a login."""
    import asyncio

    from tidewire.terminal.session import open_session

    async def run() -> T:
        async with await open_session(wish, ask_password or _password(False), say) as client:
            return await work(client)

    return asyncio.run(run())


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
    # The XDG specification says that relative paths there are to be ignored.
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
