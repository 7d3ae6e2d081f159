"""The audit trail of a real server: its files, its command, its lines, and fail2ban's filter on
them. Slow: starts the program."""

import json
import re
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.client.people import QUICK
from tests.e2e.chatting import Site
from tests.e2e.commands import PROGRAM, TIMEOUT_S, tidewire
from tests.e2e.serving import ServerProcess, serving
from tests.tidy.repository import ROOT
from tidewire.client import Client
from tidewire.runtime.audit_files import read_trail

pytestmark = pytest.mark.slow

PASSWORD = "correct horse battery"
DEVICE = "00000001-0000-4000-8000-000000000000"


def post(server: ServerProcess, path: str, body: dict[str, Any], address: str) -> int:
    request = urllib.request.Request(
        f"{server.url}/api/v1{path}",
        json.dumps(body).encode(),
        {"content-type": "application/json", "x-forwarded-for": address},
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            status: int = response.status
            return status
    except urllib.error.HTTPError as error:
        return error.code


def log_in(server: ServerProcess, password: str, address: str, username: str = "anna") -> int:
    body = {"username": username, "password": password, "device_id": DEVICE}
    return post(server, "/auth/login", body, address)


def a_server_with_tries(data_dir: Path) -> tuple[ServerProcess, str]:
    """A server at which people and strangers have tried to get in, ended; and its log."""
    settings = ("server.trusted_proxies=127.0.0.1", "accounts.registration=open")
    with serving(data_dir, *(each for one in settings for each in ("--set", one))) as server:
        body = {"username": "anna", "password": PASSWORD, "device_id": DEVICE}
        assert post(server, "/auth/register", body, "192.0.2.1") == 201
        assert log_in(server, PASSWORD, "192.0.2.1") == 200
        assert log_in(server, "wrong password", "203.0.113.9") == 401
        assert log_in(server, "wrong password", "2001:db8::9", "no-such-person") == 401
        assert tidewire("users", "disable", "anna", "--data-dir", data_dir).exit_code == 0
        _, err = server.end()
    return server, err


@pytest.mark.timeout(240)
def test_trail_is_printed_and_filtered_beside_a_server_and_without_one(tmp_path: Path) -> None:
    place = ("--data-dir", tmp_path, "--json")

    def trail(*options: str) -> list[dict[str, Any]]:
        done = tidewire("audit", *options, *place)
        assert done.exit_code == 0
        return [json.loads(line) for line in done.out.splitlines()]

    a_server_with_tries(tmp_path)
    assert tidewire("users", "enable", "anna", "--data-dir", tmp_path).exit_code == 0

    whole = trail()
    assert [record["action"] for record in whole] == [
        "account.created",
        "login",
        "login",
        "session.ended",
        "login.failed",
        "login.failed",
        "account.disabled",
        "operator.command",
        "account.enabled",
        "operator.command",
    ]
    anna = whole[0]["actor"]
    assert {record["address"] for record in trail("--actor", anna)} == {"192.0.2.1"}
    failed = trail("--action", "login.failed")
    assert [record["address"] for record in failed] == ["203.0.113.9", "2001:db8::9"]
    assert (failed[0]["target"], failed[0]["reason"]) == (anna, "invalid_credentials")
    assert "target" not in failed[1]
    assert len(trail("--target", anna)) == 7
    assert len(trail("--action", "account", "--actor", "operator")) == 2
    assert trail("--address", "203.0.113.9") == failed[:1]
    assert trail("--since", "1h") == whole
    # The last ones may be of one millisecond.
    last_ms = whole[-1]["at"]
    assert trail("--since", last_ms) == [record for record in whole if record["at"] >= last_ms]
    assert trail("--since", "2031-05-04T11:20:07.412Z") == []
    assert PASSWORD not in json.dumps(whole)
    assert {file.stat().st_mode & 0o777 for file in tmp_path.glob("audit*.jsonl")} == {0o600}

    shown = tidewire("audit", "--action", "login.failed", "--data-dir", tmp_path)
    assert "login.failed" in shown.out.splitlines()[0]
    assert "address=203.0.113.9" in shown.out.splitlines()[0]
    wrong = tidewire("audit", "--since", "yesterday", "--data-dir", tmp_path)
    assert wrong.exit_code == 2
    assert "neither a length" in wrong.err
    wrong = tidewire("audit", "--action", "logout", "--data-dir", tmp_path)
    assert wrong.exit_code == 2
    assert "is none of" in wrong.err


@pytest.mark.timeout(240)
def test_trail_is_followed_while_a_server_writes_it(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        assert server.is_up
        follower = subprocess.Popen(
            [*PROGRAM, "audit", "--follow", "--json", "--data-dir", str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert follower.stdout is not None
            # The first may be there before it begins; the second is added while it follows.
            for _ in range(2):
                assert log_in(server, "wrong password", "192.0.2.1") == 401
                assert json.loads(follower.stdout.readline())["action"] == "login.failed"
        finally:
            follower.kill()
            follower.wait()
            assert follower.stdout is not None
            follower.stdout.close()


async def test_members_roles_and_keys_are_recorded_with_the_address(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with Site(data_dir) as site:
        async with (
            await Client.register(site.url, "alice", PASSWORD, options=QUICK) as alice,
            await Client.register(site.url, "bob", PASSWORD, options=QUICK) as bob,
        ):
            group = await alice.group("crew", "bob")
            await group.hand_over(str(bob.user_id))
            await group.leave()
            alice_id = alice.user_id
        assert tidewire("keys", "rotate", "--data-dir", data_dir).exit_code == 0
        site.server.end()
    assert tidewire("backup", data_dir, tmp_path / "a.backup").exit_code == 0
    records = read_trail(data_dir)
    of_chat = [record for record in records if record.chat_id == group.chat_id]
    assert [record.action.value for record in of_chat] == [
        "group.created",
        "group.handed_over",
        "member.left",
    ]
    assert {(record.actor, record.address) for record in of_chat} == {(alice_id, "127.0.0.1")}
    assert [record.action.value for record in records if record.action == "key.rotated"]
    assert (records[-1].command, records[-1].actor) == ("backup", "operator")


# What fail2ban puts in the place of <ADDR> (fail2ban.server.failregex.R_HOST), shortened to
# addresses as our lines have them.
ADDR = r"(?P<addr>(?:\d{1,3}\.){3}\d{1,3}|[0-9a-fA-F:]{2,39})"


def failregex() -> re.Pattern[str]:
    """Of the filter in docs/operations.md."""
    text = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    (regex,) = re.findall(r"^failregex = (.+)$", text, re.MULTILINE)
    return re.compile(regex.replace("<ADDR>", ADDR))


@pytest.mark.timeout(240)
def test_fail2ban_filter_of_the_documents_finds_failures_and_nothing_else(tmp_path: Path) -> None:
    _, err = a_server_with_tries(tmp_path)
    log = err.splitlines()
    kept = [
        line for file in tmp_path.glob("audit*.jsonl") for line in file.read_text().splitlines()
    ]
    for lines in (log, kept):
        assert len(lines) >= 8
        found = [match["addr"] for line in lines if (match := failregex().search(line))]
        assert found == ["203.0.113.9", "2001:db8::9"]
    assert sum('"event":"audit"' in line for line in log) == 8
