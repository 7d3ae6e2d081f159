"""How much memory many messages cost: nothing may grow with their number.

Appends through the ingest service as the gateway does, then verifies the whole store, and looks at
the memory of the process at every step.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Final

import msgspec

from tidewire.engines.sqlite import DATABASE_NAME
from tidewire.engines.sqlite.inspect import SqliteInspector
from tidewire.ops.verify import verify
from tidewire_bench.ingest import Sender, ingesting, make_chats
from tidewire_bench.target import Process

SENDERS: Final = 256


class Endurance(msgspec.Struct, frozen=True, kw_only=True):
    """The resident memory of the process in megabytes, and how long each part took."""

    messages: int
    rss_before_mb: float
    rss_halfway_mb: float
    rss_appended_mb: float
    rss_verified_mb: float
    violations: int
    append_s: float
    verify_s: float


def rss_mb() -> float:
    """The resident memory of this process."""
    return Process(os.getpid()).rss_bytes() / 1e6


async def endure(directory: Path, *, messages: int, progress: Callable[[str], None]) -> Endurance:
    """Append so many messages, then verify them."""
    pairs = await make_chats(directory, SENDERS)
    before = rss_mb()
    halfway = 0.0
    started_s = perf_counter()
    sent = stored = 0
    is_done = asyncio.Event()

    def send(sender: Sender) -> None:
        nonlocal sent
        if sent < messages:
            sent += 1
            sender.send()

    def count(sender: Sender) -> None:
        nonlocal stored, halfway
        stored += 1
        if stored * 2 == messages:
            halfway = rss_mb()
        if stored % 10_000 == 0:
            progress(f"{stored:,} of {messages:,} messages stored")
        if stored == messages:
            is_done.set()
        send(sender)

    async with ingesting(directory, pairs, count) as senders:
        for sender in senders:
            send(sender)
        await is_done.wait()
    appended, appended_s = rss_mb(), perf_counter()
    progress(f"verifying {messages:,} messages")
    report = await asyncio.to_thread(verify, lambda: SqliteInspector(directory / DATABASE_NAME))
    assert report.counts.messages == messages
    return Endurance(
        messages=messages,
        rss_before_mb=before,
        rss_halfway_mb=halfway,
        rss_appended_mb=appended,
        rss_verified_mb=rss_mb(),
        violations=sum(check.violations for check in report.checks),
        append_s=appended_s - started_s,
        verify_s=perf_counter() - appended_s,
    )
