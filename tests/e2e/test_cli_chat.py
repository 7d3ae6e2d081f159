"""`tidewire send`, `tail` and `chat` as processes of their own. Slow: programs are started."""

import asyncio
import fcntl
import json
import os
import pty
import signal
import stat
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.chatting import PASSWORD, PATIENCE_S
from tests.e2e.commands import PROGRAM, TIMEOUT_S, Done, tidewire
from tests.e2e.terminals import SteadySite
from tests.support import forked

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

KEY = "5e9d0000-0000-4000-8000-000000000001"


class People:
    """A server, and commands of people who have their stores in one home directory."""

    def __init__(self, site: SteadySite, home: Path) -> None:
        self.site = site
        self.home = home
        self.environment = {
            **os.environ,
            "XDG_DATA_HOME": str(home),
            "TIDEWIRE_URL": site.url,
            "TIDEWIRE_PASSWORD": PASSWORD,
            "PYTHONUNBUFFERED": "",
        }

    def add(self, *usernames: str) -> None:
        """Accounts without a login, as `users add` makes them, in a tenth of its time."""
        for username in usernames:
            asyncio.run(self._add(username))

    async def _add(self, username: str) -> None:
        account = await self.site.named(username)
        await self.site.done("POST", "/auth/logout", {}, by=account)

    def run(self, command: str, *arguments: str, stdin: str = "", **changes: str) -> Done:
        environment = {**self.environment, **changes}
        if command == "users":
            arguments = (*arguments, "--data-dir", str(self.site.data_dir))
        done = forked.run(
            [*PROGRAM, command, *arguments], env=environment, text=stdin, timeout=TIMEOUT_S
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    def start(self, *arguments: str) -> "Following":
        return Following(
            forked.Forked(
                [*PROGRAM, *arguments],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )


class Following:
    """A command that goes on."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        # A line that does not come must not hold the test for ever.
        self._watch = threading.Timer(TIMEOUT_S, process.kill)
        self._watch.start()

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def end(self) -> tuple[int, str]:
        """Wait for its end; exit code and stderr."""
        self._watch.cancel()
        _, err = self.process.communicate(timeout=TIMEOUT_S)
        assert "Traceback" not in err, err
        return self.process.returncode, err


@pytest.fixture
def people(tmp_path: Path) -> Iterator[People]:
    with SteadySite(tmp_path / "data") as site:
        people = People(site, tmp_path / "home")
        people.add("alice", "bob")
        yield people


# send


def test_send_prints_the_number_and_keeps_the_login_to_itself(people: People) -> None:
    done = people.run("send", "@bob", "Hello", "--user", "alice")
    assert (done.exit_code, done.out, done.err) == (0, "1\n", "")
    # The login is in the store now: no password is needed any more.
    done = people.run("send", "bob", "Again", "--user", "Alice", TIDEWIRE_PASSWORD="")
    assert (done.exit_code, done.out, done.err) == (0, "2\n", "")
    (store,) = people.home.glob("tidewire/*/alice.db")
    assert stat.S_IMODE(store.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.parent.stat().st_mode) == 0o700


def test_send_with_the_same_id_sends_once(people: People) -> None:
    for _ in range(2):
        done = people.run("send", "@bob", "Hello", "--id", KEY, "--user", "alice")
        assert (done.exit_code, done.out) == (0, "1\n")


def test_send_reads_standard_input(people: People, tmp_path: Path) -> None:
    store = str(tmp_path / "mine.db")
    done = people.run("send", "@bob", "-", "--user", "alice", "--store", store, stdin="a\nb\n")
    assert (done.exit_code, done.out) == (0, "1\n")
    done = people.run("tail", "@bob", "--no-follow", "--json", "--store", store)
    assert [line["text"] for line in map(json.loads, done.out.splitlines())] == ["a\nb"]
    done = people.run("send", "@alice", "x", "--user", "bob", "--store", store)
    assert done.exit_code == 2
    assert "is alice's" in done.err


def test_send_waits_for_the_second_tick(people: People) -> None:
    # The login and the chat are made first: only the way of the message is under the clock.
    assert people.run("send", "@bob", "w", "--user", "alice").out == "1\n"
    done = people.run(
        "send", "@bob", "x", "--wait", "delivered", "--timeout", "4", "--user", "alice"
    )
    assert (done.exit_code, done.out) == (3, "2\n")
    assert "stored, but not delivered in 4 s" in done.err
    bob = people.start("tail", "@alice", "-n", "1", "--user", "bob")
    assert bob.line().endswith("#2 alice: x")
    done = people.run(
        "send", "@bob", "y", "--wait", "delivered", "--timeout", "60", "--user", "alice"
    )
    assert (done.exit_code, done.out) == (0, "3\n"), done.err
    bob.process.send_signal(signal.SIGINT)
    assert bob.end()[0] == 130


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("@nobody", "x", "--user", "alice"), "there is no user named 'nobody'"),
        (("Some Team", "x", "--user", "alice"), "no group and no user called 'Some Team'"),
        (("@bob", "", "--user", "alice"), "content is empty"),
        (("@bob", "x", "--id", "no-uuid", "--user", "alice"), "not a UUID"),
        (("@bob", "x"), "say who you are: --user NAME"),
        (("@bob", "x", "--user", "eve"), "INVALID_CREDENTIALS"),
    ],
)
def test_send_that_cannot_be_says_why(
    people: People, arguments: tuple[str, ...], sentence: str
) -> None:
    done = people.run("send", *arguments)
    assert (done.exit_code, done.out) == (2, "")
    assert sentence in done.err


def test_send_without_a_server_sends_nothing_later(people: People) -> None:
    assert people.run("send", "@bob", "one", "--user", "alice").exit_code == 0
    people.site.kill()
    done = people.run("send", "@bob", "two", "--timeout", "1", "--user", "alice")
    assert (done.exit_code, done.out) == (2, "")
    assert "not sent: no connection" in done.err
    people.site.start()
    assert people.run("send", "@bob", "three", "--user", "alice").out == "2\n"


def test_send_asks_for_a_password_only_on_a_terminal(people: People) -> None:
    done = people.run("send", "@bob", "x", "--user", "alice", TIDEWIRE_PASSWORD="")
    assert (done.exit_code, done.out) == (2, "")
    assert "set TIDEWIRE_PASSWORD" in done.err


# tail


def test_tail_follows_and_ends_with_its_reader(people: People) -> None:
    people.run("send", "@bob", "one", "--user", "alice")
    people.run("send", "@bob", "two", "--user", "alice")
    # Alice's tail and Alice's send side by side: two devices of hers.
    tail = people.start("tail", "@bob", "--json", "--since", "1", "--user", "alice")
    first = json.loads(tail.line())
    assert (first["sequence"], first["text"], first["is_own"]) == (2, "two", True)
    people.run("send", "@alice", "three\nand four", "--user", "bob")
    done = people.run("send", "@bob", "five", "--user", "alice")
    assert "alice is active here already" in done.err
    second, third = json.loads(tail.line()), json.loads(tail.line())
    assert (second["sender"], second["text"]) == ("bob", "three\nand four")
    assert (third["sequence"], third["is_own"]) == (4, True)
    assert len(list(people.home.glob("tidewire/*/alice*.db"))) == 2
    # Its reader goes away; it ends although there is nothing to write.
    assert tail.process.stdout is not None
    tail.process.stdout.close()
    tail.process.stdout = None
    assert tail.end() == (0, "")


def test_tail_waits_for_a_server_that_comes_back(people: People) -> None:
    people.run("send", "@bob", "one", "--user", "alice")
    tail = people.start("tail", "@alice", "--user", "bob")
    assert tail.line().endswith("#1 alice: one")
    people.site.kill()
    people.site.start()
    people.run("send", "@bob", "two", "--user", "alice")
    assert tail.line().endswith("#2 alice: two")
    tail.process.send_signal(signal.SIGINT)
    code, err = tail.end()
    assert code == 130
    assert "offline" in err
    assert "connected" in err


def test_tail_begins_where_it_is_told_to(people: People) -> None:
    for number in range(1, 6):
        people.run("send", "@bob", f"number {number}", "--user", "alice")
    for arguments, expected in (
        (("--lines", "2"), [4, 5]),
        (("-n", "0"), []),
        (("--since", "0"), [1, 2, 3, 4, 5]),
        (("--since", "3"), [4, 5]),
        (("--since", "9"), []),
    ):
        done = people.run("tail", "@alice", "--no-follow", "--json", *arguments, "--user", "bob")
        assert done.exit_code == 0, done.err
        assert [json.loads(line)["sequence"] for line in done.out.splitlines()] == expected


# Changing messages.


def test_scripts_change_messages_and_tail_tells(people: People) -> None:
    people.run("send", "@bob", "helo", "--user", "alice")
    tail = people.start("tail", "@alice", "--json", "--user", "bob")
    assert json.loads(tail.line())["text"] == "helo"
    done = people.run("edit", "@bob", "1", "-", "--user", "alice", stdin="hello\n")
    assert (done.exit_code, done.out) == (0, "2\n"), done.err
    done = people.run("react", "@alice", "1", "👍", "--user", "bob", "--store", other(people))
    assert (done.exit_code, done.out) == (0, "3\n"), done.err
    done = people.run(
        "send", "@bob", "again", "--reply-to", "1", "--mention", "bob", "--user", "alice"
    )
    assert (done.exit_code, done.out) == (0, "4\n"), done.err
    done = people.run(
        "react", "@alice", "1", "👍", "--off", "--user", "bob", "--store", other(people)
    )
    assert done.exit_code == 0, done.err
    done = people.run("delete", "@bob", "1", "--reason", "a mistake", "--user", "alice")
    assert (done.exit_code, done.out) == (0, "6\n"), done.err
    told = [json.loads(tail.line()) for _ in range(5)]
    kinds = [(one.get("kind"), one["sequence"], one.get("target")) for one in told]
    assert kinds == [
        ("edit", 2, 1), ("react", 3, 1), (None, 4, None), ("react", 5, 1), ("delete", 6, 1),
    ]  # fmt: skip
    assert (told[0]["text"], told[1]["emoji"], told[1]["count"]) == ("hello", "👍", 1)
    assert (told[2]["reply_to"], len(told[2]["mentions"]), told[3]["is_on"]) == (1, 1, False)
    assert told[4]["reason"] == "a mistake"
    tail.process.send_signal(signal.SIGINT)
    assert tail.end()[0] == 130
    done = people.run("tail", "@alice", "--no-follow", "--user", "bob")
    first, second = done.out.splitlines()
    assert first.endswith("#1 alice: [deleted]")
    assert second.endswith("#4 alice (to #1): again")
    # Who goes on from a number gets what was changed since, in order.
    done = people.run("tail", "@alice", "--no-follow", "--since", "2", "--user", "bob")
    lines = [line.split(" ", 2)[2] for line in done.out.splitlines()]
    assert lines == [
        "#3 bob reacted to #1: 👍 (1)",
        "#4 alice (to #1): again",
        "#5 bob took back from #1: 👍 (0)",
        "#6 alice deleted #1 (a mistake)",
    ]
    fresh = str(people.home.parent / "fresh.db")
    done = people.run(
        "tail", "@alice", "--no-follow", "--since", "2", "--user", "bob", "--store", fresh
    )
    assert [line.split(" ", 2)[2] for line in done.out.splitlines()] == lines


def other(people: People) -> str:
    """The store of another device: the first one is in use."""
    return str(people.home.parent / "other.db")


def test_change_that_is_refused_says_why(people: People) -> None:
    people.run("send", "@bob", "hello", "--user", "alice")
    for command, why in (
        (("edit", "@alice", "1", "mine", "--user", "bob"), "FORBIDDEN"),
        (("delete", "@alice", "1", "--user", "bob"), "FORBIDDEN"),
        (("react", "@alice", "7", "👍", "--user", "bob"), "TARGET_NOT_FOUND"),
        (("react", "@alice", "1", "two words", "--user", "bob"), "no spaces"),
        (("edit", "@alice", "0", "x", "--user", "bob"), "NUMBER"),
    ):
        done = people.run(*command)
        assert (done.exit_code, done.out) == (2, ""), command
        assert why in done.err
    # Nothing of it stays in the outbox to fail again.
    done = people.run("send", "@alice", "still here", "--user", "bob")
    assert (done.exit_code, done.out) == (0, "2\n"), done.err
    people.run("delete", "@bob", "1", "--user", "alice")
    done = people.run("delete", "@bob", "1", "--user", "alice")
    assert (done.exit_code, done.out) == (0, "3\n"), "it is done already"


def test_tail_of_a_group_by_its_name(people: People) -> None:
    program = (
        "import asyncio, sys\n"
        "from tidewire.client import Client\n"
        "async def main(url, password, store):\n"
        "    async with await Client.login(url, 'alice', password, store=store) as me:\n"
        "        await (await (await me.group('The Team', 'bob')).send('Hi team')).stored()\n"
        "asyncio.run(main(*sys.argv[1:]))\n"
    )
    store = str(people.home.parent / "group.db")
    subprocess.run(
        [sys.executable, "-c", program, people.site.url, PASSWORD, store], check=True, timeout=30
    )
    done = people.run("tail", "the team", "--no-follow", "--user", "bob")
    assert done.out.endswith("#1 alice: Hi team\n")


# chat


def test_passwd_changes_the_password_and_says_what_ended(people: People) -> None:
    assert people.run("send", "bob", "hello", "--user", "alice").exit_code == 0
    new = "another password"
    wrong = people.run("passwd", "--user", "alice", "--password-stdin", stdin=f"wrong\n{new}\n")
    assert (wrong.exit_code, wrong.out) == (2, "")
    assert "INVALID_CREDENTIALS" in wrong.err
    given = f"{PASSWORD}\n{new}\n"
    done = people.run("passwd", "--user", "alice", "--password-stdin", stdin=given)
    assert (done.exit_code, done.err) == (0, "")
    assert done.out == "Your password is changed; no other login was open.\n"
    # The login that did it goes on; a new one needs the new password.
    assert people.run("send", "bob", "again", "--user", "alice").exit_code == 0
    elsewhere = ("send", "bob", "from here", "--user", "alice", "--store", f"{people.home}/new.db")
    assert people.run(*elsewhere).exit_code == 2
    assert people.run(*elsewhere, TIDEWIRE_PASSWORD=new).exit_code == 0


def on_a_terminal(people: People, *arguments: str) -> tuple["subprocess.Popen[bytes]", int]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(
        [*PROGRAM, "chat", *arguments],
        env=people.environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    return process, ours


def read_until(terminal: int, process: "subprocess.Popen[bytes]", *texts: str) -> None:
    watch = threading.Timer(TIMEOUT_S, process.kill)
    watch.start()
    shown = b""
    try:
        while not all(text.encode() in shown for text in texts):
            shown += os.read(terminal, 65_536)
    except OSError:
        raise AssertionError(shown.decode(errors="replace")) from None
    finally:
        watch.cancel()


def test_chat_registers_runs_on_a_terminal_and_quits(people: People) -> None:
    process, terminal = on_a_terminal(people, "--user", "carol", "--register")
    try:
        read_until(terminal, process, "carol", "connected", "Quit")
        os.write(terminal, b"\x11")
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
    assert people.run("send", "@carol", "Hi", "--user", "bob").out == "1\n"


def test_chat_whose_login_was_ended_asks_again_next_time(people: People) -> None:
    process, terminal = on_a_terminal(people, "--user", "alice")
    try:
        read_until(terminal, process, "connected")
        people.run("users", "passwd", "alice", "--password-stdin", stdin=PASSWORD)
        read_until(terminal, process, "logged out")
        os.write(terminal, b"\x11")
        read_until(terminal, process, "start again to log in")
        assert process.wait(PATIENCE_S) == 2
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
    done = people.run("send", "@bob", "x", "--user", "alice", TIDEWIRE_PASSWORD="")
    assert "there is no login yet" in done.err
    assert people.run("send", "@bob", "x", "--user", "alice").out == "1\n"


@pytest.mark.parametrize(
    ("missing", "command", "sentence"),
    [
        (
            "textual",
            ("chat", "--user", "x"),
            "textual is not installed; pip install 'tidewire[chat]'",
        ),
        ("uvicorn", ("serve",), "uvicorn is not installed; pip install 'tidewire[server]'"),
        ("typer", (), "typer is not installed; pip install 'tidewire[chat]' for the chat"),
    ],
)
def test_command_without_its_extra_says_what_to_install(
    missing: str, command: tuple[str, ...], sentence: str, tmp_path: Path
) -> None:
    program = (
        f"import sys; sys.modules[{missing!r}] = None; sys.argv[1:] = {list(command)!r}\n"
        "from tidewire.runtime.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode != 0
    assert done.stdout == ""
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_send_needs_neither_textual_nor_the_server(people: People) -> None:
    program = (
        "import sys\n"
        "for name in ('textual', 'rich', 'uvicorn', 'litestar', 'argon2', 'jwt'):\n"
        "    sys.modules[name] = None\n"
        "sys.argv[1:] = ['send', '@bob', 'x', '--user', 'alice']\n"
        "from tidewire.runtime.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=people.environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


def test_chat_without_a_terminal_says_so_and_ends() -> None:
    done = tidewire("chat", "--user", "alice")
    assert done.exit_code == 2
    assert "needs a terminal" in done.err
