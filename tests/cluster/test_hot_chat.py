"""Several gateways write into one chat and let one of them append for all; that one is killed.
Slow: real processes on real servers."""

import time
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from tests.cluster.hot import Outcome, Said, contend, in_order_of_time, seated
from tests.cluster.running import Cluster, Member, metric_of, running
from tests.e2e.chatting import chained
from tidewire.ingest.hot_chats import ASK_MS, LEASE_MS

GATEWAYS = 3
WRITERS = 6
WINDOW = 6
SECONDS = 2.5
UNUSED_MAX = 0.02
ROUNDS = 4
"""How many commits of each gateway may fail until all know which one writes."""
WAIT_S_MAX = (LEASE_MS + ASK_MS) / 1000 + 2.5
"""How long until a lease has expired and the others know; with time for a busy machine."""


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("hot-chat"), gateways=GATEWAYS, workers=1) as cluster:
        yield cluster
        cluster.verify()
        assert cluster.complaints() == []


async def holders(cluster: Cluster) -> list[Member]:
    """The gateways that have a lease."""
    gateways = [one for one in cluster.gateways if one.is_running]
    return [one for one in gateways if await metric_of(one, "durability_leases")]


def test_a_bad_order_and_a_silence_are_noticed() -> None:
    """The checkers notice faults."""
    good = Outcome(1.0, {"a": Said(0, 1, 0.0, 1.0, 1), "b": Said(0, 2, 0.5, 3.0, 2)})
    assert good.is_in_order
    assert good.silence_s([0], 0.5) == 2.0
    turned = Outcome(1.0, {"a": Said(0, 2, 0.0, 1.0, 1), "b": Said(0, 1, 0.5, 3.0, 2)})
    assert in_order_of_time(turned.said.values())
    assert not turned.is_in_order
    late = Outcome(1.0, {"a": Said(0, 1, 0.0, 1.0, 2), "b": Said(1, 1, 2.0, 3.0, 1)})
    assert not late.is_in_order
    with pytest.raises(AssertionError):
        good.silence_s([0], 3.0)


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_gateways_give_way_to_each_other_and_outlive_the_one_that_writes(
    cluster: Cluster,
) -> None:
    accounts = await cluster.gateways[0].people(*(f"p{n}" for n in range(WRITERS)))
    chat_id = await cluster.gateways[0].group(*accounts)
    async with AsyncExitStack() as stack:
        writers = await seated(stack, cluster.gateways, accounts, WINDOW)

        # One gateway writes for all, so they conflict only at the beginning.
        calm = await contend(cluster, writers, chat_id, SECONDS)
        assert not calm.refused, calm
        assert calm.unused_share < UNUSED_MAX, calm
        assert calm.fences_failed <= ROUNDS * GATEWAYS, calm
        assert await cluster.metric("durability_sends_taken_over_total") > len(calm.said) / 4
        assert await cluster.metric("durability_forwards_unsealed_total") == 0
        assert calm.is_in_order

        # It is killed. The others append themselves what they have forwarded to it, once.
        killed_s = 0.0
        [writing] = await holders(cluster)

        async def kill() -> None:
            nonlocal killed_s
            writing.kill()
            killed_s = time.monotonic()

        grim = await contend(cluster, writers, chat_id, SECONDS, kill)
        assert not grim.refused, grim
        assert grim.unused_share < UNUSED_MAX, grim
        assert grim.is_in_order
        lines = [one.number for one in writers if one.gateway is not writing]
        assert grim.silence_s(lines, killed_s) < WAIT_S_MAX, grim
        assert len(await holders(cluster)) <= 1

        # Everything that was acknowledged is there, once and in its place.
        survivor = next(one for one in cluster.gateways if one is not writing)
        async with survivor.phone(accounts[0]) as phone:
            stored = await phone.sync(chat_id)
    assert chained(stored)
    sequences = {message["client_message_id"]: message["sequence"] for message in stored}
    assert len(sequences) == len(stored)
    for said in (calm.said, grim.said):
        assert {key: sequences.get(key) for key in said} == {
            key: one.sequence for key, one in said.items()
        }
