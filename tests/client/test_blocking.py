"""The same without async."""

from pathlib import Path

import pytest

from tests.e2e.chatting import PASSWORD, Site
from tidewire.client import (
    ClientError,
    MessageChanged,
    MessageIsDeleted,
    MessageReceived,
    Tick,
)
from tidewire.client.blocking import Client

pytestmark = pytest.mark.slow  # talks to a real server


def test_script_talks_without_async(site: Site) -> None:
    with (
        Client.register(site.url, "block-alice", PASSWORD) as alice,
        Client.register(site.url, "block-bob", PASSWORD) as bob,
    ):
        alice.ready(timeout_s=30)
        chat = alice.direct("block-bob")
        sent = chat.send("hi")
        assert sent.stored(timeout_s=30) == 1
        for event in bob.events(timeout_s=30):
            if isinstance(event, MessageReceived):
                theirs = bob.chat(event.message.chat_id)
                theirs.reply(event.message, "hello").stored(timeout_s=30)
                theirs.read()
                bob.confirm(event)
                break
        sent.read(timeout_s=30)
        assert sent.tick is Tick.READ
        # What is there comes, and then it ends.
        assert list(bob.events(timeout_s=2))
        assert [message.text for message in chat.messages()] == ["hi", "hello"]
        assert [message.text for message in chat.history(after=1)] == ["hello"]
        assert bob.known_chats() == [bob.chat(chat.chat_id)]
        assert [found.name for found in alice.chats()] == ["block-bob"]
        assert len(chat.members()) == 2
        assert alice.outbox() == []
        group = alice.group("crew", "block-bob")
        group.rename("team")
        chat.typing()
        assert alice.search("HELLO", chat=chat)[0].sequence == 2
        with pytest.raises(TimeoutError):
            group.send("anybody?").read(timeout_s=0.05)
        [first, second] = chat.messages()
        assert second.quoted is not None
        assert (second.quoted.text, second.reply_to) == ("hi", 1)
        assert first.edit("hi there").stored(timeout_s=30) == 3
        chat.react(second, "👍").stored(timeout_s=30)
        assert second.unreact("👍").stored(timeout_s=30) == 5
        for event in bob.events(timeout_s=30):
            if isinstance(event, MessageChanged) and event.after is not None:
                bob.confirm(event)
                # The same method as in the async client; here it waits.
                mine = bob.chat(chat.chat_id).message(2)
                assert mine is not None
                assert mine.delete("oops").stored(timeout_s=30) > 3
                with pytest.raises(MessageIsDeleted):
                    bob.chat(chat.chat_id).edit(2, "late").stored(timeout_s=30)
                break
        found = chat.message(1)
        assert found is not None
        assert (found.text, found.is_edited) == ("hi there", True)
    assert str(alice.status) == "closed(closed)"
    assert alice.chat(chat.chat_id) == chat


def test_script_that_runs_again_is_the_same_person(site: Site, tmp_path: Path) -> None:
    for _ in range(2):
        with Client.open(site.url, "block-carol", PASSWORD, store=tmp_path / "carol.db") as carol:
            carol.ready(timeout_s=30)
            assert carol.me().username == "block-carol"
    with pytest.raises(ClientError):
        Client.open(site.url, "block-dave", PASSWORD, register="never")


def test_script_is_told_what_is_wrong(site: Site) -> None:
    with pytest.raises(ClientError):
        Client("nonsense")
    with pytest.raises(ClientError):
        Client.login(site.url, "block-nobody", "wrong password")
