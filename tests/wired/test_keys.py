"""A key that goes takes the sockets with it that its tokens opened. Slow: a whole server."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.chatting import Account, Phone, new_key
from tests.wired.site import WiredSite, wired
from tidewire.accounts.keys import without_key
from tidewire.runtime import lifecycle
from tidewire.runtime.clock import SystemClock
from tidewire.runtime.token_keys import KeyFile

pytestmark = pytest.mark.slow


async def a_bot(site: WiredSite) -> Account:
    """It has a token for a year."""
    arguments: dict[str, Any] = {"username": "bot", "password": None, "display_name": None}
    await site.server.operations.run("users.add", arguments)
    asked = {"username": "bot", "label": "weather", "days": None}
    issued = await site.server.operations.run("tokens.issue", asked)
    return Account(
        username="bot",
        user_id=str(issued["user_id"]),
        device_id=new_key(),
        session_id=str(issued["session_id"]),
        token=str(issued["token"]),
        refresh_token="",
    )


async def is_closed_by(phone: Phone) -> str:
    """Why the server closed it."""
    closing = (await phone.get("connection_closing"))["payload"]
    assert await phone.closed() == 1008
    return str(closing["reason"])


async def test_dropped_key_closes_the_sockets_of_its_tokens(tmp_path: Path) -> None:
    keys = KeyFile(tmp_path)
    old = keys.ring.keys[0].key_id
    async with wired(tmp_path, keys) as site:
        bot = await a_bot(site)
        async with site.phone(bot) as phone:
            await site.server.operations.run("keys.rotate", {"minutes": None})
            # Made with the new key, while the old one is still good.
            [ann] = await site.people("ann")
            chat_id = await site.direct(ann, bot)
            await phone.say(chat_id, "a rotation closes nothing")
            await site.server.operations.run("keys.drop", {"key_id": old})
            assert await is_closed_by(phone) == "token_expired"
        assert (await site.call("GET", "/api/v1/users/me", by=bot)).status_code == 401
        async with site.phone(ann) as phone:
            await phone.say(chat_id, "other tokens are good")


def dropped_elsewhere(data_dir: Path, key_id: str) -> None:
    """Another process wrote the file."""
    other = KeyFile(data_dir)
    other.write(without_key(other.ring.keys, key_id, now_ms=SystemClock().wall_ms()))


async def read_again(site: WiredSite) -> None:
    await lifecycle._tend_keys(site.server)


async def list_keys(site: WiredSite) -> None:
    await site.server.operations.run("keys.list", {})


@pytest.mark.parametrize("read", [read_again, list_keys])
async def test_key_that_is_gone_from_the_file_closes_sockets_when_it_is_read(
    tmp_path: Path, read: Callable[[WiredSite], Any]
) -> None:
    keys = KeyFile(tmp_path)
    old = keys.ring.keys[0].key_id
    async with wired(tmp_path, keys) as site:
        bot = await a_bot(site)
        await site.server.operations.run("keys.rotate", {"minutes": None})
        async with site.phone(bot) as phone:
            dropped_elsewhere(tmp_path, old)
            await read(site)
            assert await is_closed_by(phone) == "token_expired"
