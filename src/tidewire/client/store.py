"""The store's thread: it does all waiting jobs in one transaction, with one sync for all of them.

A job is a function of `Tables`. While one commit is syncing, the next jobs gather, so one sync
serves many messages. A job is answered when its transaction is on the disk. If a transaction fails,
it is unknown what is on the disk: the store takes no more jobs, and every caller gets the error.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

import apsw

from tidewire.client.errors import ClientError, StoreUnusable
from tidewire.client.schema import MEMORY, connect
from tidewire.client.tables import Tables

T = TypeVar("T")
Job = Callable[[Tables], T]

JOBS_MAX: Final = 1_000
"""The largest number of jobs in one transaction."""


class Store:
    """One file, one thread. For `:memory:` there is no thread: the caller's thread does the job."""

    def __init__(self, path: str) -> None:
        """Raises StoreUnusable."""
        self.path = path
        self._loop = asyncio.get_running_loop()
        self._database = connect(path)
        self._tables = Tables(self._database)
        self._jobs: deque[tuple[Job[Any], asyncio.Future[Any]]] = deque()
        self._news = threading.Condition()
        self._is_closing = False
        self._fault: StoreUnusable | None = None
        self._thread: threading.Thread | None = None
        if path != MEMORY:
            self._thread = threading.Thread(
                target=self._run, name="tidewire-client-store", daemon=True
            )
            self._thread.start()

    @property
    def last_position(self) -> int:
        return self._tables.position

    def do(self, job: Job[T]) -> "asyncio.Future[T]":
        """Queue a job; the future is done when its transaction is on the disk."""
        future: asyncio.Future[T] = self._loop.create_future()
        if self._fault is not None or self._is_closing:
            future.set_exception(
                self._fault or StoreUnusable(f"the store {self.path} is closed already")
            )
            return future
        if self._thread is None:
            self._answer(self._transact([(job, future)]))
            return future
        with self._news:
            self._jobs.append((job, future))
            if len(self._jobs) == 1:
                self._news.notify()
        return future

    async def close(self) -> None:
        """Do the waiting jobs, then close the file."""
        if self._is_closing:
            return
        with self._news:
            self._is_closing = True
            self._news.notify()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
        self._database.close()

    # The thread.

    def _run(self) -> None:
        while True:
            with self._news:
                while not self._jobs and not self._is_closing:
                    self._news.wait()
                if not self._jobs:
                    return
                count = min(len(self._jobs), JOBS_MAX)
                jobs = [self._jobs.popleft() for _ in range(count)]
            answers = self._transact(jobs)
            try:
                self._loop.call_soon_threadsafe(self._answer, answers)
            except RuntimeError:
                # The loop is gone, and with it every task that could wait for this.
                return
            self._scrub()

    def _transact(
        self, jobs: list[tuple[Job[Any], asyncio.Future[Any]]]
    ) -> list[tuple["asyncio.Future[Any]", Any]]:
        answers: list[tuple[asyncio.Future[Any], Any]] = []
        if self._fault is None:
            try:
                self._database.execute("BEGIN")
                for job, future in jobs:
                    try:
                        answers.append((future, job(self._tables)))
                    except ClientError as refusal:
                        # A job raises this before it writes anything: only its caller gets it.
                        answers.append((future, refusal))
                self._database.execute("COMMIT")
            except Exception as error:  # noqa: BLE001 - whatever it is, the disk is in doubt
                self._fault = StoreUnusable(f"the store {self.path} cannot be written: {error}")
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
            else:
                return answers
        return [(future, self._fault) for _, future in jobs]

    def _scrub(self) -> None:
        """Empty the write-ahead log after texts were erased: it may still hold them."""
        if self._tables.has_erased and self._fault is None:
            self._tables.has_erased = False
            try:
                self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            except apsw.Error as error:
                self._fault = StoreUnusable(f"the store {self.path} cannot be written: {error}")

    @staticmethod
    def _answer(answers: list[tuple["asyncio.Future[Any]", Any]]) -> None:
        for future, answer in answers:
            if future.done():
                continue
            if isinstance(answer, ClientError):
                future.set_exception(answer)
            else:
                future.set_result(answer)
