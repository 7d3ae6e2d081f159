"""The server is restored from a backup under an open page: a new epoch.

Goal: what the server lost is marked and not shown as if it were there, what it still has is shown
once and in order, what was written meanwhile is sent, ticks are the server's. Method: a page of
Chromium and a client in Node behind a proxy; a backup that is older than what they have said. Slow:
servers and a browser.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.chatting import Site
from tests.support.proxy import FaultyProxy
from tests.web.scenes import Scene
from tests.web.tabs import Tab, until
from tidewire.domain.limits import RESTORE_SEQUENCE_JUMP
from tidewire.engines.sqlite.backup import backup, restore

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def told(who: str, count: int) -> list[str]:
    return [f"{who} {number}" for number in range(count)]


def restore_with_keys(copy: Path, data: Path, place: Path, *, keep_sessions: bool) -> None:
    """The keys of the server's tokens are not in a backup of its messages."""
    restore(copy, place, keep_sessions=keep_sessions)
    for key in data.glob("*.key"):
        (place / key.name).write_bytes(key.read_bytes())


async def log_in_again(scene: Scene, tab: Tab) -> None:
    """All sessions have ended: the page is told, and keeps what waits until its next login."""

    async def has_ended() -> bool:
        return bool((await tab.do("state"))["status"]["state"] == "closed")

    await until(has_ended, "the page is told that its login has ended")
    assert (await tab.do("state"))["status"]["reason"] == "login_needed"
    await tab.open(scene.ann)


@pytest.fixture
def restored(tmp_path: Path) -> Iterator[Site]:
    """Not started yet: its data are still to come."""
    site = Site(tmp_path / "restored")
    yield site
    site.kill()


@pytest.mark.parametrize("keep_sessions", [True, False], ids=["same login", "new login"])
async def test_restored_server_keeps_what_it_has_and_gets_what_is_new(
    restored: Site, drivers: Path, tmp_path: Path, *, keep_sessions: bool
) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy.db"
    with Site(data) as site:
        async with FaultyProxy(site.port) as proxy:
            scene = Scene(drivers, tmp_path, ann_at=proxy.url, bob_at=proxy.url)
            async with scene:
                leader, other = await scene.begin(2)
                kept = told("ann kept", 5)
                await leader.do("send", scene.chat_id, *kept)
                await scene.shown_alike(5)
                await asyncio.to_thread(site.kill)
                await asyncio.to_thread(backup, data, copy, lambda *_: None)

                await asyncio.to_thread(site.start)
                proxy.lead_to(site.port)
                lost = [*told("ann lost", 3), *told("bob lost", 3)]
                await leader.do("send", scene.chat_id, *lost[:3])
                await leader.do("flush")
                await scene.bob.do("send", scene.chat_id, *lost[3:])
                await scene.shown_alike(11)
                await asyncio.to_thread(site.kill)

                # Some is written while there is no server, in another tab than the leading one.
                new = told("ann new", 4)
                await other.do("send", scene.chat_id, *new)
                await asyncio.to_thread(
                    restore_with_keys, copy, data, restored.data_dir, keep_sessions=keep_sessions
                )
                await asyncio.to_thread(restored.start)
                proxy.lead_to(restored.port)
                if not keep_sessions:
                    for tab in (leader, other):
                        await log_in_again(scene, tab)
                    await scene.bob.do("close")
                    await scene.bob.log_in()

                await other.do("flush")
                await scene.shown_alike(9)
                assert await scene.bobs() == [*kept, *new]
                numbers = await other.do("numbers", scene.chat_id)
                assert numbers["lastSequence"] > RESTORE_SEQUENCE_JUMP
                for person in (leader, other, scene.bob):
                    assert await person.do("lost", scene.chat_id) == lost
                await scene.bob.do("read", scene.chat_id)

                async def is_read() -> bool:
                    return set(await leader.do("own", scene.chat_id)) == {"read"}

                await until(is_read, "the ticks are blue, those of what was kept as well")
                await scene.without_faults()
                assert restored.complaints() == []
