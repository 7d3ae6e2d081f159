"""Many messages, and what they cost in memory: nothing may grow with their number.

Appends through the ingest service as the gateway does, then verifies the whole store, and looks at
the memory of the process at every step.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from tidewire.domain.messages import Appended, AppendOutcome
from tidewire.engines.sqlite import DATABASE_NAME, SqliteStorage
from tidewire.engines.sqlite.inspect import SqliteInspector
from tidewire.ingest.options import IngestOptions
from tidewire.ingest.service import IngestService
from tidewire.ops.bench import CONTENT, Machine, Pair, client_message_id, make_chats
from tidewire.ops.verify import Report, verify

SENDERS: Final = 256
_PAGE_BYTES: Final = 4096


class Endurance(msgspec.Struct, frozen=True, kw_only=True):
    """What the process took, in megabytes of resident memory, and how long."""

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
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * _PAGE_BYTES / 1e6


async def endure(
    directory: Path, machine: Machine, *, messages: int, progress: Callable[[str], None]
) -> Endurance:
    """Append so many messages, then verify them."""
    pairs = await make_chats(directory, machine, SENDERS)
    before = rss_mb()
    started_ms = machine.clock.monotonic_ms()
    run = _Run(messages, progress)
    storage = await SqliteStorage.open(directory)
    try:
        service = IngestService(
            store=storage,
            clock=machine.clock,
            ids=machine.ids,
            tasks=machine.tasks,
            options=IngestOptions(),
        )
        for number, pair in enumerate(pairs):
            run.send(service, number, pair)
        await run.done.wait()
        await service.drain()
    finally:
        run.is_over = True
        await storage.close()
    appended = rss_mb()
    appended_ms = machine.clock.monotonic_ms()
    progress(f"verifying {messages:,} messages")
    report = await asyncio.to_thread(_verify, directory)
    assert report.counts.messages == messages
    return Endurance(
        messages=messages,
        rss_before_mb=before,
        rss_halfway_mb=run.rss_halfway_mb,
        rss_appended_mb=appended,
        rss_verified_mb=rss_mb(),
        violations=sum(check.violations for check in report.checks),
        append_s=(appended_ms - started_ms) / 1000,
        verify_s=(machine.clock.monotonic_ms() - appended_ms) / 1000,
    )


class _Run:
    """Senders that each keep one message outstanding until enough are stored."""

    def __init__(self, messages: int, progress: Callable[[str], None]) -> None:
        self.done = asyncio.Event()
        self.rss_halfway_mb = 0.0
        self.is_over = False
        """Done, or stopped by Ctrl-C: what the store refuses from now on is no fault of its own."""
        self._messages = messages
        self._progress = progress
        self._sent = 0
        self._stored = 0

    def send(self, service: IngestService, sender: int, pair: Pair) -> None:
        if self._sent >= self._messages:
            return
        self._sent += 1

        def stored(outcome: AppendOutcome) -> None:
            if self.is_over:
                return
            assert isinstance(outcome, Appended), outcome
            self._stored += 1
            if self._stored * 2 == self._messages:
                self.rss_halfway_mb = rss_mb()
            if self._stored % 10_000 == 0:
                self._progress(f"{self._stored:,} of {self._messages:,} messages stored")
            if self._stored == self._messages:
                self.done.set()
            self.send(service, sender, pair)

        service.submit_nowait(
            chat_id=pair.chat_id,
            sender_id=pair.author_id,
            client_message_id=client_message_id(sender, self._sent),
            content=CONTENT,
            done=stored,
        )


def _verify(directory: Path) -> Report:
    return verify(lambda: SqliteInspector(directory / DATABASE_NAME))
