"""Accounts from the command line, beside a server and without one. Slow: starts the program."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.commands import PROGRAM, TIMEOUT_S, Done, edited, one, tidewire
from tests.e2e.serving import serving
from tests.support import forked

pytestmark = pytest.mark.slow

PASSWORD = "correct horse battery"


def with_password(data_dir: Path, *arguments: str) -> Done:
    done = forked.run(
        [*PROGRAM, "users", *arguments, "--password-stdin", "--data-dir", str(data_dir)],
        text=f"{PASSWORD}\n",
        timeout=TIMEOUT_S,
    )
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("is_serving", [True, False], ids=["beside a server", "without one"])
def test_accounts_are_made_listed_and_locked(tmp_path: Path, is_serving: bool) -> None:
    place = ("--data-dir", tmp_path)
    with ExitStack() as stack:
        if is_serving:
            assert stack.enter_context(serving(tmp_path)).is_up
        assert with_password(tmp_path, "add", "alice").exit_code == 0
        taken = with_password(tmp_path, "add", "Alice")
        assert (taken.exit_code, taken.out) == (2, "")
        assert "Traceback" not in taken.err
        done = tidewire("users", "add", "bot", "--no-password", "--display-name", "A Bot", *place)
        assert done.exit_code == 0

        listed = tidewire("users", "list", "--json", *place).json["users"]
        assert [user["username"] for user in listed] == ["alice", "bot"]
        assert listed[1]["display_name"] == "A Bot"

        token = tidewire("tokens", "issue", "bot", "--label", "weather", *place)
        assert token.exit_code == 0
        assert token.out.count(".") == 2
        assert token.out not in token.err
        listed = tidewire("users", "sessions", "bot", *place).out
        assert listed.startswith("sess_")
        assert "  weather, 20" in listed
        assert tidewire("users", "sessions", "alice", *place).out == ""

        assert "no login was open" in with_password(tmp_path, "passwd", "alice").out
        assert "one login was ended" in tidewire("users", "disable", "bot", *place).out
        assert ", disabled 20" in tidewire("users", "list", *place).out
        assert tidewire("users", "enable", "bot", *place).exit_code == 0
        assert "disabled" not in tidewire("users", "list", *place).out

        said = tidewire("say", "alice", "bot", "Hello", *place)
        assert said.out.startswith("Stored for good: message 1 in chat_")
        assert len(tidewire("users", "invite", *place).out.strip()) > 16


def test_passwords_are_asked_for_and_never_taken_from_nowhere(tmp_path: Path) -> None:
    done = tidewire("users", "add", "alice", "--data-dir", tmp_path)
    assert (done.exit_code, done.out) == (2, "")
    assert "--password-stdin" in done.err
    unknown = tidewire("users", "disable", "alice", "--data-dir", tmp_path)
    assert (unknown.exit_code, unknown.out) == (2, "")
    assert "there is no database" in unknown.err
    assert not (tmp_path / "tidewire.db").exists()


def test_backup_and_counter_recovery_beside_a_server(tmp_path: Path) -> None:
    data_dir, file = tmp_path / "data", tmp_path / "backup.db"
    with serving(data_dir) as server:
        assert server.is_up
        place = ("--data-dir", data_dir)
        for name in ("alice", "bob"):
            assert tidewire("users", "add", name, "--no-password", *place).exit_code == 0
        assert tidewire("say", "alice", "bob", "one", *place).exit_code == 0
        assert tidewire("backup", data_dir, file).exit_code == 0

        chat_id = one(data_dir, "SELECT chat_id FROM chats")
        with edited(data_dir) as database:
            database.execute("DELETE FROM chat_counters")
        refused = tidewire("say", "alice", "bob", "two", *place)
        assert refused.exit_code == 2
        assert "recover-counter" in refused.err
        assert "durability_counter_missing_total 1.0" in server.get("/metrics")[1]
        assert "would be put" in tidewire("recover-counter", data_dir, chat_id).out
        done = tidewire("recover-counter", data_dir, chat_id, "--apply")
        assert done.out.startswith("Recovered: "), done.err
        assert tidewire("say", "alice", "bob", "two", *place).exit_code == 0
        assert server.end()[0] == 0
    assert tidewire("verify", file).exit_code == 0
    assert tidewire("verify", data_dir).exit_code == 0


def test_commands_beside_a_server_need_none_of_its_secrets(tmp_path: Path) -> None:
    """C3: the secret of the identity provider is in the server's environment, not in this one."""
    file = tmp_path / "tidewire.toml"
    file.write_text('[identity]\nissuer = "https://id.example.org"\n')
    place = ("--data-dir", tmp_path)
    with serving(tmp_path, "--set", f"identity.secret={'s' * 40}") as server:
        assert server.is_up
        for arguments in (
            ("users", "add", "bot", "--no-password"),
            ("users", "list"),
            ("tokens", "issue", "bot"),
            ("users", "disable", "bot"),
            ("keys", "list"),
            ("users", "add", "carol", "--external-sub", "auth0|42", "--display-name", "Carol C."),
        ):
            done = tidewire(*arguments, *place)
            assert (done.exit_code, done.err.count("error")) == (0, 0), done.err
        # A person of the identity provider, before the first login (C4).
        shown = tidewire("users", "show", "--external-sub", "auth0|42", "--json", *place).json
        assert (shown["username"], shown["display_name"]) == ("carol", "Carol C.")
        assert shown == tidewire("users", "show", "carol", "--json", *place).json
        again = tidewire("users", "add", "carla", "--external-sub", "auth0|42", *place)
        assert (again.exit_code, again.out) == (2, "")
        assert "carol" in again.err
    assert "carol (Carol C.)" in tidewire("users", "show", "carol", *place).out
    assert "auth0|7" in tidewire("users", "show", "--external-sub", "auth0|7", *place).err
    assert "name either" in tidewire("users", "show", *place).err
    # Nor without one: an operator makes accounts before the first start.
    assert tidewire("users", "enable", "bot", *place).exit_code == 0
    # A server needs it all the same.
    assert "secret" in tidewire("serve", "--port", "0", *place).err
