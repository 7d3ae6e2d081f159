"""Tokens that end, in a real browser.

Goal: a login goes on for as long as the server lets it, while a page is open and after it was
closed for longer than its token lived; and if the server does not, the page is told, and what was
written waits for the next login. Method: tokens that live for a second, and five more that a server
allows for clocks that differ. Slow: they have to end.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.e2e.chatting import Account, Site
from tests.support.proxy import FaultyProxy
from tests.web.scenes import Scene
from tests.web.tabs import Tab, until
from tidewire.accounts.tokens import LEEWAY_MS

TOKEN_MS = 1000
EXPIRED_S = (TOKEN_MS + LEEWAY_MS) / 1000 + 0.5

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("short tokens")
    with Site(folder, accounts__access_token_ms=TOKEN_MS) as running:
        yield running


@pytest.fixture
async def proxy(site: Site) -> AsyncIterator[FaultyProxy]:
    async with FaultyProxy(site.port) as standing:
        yield standing


@pytest.fixture
def scene(site: Site, proxy: FaultyProxy, drivers: Path, tmp_path: Path) -> Scene:
    return Scene(drivers, tmp_path, ann_at=proxy.url, bob_at=site.url)


async def session_of(site: Site, tab: Tab, account: Account) -> str:
    """The login of a page, as the server knows it."""
    device_id = (await tab.do("state"))["deviceId"]
    sessions = await site.done("GET", "/sessions", by=account)
    (found,) = [one["session_id"] for one in sessions if one["device_id"] == device_id]
    return str(found)


async def test_page_that_was_closed_for_longer_than_its_token_lived_goes_on(
    scene: Scene, site: Site
) -> None:
    async with scene:
        (tab,) = await scene.begin(1)
        before = await session_of(site, tab, await site.login(scene.ann))
        await tab.do("close")
        await asyncio.sleep(EXPIRED_S)
        await tab.open()
        await tab.do("ready")
        await tab.do("send", scene.chat_id, "here again")
        await scene.shown_alike(1)
        assert await session_of(site, tab, await site.login(scene.ann)) == before
        await scene.without_faults()


async def test_refused_refresh_is_told_and_what_was_written_waits(
    scene: Scene, site: Site, proxy: FaultyProxy
) -> None:
    async with scene:
        (tab,) = await scene.begin(1)
        # A page that is open renews its token by itself.
        await asyncio.sleep(EXPIRED_S)
        await tab.do("send", scene.chat_id, "before")
        await tab.do("flush")
        proxy.is_refusing = True
        proxy.cut()
        await tab.do("send", scene.chat_id, "written meanwhile")
        other = await site.login(scene.ann)
        session_id = await session_of(site, tab, other)
        await site.done("DELETE", f"/sessions/{session_id}", by=other)
        # Its token ends, also for a try that was made before and comes through after, and the next
        # one is refused.
        await asyncio.sleep(EXPIRED_S)
        proxy.heal()

        async def has_ended() -> bool:
            return bool((await tab.do("state"))["status"]["state"] == "closed")

        await until(has_ended, "the page is told that its login has ended")
        state = await tab.do("state")
        assert state["status"]["reason"] == "login_needed"
        assert state["pending"] == ["written meanwhile sending"]
        # It says so again, and loses nothing by that.
        await tab.open()
        await until(has_ended, "it is told again")
        # The next login sends it, once.
        await tab.open(scene.ann)
        await tab.do("flush")
        await scene.shown_alike(2)
        assert await scene.bobs() == ["before", "written meanwhile"]
        await scene.without_faults()
