"""A real Chromium with a profile on the disk, driven over its own protocol (CDP).

Small on purpose: it opens pages, calls functions in them and dies when it is told to. Pages are
served from the test's memory under the address of whichever server is tested, so that they have its
origin without its having to know them.
"""

import asyncio
import base64
import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.support.web import ensure_headless_shell

START_S_MAX: Final = 60.0
CALL_S_MAX: Final = 60.0
CRASH_S_MAX: Final = 1.0
"""A page that is gone does not answer."""
_FLAGS: Final = (
    "--remote-debugging-port=0",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-component-update",
    "--disable-background-networking",
    "--disable-sync",
    # A page that the test hands over is of no network; it may talk to this machine all the same.
    "--disable-features=LocalNetworkAccessChecks,LocalNetworkAccessChecksWebSockets,Translate",
    "--password-store=basic",
    "--mute-audio",
)


class PageFailed(Exception):
    """What a page threw, or that it is gone."""


class Chromium:
    """One browser. `profile` outlives it."""

    def __init__(self, profile: Path, *flags: str) -> None:
        self.profile = profile
        self._flags = flags
        self._process: asyncio.subprocess.Process | None = None
        self._socket: ClientConnection | None = None
        self._listening: asyncio.Task[None] | None = None
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._asked: dict[str, set[int]] = {}
        self._number = 0
        self._pages: dict[str, Page] = {}

    async def start(self) -> None:
        program = ensure_headless_shell()
        port_file = self.profile / "DevToolsActivePort"
        port_file.unlink(missing_ok=True)
        # A browser that was killed has left its claim on the profile.
        for claim in self.profile.glob("Singleton*"):
            claim.unlink(missing_ok=True)
        sandbox = ("--no-sandbox",) if os.geteuid() == 0 else ()
        self._process = await asyncio.create_subprocess_exec(
            program,
            *_FLAGS,
            *sandbox,
            *self._flags,
            f"--user-data-dir={self.profile}",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            # A group of its own: a browser is many processes, and they die together.
            start_new_session=True,
        )
        async with asyncio.timeout(START_S_MAX):
            while not (port_file.exists() and port_file.read_text().count("\n")):
                if self._process.returncode is not None:
                    raise PageFailed(f"Chromium ended with {self._process.returncode}")
                await asyncio.sleep(0.02)
        port, path = port_file.read_text().split("\n")[:2]
        self._socket = await connect(
            f"ws://127.0.0.1:{port}{path}", max_size=None, ping_interval=None, proxy=None
        )
        self._listening = asyncio.create_task(self._listen(self._socket))

    async def open(
        self, url: str, files: Mapping[str, tuple[str, str]], *, before: str = ""
    ) -> "Page":
        """A tab at an address. `files`: what is served under which path, with its type; all else
        goes to the network. `before`: a script that runs before those of the page."""
        target = await self.call("Target.createTarget", params={"url": "about:blank"})
        attached = await self.call(
            "Target.attachToTarget", params={"targetId": target["targetId"], "flatten": True}
        )
        page = Page(self, attached["sessionId"], target["targetId"], files)
        self._pages[page.session] = page
        await page.begin(url, before)
        return page

    async def call(
        self,
        method: str,
        *,
        session: str | None = None,
        params: Mapping[str, object] | None = None,
        patience_s: float = CALL_S_MAX,
    ) -> Any:
        if self._socket is None:
            raise PageFailed("the browser is not running")
        self._number += 1
        number = self._number
        future = self._calls[number] = asyncio.get_running_loop().create_future()
        message: dict[str, Any] = {"id": number, "method": method, "params": params or {}}
        if session is not None:
            message["sessionId"] = session
            self._asked.setdefault(session, set()).add(number)
        try:
            await self._socket.send(msgspec.json.encode(message).decode())
            async with asyncio.timeout(patience_s):
                return await future
        except TimeoutError as error:
            raise PageFailed(f"no answer to {method}") from error
        except ConnectionClosed as error:
            raise PageFailed("the browser is gone") from error
        finally:
            self._calls.pop(number, None)
            self._asked.get(session or "", set()).discard(number)

    async def _listen(self, socket: ClientConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            async for text in socket:
                said = msgspec.json.decode(text)
                if "id" in said:
                    self._answered(said)
                elif (page := self._pages.get(said.get("sessionId", ""))) is not None:
                    page.heard(said["method"], said["params"])
        for future in self._calls.values():
            if not future.done():
                future.set_exception(PageFailed("the browser is gone"))

    def _answered(self, said: dict[str, Any]) -> None:
        future = self._calls.get(said["id"])
        if future is None or future.done():
            return
        if "error" in said:
            future.set_exception(PageFailed(said["error"]["message"]))
        else:
            future.set_result(said["result"])

    def lost(self, session: str) -> None:
        """A tab has crashed: what it was asked is not answered any more."""
        for number in self._asked.get(session, ()):
            future = self._calls.get(number)
            if future is not None and not future.done():
                future.set_exception(PageFailed("the page has crashed"))

    def signal(self, number: int) -> None:
        """To all of its processes: SIGSTOP is as good as sleep."""
        assert self._process is not None
        os.killpg(self._process.pid, number)

    async def kill(self) -> None:
        """As kill -9 does: all of its processes at once."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._gone()

    async def stop(self) -> None:
        """As a person ends a browser."""
        with contextlib.suppress(PageFailed):
            await self.call("Browser.close")
        try:
            async with asyncio.timeout(10):
                await self._gone()
        except TimeoutError:
            await self.kill()

    def forget(self) -> None:
        """Remove the profile; the last processes may still be writing."""
        shutil.rmtree(self.profile, ignore_errors=True)

    async def _gone(self) -> None:
        assert self._process is not None
        await self._process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process = None
        if self._socket is not None:
            await self._socket.close()
        if self._listening is not None:
            await self._listening
        self._socket = self._listening = None


class Page:
    """One tab."""

    def __init__(
        self, browser: Chromium, session: str, target: str, files: Mapping[str, tuple[str, str]]
    ) -> None:
        self.session = session
        self.target = target
        self.console: list[str] = []
        """What was logged, and what was thrown and not caught."""
        self._browser = browser
        self._files = files
        self._loaded = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def begin(self, url: str, before: str) -> None:
        await self.call("Page.enable")
        await self.call("Page.addScriptToEvaluateOnNewDocument", source=before)
        await self.call("Runtime.enable")
        await self.call("Log.enable")
        await self.call("Inspector.enable")
        patterns = [{"urlPattern": f"*://*{path}"} for path in self._files]
        await self.call("Fetch.enable", patterns=patterns)
        await self.call("Page.navigate", url=url)
        async with asyncio.timeout(CALL_S_MAX):
            await self._loaded.wait()

    async def call(self, method: str, **params: object) -> Any:
        return await self._browser.call(method, session=self.session, params=params)

    async def evaluate(self, expression: str) -> Any:
        """The value of an expression, awaited. Raises PageFailed."""
        answer = await self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        fault = answer.get("exceptionDetails")
        if fault is not None:
            raise PageFailed(fault.get("exception", {}).get("description", fault["text"]))
        return answer["result"].get("value")

    async def ask(self, function: str, *arguments: object) -> Any:
        """Call a function of the page with plain data."""
        told = ",".join(msgspec.json.encode(one).decode() for one in arguments)
        return await self.evaluate(f"{function}({told})")

    async def reload(self) -> None:
        self._loaded.clear()
        await self.call("Page.reload")
        async with asyncio.timeout(CALL_S_MAX):
            await self._loaded.wait()

    async def close(self) -> None:
        await self._browser.call("Target.closeTarget", params={"targetId": self.target})

    async def crash(self) -> None:
        """Its process dies in the middle of whatever it does."""
        with contextlib.suppress(PageFailed):
            await self._browser.call("Page.crash", session=self.session, patience_s=CRASH_S_MAX)

    async def freeze(self) -> None:
        """As a browser does with tabs that are not looked at: nothing runs in it any more."""
        await self.call("Page.setWebLifecycleState", state="frozen")

    async def hang(self, seconds: float) -> None:
        """Its thread computes for so long, and hears of nothing."""
        work = f"const end = Date.now() + {seconds * 1000}; while (Date.now() < end);"
        await self.evaluate(f"setTimeout(() => {{ {work} }}, 0)")

    async def thaw(self) -> None:
        await self.call("Page.setWebLifecycleState", state="active")

    def heard(self, event: str, params: dict[str, Any]) -> None:
        if event == "Page.loadEventFired":
            self._loaded.set()
        elif event == "Fetch.requestPaused":
            task = asyncio.create_task(self._serve(params))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif event == "Inspector.targetCrashed":
            self._browser.lost(self.session)
        elif event == "Runtime.consoleAPICalled":
            said = [str(one.get("value", one.get("description"))) for one in params["args"]]
            self.console.append(f"{params['type']}: {' '.join(said)}")
        elif event == "Log.entryAdded":
            entry = params["entry"]
            self.console.append(f"{entry['level']}: {entry['text']}")
        elif event == "Runtime.exceptionThrown":
            fault = params["exceptionDetails"]
            self.console.append(
                f"thrown: {fault.get('exception', {}).get('description', fault['text'])}"
            )

    async def _serve(self, params: dict[str, Any]) -> None:
        url = params["request"]["url"]
        found = [one for path, one in self._files.items() if url.endswith(path)]
        with contextlib.suppress(PageFailed):
            if not found:
                await self.call("Fetch.continueRequest", requestId=params["requestId"])
                return
            kind, body = found[0]
            await self.call(
                "Fetch.fulfillRequest",
                requestId=params["requestId"],
                responseCode=200,
                responseHeaders=[{"name": "Content-Type", "value": f"{kind}; charset=utf-8"}],
                body=base64.b64encode(body.encode()).decode(),
            )


def new_profile() -> Path:
    return Path(tempfile.mkdtemp(prefix="tidewire-chromium-"))
