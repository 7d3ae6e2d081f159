"""What chatting has to survive, seen by clients that are not ours. Slow: real servers and sockets.

The five scenarios of the specification, the rows of ADR-001 App. B, several devices of one user,
members who are removed, and restarts in the middle.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from websockets.asyncio.client import connect

from tests.e2e.chatting import Account, Frame, Phone, Site, chained, new_key, send_all, texts

pytestmark = pytest.mark.slow

OUTBOUND_BYTES_MAX = 128 * 1024


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(
        tmp_path_factory.mktemp("acceptance"), gateway__outbound_bytes_max=OUTBOUND_BYTES_MAX
    ) as site:
        yield site
        assert site.complaints() == []


# The scenarios.


async def test_stale_cursor_replays_everything_newer_in_order(site: Site) -> None:
    ann, bob = await site.people("ann", "bob")
    chat_id = await site.direct(ann, bob)
    async with site.phone(bob) as phone, site.phone(ann) as other:
        for number in range(3):
            await other.say(chat_id, f"seen {number}")
        await phone.get("message", sequence=3)
        await phone.ack(chat_id, 3)
    async with site.phone(ann) as other:
        for number in range(25):
            await other.say(chat_id, f"missed {number}")
    async with site.phone(bob) as phone:
        assert (await phone.numbers(chat_id, head=28))["delivered"] == 3
        missed = await phone.sync(chat_id, 3, limit=10)
        assert texts(missed) == [f"missed {number}" for number in range(25)]
        assert chained(missed, 3)
        # An older cursor than the acknowledged one is as good: the device alone decides.
        assert await phone.sync(chat_id, 1) == (await phone.sync(chat_id))[1:]


async def test_server_killed_mid_fanout_loses_nothing(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        people = await site.people("ann", "bob", "cleo", "dan")
        ann, *others = people
        group = await site.group(ann, *others)
        wanted = {new_key(): f"number {number}" for number in range(300)}
        acked: dict[str, int] = {}
        got: dict[str, list[Frame]] = {}
        async with AsyncExitStack() as stack:
            phones = [await stack.enter_async_context(site.phone(one)) for one in others]
            phone = await stack.enter_async_context(site.phone(ann))
            await send_all(phone, group, wanted)
            await phone.until(lambda: len(phone.all_of("send_message_ack")) >= 20)
            await asyncio.to_thread(site.kill)
            for one in (phone, *phones):
                await one.closed()
            for ack in phone.all_of("send_message_ack"):
                acked[ack["client_message_id"]] = ack["sequence"]
            for account, one in zip(others, phones, strict=True):
                got[account.user_id] = one.all_of("message", group)
        assert len(acked) >= 20

        await asyncio.to_thread(site.start)
        async with site.phone(ann) as phone:
            # The sender does not know what became of the rest, so it sends them again.
            for key, content in wanted.items():
                answer = await phone.say(group, content, key)
                assert acked.get(key, answer["sequence"]) == answer["sequence"]
                acked[key] = answer["sequence"]
        for account in others:
            async with site.phone(account) as phone:
                pushed = got[account.user_id]
                assert chained(pushed)
                cursor = pushed[-1]["sequence"] if pushed else 0
                missed = await phone.sync(group, cursor)
                assert chained(missed, cursor)
                have = {m["client_message_id"]: m["sequence"] for m in [*pushed, *missed]}
                assert have == acked
                assert len(pushed) + len(missed) == len(wanted)
        assert site.complaints() == []


async def test_duplicate_submit_returns_the_original_and_stores_one(site: Site) -> None:
    ann, bob = await site.people("ann", "bob")
    chat_id = await site.direct(ann, bob)
    key = new_key()
    async with site.phone(ann) as phone, site.phone(bob) as other:
        first = await phone.say(chat_id, "once", key)
        again = await phone.say(chat_id, "once", key)
        assert not first.pop("deduplicated")
        assert again.pop("deduplicated")
        assert first == again
        path = f"/chats/{chat_id}/messages"
        body = {"client_message_id": key, "content": "once"}
        by_rest = await site.call("POST", f"/api/v1{path}", body, by=ann)
        assert by_rest.status_code == 200
        assert by_rest.json()["data"]["sequence"] == first["sequence"]
        await other.get("message", client_message_id=key)
        await other.caught_up()
        assert other.pushed(chat_id) == []
        assert texts(await phone.sync(chat_id)) == ["once"]


async def test_disconnect_before_the_ack_and_retry_is_one_message(site: Site) -> None:
    ann, bob = await site.people("ann", "bob")
    chat_id = await site.direct(ann, bob)
    keys = [new_key() for _ in range(5)]
    async with site.phone(bob) as other:
        for number, key in enumerate(keys):
            async with site.phone(ann) as phone:
                await send_all(phone, chat_id, {key: f"number {number}"})
                if number % 2:
                    # It has certainly been stored; the ack is lost all the same.
                    await other.get("message", client_message_id=key)
                phone.cut()
        async with site.phone(ann) as phone:
            acked = [
                (await phone.say(chat_id, f"number {number}", key))["sequence"]
                for number, key in enumerate(keys)
            ]
            stored = await phone.sync(chat_id)
        assert {m["client_message_id"]: m["sequence"] for m in stored} == dict(
            zip(keys, acked, strict=True)
        )
        assert len(stored) == len(keys)
        assert chained(stored)


@asynccontextmanager
async def lazy_phone(site: Site, account: Account) -> AsyncIterator[Phone]:
    """A device with small buffers that has connected and reads nothing until it is told to."""
    small = socket.socket()
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    small.connect(("127.0.0.1", site.port))
    small.setblocking(False)
    async with connect(
        site.socket_url,
        sock=small,
        additional_headers=account.headers,
        max_queue=1,
        compression=None,
        proxy=None,
    ) as connection:
        phone = Phone(connection)
        yield phone
        await phone.end()


async def test_slow_client_is_told_closed_and_complete_after_sync(site: Site) -> None:
    ann, bob, cleo = await site.people("ann", "bob", "cleo")
    group = await site.group(ann, bob, cleo)
    closed_before = await site.metric("gateway_slow_consumer_disconnects_total")
    sent: list[str] = []
    async with site.phone(ann) as phone, site.phone(cleo) as quick, lazy_phone(site, bob) as slow:
        while await site.metric("gateway_slow_consumer_disconnects_total") == closed_before:
            assert len(sent) < 4000, "the slow client was not closed"
            batch = {new_key(): f"{len(sent) + number} ".ljust(4000, ".") for number in range(50)}
            await send_all(phone, group, batch)
            await phone.get("send_message_ack", client_message_id=list(batch)[-1])
            sent += batch.values()
        # At once: it has only so long to read why it was closed.
        slow.listen()
        for number in range(5):
            sent.append(f"after the end {number}")
            await phone.say(group, sent[-1])
        assert await slow.closed() == 1008
        errors = slow.all_of("error")
        assert [error["code"] for error in errors] == ["SLOW_CONSUMER"]
        assert [one["reason"] for one in slow.all_of("connection_closing")] == ["slow_consumer"]
        pushed = slow.all_of("message", group)
        assert chained(pushed)
        # The others did not notice.
        await quick.get("message", sequence=len(sent))
        assert len(quick.pushed(group)) == len(sent) - 1
    async with site.phone(bob) as phone:
        cursor = pushed[-1]["sequence"] if pushed else 0
        missed = await phone.sync(group, cursor)
        assert texts(missed)[-5:] == sent[-5:]
        assert texts([*pushed, *missed]) == sent
        assert chained(missed, cursor)


# ADR-001, App. B.


async def test_server_crash_after_persist_before_ack(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        ann, bob = await site.people("ann", "bob")
        chat_id = await site.direct(ann, bob)
        key = new_key()
        async with site.phone(ann) as phone, site.phone(bob) as other:
            # The sender hears nothing any more; the other one sees that it was stored.
            phone.connection.transport.pause_reading()
            await send_all(phone, chat_id, {key: "stored"})
            pushed = (await other.get("message", client_message_id=key))["payload"]
            phone.cut()
            await site.restart()
        async with site.phone(ann) as phone:
            again = await phone.say(chat_id, "stored", key)
            assert again["deduplicated"]
            assert (again["sequence"], again["message_id"]) == (1, pushed["message_id"])
            assert (await phone.say(chat_id, "next"))["prev_sequence"] == 1
            assert texts(await phone.sync(chat_id)) == ["stored", "next"]
        assert site.complaints() == []


async def test_key_with_other_content_keeps_the_original(site: Site) -> None:
    ann, bob = await site.people("ann", "bob")
    chat_id = await site.direct(ann, bob)
    key = new_key()
    async with site.phone(ann) as phone, site.phone(bob) as other:
        first = await phone.say(chat_id, "original", key)
        payload = {"chat_id": chat_id, "client_message_id": key, "content": "other"}
        answer = await phone.ask("send_message", payload)
        assert answer["type"] == "error"
        assert answer["payload"]["code"] == "IDEMPOTENCY_KEY_REUSED"
        assert answer["payload"]["details"]["sequence"] == first["sequence"]
        assert texts(await phone.sync(chat_id)) == ["original"]
        await other.get("message", content="original")
        await other.caught_up()
        assert other.pushed(chat_id) == []


async def test_long_offline_client_learns_of_all_its_chats(site: Site) -> None:
    ann, bob, cleo = await site.people("ann", "bob", "cleo")
    chats = [await site.direct(ann, bob), await site.group(ann, bob, cleo)]
    chats.append(await site.group(cleo, ann, bob))
    async with site.phone(ann) as phone:
        for chat_id in chats:
            for number in range(150):
                await phone.say(chat_id, f"number {number}")
    async with site.phone(bob) as phone:
        for chat_id in chats:
            assert (await phone.numbers(chat_id, head=150))["delivered"] == 0
            # Nobody counts further than this.
            assert phone.unread[chat_id] == 100
            missed = await phone.sync(chat_id, limit=100)
            assert texts(missed) == [f"number {number}" for number in range(150)]


# Several devices, members who go, restarts.


async def test_message_is_pushed_to_the_senders_other_device_only(site: Site) -> None:
    ann, bob = await site.people("ann", "bob")
    laptop = await site.login(ann)
    chat_id = await site.direct(ann, bob)
    async with site.phone(ann) as first, site.phone(laptop) as second, site.phone(bob) as other:
        await first.say(chat_id, "from the phone")
        assert (await second.get("message"))["payload"]["sender_id"] == ann.user_id
        await second.say(chat_id, "from the laptop")
        assert (await first.get("message"))["payload"]["content"] == "from the laptop"
        for phone in (first, second):
            await phone.caught_up()
            assert phone.pushed(chat_id) == []
        await other.get("message", sequence=2)
        assert other.pushed(chat_id) == ["from the phone"]


async def test_same_device_again_takes_over(site: Site) -> None:
    ann, bob = await site.people("ann", "bob")
    chat_id = await site.direct(ann, bob)
    async with site.phone(ann) as first, site.phone(ann) as second, site.phone(bob) as other:
        closing = await first.get("connection_closing")
        assert closing["payload"]["reason"] == "duplicate_connection"
        assert await first.closed() == 4500
        await other.say(chat_id, "to the newer one")
        await second.get("message", content="to the newer one")
        assert first.pushed(chat_id) == []


async def test_removed_member_neither_sends_nor_reads_nor_hears(site: Site) -> None:
    ann, bob, cleo = await site.people("ann", "bob", "cleo")
    group = await site.group(ann, bob, cleo)
    async with site.phone(ann) as first, site.phone(bob) as second, site.phone(cleo) as third:
        before = await first.say(group, "all three")
        await third.get("message", sequence=1)
        # Ann talks all the time; what comes after the removal must not reach Cleo.
        await site.done("DELETE", f"/chats/{group}/members/{cleo.user_id}", by=ann)
        after = await first.say(group, "two")
        await second.get("message", sequence=after["sequence"])
        await first.post("typing_start", {"chat_id": group})
        await second.get("typing_indicator", chat_id=group)
        await second.read(group, after["sequence"])
        await first.numbers(group, others_read=after["sequence"])
        for phone in (first, second, third):
            update = await phone.get("chat_update", change="member_removed", chat_id=group)
            assert update["payload"]["user_id"] == cleo.user_id
        await third.caught_up()
        assert third.pushed(group) == []
        assert third.all_of("typing_indicator", group) == []
        assert third.shown[group].get("others_read", 0) == 0

        payload = {"chat_id": group, "client_message_id": new_key(), "content": "still here?"}
        answers = [
            await third.ask("send_message", payload),
            await third.ask("sync_request", {"chat_id": group, "last_acked_sequence": 0}),
        ]
        assert [one["payload"]["code"] for one in answers] == ["NOT_A_MEMBER", "NOT_A_MEMBER"]
        path = f"/api/v1/chats/{group}/messages"
        assert (await site.call("GET", path, by=cleo)).status_code == 403
        digest = await third.ask("digest_request", {})
        assert digest["payload"]["chats"] == []
        assert texts(await first.sync(group)) == ["all three", "two"]
        assert before["sequence"] < after["sequence"]


async def test_no_message_sent_after_the_removal_reaches_the_removed(site: Site) -> None:
    """The same under load: whatever is acked after the 204 was not pushed to the removed one."""
    ann, bob, cleo = await site.people("ann", "bob", "cleo")
    group = await site.group(ann, bob, cleo)
    async with site.phone(bob) as talking, site.phone(cleo) as leaving:
        is_talking = True

        async def talk() -> int:
            number = 0
            while is_talking:
                number += 1
                await talking.say(group, f"number {number}")
            return number

        talk_task = asyncio.create_task(talk())
        await leaving.until(lambda: len(leaving.pushed(group)) >= 10)
        await site.done("DELETE", f"/chats/{group}/members/{cleo.user_id}", by=ann)
        # The one that is under way may have been sent before; the next one was not.
        first_after = (await talking.say(group, "after the removal"))["sequence"]
        await talking.get("chat_update", change="member_removed")
        await leaving.get("chat_update", change="member_removed")
        await leaving.caught_up()
        is_talking = False
        await talk_task
        heard = [message["sequence"] for message in leaving.all_of("message", group)]
        assert heard == sorted(heard)
        assert max(heard) < first_after


async def test_restart_in_the_middle_of_everything(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        ann, bob, cleo = await site.people("ann", "bob", "cleo")
        direct, group = await site.direct(ann, bob), await site.group(ann, bob, cleo)
        async with site.phone(ann) as phone, site.phone(bob) as other:
            await phone.say(direct, "before")
            await phone.say(group, "before")
            await other.get("message", chat_id=direct)
            await other.read(direct, 1)
            await phone.numbers(direct, others_read=1)
            site.server.process.terminate()
            assert await phone.closed() == 1012
            assert await other.closed() == 1012
            await asyncio.to_thread(site.server.process.wait)
        await site.restart()
        # Tokens, sessions, chats, messages and ticks are as they were.
        async with site.phone(ann) as phone, site.phone(bob) as other, site.phone(cleo) as third:
            assert (await phone.numbers(direct))["others_read"] == 1
            assert third.unread[group] == 1
            assert (await phone.say(direct, "after"))["sequence"] == 2
            await other.get("message", chat_id=direct, sequence=2)
            await third.say(group, "after")
            await phone.get("message", chat_id=group, content="after")
            assert texts(await other.sync(group)) == ["before", "after"]
        assert site.complaints() == []
