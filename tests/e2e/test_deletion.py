"""An account that was marked as deleted by a process that died then: the next one goes on with it.
Slow: starts the program."""

import asyncio
import uuid
from contextlib import closing
from pathlib import Path
from secrets import randbits
from typing import Any

import pytest

from tests.client.people import QUICK
from tests.e2e.chatting import PASSWORD, Site
from tests.e2e.commands import HALFWAY as HALFWAY_PROGRAM
from tests.e2e.commands import tidewire
from tests.support.halfway import HALFWAY
from tidewire.client import Client
from tidewire.domain.ids import ChatId, ClientMessageId, UlidSource, UserId
from tidewire.domain.messages import SendMessage
from tidewire.engines.sqlite.database import DATABASE_NAME
from tidewire.engines.sqlite.inspect import open_for_reading
from tidewire.engines.sqlite.storage import SqliteStorage

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

SECRET = "the secret of alice"
MESSAGES = 3_000


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
            async with asyncio.timeout(60):
                await bob.ready()
                for group in groups:
                    await left_to(bob, group)


async def said(data_dir: Path, user_id: str, chat_id: str) -> None:
    """What a person has written in years, into a store that no server uses."""
    store = await SqliteStorage.open(data_dir)
    ids = UlidSource(randbits)
    for start in range(0, MESSAGES, 500):
        drafts = [
            SendMessage(
                chat_id=ChatId(chat_id),
                sender_id=UserId(user_id),
                client_message_id=ClientMessageId(str(uuid.uuid4())),
                message_id=ids.message_id(start),
                content=SECRET,
            )
            for _ in range(500)
        ]
        await store.append(drafts, now_ms=1_700_000_000_000)
    await store.close()


def count(data_dir: Path, condition: str) -> int:
    """Of what is stored, beside a server or without one."""
    with closing(open_for_reading(data_dir / DATABASE_NAME)) as database:
        found: Any = database.execute(f"SELECT count(*) FROM messages WHERE {condition}").get
        return int(found)


WITH_TEXT = "content <> ''"


class HalfwaySite(Site):
    program = HALFWAY_PROGRAM


async def test_erasure_that_a_person_asked_for_goes_on_after_a_kill(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    site = Site(data_dir)
    with site:
        async with (
            await Client.register(site.url, "bob", PASSWORD, options=QUICK) as bob,
            await Client.register(
                site.url, "alice", PASSWORD, store=tmp_path / "alice.db", options=QUICK
            ) as alice,
        ):
            await asyncio.gather(alice.ready(), bob.ready())
            chat_id = (await alice.direct("bob")).chat_id
            alice_id = alice.user_id
    assert alice_id is not None
    await said(data_dir, alice_id, chat_id)

    with HalfwaySite(data_dir) as dying:
        async with Client(
            dying.url, store=tmp_path / "alice.db", options=QUICK, moved=True
        ) as alice:
            asking = asyncio.ensure_future(alice.delete_account(PASSWORD, erase_messages=True))
            async with asyncio.timeout(60):
                while count(data_dir, WITH_TEXT) > MESSAGES - HALFWAY:  # noqa: ASYNC110 - asks the file
                    await asyncio.sleep(0.02)
            dying.kill()
            await asyncio.wait([asking])
    assert count(data_dir, WITH_TEXT) == MESSAGES - HALFWAY, "it was killed in the middle"

    with site:
        async with asyncio.timeout(60):
            while count(data_dir, WITH_TEXT):  # noqa: ASYNC110 - asks the file
                await asyncio.sleep(0.02)
    assert count(data_dir, "deleted_by IS NOT NULL") == MESSAGES
    assert count(data_dir, "target IS NOT NULL") == MESSAGES, "each was deleted once"


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
