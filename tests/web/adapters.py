"""The conformance kit's user in a real browser: a page with our client, a profile on the disk."""

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from tests.web.chromium import Chromium, Page, new_profile
from tidewire_conformance.adapter import Account, SendRefused
from tidewire_conformance.lines import AskingAdapter

TIME_SCALE: Final = 0.2
"""As conformance/user.ts has it."""
_HTML: Final = '<!doctype html><title>conformance</title><script src="/conformance.js"></script>'


class ChromiumAdapter(AskingAdapter):
    """`kill` is SIGKILL of the browser, in the middle of whatever it does."""

    def __init__(self, script: Path) -> None:
        self.time_scale = TIME_SCALE
        self._files = {
            "/conformance": ("text/html", _HTML),
            "/conformance.js": ("text/javascript", script.read_text(encoding="utf-8")),
        }
        self._profile = new_profile()
        self._browser: Chromium | None = None
        self._page: Page | None = None

    async def start(self, url: str, account: Account) -> None:
        self._begin = {"url": url, "store": "", "account": asdict(account)}
        await self._run("start")

    async def _run(self, do: str) -> None:
        self._browser = Chromium(self._profile)
        await self._browser.start()
        url = f"{self._begin['url']}/conformance"
        self._page = await self._browser.open(url, self._files)
        await self._ask(do, **self._begin)

    async def stop(self) -> None:
        assert self._browser is not None
        await self._ask("stop")
        await self._browser.stop()
        self._browser = None

    async def kill(self) -> None:
        if self._browser is not None:
            await self._browser.kill()
            self._browser = None

    async def dispose(self) -> None:
        await self.kill()
        shutil.rmtree(self._profile, ignore_errors=True)

    async def _ask(self, do: str, **more: object) -> Any:
        assert self._page is not None
        answer = await self._page.ask("conformance", {"id": 0, "do": do, **more})
        if answer.get("refused") is not None:
            raise SendRefused(answer["refused"])
        if answer.get("error") is not None:
            raise RuntimeError(f"{do}: {answer['error']}\n" + "\n".join(self._page.console))
        return answer.get("result")
