"""Clients that change messages, against a real server: edits, deletions, reactions, replies and
mentions; two devices, no network, and what the server refuses."""

import asyncio
from pathlib import Path

import pytest

from tests.client.people import QUICK, People, next_event, restore_with_keys, told_of
from tests.e2e.chatting import PASSWORD, Site
from tidewire.client import (
    MENTION_ALL,
    Chat,
    Client,
    EditConflict,
    EntryKind,
    InvalidMessage,
    Message,
    MessageChanged,
    MessageFailed,
    MessageIsDeleted,
    MessageReceived,
    MessageRefused,
    MessageStored,
    Tick,
)

pytestmark = pytest.mark.slow  # each talks to a real server

NOWHERE = "http://127.0.0.1:9"


async def until_changed(client: Client, kind: EntryKind) -> MessageChanged:
    while True:
        event: MessageChanged = await next_event(client, MessageChanged)
        if event.change.kind is kind:
            return event


async def said(chat: Chat, text: str) -> Message:
    """An own message that the server has."""
    sequence = await (await chat.send(text)).stored()
    message = await chat.message(sequence)
    assert message is not None
    return message


async def got(client: Client) -> Message:
    event: MessageReceived = await next_event(client, MessageReceived)
    return event.message


async def shown(chat: Chat) -> list[tuple[str, bool, bool]]:
    return [(one.text, one.is_edited, one.is_deleted) for one in await chat.messages()]


async def test_edit_reaches_everybody_and_is_the_text_from_then_on(people: People) -> None:
    alice, bob, chat = await people.pair()
    message = await said(chat, "helo")
    theirs = bob.chat(chat.chat_id)
    assert (await got(bob)).text == "helo"
    edited = await message.edit("hello")
    assert edited.kind is EntryKind.EDIT
    assert await edited.stored() == 2
    event = await until_changed(bob, EntryKind.EDIT)
    assert event.before is not None
    assert event.after is not None
    assert (event.before.text, event.after.text, event.target) == ("helo", "hello", 1)
    assert (event.change.sender_id, event.change.is_own) == (alice.user_id, False)
    assert await shown(theirs) == await shown(chat) == [("hello", True, False)]
    own = await until_changed(alice, EntryKind.EDIT)
    assert own.change.is_own
    assert [one.text for one in await bob.search("hello")] == ["hello"]
    assert await bob.search("helo ") == []
    await edited.delivered()


async def test_deletion_takes_the_text_from_everybody(people: People) -> None:
    alice, bob, chat = await people.pair()
    message = await said(chat, "a secret")
    await (await message.edit("a secret, edited")).stored()
    theirs = bob.chat(chat.chat_id)
    await until_changed(bob, EntryKind.EDIT)
    assert theirs.unread == 1
    deletion = await message.delete("a mistake")
    assert await deletion.stored() == 3
    event = await until_changed(bob, EntryKind.DELETE)
    assert event.change.reason == "a mistake"
    assert event.before is not None
    assert (event.before.text, event.before.is_deleted) == ("", True)
    assert await shown(theirs) == await shown(chat) == [("", False, True)]
    assert theirs.unread == 0
    assert await bob.search("secret") == await alice.search("secret") == []
    gone = await chat.message(1)
    assert gone is not None
    with pytest.raises(MessageIsDeleted):
        await gone.edit("again")
    with pytest.raises(MessageIsDeleted):
        await gone.react("👍")
    # Deleting what is deleted is done already.
    assert await (await gone.delete()).stored() == 3


async def test_deletion_of_another_device_is_one_here(people: People) -> None:
    alice, _, chat = await people.pair()
    name = (await alice.me()).username
    second = await Client.login(
        people.site.url, name, PASSWORD, store=people.store("second"), options=QUICK
    )
    async with second:
        await second.ready()
        message = await said(chat, "from the first")
        there = second.chat(chat.chat_id)
        await next_event(second, MessageStored)
        held = await there.messages()
        # Two edits of two devices, each of what it saw.
        await (await message.edit("first", base=0)).stored()
        conflict = await held[0].edit("second", base=0)
        with pytest.raises(EditConflict):
            await conflict.stored()
        refused = await next_event(second, MessageRefused)
        assert (refused.kind, refused.target, refused.text) == (EntryKind.EDIT, 1, "second")
        assert [one.kind for one in second.outbox()] == [EntryKind.EDIT]
        # The next edit takes the place of the one that failed.
        await (await there.edit(held[0], "second")).stored()
        assert second.outbox() == []
        await (await there.delete(1)).stored()
        await until_changed(alice, EntryKind.DELETE)
        assert await shown(chat) == [("", False, True)]


async def test_reactions_are_a_set_and_their_counts_are_those_of_it(people: People) -> None:
    alice, bob, chat = await people.pair()
    message = await said(chat, "lunch?")
    theirs = await got(bob)
    for wish in (message.react("👍"), theirs.react("👍"), theirs.react("👍"), theirs.react("🎉")):
        await (await wish).stored()
    for client in (alice, bob):
        while True:
            found = await client.chat(chat.chat_id).message(1)
            assert found is not None
            if len(found.reactions) == 2:
                break
            await next_event(client, MessageChanged)
        by_emoji = {one.emoji: (one.count, one.is_own) for one in found.reactions}
        assert by_emoji == {"👍": (2, True), "🎉": (1, client is bob)}
    await (await theirs.unreact("👍")).stored()
    await (await theirs.unreact("🎉")).stored()
    found = await bob.chat(chat.chat_id).message(1)
    assert found is not None
    assert [(one.emoji, one.count, one.is_own) for one in found.reactions] == [("👍", 1, False)]
    assert found.reactions[0].users == (alice.user_id,)


async def test_reply_says_what_it_answers_as_that_is_now(people: People) -> None:
    alice, bob, chat = await people.pair()
    first = await said(chat, "lunch at nine?")
    theirs = bob.chat(chat.chat_id)
    await (await theirs.reply(await got(bob), "at nine?")).stored()
    # Once, as a bot promises.
    await (await theirs.reply(first, "at nine, really?")).stored()
    assert [one.text for one in await theirs.messages()] == ["lunch at nine?", "at nine?"]
    reply = await got(alice)
    assert (reply.reply_to, reply.quoted) != (None, None)
    assert reply.quoted is not None
    assert reply.quoted.text == "lunch at nine?"
    await (await first.edit("lunch at noon?")).stored()
    [_, reply] = await chat.messages()
    assert reply.quoted is not None
    assert (reply.quoted.text, reply.quoted.is_edited) == ("lunch at noon?", True)
    await (await first.delete()).stored()
    [_, reply] = await chat.messages()
    assert reply.quoted is not None
    assert (reply.quoted.text, reply.quoted.is_deleted) == ("", True)
    # A tombstone can be replied to.
    sequence = await (await chat.send("what was that?", reply_to=first)).stored()
    found = await chat.message(sequence)
    assert found is not None
    assert found.reply_to == 1


async def test_mentions_are_counted_and_read(people: People) -> None:
    await people.register("alice")
    bobs, carols = await people.register("bob"), await people.register("carol")
    alice, bob, carol = [await people.open(name) for name in ("alice", "bob", "carol")]
    group = await alice.group("team", bobs, carols)
    bob_id = bob.user_id or ""
    await (await group.send("you", mentions=[bobs])).stored()
    await (await group.send("and you", mentions=[bob_id, carols, bobs])).stored()
    await (await group.send("all of you", mentions=[MENTION_ALL])).stored()
    await (await group.send("nobody")).stored()
    theirs = bob.chat(group.chat_id)
    while theirs.unread < 4:
        await got(bob)
    assert (theirs.unread, theirs.mentions_unread) == (4, 3)
    found = await theirs.message(2)
    assert found is not None
    assert set(found.mentions) == {bob_id, carol.user_id}
    # A deletion takes its mention along, here and in the next digest.
    await (await group.delete(1)).stored()
    await until_changed(bob, EntryKind.DELETE)
    assert (theirs.unread, theirs.mentions_unread) == (3, 2)
    await bob.close()
    bob = await people.open("bob")
    theirs = bob.chat(group.chat_id)
    assert (theirs.unread, theirs.mentions_unread) == (3, 2)
    await theirs.read(2)
    assert (theirs.unread, theirs.mentions_unread) == (2, 1)
    await theirs.read()
    assert (theirs.unread, theirs.mentions_unread) == (0, 0)


async def test_mention_of_one_who_left_is_dropped_and_the_text_arrives(people: People) -> None:
    await people.register("alice")
    bobs, carols = await people.register("bob"), await people.register("carol")
    alice, bob, carol = [await people.open(name) for name in ("alice", "bob", "carol")]
    group = await alice.group("team", bobs, carols)
    await group.remove(carols)
    sent = await group.send("hello both", mentions=[carols, bobs])
    sequence = await sent.stored()
    found = await group.message(sequence)
    assert found is not None
    assert (found.text, found.mentions) == ("hello both", (bob.user_id,))
    assert sent.mentions == (bob.user_id,)
    assert (await got(bob)).mentions == (bob.user_id,)
    with pytest.raises(MessageFailed) as refusal:
        await (await bob.chat(group.chat_id).send("all", mentions=[MENTION_ALL])).stored()
    assert refusal.value.reason == "FORBIDDEN"
    assert carol.user_id is not None


async def test_admin_deletes_what_others_wrote_and_members_do_not(people: People) -> None:
    await people.register("alice")
    bobs = await people.register("bob")
    alice, bob = await people.open("alice"), await people.open("bob")
    group = await alice.group("team", bobs)
    theirs = bob.chat(group.chat_id)
    await (await group.send("by alice")).stored()
    await got(bob)
    await (await theirs.send("by bob")).stored()
    forbidden = await theirs.delete(1)
    with pytest.raises(MessageFailed) as refusal:
        await forbidden.stored()
    assert refusal.value.reason == "FORBIDDEN"
    assert bob.outbox() == [], "there is nothing to decide about it"
    with pytest.raises(MessageFailed):
        await (await theirs.edit(1, "mine")).stored()
    await (await group.delete(2)).stored()
    await until_changed(bob, EntryKind.DELETE)
    assert [one.is_deleted for one in await theirs.messages()] == [False, True]
    with pytest.raises(InvalidMessage):
        await group.react(1, "no emoji at all, but a sentence of more than 32 bytes")
    with pytest.raises(MessageFailed) as missing:
        await (await group.edit(99, "nothing")).stored()
    assert missing.value.reason == "TARGET_NOT_FOUND"


async def test_refused_edit_that_is_dropped_at_once_stays_dropped(people: People) -> None:
    _, bob, chat = await people.pair()
    await said(chat, "of alice")
    await told_of(bob, chat)
    sent = await bob.chat(chat.chat_id).edit(1, "of bob")
    with pytest.raises(MessageFailed):
        await sent.stored()
    assert await sent.drop()
    await bob.close()
    again = await people.open("bob")
    assert again.outbox() == []


async def test_retry_of_a_change_that_is_over_leaves_it_failed(people: People) -> None:
    """A deletion and a reaction that were refused are in no outbox: there is nothing to retry."""
    _, bob, chat = await people.pair()
    await said(chat, "of alice")
    await told_of(bob, chat)
    sent = await bob.chat(chat.chat_id).delete(1)
    with pytest.raises(MessageFailed):
        await sent.stored()
    assert not await sent.retry()
    assert (sent.tick, sent.code) == (Tick.FAILED, "FORBIDDEN")
    with pytest.raises(MessageFailed):
        await sent.stored()


# Without a connection.


async def offline(people: People, name: str) -> Client:
    return Client(NOWHERE, store=people.store(name), options=QUICK, moved=True)


async def test_what_is_changed_offline_goes_out_later_in_order(people: People) -> None:
    alice, bob, chat = await people.pair()
    message = await said(chat, "one")
    await alice.close()
    async with await offline(people, "alice") as away:
        there = away.chat(chat.chat_id)
        await there.edit(message, "two")
        await there.react(message, "👍")
        await there.send("three", reply_to=message)
        # What has not left is changed in place: one edit, one message.
        edit = await there.edit(message, "two, better")
        sent = await there.send("four")
        assert await sent.edit("five") is sent
        dropped = await there.send("never")
        assert await dropped.delete() is dropped
        with pytest.raises(MessageIsDeleted):
            await dropped.stored()
        kinds = [one.kind for one in there.pending()]
        assert kinds == [EntryKind.EDIT, EntryKind.REACT, EntryKind.MESSAGE, EntryKind.MESSAGE]
        assert (edit.text, edit.tick) == ("two, better", Tick.SENDING)
    async with await offline(people, "alice") as away:
        # Another life, as much without a network.
        again = away.chat(chat.chat_id).pending()
        assert [one.text for one in again] == ["two, better", "", "three", "five"]
        await again[3].edit("six")
    alice = await people.open("alice", moved=True)
    await alice.flush()
    assert alice.outbox() == []
    theirs = bob.chat(chat.chat_id)
    while len(await theirs.messages()) < 3:
        await got(bob)
    assert await shown(theirs) == [
        ("two, better", True, False),
        ("three", False, False),
        ("six", False, False),
    ]
    found = await theirs.message(1)
    assert found is not None
    assert [one.emoji for one in found.reactions] == ["👍"]


async def test_edit_that_waits_goes_with_its_message(people: People) -> None:
    """What was taken back before it left is nothing that the server, or anybody, gets to see."""
    alice, bob, chat = await people.pair()
    message = await said(chat, "one")
    await alice.close()
    async with await offline(people, "alice") as away:
        there = away.chat(chat.chat_id)
        edit = await there.edit(message, "never to be seen")
        await there.delete(message)
        with pytest.raises(MessageIsDeleted):
            await edit.stored()
        assert [one.kind for one in there.pending()] == [EntryKind.DELETE]
    alice = await people.open("alice", moved=True)
    await alice.flush()
    theirs = bob.chat(chat.chat_id)
    while not (changes := await theirs.changes(after=0)):
        await got(bob)
    assert [one.kind for one in changes] == [EntryKind.DELETE]
    assert await shown(theirs) == [("", False, True)]


async def test_change_of_a_message_whose_fate_is_unknown_waits_behind_it(tmp_path: Path) -> None:
    """The server dies with the answer: nothing tells whether it has the message."""
    with Site(tmp_path / "data") as site:
        alice = await Client.register(
            site.url, "al", PASSWORD, store=tmp_path / "al.db", options=QUICK
        )
        await (await Client.register(site.url, "bo", PASSWORD)).close()
        async with alice:
            chat = await alice.direct("bo")
            await (await chat.send("first")).stored()
            alice.driver._socket._transport.underlying_transport.pause_reading()  # type: ignore[union-attr]
            kept, taken_back = await chat.send("keep"), await chat.send("take back")
            await asyncio.sleep(0.2)
            edited, deleted = await kept.edit("kept"), await taken_back.delete()
            reacted = await chat.react(kept, "👍")
            assert edited.kind is EntryKind.EDIT
            assert edited.amends is not None
            await asyncio.to_thread(site.kill)
            await asyncio.to_thread(site.start)
        again = Client(site.url, store=tmp_path / "al.db", options=QUICK, moved=True)
        async with again:
            await again.ready()
            await again.flush()
            there = again.chat(chat.chat_id)
            texts = [(one.text, len(one.reactions)) for one in await there.messages()]
            assert texts in ([("first", 0), ("kept", 1)], [("first", 0), ("kept", 1), ("", 0)])
            assert again.outbox() == []
        assert deleted is not None
        assert reacted.kind is EntryKind.REACT


# History.


async def test_device_without_the_entries_sees_the_same(people: People) -> None:
    alice, _, chat = await people.pair()
    for number in range(5):
        await (await chat.send(f"number {number}")).stored()
    await (await chat.edit(1, "edited")).stored()
    await (await chat.delete(2)).stored()
    await (await chat.react(3, "👍")).stored()
    await (await chat.send("a reply", reply_to=1)).stored()
    name = (await alice.me()).username
    fresh = await Client.login(
        people.site.url, name, PASSWORD, store=people.store("fresh"), options=QUICK
    )
    async with fresh:
        await fresh.ready()
        there = fresh.chat(chat.chat_id)
        assert await there.messages() == []
        page = await there.history()
        assert [(one.text, one.is_edited, one.is_deleted) for one in page] == await shown(chat)
        assert [(one.emoji, one.count, one.is_own) for one in page[2].reactions] == [
            ("👍", 1, True)
        ]
        assert page[-1].quoted is not None
        assert page[-1].quoted.text == "edited"
        # Entries from now on change what is held nowhere: they come without the message.
        await (await chat.edit(3, "later")).stored()
        event = await until_changed(fresh, EntryKind.EDIT)
        assert (event.target, event.before, event.after) == (3, None, None)
        now = event.change.applied_to(page[2], fresh.user_id or "")
        assert (now.text, len(now.reactions)) == ("later", 1)
        [third] = [one for one in await there.history(around=3, limit=4) if one.sequence == 3]
        assert (third.text, len(third.reactions)) == ("later", 1)
        await (await there.delete(third)).stored()
        [third] = [one for one in await there.history() if one.sequence == 3]
        assert third.is_deleted


async def test_restored_server_brings_no_deleted_text_back(tmp_path: Path) -> None:
    """The backup is older than the deletion and the edit: the deletion stays one on this device,
    the edit that only this device has heard of goes."""
    from tidewire.engines.sqlite.backup import backup

    data, copy = tmp_path / "data", tmp_path / "copy.db"
    with Site(data) as site:
        alice = await Client.register(
            site.url, "al", PASSWORD, store=tmp_path / "al.db", options=QUICK
        )
        await (await Client.register(site.url, "bo", PASSWORD)).close()
        async with alice:
            chat = await alice.direct("bo")
            for text in ("a secret", "plain", "third"):
                await (await chat.send(text)).stored()
            await (await chat.edit(2, "kept edit")).stored()
        await asyncio.to_thread(site.kill)
        await asyncio.to_thread(backup, data, copy, lambda *_: None)
        await asyncio.to_thread(site.start)
        async with Client(site.url, store=tmp_path / "al.db", options=QUICK, moved=True) as alice:
            await alice.ready()
            there = alice.chat(chat.chat_id)
            await (await there.delete(1)).stored()
            await (await there.edit(2, "lost edit")).stored()
            await (await there.react(3, "👍")).stored()
        await asyncio.to_thread(site.kill)
    await asyncio.to_thread(restore_with_keys, copy, data, tmp_path / "restored")
    with Site(tmp_path / "restored") as site:
        alice = await Client.login(
            site.url, "al", PASSWORD, store=tmp_path / "al.db", options=QUICK, moved=True
        )
        async with alice:
            await alice.ready()
            there = alice.chat(chat.chat_id)
            await (await there.send("new")).stored()
            assert await shown(there) == [
                ("", False, True),
                ("kept edit", True, False),
                ("third", False, False),
                ("new", False, False),
            ]
            assert [one.reactions for one in await there.messages()] == [()] * 4
            # Also not by a page of the server's history, which has it.
            page = await there.history(around=1, limit=10)
            assert page[0].is_deleted
            assert [one.text for one in page][1:] == ["kept edit", "third", "new"]
    files = b"".join(path.read_bytes() for path in tmp_path.glob("al.db*"))
    assert b"a secret" not in files
    assert b"kept edit" in files
