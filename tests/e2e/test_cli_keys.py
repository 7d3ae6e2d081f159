"""`tidewire keys` beside a server and without one. Slow: starts the program."""

import asyncio
from pathlib import Path

import pytest

from tests.e2e.chatting import Site
from tests.e2e.commands import tidewire

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


async def test_keys_are_rotated_while_people_are_logged_in(tmp_path: Path) -> None:
    """Sockets stay, old tokens stay good, new ones name the new key; also after a restart."""
    place = ("--data-dir", tmp_path)
    with Site(tmp_path) as site:
        ann, bob = await site.people("ann", "bob")
        chat_id = await site.direct(ann, bob)
        [old] = (await asyncio.to_thread(tidewire, "keys", "list", "--json", *place)).json["keys"]
        assert old["is_signing"]
        async with site.phone(ann) as phone:
            done = await asyncio.to_thread(tidewire, "keys", "rotate", *place)
            assert done.exit_code == 0, done.err
            assert "No user has to log in again" in done.out
            assert f"{old['key_id']} checks its tokens until 20" in done.out
            await phone.say(chat_id, "the socket has stayed")
        await site.done("GET", "/users/me", by=ann)
        later = await site.login(ann)
        await site.done("GET", "/users/me", by=later)
        listed = (await asyncio.to_thread(tidewire, "keys", "list", "--json", *place)).json["keys"]
        assert [key["is_signing"] for key in listed] == [False, True]
        await site.restart()
        for account in (ann, later):
            await site.done("GET", "/users/me", by=account)

        # A key that was stolen: its tokens end, the login does not.
        done = await asyncio.to_thread(tidewire, "keys", "drop", old["key_id"], *place)
        assert done.exit_code == 0, done.err
        assert (await site.call("GET", "/api/v1/users/me", by=ann)).status_code == 401
        await site.done("GET", "/users/me", by=later)
        body = {"refresh_token": ann.refresh_token, "device_id": ann.device_id}
        await site.done("POST", "/auth/refresh", body)
        refused = await asyncio.to_thread(tidewire, "keys", "drop", listed[1]["key_id"], *place)
        assert refused.exit_code == 2
        assert "signs tokens now" in refused.err
        assert site.complaints() == []


def test_keys_are_rotated_without_a_server(tmp_path: Path) -> None:
    place = ("--data-dir", tmp_path)
    assert tidewire("users", "add", "bot", "--no-password", *place).exit_code == 0
    assert tidewire("keys", "rotate", "--signs-in", "5", *place).exit_code == 0
    listed = tidewire("keys", "list", *place).out.splitlines()
    assert len(listed) == 2
    assert "  signs tokens, until 20" in listed[0]
    assert "  will sign from 20" in listed[1]
    assert "no key" in tidewire("keys", "drop", "nonsense", *place).err
