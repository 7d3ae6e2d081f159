"""An account that was marked as deleted by a process that died then: the next one goes on with it.
Slow: starts the program."""

import asyncio
from pathlib import Path

import pytest

from tests.client.people import QUICK
from tests.e2e.chatting import PASSWORD, Site
from tests.e2e.commands import tidewire
from tidewire.client import Client
from tidewire.domain.ids import UserId
from tidewire.engines.sqlite.storage import SqliteStorage

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


async def marked(data_dir: Path, user_id: str) -> None:
    """What is on the disk if the process dies right after the first act."""
    store = await SqliteStorage.open(data_dir)
    await store.begin_deletion(UserId(user_id), now_ms=1_900_000_000_000)
    await store.close()


async def left_to(bob: Client, group: str) -> None:
    """Wait until bob is alone in the group, as its owner."""
    while len(await bob.chat(group).members()) > 1:  # noqa: ASYNC110 - the server is asked
        await asyncio.sleep(0.05)
    (left,) = await bob.chat(group).members()
    assert (left.user_id, left.role) == (bob.user_id, "owner")


async def test_deletion_goes_on_after_a_crash(tmp_path: Path) -> None:
    site = Site(tmp_path / "data")
    with site:
        async with (
            await Client.register(site.url, "alice", PASSWORD, options=QUICK) as alice,
            await Client.register(site.url, "bob", PASSWORD, store=tmp_path / "bob.db") as bob,
        ):
            await asyncio.gather(alice.ready(), bob.ready())
            groups = [(await alice.group(f"group {n}", "bob")).chat_id for n in range(3)]
            alice_id = alice.user_id
    assert alice_id is not None
    await marked(tmp_path / "data", alice_id)

    with site:
        async with Client(site.url, store=tmp_path / "bob.db", options=QUICK, moved=True) as bob:
            async with asyncio.timeout(20):
                await bob.ready()
                for group in groups:
                    await left_to(bob, group)


def test_operator_deletes_an_account_only_if_it_is_meant(tmp_path: Path) -> None:
    place = ("--data-dir", tmp_path)
    assert tidewire("users", "add", "bot", "--no-password", *place).exit_code == 0
    asked = tidewire("users", "delete", "bot", *place)
    assert (asked.exit_code, asked.out) == (2, "")
    assert "give --yes" in asked.err
    for _ in range(2):
        done = tidewire("users", "delete", "bot", "--yes", *place)
        assert done.out == "The account of bot is deleted; no login was open.\n"
    assert ", deleted 20" in tidewire("users", "list", *place).out
    assert tidewire("users", "enable", "bot", *place).exit_code == 2
    assert tidewire("users", "add", "bot", "--no-password", *place).exit_code == 2
    trail = tidewire("audit", "--action", "account.deleted", *place).out
    assert trail.count("\n") == 1
