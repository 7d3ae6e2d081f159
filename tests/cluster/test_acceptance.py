"""Chatting over two gateways and two fan-out workers. Slow: real processes on real servers."""

from collections.abc import Iterator

import pytest

from tests.cluster.running import Cluster, running

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("acceptance")) as cluster:
        yield cluster
        cluster.verify()
        assert cluster.complaints() == []


@pytest.mark.timeout(120)
async def test_message_reaches_the_other_gateway(cluster: Cluster) -> None:
    one, two = cluster.gateways
    ann, bob = await one.people("ann", "bob")
    chat_id = await one.direct(ann, bob)
    async with one.phone(ann) as phone, two.phone(bob) as other:
        await phone.say(chat_id, "over there")
        assert (await other.get("message"))["payload"]["content"] == "over there"
