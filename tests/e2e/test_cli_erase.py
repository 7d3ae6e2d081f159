"""`tidewire users erase`, beside a server and without one. Slow: starts the program."""

import asyncio
from pathlib import Path

import pytest

from tests.client.people import QUICK
from tests.e2e.chatting import PASSWORD, Site
from tests.e2e.commands import tidewire
from tidewire.client import Client

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

SECRET = "the secret of alice"


async def shows_no_secret(client: Client, chat_id: str) -> None:
    """Wait until the device has erased what it held."""
    async with asyncio.timeout(60):
        while any(one.text == SECRET for one in await client.chat(chat_id).messages()):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_operator_erases_a_person_beside_a_server(tmp_path: Path) -> None:
    site = Site(tmp_path / "data")
    with site:
        async with (
            await Client.register(site.url, "alice", PASSWORD, options=QUICK) as alice,
            await Client.register(site.url, "bob", PASSWORD, options=QUICK) as bob,
        ):
            await asyncio.gather(alice.ready(), bob.ready())
            chat = await alice.direct("bob")
            for _ in range(3):
                await (await chat.send(SECRET)).stored()
            async with asyncio.timeout(60):
                while len(await bob.chat(chat.chat_id).messages()) < 3:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            place = ("--data-dir", tmp_path / "data")
            asked = await asyncio.to_thread(tidewire, "users", "erase", "alice", *place)
            assert (asked.exit_code, asked.out) == (2, "")
            done = await asyncio.to_thread(tidewire, "users", "erase", "alice", "--yes", *place)
            assert done.exit_code == 0, done.err
            assert "Messages deleted: 3, in chats: 1" in done.out
            await shows_no_secret(bob, chat.chat_id)
            deleted = await bob.chat(chat.chat_id).messages()
            assert [one.is_deleted for one in deleted] == [True] * 3
            # The name went last: there is no such account any more.
            again = await asyncio.to_thread(tidewire, "users", "erase", "alice", "--yes", *place)
            assert (again.exit_code, again.err) == (2, "tidewire: error: no such user: alice\n")


def test_operator_erases_a_person_without_a_server(tmp_path: Path) -> None:
    place = ("--data-dir", tmp_path)
    for name in ("alice", "bob"):
        assert tidewire("users", "add", name, "--no-password", *place).exit_code == 0
    assert tidewire("say", "alice", "bob", SECRET, *place).exit_code == 0
    near, far = tmp_path / "backups" / "monday.db", tmp_path.parent / "far.db"
    near.parent.mkdir()
    for file in (near, far):
        assert tidewire("backup", tmp_path, file).exit_code == 0
    done = tidewire("users", "erase", "alice", "--yes", *place)
    assert done.exit_code == 0, done.err
    assert "Messages deleted: 1, in chats: 1" in done.out
    # Backups still have the texts. It knows those that lie here, and says that there may be more.
    assert f"- {near}" in done.out
    assert "Backups that were put elsewhere hold it as well." in done.out
    assert tidewire("verify", tmp_path).exit_code == 0
