"""Parts that a cluster depends on fail, one after the other, while people talk. Slow: real time.

Goal: whatever dies, stops or stalls, everything acknowledged is stored once, all people have all of
it in order, ticks never lie, no position ever falls, and no client reconnects without having lost
its connection. Method: servers and processes of this module's own are killed or stopped by their
ids, or a proxy holds their traffic, for 20 s, or as CLUSTER_FAULT_SECONDS says. The cluster has
default settings, except for limits, few partitions, and longer timeouts for a busy database.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pytest
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient

from tests.cluster.crowd import Crowd, Town, settle_town, talking, until
from tests.cluster.running import Balancer, Cluster, Member, metric_of
from tests.cluster.servers import OwnServers, own_servers
from tests.cluster.watching import watching
from tests.e2e.chatting import Address, Frame, Phone, new_key
from tests.support.dynamodb_proxy import Fate, Proxy
from tests.support.proxy import FaultyProxy
from tidewire.engines.kafka.schema import GROUP
from tidewire.engines.redis.options import RedisOptions
from tidewire.fanout.lag import BEHIND_MS

FAULT_S: Final = float(os.environ.get("CLUSTER_FAULT_SECONDS", "20"))
PATIENCE_S: Final = 30 + 2 * FAULT_S
EXPIRED_S: Final = 2 + RedisOptions().life_ms / 1000
"""How long a gateway stands still until its routes have expired."""
WORKER_S_MAX: Final = 8.0
"""How soon pushes go on after a worker was killed, at the default settings."""
KAFKA_S_MAX: Final = 10.0
"""The same after Kafka has come back."""
KILLS_MAX: Final = 3
TOLD_S_MAX: Final = BEHIND_MS / 1000 + 3
"""How soon clients learn that pushes are late: a gateway looks each second, and waits one more for
a broker that does not answer."""
RESYNCS_MAX: Final = 4
"""How often a fault of 20 s makes a client sync: at 5 s, 10 s, 20 s, and once more while the
backlog is processed."""
HELD_S_MAX: Final = 5.0
"""How long a Redis may stand still before it counts as lost."""

UNREACHED: Final = "no broker of the event log can be reached"
"""What a process may log about a broker that stood still: the broker is left out of the list of
brokers until its controller has heard from it again."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240 + 6 * FAULT_S),
]


@pytest.fixture(scope="module")
def servers() -> Iterator[OwnServers]:
    with own_servers() as running:
        yield running


@pytest.fixture(scope="module")
def whole_cluster(
    servers: OwnServers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("faults"), servers.endpoints)
    try:
        cluster.prepare()
        cluster.launch(*(cluster.add(role) for role in ("gateway", "fanout") for _ in range(2)))
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(scope="module")
def town(whole_cluster: Cluster) -> Town:
    return asyncio.run(settle_town(whole_cluster.gateways[0], whole_cluster.directory / "people"))


@pytest.fixture
def cluster(whole_cluster: Cluster) -> Iterator[Cluster]:
    """Two gateways and two workers that run; after the test they are started again if needed."""
    yield whole_cluster
    for member in whole_cluster.members[4:]:
        member.kill()
    del whole_cluster.members[4:]
    gone = [member for member in whole_cluster.members if not member.is_running]
    whole_cluster.launch(*gone)


@asynccontextmanager
async def under_load(
    cluster: Cluster, town: Town, *addresses: Address, **more: Any
) -> AsyncIterator[Crowd]:
    """People talk while the block runs; at the end all have everything, and the store is sound."""
    async with (
        Balancer(*cluster.gateways[:2]) as balancer,
        watching(cluster, town.places) as watch,
    ):
        async with talking(town, watch, *(addresses or (balancer,)), **more) as crowd:
            await crowd.acked(20)
            yield crowd
            await crowd.all_complete()
            await crowd.check()
            assert await cluster.metric("fanout_dead_letters_total") == 0
            assert [
                (name, line)
                for name, line in cluster.complaints()
                if not line["event"].startswith(UNREACHED)
            ] == []
        await asyncio.to_thread(cluster.verify)


async def resyncs(cluster: Cluster) -> float:
    return await cluster.metric("gateway_resyncs_total")


class First(Balancer):
    """Sends every connection to the first gateway for as long as that accepts any."""

    async def _upstream(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self._turn = -1
        return await super()._upstream()


@asynccontextmanager
async def a_gateway_behind(
    proxy: Proxy, cluster: Cluster, **settings: Any
) -> AsyncIterator[Member]:
    """One more gateway, whose database is behind a proxy."""
    endpoints = replace(cluster.endpoints, dynamodb_port=proxy.port)
    gateway = cluster.add("gateway", endpoints, **settings)
    await gateway.start()
    try:
        yield gateway
    finally:
        gateway.kill()


async def two_people(cluster: Cluster) -> tuple[Any, Any, str]:
    gateway = cluster.gateways[0]
    ann, bob = await gateway.people("ann", "bob")
    return ann, bob, await gateway.direct(ann, bob)


async def gets(phone: Phone, chat_id: str, text: str) -> None:
    """Wait until a text has been pushed: this device asks for nothing."""
    await until(lambda: text in phone.pushed(chat_id), PATIENCE_S)


async def insist(phone: Phone, chat_id: str, content: str, key: str) -> Frame:
    """Send the same message again until it is acknowledged, as a client does."""
    message = {"chat_id": chat_id, "content": content, "client_message_id": key}
    async with asyncio.timeout(PATIENCE_S):
        while True:
            answer = await phone.ask("send_message", message)
            if answer["type"] == "send_message_ack":
                acked: Frame = answer["payload"]
                return acked
            assert answer["payload"]["code"] == "SERVICE_UNAVAILABLE", answer


async def some_hold_pushes(cluster: Cluster) -> bool:
    """Whether a worker has read something that it cannot pass on."""
    waiting = [await metric_of(one, "redis_push_queue_bytes") for one in cluster.workers]
    return max(waiting) > 0


async def is_rebalancing(cluster: Cluster) -> bool:
    """Whether the broker is waiting for the readers, because one more has joined."""
    group = cluster.topic_prefix + GROUP
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{cluster.endpoints.kafka_port}"})
    [described] = admin.describe_consumer_groups([group]).values()
    found = await asyncio.wrap_future(described)
    return bool(found.state is ConsumerGroupState.PREPARING_REBALANCING)


# Without a fault.


async def test_full_load_without_a_fault_has_no_resync(cluster: Cluster, town: Town) -> None:
    async with under_load(cluster, town, pause_s=0.05) as crowd:
        await asyncio.sleep(FAULT_S)
    for name in (
        "gateway_resyncs_total",
        "fanout_resyncs_total",
        "fanout_pauses_total",
        "redis_losses_total",
        "redis_pushes_dropped_total",
        "redis_routes_missing_total",
    ):
        assert await cluster.metric(name) == 0, name
    assert crowd.acked_count > 20 * FAULT_S
    assert set(crowd.times_back) == {0}


# Processes.


async def test_kill_of_a_gateway(cluster: Cluster, town: Town) -> None:
    async with under_load(cluster, town) as crowd:
        killed = cluster.gateways[0]
        connections = await metric_of(killed, "gateway_connections_active")
        assert 0 < connections < len(crowd.people)
        killed.kill()
        await crowd.acked(100)
        await until(lambda: sum(map(bool, crowd.times_back)) == connections, PATIENCE_S)


async def seconds_until_pushed(
    sender: Phone, listener: Phone, chats: Sequence[str], text: str
) -> float:
    """Say something in each chat; return how long it takes until all of it was pushed."""
    began_s = time.monotonic()
    for chat_id in chats:
        await sender.say(chat_id, text)
    await until(lambda: all(text in listener.pushed(one) for one in chats), PATIENCE_S)
    return time.monotonic() - began_s


async def test_kill_of_a_fanout_worker(cluster: Cluster, town: Town) -> None:
    """Pushes of its chats go on soon, by the other worker."""
    gateway = cluster.gateways[0]
    ann, bob = await gateway.people("ann", "bob")
    # So many that each worker reads some of them.
    chats = [await gateway.group(ann, bob) for _ in range(8)]
    killed = cluster.workers[0]
    async with (
        under_load(cluster, town) as crowd,
        gateway.phone(ann) as sender,
        cluster.gateways[1].phone(bob) as listener,
    ):
        took_s = list[float]()
        # On a busy machine it is killed again: a worker with a wrong timeout is late each time.
        while not took_s or (took_s[-1] > WORKER_S_MAX and len(took_s) < KILLS_MAX):
            if not killed.is_running:
                await killed.start()
                await cluster.shared()
            killed.kill()
            text = f"kill {len(took_s)}"
            took_s.append(await seconds_until_pushed(sender, listener, chats, text))
        assert took_s[-1] <= WORKER_S_MAX, f"it took {took_s} s"
        await crowd.acked(20)
        # The other worker has all partitions now.
        await cluster.shared()
    assert set(crowd.times_back) == {0}


async def test_kill_of_a_gateway_between_the_phases(cluster: Cluster, town: Town) -> None:
    """Its late commit finds another one in its place. The numbers are the chat's: none is lost."""
    async with (
        Proxy.running(cluster.endpoints.dynamodb_port) as proxy,
        a_gateway_behind(proxy, cluster) as doomed,
        First(doomed, *cluster.gateways[:2]) as own,
        Balancer(*cluster.gateways[:2]) as balancer,
    ):
        gaps = await cluster.metric("durability_sequence_gaps_total")
        async with under_load(cluster, town, own, *[balancer] * 7) as crowd:
            held = asyncio.Event()
            rule = proxy.rule("TransactWriteItems", Fate.PASS, table="messages", hold=held)
            await asyncio.wait_for(rule.seen.wait(), PATIENCE_S)
            # It may be about a send that another gateway has handed to this one.
            await until(lambda: crowd.people[0].waiting != [], PATIENCE_S)
            doomed.kill()
            await asyncio.wait_for(crowd.people[0].waiting[0].stored(), PATIENCE_S)
            # Whatever chat it is, that one goes on meanwhile.
            await crowd.acked(20)
            answered = proxy.answers
            held.set()
            await until(lambda: proxy.answers > answered, PATIENCE_S)
            await crowd.acked(20)
        assert await cluster.metric("durability_sequence_gaps_total") == gaps
        assert crowd.times_back == [1, *[0] * 7]


async def test_kill_of_a_gateway_before_positions_move(cluster: Cluster, town: Town) -> None:
    """Its late write finds that its users' positions have moved further at another gateway."""
    async with (
        Proxy.running(cluster.endpoints.dynamodb_port) as proxy,
        a_gateway_behind(proxy, cluster) as doomed,
        First(doomed, *cluster.gateways[:2]) as own,
        Balancer(*cluster.gateways[:2]) as balancer,
        under_load(cluster, town, own, *[balancer] * 7) as crowd,
    ):
        held = asyncio.Event()
        rule = proxy.rule("UpdateItem", Fate.PASS, table="delivery_state", hold=held)
        await asyncio.wait_for(rule.seen.wait(), PATIENCE_S)
        doomed.kill()
        await crowd.acked(40)
        await crowd.all_complete()
        # All people have read everything, and none will write these positions again.
        await crowd.watch.look()
        answered = proxy.answers
        held.set()
        await until(lambda: proxy.answers > answered, PATIENCE_S)
    assert crowd.times_back == [1, *[0] * 7]


async def test_kill_of_a_gateway_between_commit_and_publish(cluster: Cluster, town: Town) -> None:
    """Another gateway's relay publishes the message, and it is pushed: no client has to sync."""
    before = await resyncs(cluster)
    ann, bob, chat_id = await two_people(cluster)
    async with (
        FaultyProxy(cluster.endpoints.kafka_port) as held,
        under_load(cluster, town),
        cluster.gateways[1].phone(bob) as listener,
    ):
        held.hold()
        endpoints = replace(cluster.endpoints, kafka_port=held.port)
        doomed = cluster.add("gateway", endpoints)
        await doomed.start()
        async with doomed.phone(ann) as sender:
            await sender.say(chat_id, "last words")
            assert await metric_of(doomed, "outbox_publishing") == 1
            doomed.kill()
        assert listener.pushed(chat_id) == []
        await gets(listener, chat_id, "last words")
        assert listener.all_of("resync") == []
    assert await cluster.metric("outbox_relayed_total") > 0
    assert await resyncs(cluster) == before


async def test_paused_gateway_that_wakes_up(cluster: Cluster, town: Town) -> None:
    """Its routes have expired meanwhile, so it has missed pushes, and tells clients to resync."""
    ann, bob, chat_id = await two_people(cluster)
    paused, other = cluster.gateways[:2]
    async with (
        under_load(cluster, town, paused, other) as crowd,
        paused.phone(bob) as sleeper,
        other.phone(ann) as sender,
    ):
        paused.pause()
        await asyncio.sleep(max(FAULT_S, EXPIRED_S))
        await sender.say(chat_id, "are you there?")
        paused.go_on()
        await until(lambda: bool(sleeper.all_of("resync")), PATIENCE_S)
        assert [one["content"] for one in await sleeper.sync(chat_id)] == ["are you there?"]
        assert sender.all_of("resync") == []
    assert set(crowd.times_back) == {0}


async def test_worker_joins_while_batches_are_being_handled(
    cluster: Cluster, town: Town, servers: OwnServers
) -> None:
    async with (
        FaultyProxy(cluster.endpoints.kafka_port) as door,
        under_load(cluster, town) as crowd,
    ):
        # The newcomer runs, but finds no broker yet.
        door.is_refusing = True
        newcomer = cluster.add("fanout", replace(cluster.endpoints, kafka_port=door.port))
        await newcomer.start()
        # Workers cannot pass on what they have read, so none of them is between two batches.
        servers.pause("redis")
        try:
            await until(partial(some_hold_pushes, cluster), HELD_S_MAX)
            door.heal()
            await until(partial(is_rebalancing, cluster), HELD_S_MAX)
            assert await some_hold_pushes(cluster)
            assert await metric_of(newcomer, "kafka_partitions") == 0
        finally:
            servers.go_on("redis")
        await cluster.shared()
        await crowd.acked(20)
    assert set(crowd.times_back) == {0}


# Kafka.


async def test_kafka_stopped(cluster: Cluster, town: Town, servers: OwnServers) -> None:
    """Pushes wait, and the clients that should get them are told so: they sync meanwhile."""
    ann, bob, chat_id = await two_people(cluster)
    eve = await cluster.gateways[0].person("eve")
    async with (
        under_load(cluster, town) as crowd,
        cluster.gateways[0].phone(ann) as sender,
        cluster.gateways[0].phone(eve) as unconcerned,
        cluster.gateways[1].phone(bob) as listener,
    ):
        servers.pause("kafka")
        try:
            await sender.say(chat_id, "later")
            acked = crowd.acked_count
            began_s = time.monotonic()
            await until(lambda: bool(listener.all_of("resync")), TOLD_S_MAX)
            assert time.monotonic() - began_s > BEHIND_MS / 1000 - 1
            assert [one["content"] for one in await listener.sync(chat_id)] == ["later"]
            await asyncio.sleep(FAULT_S - (time.monotonic() - began_s))
            assert crowd.acked_count - acked > 10 * FAULT_S
            assert listener.pushed(chat_id) == []
        finally:
            servers.go_on("kafka")
        async with asyncio.timeout(KAFKA_S_MAX):
            await listener.until(lambda: "later" in listener.pushed(chat_id))
        await cluster.shared()
        assert {one["reason"] for one in listener.all_of("resync")} == {"log_behind"}
        assert len(listener.all_of("resync")) <= RESYNCS_MAX
        assert unconcerned.all_of("resync") == []
    assert set(crowd.times_back) == {0}


# Redis.


async def test_redis_killed_and_started_again(
    cluster: Cluster, town: Town, servers: OwnServers
) -> None:
    ann, bob, chat_id = await two_people(cluster)
    one, two = cluster.gateways[:2]
    async with under_load(cluster, town) as crowd, one.phone(ann) as sender:
        before = await resyncs(cluster)
        servers.kill("redis")
        try:
            acked = crowd.acked_count
            # A client connects, syncs and acknowledges.
            async with two.phone(bob) as late:
                said = await sender.say(chat_id, "now")
                assert [one["content"] for one in await late.sync(chat_id)] == ["now"]
                await late.ack(chat_id, said["sequence"])

                async def is_acked() -> bool:
                    view = await one.done("GET", f"/chats/{chat_id}", by=bob)
                    return bool(view["my_membership"]["last_acked_sequence"] == said["sequence"])

                await until(is_acked, PATIENCE_S)
            await asyncio.sleep(FAULT_S)
            assert crowd.acked_count - acked > 10 * FAULT_S
            assert await resyncs(cluster) == before
        finally:
            await servers.start("redis")
        await until(lambda: bool(sender.all_of("resync")), PATIENCE_S)
    assert set(crowd.times_back) == {0}


async def test_redis_emptied(cluster: Cluster, town: Town, servers: OwnServers) -> None:
    async with under_load(cluster, town) as crowd:
        before = await resyncs(cluster)
        await servers.empty_redis()

        async def are_told() -> bool:
            return await resyncs(cluster) - before >= len(crowd.people)

        await until(are_told, PATIENCE_S)
        await crowd.acked(20)
    assert set(crowd.times_back) == {0}


# DynamoDB.


async def test_dynamodb_killed_and_started_again(
    cluster: Cluster, town: Town, servers: OwnServers
) -> None:
    async with under_load(cluster, town) as crowd:
        servers.kill("dynamodb")
        await asyncio.sleep(FAULT_S)
        acked = crowd.acked_count
        await servers.start("dynamodb")
        assert acked < sum(len(person.entries) for person in crowd.people)
        await crowd.acked(40)
    assert set(crowd.times_back) == {0}


async def test_dynamodb_throttles(cluster: Cluster, town: Town) -> None:
    async with (
        Proxy.running(cluster.endpoints.dynamodb_port) as proxy,
        a_gateway_behind(proxy, cluster) as slow,
        under_load(cluster, town, slow, *cluster.gateways[:2]) as crowd,
    ):
        for operation in ("TransactWriteItems", "UpdateItem", "BatchGetItem", "Query"):
            proxy.rule(operation, Fate.THROTTLE, times=10)
        proxy.rule("TransactWriteItems", Fate.CONFLICT, times=5)
        await until(lambda: all(rule.times == 0 for rule in proxy.rules), PATIENCE_S)
        await crowd.acked(20)
        assert await metric_of(slow, "dynamodb_retries_total", reason="throttled") >= 40
    assert set(crowd.times_back) == {0}


async def test_dynamodb_times_out_after_the_commit(cluster: Cluster, town: Town) -> None:
    """A stored message is answered as it was stored, also by another gateway, and stored once."""
    ann, _, chat_id = await two_people(cluster)
    key = new_key()
    async with (
        Proxy.running(cluster.endpoints.dynamodb_port) as proxy,
        # Shorter than a send's deadline, so that the gateway retries by itself.
        a_gateway_behind(proxy, cluster, dynamodb__attempt_ms=2_000) as deaf,
    ):
        async with under_load(cluster, town, deaf, *cluster.gateways[:2]) as crowd:
            async with deaf.phone(ann) as sender:
                rule = proxy.rule("TransactWriteItems", Fate.SWALLOW, table=chat_id)
                more = proxy.rule("TransactWriteItems", Fate.SWALLOW, times=4, table="messages")
                first = await insist(sender, chat_id, "once", key)
                assert rule.seen.is_set()
                await until(lambda: more.times == 0, PATIENCE_S)
            async with cluster.gateways[0].phone(ann) as sender:
                again = await sender.say(chat_id, "once", key)
                assert len(await sender.sync(chat_id)) == 1
            assert again == {**first, "deduplicated": True}

            async def are_missed() -> bool:
                return await metric_of(deaf, "dynamodb_retries_total", reason="answer_lost") >= 5

            await until(are_missed, PATIENCE_S)
            await crowd.acked(20)
        assert set(crowd.times_back) == {0}
