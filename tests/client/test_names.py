"""Who wrote, and what chats are called, on every device. Slow: a real server."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.client.people import QUICK, People, next_event
from tests.e2e.chatting import PASSWORD, PATIENCE_S
from tidewire.client import ChatUpdated, Client, MessageReceived
from tidewire.client import people as people_of_client
from tidewire.client.rest import Rest

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that wants to show a name waits for a moment; here, however busy the machine is."""
    monkeypatch.setattr(people_of_client, "WAIT_S_MAX", PATIENCE_S)


async def named(people: People, name: str, display_name: str) -> tuple[Client, str]:
    username = people.name(name)
    client = await Client.register(
        people.site.url,
        username,
        PASSWORD,
        store=people.store(name),
        display_name=display_name,
        options=QUICK,
    )
    await client.close()
    return await people.open(name), username


async def test_messages_have_their_authors_names(people: People) -> None:
    alice, _ = await named(people, "alice", "Alice A.")
    bob, bobs_name = await named(people, "bob", "Bob B.")
    chat = await alice.direct(bobs_name)
    assert chat.name == "Bob B."
    before = datetime.now(UTC)
    await (await chat.send("hi")).stored()
    event = await next_event(bob, MessageReceived)
    message = event.message
    assert message.sender_name == "Alice A."
    assert abs((message.created_at - before).total_seconds()) < 60
    assert message.created_at.timestamp() == pytest.approx(message.created_at_ms / 1000)
    assert repr(message) == f"Message(#1 of {chat.chat_id}, by Alice A.: 'hi')"
    theirs = bob.chat(chat.chat_id)
    assert theirs.name == "Alice A."
    await (await theirs.send("hello")).stored()
    for found in (await theirs.messages(), await theirs.history()):
        assert [one.sender_name for one in found] == ["Alice A.", "Bob B."]
    assert (await bob.search("hi"))[0].sender_name == "Alice A."
    # Without a server they are known all the same.
    await bob.close()
    offline = Client("http://127.0.0.1:9", store=people.store("bob"), options=QUICK, moved=True)
    async with offline:
        [mine] = offline.known_chats()
        assert mine.name == "Alice A."
        assert [one.sender_name for one in await mine.messages()] == ["Alice A.", "Bob B."]


async def test_second_device_knows_what_chats_are_called(people: People) -> None:
    alice, alices_name = await named(people, "alice", "Alice A.")
    _, bobs_name = await named(people, "bob", "Bob B.")
    direct = await alice.direct(bobs_name)
    groups = [await alice.group(f"group {number}", bobs_name) for number in range(7)]
    laptop = await Client.login(
        people.site.url, alices_name, PASSWORD, store=people.store("laptop"), options=QUICK
    )
    async with laptop:
        await laptop.ready()
        assert laptop.chat(direct.chat_id).name == "Bob B."
        assert [laptop.chat(one.chat_id).name for one in groups] == [
            f"group {number}" for number in range(7)
        ]
        # What is made while both are there.
        _, carols_name = await named(people, "carol", "Carol C.")
        new = await alice.direct(carols_name)
        while (await next_event(laptop, ChatUpdated)).chat_id != new.chat_id:
            continue
        theirs = laptop.chat(new.chat_id)
        async with asyncio.timeout(PATIENCE_S):
            await laptop.driver.waits.until(theirs.chat_id, lambda: theirs.name is not None)
        assert theirs.name == "Carol C."


async def test_author_who_has_left_is_named_too(people: People) -> None:
    alice, _ = await named(people, "alice", "Alice A.")
    bob, bobs_name = await named(people, "bob", "Bob B.")
    carol, carols_name = await named(people, "carol", "Carol C.")
    group = await alice.group("team", bobs_name, carols_name)
    await next_event(bob, ChatUpdated)
    await (await bob.chat(group.chat_id).send("goodbye")).stored()
    await carol.close()
    await group.remove(bobs_name)
    await group.add((await bob.me()).user_id)
    await group.remove((await bob.me()).user_id)
    assert {member.display_name for member in await group.members()} == {"Alice A.", "Carol C."}
    carol = await people.open("carol")
    [message] = await carol.chat(group.chat_id).messages()
    assert (message.text, message.sender_name) == ("goodbye", "Bob B.")


async def test_name_that_was_not_asked_for_in_time_is_asked_for_again(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, _ = await named(people, "alice", "Alice A.")
    bob, _ = await named(people, "bob", "Bob B.")
    carol, _ = await named(people, "carol", "Carol C.")
    _, daves_name = await named(people, "dave", "Dave D.")
    group = await alice.group("team", daves_name)
    ids = [(await one.me()).user_id for one in (bob, carol)]
    asked: list[str] = []
    is_stuck = True
    call = Rest.call

    async def slow_call(self: Rest, kind: Any, method: str, path: str, **named: Any) -> Any:
        asked.append(path)
        if is_stuck:
            await asyncio.Event().wait()
        return await call(self, kind, method, path, **named)

    monkeypatch.setattr(Rest, "call", slow_call)
    monkeypatch.setattr(people_of_client, "USERS_MAX", 1)
    learn = alice.people.learn
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(learn(group.chat_id, ids), 0.05)
    is_stuck = False
    # The one is asked for now, the other with the next question; then there is nothing left.
    assert [await learn(group.chat_id, ids) for _ in range(3)] == [True, True, False]
    assert [alice.people.names.get(one) for one in ids] == ["Bob B.", "Carol C."]
    assert sum(path.startswith("/users/") for path in asked) == 2
