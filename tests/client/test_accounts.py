"""Logins and tokens: kept, renewed in time, refused, ended."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from tests.client.people import QUICK, People, next_event
from tests.e2e.chatting import PASSWORD, PATIENCE_S, Site, eventually
from tidewire.client import (
    Client,
    ClientClosed,
    ConnectionState,
    LoginNeeded,
    MessageReceived,
    RefusedByServer,
    ServerUnreachable,
    StoreUnusable,
)
from tidewire.domain.errors import ErrorCode

pytestmark = pytest.mark.slow  # each talks to a real server


async def test_login_outlives_the_process_and_a_wrong_password_opens_nothing(
    people: People,
) -> None:
    name = await people.register("alice")
    with pytest.raises(RefusedByServer) as refused:
        await Client.login(people.site.url, name, "wrong password")
    assert refused.value.reason == "INVALID_CREDENTIALS"
    with pytest.raises(RefusedByServer, match="taken") as taken:
        await Client.register(people.site.url, name, PASSWORD)
    assert taken.value.code is ErrorCode.CONFLICT
    alice = await people.open("alice")
    assert (await alice.me()).username == name


async def test_client_without_a_login_says_so(people: People) -> None:
    async with Client(people.site.url) as nobody:
        with pytest.raises(LoginNeeded, match="login_needed"):
            await nobody.ready()
        with pytest.raises(LoginNeeded):
            await nobody.chat("chat_1").send("anybody?")
        with pytest.raises(LoginNeeded):
            await nobody.me()


async def test_open_registers_once_and_comes_back(people: People) -> None:
    url, name, store = people.site.url, people.name("ann"), people.store("ann")

    async def opened(password: str = PASSWORD, **more: Any) -> Client:
        return await Client.open(url, name, password, options=QUICK, **more)

    with pytest.raises(RefusedByServer) as missing:
        await opened(register="never")
    assert missing.value.code is ErrorCode.INVALID_CREDENTIALS
    async with await opened(store=store, display_name="Ann") as ann:
        await ann.ready()
        user_id = ann.user_id
        assert (await ann.me()).display_name == "Ann"
    # The login of the store is used: the password is not even looked at.
    async with await opened("not looked at", store=store) as ann:
        await ann.ready()
        assert ann.user_id == user_id
        await ann.logout()
    with pytest.raises(RefusedByServer) as wrong:
        await opened("a wrong password", store=store)
    assert wrong.value.code is ErrorCode.INVALID_CREDENTIALS
    async with await opened(store=store, register="never") as ann:
        await ann.ready()
        assert ann.user_id == user_id
    async with await opened(store=people.store("laptop")) as laptop:
        await laptop.ready()
        assert laptop.user_id == user_id
    with pytest.raises(RefusedByServer) as taken:
        await opened(register="always")
    assert taken.value.code is ErrorCode.CONFLICT
    with pytest.raises(StoreUnusable, match=name):
        await Client.open(url, people.name("eve"), PASSWORD, store=store)
    with pytest.raises(ValueError, match="if-missing"):
        await opened(register="perhaps")
    # Without a server what is in the store is there.
    away = await Client.open("http://127.0.0.1:9", name, PASSWORD, store=store, moved=True)
    async with away:
        assert away.known_chats() == []
    with pytest.raises(ServerUnreachable):
        await Client.open("http://127.0.0.1:9", name, PASSWORD)


async def test_function_that_gives_tokens_is_asked_for_them(people: People) -> None:
    await people.register("alice")
    alice = await people.open("alice")
    asked = []

    async def token() -> str:
        asked.append(1)
        return await alice._credentials.token(False)

    device_id = alice.rest.headers["X-Device-ID"]
    async with Client(people.site.url, token=token, device_id=device_id, options=QUICK) as again:
        await again.ready()
        assert again.user_id == alice.user_id
    assert asked == [1]


async def test_refused_token_closes_the_client(people: People) -> None:
    async with Client(people.site.url, token="nonsense", options=QUICK) as nobody:
        with pytest.raises(LoginNeeded, match="login_needed"):
            await nobody.ready()


async def test_ended_session_closes_the_client(people: People) -> None:
    await people.register("alice")
    alice = await people.open("alice")
    await alice.logout()
    async with asyncio.timeout(PATIENCE_S):
        assert str(await alice.wait_closed()) == "closed(session_revoked)"
    with pytest.raises(LoginNeeded, match="session_revoked") as ended:
        await alice.ready()
    assert isinstance(ended.value, ClientClosed)
    await alice.close()
    async with Client(people.site.url, store=people.store("alice")) as again:
        with pytest.raises(LoginNeeded, match="login_needed"):
            await again.ready()


async def test_token_is_renewed_before_it_ends_and_nothing_is_lost(people: People) -> None:
    alice, bob, chat = await people.pair()
    before = alice._credentials._access
    texts = [f"number {n}" for n in range(60)]
    for number, text in enumerate(texts):
        await chat.send(text)
        if number % 20 == 5:
            # As if five minutes before the end had come.
            alice._credentials.renew_at_ms = 0
            alice.driver._tick()
    await alice.flush()
    await eventually(lambda: alice._credentials._access != before, "the token is renewed")
    seen: list[str] = []
    while len(seen) < len(texts):
        seen.append((await next_event(bob, MessageReceived)).message.text)
    assert seen == texts
    # It may be changing to the connection of its new token; it is not closed.
    async with asyncio.timeout(PATIENCE_S):
        await alice.ready()


async def test_token_that_ends_is_replaced(tmp_path: Path) -> None:
    """A server whose tokens live for a minute, which passes quickly for the client only."""
    with Site(tmp_path / "data", accounts__access_token_ms=60_000) as site:
        began_ms = time.time_ns() // 1_000_000
        async with await Client.register(site.url, "al", PASSWORD, options=QUICK) as alice:
            await alice.ready()
            due_at_ms = alice._credentials.renew_at_ms
            assert due_at_ms is not None
            # Whatever a busy machine takes from the registration to here.
            assert due_at_ms - began_ms > 40_000
            assert due_at_ms - alice.driver.now().wall_ms <= 48_000


async def test_password_is_changed_and_other_devices_are_closed(people: People) -> None:
    name = await people.register("alice")
    alice = await people.open("alice")
    other = await Client.login(people.site.url, name, PASSWORD, options=QUICK)
    async with other:
        await other.ready()
        tokens = alice._credentials._access
        with pytest.raises(RefusedByServer) as refused:
            await alice.change_password("wrong password", "another password")
        assert refused.value.reason == "INVALID_CREDENTIALS"
        assert alice._credentials._access == tokens, "a wrong password is not a wrong token"

        assert await alice.change_password(PASSWORD, "another password") == 1
        async with asyncio.timeout(PATIENCE_S):
            assert str(await other.wait_closed()) == "closed(session_revoked)"
    assert alice.status.state is ConnectionState.READY
    assert (await alice.me()).username == name


async def test_account_is_deleted_and_its_devices_are_closed(people: People) -> None:
    alice, bob, chat = await people.pair()
    await chat.send("goodbye")
    await alice.flush()
    with pytest.raises(RefusedByServer) as refused:
        await alice.delete_account("wrong password")
    assert refused.value.reason == "INVALID_CREDENTIALS"
    await alice.delete_account(PASSWORD)
    async with asyncio.timeout(PATIENCE_S):
        assert str(await alice.wait_closed()) == "closed(session_revoked)"
    event = await next_event(bob, MessageReceived)
    shown = await bob.user(event.message.sender_id)
    assert (shown.display_name, shown.is_deleted) == ("Deleted account", True)
