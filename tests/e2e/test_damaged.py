"""A real server over a damaged message (A5): it is served marked, everywhere. Slow: it is started
twice."""

from pathlib import Path

import pytest

from tests.e2e.chatting import Site
from tests.engines.sqlite.test_damaged_messages import hidden_indexes
from tidewire.engines.sqlite import DATABASE_NAME

pytestmark = pytest.mark.slow


async def test_damaged_message_is_marked_and_the_server_lives(tmp_path: Path) -> None:
    site = Site(tmp_path)
    with site:
        alice, bob = await site.people("alice", "bob")
        chat = await site.direct(alice, bob)
        async with site.phone(alice) as phone:
            said = [await phone.say(chat, f"message {number}") for number in range(4)]
        site.server.process.terminate()
        site.server.process.wait()
    with hidden_indexes(tmp_path / DATABASE_NAME) as database:
        # The last one, so that the chat list shows it. This is what ended the server in 0.1.0.
        database.execute("UPDATE messages SET content = CAST(x'68ff' AS TEXT) WHERE sequence = 4")
    with site:
        async with site.phone(bob) as phone:
            synced = await phone.sync(chat)
            assert [item["sequence"] for item in synced] == [1, 2, 3, 4]
            assert [item.get("is_damaged", False) for item in synced] == [False] * 3 + [True]
            assert synced[3]["content"] == ""
            assert synced[3]["message_id"] == said[3]["message_id"]
            # It counts as delivered with its mark.
            await phone.ack(chat, 4)
            await phone.caught_up()
        history = await site.done("GET", f"/chats/{chat}/messages", by=bob)
        [damaged] = [item for item in history if item.get("is_damaged")]
        assert damaged["sequence"] == 4
        assert damaged["content"] == ""
        [listed] = await site.done("GET", "/chats", by=bob)
        assert listed["last_message"]["is_damaged"] is True
        assert listed["last_message"]["content_preview"] == ""
        assert await site.metric("store_messages_damaged_total") == 1
        async with site.phone(alice) as phone:
            # An acknowledgement is not answered: on a busy disk it may be written after the digest.
            await phone.until(lambda: phone.shown[chat]["others_delivered"] == 4)
            assert (await phone.say(chat, "and on"))["prev_sequence"] == 4
    assert sum("is damaged" in line for line in site.log) == 1
