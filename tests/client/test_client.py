"""Clients against a real server: what people do, and what happens when the line is cut."""

import asyncio
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from tests.client.people import QUICK, People, next_event, told_of
from tests.e2e.chatting import PASSWORD, PATIENCE_S, Site, eventually
from tests.support.ports import free_port
from tidewire.client import (
    Chat,
    ChatUpdated,
    Client,
    ClientClosed,
    ClientError,
    ClientOptions,
    ConnectionState,
    InvalidMessage,
    Message,
    MessageFailed,
    MessageReceived,
    MessageRefused,
    MessageStored,
    MessageTooLarge,
    OutboxFull,
    RefusedByServer,
    ServerUnreachable,
    Tick,
    Typing,
)
from tidewire.client.effects import Effect, Now
from tidewire.client.transport import Received
from tidewire.domain import errors
from tidewire.domain.chats import ChatType
from tidewire.wire.server_frames import ChatUpdateFrame

pytestmark = pytest.mark.slow  # each talks to a real server


def texts(messages: Iterable[Message]) -> list[str]:
    return [message.text for message in messages]


async def synced(chat: Chat, count: int) -> list[str]:
    """The texts of a chat, once there are so many."""
    async with asyncio.timeout(PATIENCE_S):
        while len(held := await chat.messages(limit=1_000)) < count:
            await next_event(chat._client, MessageReceived | MessageStored)  # type: ignore[arg-type]
    return texts(held)


async def test_message_goes_from_one_to_the_other_and_its_ticks_come_back(people: People) -> None:
    alice, bob, chat = await people.pair()
    sent = await chat.send("hi")
    assert await sent.stored() == 1
    event = await next_event(bob, MessageReceived)
    assert (event.message.text, event.message.is_own, event.redelivered) == ("hi", False, False)
    assert event.message.tick is None
    await sent.delivered()
    assert str(sent.tick) == "delivered"
    theirs = bob.chat(chat.chat_id)
    assert theirs.unread == 1
    await theirs.read()
    assert theirs.unread == 0
    await sent.read()
    [mine] = await chat.messages()
    assert (mine.tick, sent.tick) == (Tick.READ, Tick.READ)
    assert (await next_event(alice, MessageStored)).message.text == "hi"


async def test_order_of_writing_is_the_order_of_the_chat(people: People) -> None:
    _, bob, chat = await people.pair()
    written = [f"number {n}" for n in range(200)]
    await asyncio.gather(*(chat.send(text) for text in written))
    assert await synced(bob.chat(chat.chat_id), 200) == written


async def test_what_is_stored_can_be_read_at_once(people: People) -> None:
    alice, bob, chat = await people.pair()
    theirs = bob.chat(chat.chat_id)

    async def chatter() -> None:
        while True:
            await (await theirs.send("in between")).stored()

    other = asyncio.create_task(chatter())
    for number in range(20):
        sent = await chat.send(f"number {number}")
        sequence = await sent.stored()
        assert sequence in [message.sequence for message in await chat.messages()]
        sequence = await (await chat.send(f"again {number}")).stored()
        assert sequence in [message.sequence for message in await chat.history()]
        await chat.send(f"flushed {number}")
        await alice.flush()
        assert f"flushed {number}" in texts(await chat.messages())
        sequence = await (await chat.send(f"found {number}")).stored()
        assert [one.sequence for one in await alice.search(f"found {number}")][:1] == [sequence]
    other.cancel()


@pytest.mark.parametrize("waits_for", ["message", "all"])
async def test_what_is_stored_in_a_chat_that_was_not_heard_of_can_be_read_at_once(
    people: People, monkeypatch: pytest.MonkeyPatch, waits_for: str
) -> None:
    """In a cluster the push that announces a chat may be slower than the answer to a message."""
    alice, bob, _ = await people.pair()
    core = bob.driver.core
    receive = core.receive

    def receive_no_change(frame: Received, now: Now) -> Sequence[Effect]:
        return () if isinstance(frame, ChatUpdateFrame) else receive(frame, now)

    monkeypatch.setattr(core, "receive", receive_no_change)
    group = await alice.group("team", (await bob.me()).username)
    theirs = bob.chat(group.chat_id)
    sent = await theirs.send("first")
    async with asyncio.timeout(PATIENCE_S):
        await (sent.stored() if waits_for == "message" else bob.flush())
    assert texts(await theirs.messages()) == ["first"]
    await group.send("second")
    assert await synced(theirs, 2) == ["first", "second"]


async def test_id_is_one_whatever_its_case(people: People) -> None:
    alice, _, chat = await people.pair()
    key = "5E9D0000-ABCD-4000-8000-000000000001"
    sent = await chat.send("once", client_message_id=key)
    assert await sent.stored() == 1
    assert sent.client_message_id == key.lower()
    again = await chat.send("once", client_message_id=key.lower())
    assert await again.stored() == 1
    await alice.close()
    alice = await people.open("alice")
    third = await alice.chat(chat.chat_id).send("once", client_message_id=key)
    assert await third.stored() == 1
    assert texts(await alice.chat(chat.chat_id).messages()) == ["once"]


async def test_message_written_offline_goes_out_later(people: People) -> None:
    _, bob, chat = await people.pair()
    name = (await bob.me()).username
    await told_of(bob, chat)
    await bob.close()
    site = people.site
    closed = Client("http://127.0.0.1:9", store=people.store("bob"), options=QUICK, moved=True)
    async with closed:
        assert closed.known_chats() == [closed.chat(chat.chat_id)]
        sent = await closed.chat(chat.chat_id).send("from the tunnel")
        assert sent.tick is Tick.SENDING
        with pytest.raises(ServerUnreachable):
            await closed.find(name)
        assert closed.status.state in (ConnectionState.OFFLINE, ConnectionState.CONNECTING)
    bob = await people.open("bob", moved=True)
    assert bob.url == site.url
    await bob.flush()
    assert bob.outbox() == []
    assert await synced(chat, 1) == ["from the tunnel"]


async def test_events_come_again_until_they_are_confirmed(people: People) -> None:
    _, bob, chat = await people.pair()
    for text in ("one", "two", "three"):
        await chat.send(text)
    seen = []
    async for event in bob.events():
        if isinstance(event, MessageReceived):
            seen.append((event.message.text, event.redelivered))
            if len(seen) == 2:
                break  # "two" is not confirmed by this
    await bob.close()
    bob = await people.open("bob")
    again = []
    async for event in bob.events():
        if isinstance(event, MessageReceived):
            again.append(event.message.text)
            bob.confirm(event)
            if event.message.text == "three":
                break
    assert seen == [("one", False), ("two", False)]
    assert again == ["two", "three"]
    await bob.close()
    bob = await people.open("bob")
    await chat.send("four")
    event = await next_event(bob, MessageReceived)
    assert (event.message.text, event.redelivered) == ("four", False)


async def test_unconfirmed_event_is_marked_as_redelivered(people: People) -> None:
    _, bob, chat = await people.pair()
    await chat.send("one")
    async for event in bob.events():
        if isinstance(event, MessageReceived):
            assert not event.redelivered
            break
    await bob.close()
    bob = await people.open("bob")
    event = await next_event(bob, MessageReceived)
    assert (event.message.text, event.redelivered) == ("one", True)


async def test_reply_is_sent_once_however_often_it_is_given(people: People) -> None:
    _, bob, chat = await people.pair()
    await chat.send("question")
    event = await next_event(bob, MessageReceived)
    theirs = bob.chat(chat.chat_id)
    first, second = await asyncio.gather(
        theirs.reply(event.message, "answer"), theirs.reply(event.message, "answer")
    )
    assert first is second
    assert await first.stored() == 2
    await bob.close()
    bob = await people.open("bob")
    third = await bob.chat(chat.chat_id).reply(event.message, "answer")
    assert third.client_message_id == bob.reply_id(event.message)
    assert await third.stored() == 2
    other = await bob.chat(chat.chat_id).reply(event.message, "more", part=1)
    assert await other.stored() == 3
    assert await synced(chat, 3) == ["question", "answer", "more"]


async def test_refused_message_is_told_and_stays_until_it_is_dropped(people: People) -> None:
    alice, bob, _ = await people.pair()
    group = await alice.group("team", (await bob.me()).username)
    await told_of(bob, group)
    theirs = bob.chat(group.chat_id)
    sent = await theirs.send("before")
    await sent.stored()
    await group.remove(bob.user_id or "")
    async with asyncio.timeout(PATIENCE_S):
        async for event in bob.events():
            if isinstance(event, ChatUpdated) and event.change == "member_removed":
                break
    assert not theirs.is_member
    sent = await theirs.send("after")
    with pytest.raises(MessageFailed) as failed:
        await sent.stored()
    assert failed.value.reason == sent.code == "NOT_A_MEMBER"
    refused = await next_event(bob, MessageRefused)
    assert (refused.client_message_id, refused.code) == (sent.client_message_id, "NOT_A_MEMBER")
    assert sent.tick is Tick.FAILED
    await bob.close()
    bob = await people.open("bob")
    [left] = bob.chat(group.chat_id).pending()
    assert (left.text, left.code, left.tick) == ("after", "NOT_A_MEMBER", Tick.FAILED)
    assert texts(await bob.chat(group.chat_id).messages()) == ["before"]
    await group.add((await bob.me()).username)
    await bob.ready()
    assert await left.retry()
    assert await left.stored() == 2
    assert not await left.drop()
    assert bob.outbox() == []


async def test_failed_message_can_be_dropped(people: People) -> None:
    await people.register("alice")
    alice = await people.open("alice")
    sent = await alice.chat("chat_of_nobody").send("hello?")
    with pytest.raises(MessageFailed):
        await sent.stored()
    assert await sent.drop()
    assert alice.outbox() == []
    # There is nothing left to send, so nothing would end a wait.
    assert not await sent.retry()
    assert (sent.tick, sent.code) == (Tick.FAILED, "MESSAGE_DELETED")
    with pytest.raises(MessageFailed):
        await sent.stored()


async def test_groups_have_members_and_names(people: People) -> None:
    alice, bob, _ = await people.pair()
    carols_name = await people.register("carol")
    bobs_name = (await bob.me()).username
    group = await alice.group("team", bobs_name)
    assert (group.type, group.name) == (ChatType.GROUP, "team")
    await group.add(carols_name)
    await group.add(carols_name)
    names = {member.display_name for member in await group.members()}
    assert names == {(await alice.me()).display_name, bobs_name, carols_name}
    await group.rename("crew")
    carol = await people.open("carol")
    assert [chat.name for chat in await carol.chats()] == ["crew"]
    await carol.chat(group.chat_id).leave()
    assert len(await group.members()) == 2
    [found] = await carol.users(bobs_name, "nobody-at-all")
    assert (await carol.user(found.user_id)).display_name == bobs_name


async def test_nobody_is_found_under_a_wrong_name(people: People) -> None:
    await people.register("alice")
    alice = await people.open("alice")
    with pytest.raises(RefusedByServer) as refused:
        await alice.direct("nobody-at-all")
    assert refused.value.reason == "USER_NOT_FOUND"


async def test_typing_reaches_the_other(people: People) -> None:
    _, bob, chat = await people.pair()
    chat.typing()
    event = await next_event(bob, Typing)
    assert (event.chat_id, event.is_typing) == (chat.chat_id, True)


async def test_history_goes_back_behind_what_the_device_holds(people: People) -> None:
    alice, bob, chat = await people.pair()
    bobs_name = (await bob.me()).username
    *_, last = await asyncio.gather(*(chat.send(f"Nr {n}") for n in range(1, 31)))
    await alice.flush()
    await synced(bob.chat(chat.chat_id), 30)
    await bob.chat(chat.chat_id).read()
    # A new device begins where the server knows that its user has got to.
    async with asyncio.timeout(PATIENCE_S):
        await last.read()
    await bob.close()
    laptop = await Client.login(
        people.site.url, bobs_name, PASSWORD, store=people.store("laptop"), options=QUICK
    )
    async with laptop:
        await laptop.ready()
        mine = laptop.chat(chat.chat_id)
        assert await mine.messages() == []
        await chat.send("Nr 31")
        assert await synced(mine, 1) == ["Nr 31"]
        expected = [f"Nr {n}" for n in range(1, 32)]
        assert texts(await mine.history(limit=100)) == expected
        assert texts(await mine.history(before=31, limit=5)) == expected[25:30]
        assert texts(await mine.history(before=11, limit=3)) == expected[7:10]
        assert texts(await mine.history(after=0, limit=4)) == expected[:4]
        assert texts(await mine.history(after=30)) == ["Nr 31"]
        assert texts(await mine.history(around=15, limit=4)) == expected[12:17]
        with pytest.raises(ValueError, match="one of"):
            await mine.history(before=1, after=2)
        assert [message.sequence for message in await laptop.search("nR 31")] == [31]
        assert await laptop.search("Nr 30", chat=mine) == []
    assert texts(await chat.history(after=0, limit=2)) == ["Nr 1", "Nr 2"]
    assert texts(await chat.history(limit=2)) == ["Nr 30", "Nr 31"]


async def test_second_device_of_a_user_gets_everything_too(people: People) -> None:
    alice, bob, chat = await people.pair()
    bobs_name = (await bob.me()).username
    async with await Client.login(people.site.url, bobs_name, PASSWORD, options=QUICK) as tablet:
        await tablet.ready()
        await chat.send("to both")
        assert await synced(tablet.chat(chat.chat_id), 1) == ["to both"]
        await bob.chat(chat.chat_id).send("from the phone")
        assert await synced(tablet.chat(chat.chat_id), 2) == ["to both", "from the phone"]
        event = await next_event(alice, MessageReceived)
        assert event.message.text == "from the phone"


async def test_same_device_again_ends_the_first_for_good(people: People) -> None:
    await people.register("alice")
    alice = await people.open("alice")
    token = await alice._credentials.token(False)
    async with Client(people.site.url, token=token, options=QUICK) as second:
        await second.ready()
        async with asyncio.timeout(PATIENCE_S):
            assert str(await alice.wait_closed()) == "closed(duplicate_connection)"
    with pytest.raises(ClientClosed, match="duplicate_connection"):
        await alice.chat("chat_x").send("too late")
    with pytest.raises(ClientClosed):
        async for _ in alice.events():
            pass


async def test_text_is_checked_before_it_goes_anywhere(people: People) -> None:
    await people.register("alice")
    alice = await people.open("alice")
    for text, kind, code in (
        ("", InvalidMessage, "INVALID_MESSAGE"),
        ("a\x00b", InvalidMessage, "INVALID_CONTENT"),
        ("\ud800", InvalidMessage, "INVALID_ENCODING"),
        ("x" * 4097, MessageTooLarge, "MESSAGE_TOO_LARGE"),
    ):
        with pytest.raises(ClientError) as refused:
            await alice.chat("chat_x").send(text)
        assert isinstance(refused.value, kind)
        assert refused.value.code == code
    with pytest.raises(errors.MessageTooLarge):
        await alice.chat("chat_x").send("x" * 4097)
    assert alice.outbox() == []


async def test_clean_close_is_one_to_the_server_too(people: People) -> None:
    await people.register("alice")
    alice = await people.open("alice")
    user_id = alice.user_id
    await alice.close()

    def reasons() -> list[str]:
        lines = [json.loads(line) for line in people.site.log if "connection ended" in line]  # type: ignore[attr-defined]
        return [line["reason"] for line in lines if line["user_id"] == user_id]

    await eventually(lambda: bool(reasons()), "the server did not log the end")
    assert reasons() == ["closed_by_client"]


async def test_outbox_that_is_full_says_so(people: People) -> None:
    await people.register("alice")
    options = ClientOptions(outbox_max=2, backoff_ms=20)
    async with Client(
        "http://127.0.0.1:9", store=people.store("alice"), options=options, moved=True
    ) as alice:
        chat = alice.chat("chat_x")
        await chat.send("one")
        await chat.send("two")
        with pytest.raises(OutboxFull):
            await chat.send("three")


async def test_server_that_is_killed_and_comes_back_is_found_again(
    tmp_path: Path,
) -> None:
    """With its own server, at an address of its own: what was acked is there, the rest goes out."""
    with Site(tmp_path / "data", server__port=free_port()) as site:
        alice = await Client.register(site.url, "al", PASSWORD, options=QUICK)
        bob = await Client.register(site.url, "bo", PASSWORD, options=QUICK)
        async with alice, bob:
            chat = await alice.direct("bo")
            await (await chat.send("before")).stored()
            site.kill()
            sent = await chat.send("meanwhile")
            async with asyncio.timeout(PATIENCE_S):
                await alice.driver.waits.until_change(
                    lambda: alice.status.state is not ConnectionState.READY
                )
            await asyncio.to_thread(site.start)
            async with asyncio.timeout(PATIENCE_S):
                await sent.stored()
                assert await synced(bob.chat(chat.chat_id), 2) == ["before", "meanwhile"]
