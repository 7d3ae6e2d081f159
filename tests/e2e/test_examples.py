"""The examples are run as they are, against a real server. Slow: programs are started."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.commands import TIMEOUT_S, tidewire
from tests.e2e.terminals import SteadySite, held, register
from tests.tidy.repository import ROOT
from tidewire.client import MessageReceived

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

LAST = "and the last one"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[SteadySite]:
    with SteadySite(tmp_path / "data") as site:
        yield site


def bot_token(site: SteadySite, username: str) -> str:
    data_dir = ("--data-dir", str(site.data_dir))
    assert tidewire("users", "add", username, "--no-password", *data_dir).exit_code == 0
    return tidewire("tokens", "issue", username, *data_dir).out.strip()


def command(name: str, *arguments: str) -> list[str]:
    return [sys.executable, str(ROOT / "examples" / name), *arguments]


def environment(token: str) -> dict[str, str]:
    return {**os.environ, "TIDEWIRE_TOKEN": token}


async def test_echo_bot_answers_once_however_often_it_is_killed(
    site: SteadySite, tmp_path: Path
) -> None:
    """Twelve messages, a kill -9 after each third answer, and a last bot that sees all to its end:
    every text comes back once, in order."""
    token = await asyncio.to_thread(bot_token, site, "echo")
    texts = [f"message {number}" for number in range(12)]
    bot = command("echo_bot.py", site.url, "--store", str(tmp_path / "echo.db"))

    def start() -> "subprocess.Popen[bytes]":
        return subprocess.Popen(bot, env=environment(token), stdout=subprocess.DEVNULL)

    answers: list[str] = []
    process = start()
    try:
        async with await register(site, tmp_path / "alice.db", "alice", "Alice") as alice:
            chat = await alice.direct("echo")
            for text in texts:
                await chat.send(text)
            async with asyncio.timeout(TIMEOUT_S):
                async for event in alice.events():
                    if not isinstance(event, MessageReceived):
                        continue
                    answers.append(event.message.text)
                    if answers[-1] == LAST:
                        break
                    if len(answers) % 3 == 0:
                        process.kill()
                        process.wait()
                        process = start()
                    if answers == texts:
                        # The bot that was started last finds everything answered but this.
                        await chat.send(LAST)
            stored = [one.text for one in await chat.messages(limit=100) if not one.is_own]
    finally:
        process.kill()
        process.wait()
    assert stored == answers == [*texts, LAST]


async def test_stdin_bridge_sends_each_line_once_and_in_order(
    site: SteadySite, tmp_path: Path
) -> None:
    token = await asyncio.to_thread(bot_token, site, "bridge")
    async with await register(site, tmp_path / "alice.db", "alice", "Alice") as alice:
        done = await asyncio.to_thread(
            subprocess.run,
            command("stdin_bridge.py", site.url, "alice", "--store", str(tmp_path / "b.db")),
            input="one\n\ntwo\n" + "é" * 3_000 + "\nlast without an end",
            env=environment(token),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "5 messages sent, the last one is number 5\n"
        (chat,) = await alice.chats()
        await held(alice, chat, 5)
        texts = [one.text for one in await chat.messages()]
    assert texts == ["one", "two", "é" * 2_048, "é" * 952, "last without an end"]


def test_delivery_latency_shows_a_histogram(site: SteadySite, tmp_path: Path) -> None:
    done = subprocess.run(
        command("delivery_latency.py", site.url, "--count", "15"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "15 messages"
    for title in ("stored (✓): median", "delivered (✓✓): median"):
        begin = next(number for number, line in enumerate(lines) if line.startswith(title))
        bars = lines[begin + 1 : begin + 11]
        assert all("ms │" in bar for bar in bars)
        assert sum(int(bar.rsplit(" ", 1)[1]) for bar in bars) == 15
