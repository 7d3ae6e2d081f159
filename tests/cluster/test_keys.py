"""All gateways sign tokens with one key. Slow: real processes on real servers."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.running import Cluster, Member, running
from tests.e2e.chatting import texts
from tidewire.runtime.console import EXIT_NOT_DONE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """One gateway. Nothing is pushed in these tests, so there is no fan-out worker."""
    with running(tmp_path, gateways=1, workers=0) as cluster:
        yield cluster


async def assert_refused(gateway: Member) -> None:
    """The gateway ends with one sentence, which says what to do."""
    code, said = await gateway.start_in_vain()
    assert code == EXIT_NOT_DONE
    [sentence] = said.splitlines()
    assert sentence.startswith("tidewire: error: this is not the key ")
    assert "give all the same cluster.token_key_file" in sentence
    assert "stop all of them and run 'tidewire cluster new-key'" in sentence


async def test_key_is_rotated_while_gateways_run(cluster: Cluster, tmp_path: Path) -> None:
    """No logout: old tokens and new ones are good at every gateway that has the file."""
    [first] = cluster.gateways
    [ann] = await first.people("ann")
    copied = tmp_path / "old.key"
    copied.write_bytes((cluster.directory / "token.key").read_bytes())
    copied.chmod(0o600)
    place = ("--data-dir", str(cluster.directory / first.name))
    done = await asyncio.to_thread(cluster.command, "keys", "rotate", "--signs-in", "0", *place)
    assert done.returncode == 0, done.stderr
    later = await first.login(ann)
    second = cluster.add("gateway")
    await second.start()
    for gateway in (first, second):
        for account in (ann, later):
            await gateway.done("GET", "/users/me", by=account)
    # The key that signs is known to the store: without it no gateway starts.
    stale = cluster.add("gateway", cluster__token_key_file=copied)
    await assert_refused(stale)
    assert first.complaints() + second.complaints() == []


async def test_gateway_with_another_key_is_refused_until_the_first_is_given_up(
    cluster: Cluster, tmp_path: Path
) -> None:
    [first] = cluster.gateways
    ann, bob = await first.people("ann", "bob")
    chat_id = await first.direct(ann, bob)
    other = cluster.add("gateway", cluster__token_key_file=tmp_path / "another.key")
    await assert_refused(other)
    async with first.phone(ann) as phone:
        await phone.say(chat_id, "nothing has happened here")
    # The refused gateway has left nothing in the store: it is refused again.
    await assert_refused(other)

    # Doing what the sentence says helps. From then on the other key is the cluster's key.
    assert await first.stop() == 0
    done = await asyncio.to_thread(cluster.command, "cluster", "new-key")
    assert done.returncode == 0, done.stderr
    await other.start()
    await assert_refused(first)
    assert (await other.call("GET", "/api/v1/chats", by=ann)).status_code == 401
    async with other.phone(await other.login(ann)) as phone:
        assert texts(await phone.sync(chat_id)) == ["nothing has happened here"]
