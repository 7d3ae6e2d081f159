"""One connection a browser, any number of tabs: who leads, and what happens when it does not.

Goal: whichever tab dies, freezes or ends, nothing is lost, doubled or out of order, and no two of
them act at once. Method: tabs of a real Chromium on a real server, a person in Node on the other
side. Slow: a frozen leader is given five seconds.
"""

import asyncio
from functools import partial

import pytest

from tests.e2e.chatting import Site
from tests.web.chromium import PageFailed
from tests.web.scenes import Scene
from tests.web.tabs import WITHOUT_LOCKS, Tab, until

HANG_S = 12.0
WITHOUT_NEWS = """
const say = BroadcastChannel.prototype.postMessage;
BroadcastChannel.prototype.postMessage = function (said) {
  if (!said.news) say.call(this, said);
};
"""
"""A tab that answers others, and tells them nothing by itself."""

TOLD_LATE = """
const say = BroadcastChannel.prototype.postMessage;
BroadcastChannel.prototype.postMessage = function (said) {
  setTimeout(() => say.call(this, said), 1000);
};
"""
"""A tab whom the others hear a second late, in the order in which it speaks."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.mark.parametrize("before", ["", WITHOUT_LOCKS], ids=["with locks", "without locks"])
async def test_ten_tabs_share_one_connection(scene: Scene, site: Site, before: str) -> None:
    async with scene:
        tabs = await scene.begin(10, before)
        await scene.tabs.leader()
        for number, tab in enumerate(tabs):
            await tab.do("send", scene.chat_id, f"from tab {number}")
        await scene.bob.do("send", scene.chat_id, "from bob")
        await scene.shown_alike(11)
        texts = await scene.bobs()
        assert [text for text in texts if text != "from bob"] == [
            f"from tab {number}" for number in range(10)
        ]
        await scene.bob.do("read", scene.chat_id)

        async def is_read(tab: Tab) -> bool:
            return set(await tab.do("own", scene.chat_id)) == {"read"}

        for tab in (tabs[0], tabs[9]):
            await until(partial(is_read, tab), "the ticks are blue in every tab")
        await tabs[5].do("read", scene.chat_id)

        async def is_clear() -> bool:
            return all([not (await tab.do("numbers", scene.chat_id))["unread"] for tab in tabs])

        await until(is_clear, "nothing is unread in any tab")
        leaders = [await tab.is_leader() for tab in tabs]
        assert leaders.count(True) == 1
        await scene.without_faults()
        assert site.complaints() == []


async def test_tab_that_is_told_late_reads_all_that_it_shows(scene: Scene) -> None:
    async with scene:
        _, other = await scene.begin(2, TOLD_LATE)
        await scene.bob.do("send", scene.chat_id, "from bob")
        # The tabs read the same store: this one shows what the leader has not told it of.
        await scene.shown_alike(1)
        await other.do("read", scene.chat_id)

        async def is_read() -> bool:
            return bool(await scene.bob.do("own", scene.chat_id) == ["read"])

        await until(is_read, "what the tab shows is read", 10.0)
        await scene.without_faults()


async def test_leading_tab_is_killed_in_the_middle_of_sending(scene: Scene) -> None:
    async with scene:
        tabs = await scene.begin(3)
        taken: list[str] = []
        for round_number in range(4):
            leader = await scene.tabs.leader()
            texts = [f"{round_number} {n}" for n in range(20)]
            sending = asyncio.ensure_future(leader.do("send", scene.chat_id, *texts))
            # Some have left, some have not, some are not even written down.
            await asyncio.sleep(0.02 * round_number)
            await leader.page.crash()
            scene.tabs.tabs.remove(leader)
            tabs.remove(leader)
            if (await asyncio.gather(sending, return_exceptions=True))[0] is None:
                taken += texts
            last = f"after {round_number}"
            tabs.append(await scene.tabs.open())
            await tabs[0].do("send", scene.chat_id, last)
            taken.append(last)
            await until(partial(scene.has_come, last), "the next leader sends")
        theirs = await scene.bobs()
        assert len(theirs) == len(set(theirs)), "a message was doubled"
        assert [text for text in theirs if text in taken] == taken
        await scene.shown_alike(len(theirs))
        await scene.without_faults()


async def test_tab_that_ends_passes_the_lead_on(scene: Scene) -> None:
    async with scene:
        tabs = await scene.begin(2)
        first, second = tabs
        assert await first.is_leader()
        await first.do("close")
        scene.tabs.tabs.remove(first)
        assert await scene.tabs.leader() is second
        await scene.bob.do("send", scene.chat_id, "still there?")
        await scene.shown_alike(1)
        state = await first.do("state")
        assert state["status"] == {"state": "closed", "reason": "closed"}


async def goes_on_without(scene: Scene, leader: Tab, other: Tab) -> None:
    """The other tab leads, and everything is as ever."""
    scene.tabs.tabs.remove(leader)
    await other.do("send", scene.chat_id, "without it")
    assert await scene.tabs.leader() is other
    await scene.bob.do("send", scene.chat_id, "from bob")
    await scene.shown_alike(3)


async def is_one_of_many(scene: Scene, leader: Tab, other: Tab) -> None:
    """The one that led is back, and has done nothing that it may not do."""
    scene.tabs.tabs.append(leader)
    await scene.bob.do("send", scene.chat_id, "when it is back")
    await scene.shown_alike(4)
    assert await scene.tabs.leader() is other
    await leader.do("send", scene.chat_id, "from the one that was away")
    await scene.shown_alike(5)
    for tab in (leader, other):
        status = (await tab.do("state"))["status"]
        assert status["state"] == "ready", status
    await scene.without_faults()


async def leader_and_other(scene: Scene, before: str) -> tuple[Tab, Tab]:
    first, second = await scene.begin(2, before)
    leader = await scene.tabs.leader()
    await leader.do("send", scene.chat_id, "before")
    await scene.shown_alike(1)
    return leader, second if leader is first else first


@pytest.mark.parametrize("before", ["", WITHOUT_LOCKS], ids=["with locks", "without locks"])
async def test_leader_that_hangs_loses_and_says_nothing_when_it_wakes(
    scene: Scene, before: str
) -> None:
    async with scene:
        leader, other = await leader_and_other(scene, before)
        await leader.page.hang(HANG_S)
        await goes_on_without(scene, leader, other)
        await is_one_of_many(scene, leader, other)


@pytest.mark.parametrize("before", ["", WITHOUT_LOCKS], ids=["with locks", "without locks"])
async def test_leader_that_is_frozen_gives_the_lead_away(scene: Scene, before: str) -> None:
    async with scene:
        leader, other = await leader_and_other(scene, before)
        await leader.page.freeze()
        await goes_on_without(scene, leader, other)
        await leader.page.thaw()
        await is_one_of_many(scene, leader, other)


async def test_logging_out_in_one_tab_ends_all(scene: Scene) -> None:
    async with scene:
        first, second = await scene.begin(2)
        await second.do("logout")

        async def has_ended() -> bool:
            return bool((await first.do("state"))["status"]["state"] == "closed")

        await until(has_ended, "the other tab has ended")
        found = await first.page.evaluate("indexedDB.databases()")
        assert [one for one in found if one["name"] == "tidewire"] == []
        with pytest.raises(PageFailed, match="log"):
            await (await scene.tabs.blank()).open()


async def test_newer_page_asks_an_older_one_to_reload(scene: Scene) -> None:
    async with scene:
        first, second = await scene.begin(2)
        await second.page.evaluate(
            "new Promise((done, fail) => { const r = indexedDB.open('tidewire', 2);"
            " r.onsuccess = () => { r.result.close(); done(null) };"
            " r.onerror = () => fail(r.error) })"
        )
        for tab in (first, second):
            status = (await tab.do("state"))["status"]
            assert status == {"state": "closed", "reason": "reload_needed"}
        with pytest.raises(PageFailed, match="reload"):
            await (await scene.tabs.blank()).open()


async def test_leader_that_ends_before_it_tells_what_was_sent(scene: Scene) -> None:
    async with scene:
        leader, other = await scene.begin(2)
        await leader.page.evaluate(WITHOUT_NEWS)
        await other.do("send", scene.chat_id, "told by no tab")
        await scene.shown_alike(1)
        await leader.page.crash()
        scene.tabs.tabs.remove(leader)
        await other.do("flush")
        assert (await other.do("state"))["pending"] == []
        await scene.shown_alike(1)
        await scene.without_faults()
