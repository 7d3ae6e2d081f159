"""Tabs of one browser with our client in them, for tests. Holds no test."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from tests.e2e.chatting import PASSWORD
from tests.web.chromium import Chromium, Page, new_profile

PATIENCE_S: Final = 60.0
PATH: Final = "/tabs"
_HTML: Final = '<!doctype html><title>tabs</title><script type="module" src="/tabs.js"></script>'
WITHOUT_LOCKS: Final = "Object.defineProperty(navigator, 'locks', { value: undefined })"
QUICK: Final = {"backoffMs": 50, "backoffMsMax": 500, "ackMs": 100}


class Tab:
    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url

    async def do(self, name: str, *arguments: object) -> Any:
        return await self.page.ask(f"page.{name}", *arguments)

    async def open(
        self, username: str | None = None, options: Mapping[str, object] = QUICK
    ) -> Self:
        login = {} if username is None else {"username": username, "password": PASSWORD}
        await self.do("open", self.url, {"options": options, **login})
        return self

    async def is_leader(self) -> bool:
        return bool((await self.do("state"))["isLeader"])

    async def texts(self, chat_id: str) -> list[str]:
        found: list[str] = await self.do("texts", chat_id)
        return found


class Tabs:
    """A browser, and its tabs."""

    def __init__(self, url: str, scripts: Path, *, flags: Sequence[str] = ()) -> None:
        """`scripts`: the folder of tabs.js and its parts."""
        self.url = url
        self.browser = Chromium(new_profile(), *flags)
        self.tabs: list[Tab] = []
        self._files = {PATH: ("text/html", _HTML)}
        for part in scripts.glob("*.js"):
            self._files[f"/{part.name}"] = ("text/javascript", part.read_text(encoding="utf-8"))

    async def __aenter__(self) -> Self:
        await self.browser.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.browser.kill()
        await asyncio.to_thread(self.browser.forget)

    async def blank(self, before: str = "") -> Tab:
        """A tab in which nothing is opened yet. `before`: a script that comes first."""
        page = await self.browser.open(self.url + PATH, self._files, before=before)
        tab = Tab(page, self.url)
        self.tabs.append(tab)
        return tab

    async def open(self) -> Tab:
        """Another tab of the person who is logged in."""
        return await (await self.blank()).open()

    async def leader(self) -> Tab:
        """The one that leads; waits until there is exactly one."""
        leaders: list[Tab] = []

        async def is_one() -> bool:
            leaders[:] = [tab for tab in self.tabs if await tab.is_leader()]
            return len(leaders) == 1

        await until(is_one, "exactly one tab leads")
        return leaders[0]


async def until(
    is_so: Callable[[], Awaitable[bool]], what: str, patience_s: float = PATIENCE_S
) -> None:
    try:
        async with asyncio.timeout(patience_s):
            while not await is_so():  # noqa: ASYNC110 - a page has no event of ours
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"it did not become so: {what}") from None
