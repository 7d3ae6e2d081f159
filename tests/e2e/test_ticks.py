"""Ticks from the circle to blue, as every member sees them. Slow: a real server and sockets."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.chatting import Account, Site, new_key, others, stored

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("ticks")) as site:
        yield site
        assert site.complaints() == []


async def settled(site: Site, sender: Account, chat_id: str, acked: dict[str, int]) -> None:
    """See each member's delivered position by REST."""
    answer = await site.call("GET", f"/api/v1/chats/{chat_id}/delivery-status", by=sender)
    assert answer.status_code == 200, answer.text
    positions = {m["user_id"]: m["last_acked_sequence"] for m in answer.json()["members"]}
    assert {user_id: positions[user_id] for user_id in acked} == acked


async def test_direct_chat_from_circle_to_blue(site: Site) -> None:
    ann, bob = await site.people("ann", "bob")
    chat_id = await site.direct(ann, bob)
    async with site.phone(ann) as sender:
        # ○: the ack has not come; ✓: it has, and nothing is known of the other.
        acks = [await sender.say(chat_id, f"number {number}") for number in range(3)]
        assert [ack["sequence"] for ack in acks] == [1, 2, 3]
        await sender.caught_up()
        await others(sender, chat_id, 0, 0)
        async with site.phone(bob) as receiver:
            assert receiver.unread[chat_id] == 3
            assert len(await receiver.sync(chat_id)) == 3
            await sender.caught_up()
            # To fetch is not to acknowledge.
            await others(sender, chat_id, 0, 0)
            await receiver.ack(chat_id, 2)
            await others(sender, chat_id, 2, 0)
            await receiver.ack(chat_id, 3)
            await others(sender, chat_id, 3, 0)
            await receiver.read(chat_id, 1)
            await others(sender, chat_id, 3, 1)
            await receiver.read(chat_id, 3)
            await others(sender, chat_id, 3, 3)
            await stored(receiver, chat_id, read=3)
            assert receiver.unread[chat_id] == 0


async def test_reading_is_also_delivery(site: Site) -> None:
    ann, bob = await site.people("ann", "bob")
    chat_id = await site.direct(ann, bob)
    async with site.phone(ann) as sender, site.phone(bob) as receiver:
        await sender.say(chat_id, "one")
        await receiver.get("message", sequence=1)
        await receiver.read(chat_id, 1)
        await others(sender, chat_id, 1, 1)


@pytest.mark.parametrize("is_by_rest", [False, True], ids=["socket", "REST"])
async def test_reply_reads_what_its_author_has_just_acknowledged(
    site: Site, is_by_rest: bool
) -> None:
    """Acknowledgements that follow each other are gathered. Still none may be written after the
    message that its author sent behind it."""
    ann, bob = await site.people("ann", "bob")
    chat_id = await site.direct(ann, bob)
    async with site.phone(ann) as sender, site.phone(bob) as receiver:
        for number in range(5):
            first, second = [(await sender.say(chat_id, "hello?"))["sequence"] for _ in range(2)]
            await receiver.get("message", sequence=second)
            await receiver.ack(chat_id, first)
            await stored(receiver, chat_id, delivered=first)
            await receiver.ack(chat_id, second)
            reply = {"content": "yes", "client_message_id": new_key(), "seen_sequence": second}
            if is_by_rest:
                # On another connection: the server has to have heard the first one. If that can be
                # another process, it has to have written it as well (decision 0022).
                await receiver.caught_up()
                if os.environ.get("TIDEWIRE_SERVER_PROCESSES", "1") != "1":
                    await stored(receiver, chat_id, delivered=second)
                await site.done("POST", f"/chats/{chat_id}/messages", reply, by=bob)
            else:
                answer = await receiver.ask("send_message", {"chat_id": chat_id, **reply})
                assert answer["type"] == "send_message_ack"
            await receiver.ask("digest_request", {})
            shown = receiver.shown[chat_id]
            assert (shown["delivered"], shown["read"]) == (second + 1, second + 1), number


async def test_group_of_three_sees_the_slowest(site: Site) -> None:
    ann, bob, cleo = await site.people("ann", "bob", "cleo")
    group = await site.group(ann, bob, cleo)
    async with site.phone(ann) as sender, site.phone(bob) as second, site.phone(cleo) as third:
        for number in range(3):
            await sender.say(group, f"number {number}")
        await second.get("message", sequence=3)
        await third.get("message", sequence=3)

        await second.ack(group, 3)
        # Cleo sees that Bob has it, and Ann wrote it: for Ann, Cleo is missing still.
        await others(third, group, 3, 0)
        await sender.caught_up()
        await others(sender, group, 0, 0)
        await settled(site, ann, group, {bob.user_id: 3, cleo.user_id: 0})

        await third.ack(group, 2)
        await others(sender, group, 2, 0)
        await others(second, group, 2, 0)
        await third.ack(group, 3)
        await others(sender, group, 3, 0)

        await third.read(group, 3)
        await stored(third, group, read=3)
        await sender.caught_up()
        await others(sender, group, 3, 0)
        await second.read(group, 2)
        await others(sender, group, 3, 2)
        await second.read(group, 3)
        await others(sender, group, 3, 3)
        status = (await site.call("GET", f"/api/v1/chats/{group}/delivery-status", by=ann)).json()
        assert status["delivery_summary"]["all_delivered"] is True
        assert status["delivery_summary"]["read_count"] == 2


async def test_member_who_leaves_is_waited_for_no_longer(site: Site) -> None:
    ann, bob, cleo = await site.people("ann", "bob", "cleo")
    group = await site.group(ann, bob, cleo)
    async with site.phone(ann) as sender, site.phone(bob) as second:
        await sender.say(group, "one")
        await second.get("message", sequence=1)
        await second.read(group, 1)
        await stored(second, group, read=1)
        await others(sender, group, 0, 0)
        await site.done("POST", f"/chats/{group}/leave", by=cleo)
        await others(sender, group, 1, 1)


async def test_newcomer_sees_the_ticks_of_the_first_message(site: Site) -> None:
    ann, bob, cleo = await site.people("ann", "bob", "cleo")
    group = await site.group(ann, bob)
    async with site.phone(ann) as first, site.phone(bob) as second, site.phone(cleo) as newcomer:
        # Ticks were just told to the members of before.
        await first.say(group, "one")
        await second.get("message", sequence=1)
        await second.read(group, 1)
        await others(first, group, 1, 1)
        await site.done("POST", f"/chats/{group}/members", {"user_id": cleo.user_id}, by=ann)
        await newcomer.say(group, "two")
        await first.get("message", sequence=2)
        await first.read(group, 2)
        await others(second, group, 2, 2)
        # Of all gateways only the one that knows the members of before has this to tell.
        await second.read(group, 2)
        await others(newcomer, group, 2, 2)


async def test_member_who_is_back_sees_what_was_read_meanwhile(site: Site) -> None:
    ann, bob, cleo = await site.people("ann", "bob", "cleo")
    group = await site.group(ann, bob, cleo)
    members = f"/chats/{group}/members"
    async with site.phone(ann) as first, site.phone(bob) as second, site.phone(cleo) as third:
        await third.say(group, "one")
        await first.get("message", sequence=1)
        await second.get("message", sequence=1)
        await site.done("DELETE", f"{members}/{cleo.user_id}", by=ann)
        await third.get("chat_update", change="member_removed")
        await first.read(group, 1)
        await second.read(group, 1)
        await others(first, group, 1, 1)
        await others(second, group, 1, 1)
        await site.done("POST", members, {"user_id": cleo.user_id}, by=ann)
        await others(third, group, 1, 1)


# ADR-008, App. B.


async def test_ack_is_never_answered_and_a_stale_one_changes_nothing(site: Site) -> None:
    ann, bob = await site.people("ann", "bob")
    chat_id = await site.direct(ann, bob)
    async with site.phone(ann) as sender, site.phone(bob) as receiver:
        for number in range(5):
            await sender.say(chat_id, f"number {number}")
        await receiver.get("message", sequence=5)
        payload = {"chat_id": chat_id, "last_acked_sequence": 5}
        await receiver.post("ack", payload, "an-id-that-is-ignored")
        await others(sender, chat_id, 5, 0)
        for stale in (3, 1, 5, 4):
            await receiver.ack(chat_id, stale)
        await receiver.caught_up()
        await settled(site, ann, chat_id, {bob.user_id: 5})
        await others(sender, chat_id, 5, 0)
        # In a cluster the word that there is a chat may come when it is in use already.
        allowed = {"message", "status_update", "chat_update"}
        assert {frame["type"] for frame in receiver.inbox} <= allowed
        assert all("request_id" not in frame for frame in receiver.inbox)


async def test_ack_above_the_head_is_refused_without_a_request_id(site: Site) -> None:
    ann, bob = await site.people("ann", "bob")
    chat_id = await site.direct(ann, bob)
    async with site.phone(ann) as sender, site.phone(bob) as receiver:
        await sender.say(chat_id, "one")
        await receiver.ack(chat_id, 7)
        error = await receiver.get("error", code="INVALID_SEQUENCE")
        assert "request_id" not in error
        await others(sender, chat_id, 0, 0)
        await receiver.ack(chat_id, 1)
        await others(sender, chat_id, 1, 0)


# Those who were away.


async def test_ticks_that_were_held_back_are_in_the_digest(site: Site) -> None:
    ann, bob = await site.people("ann", "bob")
    chat_id = await site.direct(ann, bob)
    async with site.phone(ann) as sender:
        for number in range(4):
            await sender.say(chat_id, f"number {number}")
    async with site.phone(bob) as receiver:
        await receiver.ack(chat_id, 4)
        await receiver.read(chat_id, 3)
        await stored(receiver, chat_id, delivered=4, read=3)
    async with site.phone(ann) as sender:
        # Already there: the digest came before anything else could be asked.
        assert sender.shown[chat_id]["others_delivered"] == 4
        assert sender.shown[chat_id]["others_read"] == 3


async def test_ticks_survive_a_restart(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        ann, bob = await site.people("ann", "bob")
        chat_id = await site.direct(ann, bob)
        async with site.phone(ann) as sender, site.phone(bob) as receiver:
            await sender.say(chat_id, "one")
            await sender.say(chat_id, "two")
            await receiver.get("message", sequence=2)
            await receiver.ack(chat_id, 2)
            await receiver.read(chat_id, 1)
            await others(sender, chat_id, 2, 1)
            # Shown is written: a kill must not take it back.
            await site.restart()
        async with site.phone(ann) as sender, site.phone(bob) as receiver:
            await others(sender, chat_id, 2, 1)
            assert receiver.unread[chat_id] == 1
        assert site.complaints() == []


async def test_reading_on_one_device_clears_the_other(site: Site) -> None:
    ann, bob = await site.people("ann", "bob")
    laptop = await site.login(bob)
    chat_id = await site.direct(ann, bob)
    async with site.phone(ann) as sender, site.phone(bob) as first, site.phone(laptop) as second:
        for number in range(3):
            await sender.say(chat_id, f"number {number}")
        await first.get("message", sequence=3)
        await second.get("message", sequence=3)
        await first.ack(chat_id, 3)
        await second.until(lambda: second.shown[chat_id].get("delivered") == 3)
        assert second.unread[chat_id] == 3
        await first.read(chat_id, 2)
        await second.until(lambda: second.unread[chat_id] == 1)
        assert second.shown[chat_id]["read"] == 2
        await second.read(chat_id, 3)
        await first.until(lambda: first.shown[chat_id].get("read") == 3)
        assert first.unread[chat_id] == 0
        await others(sender, chat_id, 3, 3)


async def test_device_behind_the_other_one_still_learns_what_to_fetch(site: Site) -> None:
    ann, bob = await site.people("ann", "bob")
    laptop = await site.login(bob)
    chat_id = await site.direct(ann, bob)
    async with site.phone(ann) as sender, site.phone(bob) as first:
        await sender.say(chat_id, "one")
        await first.get("message", sequence=1)
        await first.ack(chat_id, 1)
        await others(sender, chat_id, 1, 0)
    async with site.phone(laptop) as second:
        # The user has it, this device does not: the head tells, not the user's position.
        assert second.shown[chat_id] | {} == {
            "head": 1,
            "delivered": 1,
            "read": 0,
            "others_delivered": 1,
            "others_read": 1,
        }
        assert [m["content"] for m in await second.sync(chat_id)] == ["one"]
