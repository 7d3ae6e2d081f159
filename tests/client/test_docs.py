"""The examples of docstrings and of docs/client.md run as they stand, against a real server."""

import asyncio
import doctest
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.client.people import next_event
from tests.e2e.chatting import PASSWORD, Site
from tests.tidy.repository import ROOT
from tidewire.client import TICK_MARKS, Client, MessageReceived, blocking, chat, client

pytestmark = pytest.mark.slow  # each talks to a real server

MODULES = [client, chat, blocking]
URL_ON_PAPER = "http://127.0.0.1:8080"


def names(site: Site, folder: Path) -> dict[str, Any]:
    """What the examples take for granted."""

    async def as_alice(talk: Callable[[Client], Awaitable[Any]]) -> Any:
        async with await Client.register(site.url, "alice", PASSWORD) as me:
            return await talk(me)

    async def asked(bot: Callable[[Client], Awaitable[Any]], question: str) -> str:
        async with (
            await Client.register(site.url, "bot", PASSWORD) as me,
            await Client.register(site.url, "dave", PASSWORD) as dave,
        ):
            serving: asyncio.Future[Any] = asyncio.ensure_future(bot(me))
            await (await dave.direct("bot")).send(question)
            answer = await next_event(dave, MessageReceived)
            serving.cancel()
            await asyncio.wait([serving])
        return str(answer.message.text)

    return {
        "url": site.url,
        "file": folder / "alice.db",
        "run": asyncio.run,
        "as_alice": as_alice,
        "asked": asked,
        "MessageReceived": MessageReceived,
        "TICK_MARKS": TICK_MARKS,
    }


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_examples_of_docstrings_do_what_they_say(module: ModuleType, tmp_path: Path) -> None:
    with Site(tmp_path / "data") as own_site:
        register_bob(own_site)
        tests = doctest.DocTestFinder(exclude_empty=True).find(
            module, extraglobs=names(own_site, tmp_path)
        )
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        for one in tests:
            runner.run(one)
        assert runner.summarize().failed == 0
        assert runner.tries > 0


def register_bob(site: Site) -> None:
    with blocking.Client.register(site.url, "bob", PASSWORD):
        pass


def test_example_of_the_page_runs_as_it_stands(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "client.md").read_text(encoding="utf-8")
    program = page.split("```python\n")[1].split("```")[0]
    assert URL_ON_PAPER in program
    expected = page.split("prints\n\n```\n")[1].split("```")[0]
    with Site(tmp_path / "data") as own_site:
        for run in (1, 2):
            done = subprocess.run(
                [sys.executable, "-c", program.replace(URL_ON_PAPER, own_site.url)],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert done.returncode == 0, done.stderr
            assert done.stdout == expected * run
