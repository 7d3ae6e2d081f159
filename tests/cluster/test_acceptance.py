"""Chatting over two gateways and two fan-out workers. Slow: real processes on real servers.

First the tests of one process, again: every call and every device goes to the next gateway. Then
the tests of what exists only in a cluster.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.client.people import People
from tests.cluster.running import Balancer, Cluster, running
from tests.cluster.spread import SpreadSite
from tests.e2e import test_acceptance, test_entries, test_security, test_ticks
from tests.e2e.chatting import chained, new_key, texts
from tests.e2e.test_acceptance import OUTBOUND_BYTES_MAX
from tidewire.client import Chat, Sent, Tick
from tidewire.engines.redis.options import RedisOptions

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

PEOPLE = 20
DEVICES_MAX = 3
LIMIT = 20
PATIENCE_S = 30.0
LIMITS_EXCHANGED_S = RedisOptions().limits_ms / 1000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(
        tmp_path_factory.mktemp("acceptance"),
        gateway__outbound_bytes_max=OUTBOUND_BYTES_MAX,
        gateway__user_connections_max=DEVICES_MAX,
    ) as cluster:
        yield cluster
        cluster.verify()
        assert cluster.complaints() == []


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> SpreadSite:
    return SpreadSite(cluster)


@pytest.fixture
async def people(site: SpreadSite, tmp_path: Path) -> AsyncIterator[People]:
    """Makes clients; they are closed at the end."""
    async with AsyncExitStack() as stack:
        yield People(site, tmp_path, stack)


# The tests of one process, again. Those that start a server of their own are not among them.

test_stale_cursor = test_acceptance.test_stale_cursor_replays_everything_newer_in_order
test_duplicate_submit = test_acceptance.test_duplicate_submit_returns_the_original_and_stores_one
test_retry = test_acceptance.test_disconnect_before_the_ack_and_retry_is_one_message
test_slow_client = test_acceptance.test_slow_client_is_told_closed_and_complete_after_sync
test_key_again = test_acceptance.test_key_with_other_content_keeps_the_original
test_other_device = test_acceptance.test_message_is_pushed_to_the_senders_other_device_only
test_same_device = test_acceptance.test_same_device_again_takes_over
test_removed = test_acceptance.test_removed_member_neither_sends_nor_reads_nor_hears
test_removed_under_load = test_acceptance.test_no_message_sent_after_the_removal_reaches_the_removed
test_direct_ticks = test_ticks.test_direct_chat_from_circle_to_blue
test_reading_is_delivery = test_ticks.test_reading_is_also_delivery
test_group_ticks = test_ticks.test_group_of_three_sees_the_slowest
test_leaving_ticks = test_ticks.test_member_who_leaves_is_waited_for_no_longer
test_newcomer_ticks = test_ticks.test_newcomer_sees_the_ticks_of_the_first_message
test_back_ticks = test_ticks.test_member_who_is_back_sees_what_was_read_meanwhile
test_stale_ack = test_ticks.test_ack_is_never_answered_and_a_stale_one_changes_nothing
test_ack_above_head = test_ticks.test_ack_above_the_head_is_refused_without_a_request_id
test_held_back_ticks = test_ticks.test_ticks_that_were_held_back_are_in_the_digest
test_reading_clears = test_ticks.test_reading_on_one_device_clears_the_other
test_device_behind = test_ticks.test_device_behind_the_other_one_still_learns_what_to_fetch
test_revoked = test_security.test_revoked_session_loses_socket_and_tokens_at_once
test_logout = test_security.test_logout_and_the_end_of_all_other_sessions
test_two_edits = test_entries.test_two_edits_from_two_devices
test_delete_and_sync = test_entries.test_delete_while_somebody_syncs
test_edit_of_one_removed = test_entries.test_edit_by_one_removed_meanwhile
test_edit_again = test_entries.test_retry_of_an_edit_after_deletion
test_mention_of_one_who_left = test_entries.test_mention_of_one_who_just_left
test_reply_to_a_tombstone = test_entries.test_reply_to_a_tombstone
test_react_twice = test_entries.test_react_unreact_react


# Twenty people with the SDK.


async def once(is_so: Callable[[], Awaitable[bool]], what: str) -> None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                if await is_so():
                    return
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(what) from None


async def held(chat: Chat, count: int) -> list[tuple[int | None, str]]:
    """Sequence and text of all messages of a chat that a client holds, once it has `count`."""

    async def are_there() -> bool:
        return len(await chat.messages(limit=1_000)) >= count

    try:
        await once(are_there, f"{chat} has less than {count} messages")
    except AssertionError as error:
        raise AssertionError(f"{error}: {await told_of_it(chat)}") from None
    return [(one.sequence, one.text) for one in await chat.messages(limit=1_000)]


async def told_of_it(chat: Chat) -> str:
    """What a client knows of a chat, for a failure: the numbers that it lacks, and why it may."""
    driver = chat._client.driver
    numbers = {one.sequence for one in await chat.messages(limit=1_000)}
    lacking = sorted({*range(1, max(numbers, default=0) + 1)} - numbers)
    known = driver.core.replicas.get(chat.chat_id)
    replica = {name: getattr(known, name, None) for name in ("start", "cursor", "head", "stored")}
    waiting = [] if known is None else sorted(known.waiting)
    return (
        f"{driver.core.user_id} is {driver.status}, holds {len(numbers)}, lacks {lacking} and what "
        f"comes after {max(numbers, default=0)}; {replica}, waiting {waiting}, "
        f"pending {chat.pending()}"
    )


async def say_all(chats: list[Chat], word: str, count: int) -> list[Sent]:
    """Send `count` messages in each chat at once, and wait until all are stored."""
    said = await asyncio.gather(
        *(
            chat.send(f"{word} {number} of {speaker}")
            for speaker, chat in enumerate(chats)
            for number in range(count)
        )
    )
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(one.stored() for one in said))
    return list(said)


async def changed(chats: list[Chat]) -> list[Sent]:
    """In each direct chat edit the first own message, delete the second, and react to the other's
    third one; wait until all changes are stored."""
    sent = []
    for speaker, chat in enumerate(chats):
        messages = await chat.messages(limit=1_000)
        first, second, _ = [one for one in messages if one.is_own]
        *_, third = [one for one in messages if not one.is_own]
        changes = (first.edit(f"better {speaker}"), second.delete(), third.react("👍"))
        sent += [await change for change in changes]
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(one.stored() for one in sent))
    return sent


async def view(chat: Chat) -> list[tuple[int, str, bool, list[tuple[str, int]]]]:
    """What a device shows of a chat."""
    return [
        (one.sequence, one.text, one.is_deleted, [(two.emoji, two.count) for two in one.reactions])
        for one in await chat.messages(limit=1_000)
    ]


async def show_the_changes(one: Chat, other: Chat) -> bool:
    mine, theirs = await view(one), await view(other)
    states = Counter((text[:6], is_gone, len(marks)) for _, text, is_gone, marks in mine)
    wanted = [("better", False, 0), ("", True, 0), ("to you", False, 1)]
    return mine == theirs and states == dict.fromkeys(wanted, 2)


async def test_twenty_people_talk_see_ticks_and_move_to_the_other_gateway(
    cluster: Cluster, people: People
) -> None:
    names = await asyncio.gather(*(people.register(f"p{n}") for n in range(PEOPLE)))
    # Neighbours are at different gateways.
    clients = await asyncio.gather(
        *(people.open(f"p{n}", at=cluster.gateways[n % 2], moved=True) for n in range(PEOPLE))
    )
    pairs = await asyncio.gather(*(clients[n].direct(names[n + 1]) for n in range(0, PEOPLE, 2)))
    group = await clients[0].group("everybody", *names[1:])
    directs = [client.chat(pairs[n // 2].chat_id) for n, client in enumerate(clients)]
    groups = [client.chat(group.chat_id) for client in clients]

    said = await say_all(directs, "to you", 3) + await say_all(groups, "to all", 2)
    for n in range(0, PEOPLE, 2):
        mine, yours = await held(directs[n], 6), await held(directs[n + 1], 6)
        assert mine == yours
    orders = [await held(chat, 2 * PEOPLE) for chat in groups]
    assert all(order == orders[0] for order in orders)
    for speaker in range(PEOPLE):
        own = [text for _, text in orders[0] if text.endswith(f" of {speaker}")]
        assert own == [f"to all {number} of {speaker}" for number in range(2)]

    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(one.delivered() for one in said))
        assert all(chat.unread for chat in directs)
        await asyncio.gather(*(chat.read() for chat in directs + groups))
        await asyncio.gather(*(one.read() for one in said))

    # Changes look the same at both gateways.
    await changed(directs)
    for n in range(0, PEOPLE, 2):
        show = partial(show_the_changes, directs[n], directs[n + 1])
        await once(show, f"{directs[n]} is not shown as it was changed")

    # Half of them are away while the others talk on, and come back at the other gateway.
    away = range(1, PEOPLE, 2)
    await asyncio.gather(*(clients[n].close() for n in away))
    for chat in directs[::2]:
        *_, last = [one for one in await chat.messages(limit=1_000) if one.is_own]
        await (await last.edit("changed meanwhile")).stored()
    late = await say_all([*directs[::2], *groups[::2]], "meanwhile", 1)
    assert {one.tick for one in late} == {Tick.SENT}
    back = await asyncio.gather(
        *(people.open(f"p{n}", at=cluster.gateways[(n + 1) % 2], moved=True) for n in away)
    )
    groups[1::2] = [client.chat(group.chat_id) for client in back]
    orders = [await held(chat, 2 * PEOPLE + PEOPLE // 2) for chat in groups]
    assert all(order == orders[0] for order in orders)
    for n, client in zip(away, back, strict=True):
        theirs = await held(client.chat(directs[n].chat_id), 7)
        assert theirs == await held(directs[n - 1], 7)
        assert "changed meanwhile" in [text for _, text in theirs]
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(one.delivered() for one in late))


# What there is only in a cluster.


async def test_one_key_over_both_gateways_at_once_is_one_message(cluster: Cluster) -> None:
    one, two = cluster.gateways
    ann, bob = await one.people("ann", "bob")
    laptop = await two.login(ann)
    chat_id = await one.direct(ann, bob)
    keys = [new_key() for _ in range(10)]
    before = await cluster.metric("outbox_relayed_total")
    async with one.phone(ann) as phone, two.phone(laptop) as other, two.phone(bob) as reader:
        for number, key in enumerate(keys):
            answers = await asyncio.gather(
                phone.say(chat_id, f"number {number}", key),
                other.say(chat_id, f"number {number}", key),
            )
            assert sorted(answer.pop("deduplicated") for answer in answers) == [False, True]
            assert answers[0] == answers[1]
        stored = await reader.sync(chat_id)
        assert [message["client_message_id"] for message in stored] == keys
        assert chained(stored)
        # Two gateways publish, so pushes may overtake each other.
        wanted = sorted(texts(stored))
        await reader.until(lambda: sorted(set(reader.pushed(chat_id))) == wanted)
        pushed = sorted(reader.pushed(chat_id))
        # Each came once, unless publishing took so long that a relay has published it as well.
        relayed = await cluster.metric("outbox_relayed_total") - before
        assert pushed == wanted or relayed > 0


async def test_what_is_done_by_rest_at_one_gateway_is_seen_at_the_other(cluster: Cluster) -> None:
    one, two = cluster.gateways
    ann, bob, cleo = await one.people("ann", "bob", "cleo")
    group = await one.group(ann, bob)
    async with two.phone(bob) as phone, two.phone(cleo) as late:
        body = {"client_message_id": new_key(), "content": "by REST"}
        sent = await one.done("POST", f"/chats/{group}/messages", body, by=ann)
        pushed = (await phone.get("message", content="by REST"))["payload"]
        assert pushed["sequence"] == sent["sequence"]
        history = await two.done("GET", f"/chats/{group}/messages", by=bob)
        assert texts(history) == ["by REST"]
        await one.done("PATCH", f"/chats/{group}", {"name": "renamed"}, by=ann)
        await phone.get("chat_update", chat_id=group, name="renamed")
        await one.done("POST", f"/chats/{group}/members", {"user_id": cleo.user_id}, by=ann)
        await late.get("chat_update", chat_id=group, change="member_added")
        async with one.phone(ann) as writer:
            await phone.post("typing_start", {"chat_id": group})
            for other in (late, writer):
                await other.get("typing_indicator", user_id=bob.user_id)
            await writer.say(group, "to all three")
        await late.get("message", content="to all three")
        listed = await two.done("GET", "/chats", by=cleo)
        assert [chat["name"] for chat in listed] == ["renamed"]


async def test_block_at_one_gateway_holds_at_the_other(cluster: Cluster) -> None:
    one, two = cluster.gateways
    ann, bob = await one.people("ann", "bob")
    chat_id = await one.direct(ann, bob)
    async with two.phone(ann) as phone:
        await phone.say(chat_id, "before")
        await one.done("PUT", f"/users/{ann.user_id}/block", by=bob)
        payload = {"chat_id": chat_id, "client_message_id": new_key(), "content": "after"}
        refused = await phone.ask("send_message", payload)
        assert refused["payload"]["code"] == "FORBIDDEN"
        await one.done("DELETE", f"/users/{ann.user_id}/block", by=bob)
        await phone.say(chat_id, "again")


async def test_session_ended_at_one_gateway_closes_its_socket_at_the_other(
    cluster: Cluster,
) -> None:
    """E1: a client that changes the gateway with every call never sees the two differ."""
    for here, there in (cluster.gateways, cluster.gateways[::-1]):
        ann = await here.person("ann")
        laptop = await here.login(ann)
        async with here.phone(ann) as phone, there.phone(laptop) as other:
            await here.done("DELETE", f"/sessions/{laptop.session_id}", by=ann)
            # Within seconds: so it is not closed by the recheck of all sessions, each minute.
            assert await other.closed() == 1008
            assert other.find("connection_closing", reason="session_revoked") is not None
            answer = await there.call("GET", "/api/v1/users/me", by=laptop)
            assert answer.status_code == 401
            await phone.caught_up()


async def test_user_has_so_many_devices_over_all_gateways_together(cluster: Cluster) -> None:
    ann = await cluster.gateways[0].person("ann")
    devices = [ann, *[await cluster.gateways[0].login(ann) for _ in range(DEVICES_MAX)]]
    async with AsyncExitStack() as stack:
        for number, device in enumerate(devices[:-1]):
            await stack.enter_async_context(cluster.gateways[number % 2].phone(device))
        for gateway in cluster.gateways:
            with pytest.raises(Exception, match="rate_limited"):
                await stack.enter_async_context(gateway.phone(devices[-1]))


async def test_wrong_passwords_count_over_all_gateways_together(cluster: Cluster) -> None:
    ann = await cluster.gateways[0].person("ann")
    body = {"username": ann.username, "password": "not it", "device_id": ann.device_id}

    async def guess(number: int) -> int:
        gateway = cluster.gateways[number % 2]
        return (await gateway.call("POST", "/api/v1/auth/login", body)).status_code

    codes = [await guess(number) for number in range(10)]
    assert codes == [401] * 10

    async def are_both_shut() -> bool:
        return [await guess(number) for number in range(2)] == [429, 429]

    # The gateways exchange what was used up a few times a second.
    await once(are_both_shut, "somebody may guess on at another gateway")


# Last: afterwards the gateways have other settings.


async def test_gateways_restarted_one_by_one_lose_nothing_and_bring_new_limits(
    cluster: Cluster, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        door = await stack.enter_async_context(Balancer(*cluster.gateways))
        people = People(door, tmp_path, stack)
        names = [await people.register(f"m{n}") for n in range(6)]
        clients = [await people.open(f"m{n}") for n in range(6)]
        group = await clients[0].group("movers", *names[1:])
        said: list[Sent] = []
        is_over = asyncio.Event()

        async def talk(chat: Chat) -> None:
            while not is_over.is_set():
                said.append(await chat.send(f"number {len(said)}"))
                await said[-1].stored()

        talks = [asyncio.create_task(talk(client.chat(group.chat_id))) for client in clients]
        for gateway in cluster.gateways:
            assert await gateway.stop() == 0
            count = len(said)
            # Those who were at this gateway are back at the other one a second later: a gateway
            # that starts sooner would come before any of them had spoken.
            async with asyncio.timeout(PATIENCE_S):
                while len(said) == count:  # noqa: ASYNC110 - what was said has no event
                    await asyncio.sleep(0.02)
            gateway.settings |= {
                "gateway.send_chat_rate_per_second": 1,
                "gateway.send_chat_burst": LIMIT,
            }
            await gateway.start()
        is_over.set()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*talks)
        orders = [await held(client.chat(group.chat_id), len(said)) for client in clients]
        assert all(order == orders[0] for order in orders)
        assert sorted(text for _, text in orders[0]) == sorted(one.text for one in said)

    one, two = cluster.gateways
    ann, bob = await one.people("ann", "bob")
    laptop = await two.login(ann)
    chat_id = await one.direct(ann, bob)
    async with one.phone(ann) as phone, two.phone(laptop) as other:
        answers: list[str] = []
        while "error" not in answers[-2:] and len(answers) < 2 * LIMIT:
            if len(answers) == LIMIT:
                # A quick machine has sent all of it before the gateways have exchanged anything.
                await asyncio.sleep(2 * LIMITS_EXCHANGED_S)
            device = (phone, other)[len(answers) % 2]
            payload = {"chat_id": chat_id, "client_message_id": new_key(), "content": "again"}
            answers.append((await device.ask("send_message", payload))["type"])
        # Each gateway with a limit of its own would have let LIMIT messages through.
        assert LIMIT <= len(answers) < 2 * LIMIT
