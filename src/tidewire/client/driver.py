"""Carries out the effects of the core: the socket, the store's thread, timers, callers that wait.

One driver owns one core, and everything happens on one event loop. Writes to the store are
gathered for one turn of the loop and go to the store's thread as one job.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import SystemRandom
from typing import Any, Final, TypeVar

import msgspec

from tidewire.client import effects
from tidewire.client.connection import CLOSED, READY, SYNCING, Connection
from tidewire.client.credentials import Credentials
from tidewire.client.errors import LOGIN_NEEDED, ClientClosed, ClientError, LoginNeeded, closed_for
from tidewire.client.link import NORMAL_CLOSE
from tidewire.client.model import (
    ChatUpdated,
    Event,
    Fleeting,
    MessageRefused,
    StatusMoved,
    TicksMoved,
    Typing,
)
from tidewire.client.options import ClientOptions
from tidewire.client.outbox import Outbox
from tidewire.client.replica import Replica
from tidewire.client.sending import Sending
from tidewire.client.sent import Waits
from tidewire.client.store import Store
from tidewire.client.tables import Tables
from tidewire.client.transport import HandshakeRefused, Received, Socket
from tidewire.client.writing import Writing, Written
from tidewire.wire.features import FEATURES_HEADER, Feature

TOKEN_RETRY_MS: Final = 30_000
FEATURES: Final = (Feature.BATCH, Feature.ENTRIES)
"""The features that this client offers to the server."""

_logger = logging.getLogger("tidewire.client")

T = TypeVar("T")


@dataclass(eq=False, repr=False, kw_only=True)
class Driver:
    """One client's connection, its store and its timers. Create it on the event loop."""

    socket_url: str
    ssl_context: ssl.SSLContext | None
    store: Store
    credentials: Credentials
    options: ClientOptions
    new_id: Callable[[], str]

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._random = SystemRandom()
        outbox = Outbox(self.options, self._random)
        self.core = Connection(self.options, self._random, outbox=outbox)
        self.fleeting = Fleeting(self.options.happenings_max)
        self.sending = Sending(self, self.new_id)
        self.on_replica: Callable[[Replica], None] = lambda _: None
        """Called with every replica that has changed."""
        self.on_ready: Callable[[], None] = lambda: None
        self.news = asyncio.Event()
        """Set when there may be events that the application has not got yet."""
        self.waits = Waits(self.check_open)
        self._socket: Socket | None = None
        # Sockets that this client has let go of; some may not be closed yet.
        self._leaving: list[Socket] = []
        self._connecting: asyncio.Task[None] | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms: int | None = None
        self._is_timer_soon = False
        self.writing = Writing(
            self.store,
            own_id=lambda: self.core.user_id or "",
            on_written=self._written,
            on_fault=self._store_failed,
        )
        self._appliers: dict[type[effects.Effect], Callable[[Any], None]] = {
            effects.Keep: self.writing.keep,
            effects.Send: self._send,
            effects.Settled: self._settled,
            effects.ReplicaChanged: self._replica_changed,
            effects.Mark: self._mark,
            effects.SendFailed: self._send_failed,
            effects.Rewritten: self._rewritten,
            effects.Dropped: self._dropped,
            effects.ChatChanged: self._chat_changed,
            effects.Typed: self._typed,
            effects.StatusChanged: self._status_changed,
            effects.Connect: self._start_connecting,
            effects.Disconnect: lambda effect: self._let_go(effect.code),
            effects.Restart: self._restart,
            effects.Introduced: self._introduced,
            effects.PauseReading: self._pause,
            effects.ResumeReading: self._resume,
        }

    def now(self) -> effects.Now:
        return effects.Now(int(self._loop.time() * 1000), self.credentials.wall_ms())

    @property
    def status(self) -> effects.Status:
        return self.core.status

    # Beginning and end.

    async def load(self) -> None:
        """Load what the last run left in the store."""

        def read(tables: Tables) -> tuple[Any, ...]:
            return (
                tables.replicas(),
                tables.entries(),
                tables.meta("user_id"),
                tables.meta("epoch"),
            )

        replicas, entries, user_id, epoch = await self.store.do(read)
        self.sending.load(entries)
        self.core = Connection(
            self.options,
            self._random,
            outbox=Outbox(self.options, self._random, entries),
            replicas=replicas,
            user_id=user_id,
            epoch=epoch,
        )

    def start(self) -> None:
        self.apply(self.core.start(self.now()))

    async def close(self, linger_s: float) -> None:
        """Wait up to `linger_s` for the outbox, acknowledge what is stored, and end."""
        if linger_s > 0:
            await self._linger(linger_s)
        await self.writing.flushed()
        self.apply(self.core.stop(self.now(), "closed"))
        await self.writing.flushed()
        for socket in self._leaving:
            # The last frames have to reach the server before the event loop may end.
            await socket.gone()
        if self._timer is not None:
            self._timer.cancel()
        for task in [*self._tasks]:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.store.close()

    async def _linger(self, linger_s: float) -> None:
        """Wait until the outbox is empty, or there is no connection to send it on."""
        with suppress(TimeoutError, ClientClosed):
            async with asyncio.timeout(linger_s):
                await self.waits.until_change(
                    lambda: self.is_outbox_empty or self.status.state not in (SYNCING, READY)
                )

    # Effects.

    def apply(self, wanted: Sequence[effects.Effect]) -> None:
        for effect in wanted:
            self._appliers[type(effect)](effect)
        if not self._is_timer_soon:
            # Once a turn of the loop, however much happens in it.
            self._is_timer_soon = True
            self._loop.call_soon(self._set_timer)

    def _send(self, effect: effects.Send) -> None:
        if self._socket is not None:
            self._socket.send(effect.frame)

    def _pause(self, _: effects.PauseReading) -> None:
        if self._socket is not None:
            self._socket.pause()

    def _resume(self, _: effects.ResumeReading) -> None:
        if self._socket is not None:
            self._socket.resume()

    def _start_connecting(self, effect: effects.Connect) -> None:
        self._connecting = self.spawn(self._connect(effect.with_new_token))

    def _restart(self, effect: effects.Restart) -> None:
        records = [replica.record() for replica in effect.replicas]
        # What was received before belongs to the old generation, and goes first.
        self.writing.flush()
        self.writing.write(lambda tables: tables.restart(records, effect.epoch))
        self.writing.flush()

    def _introduced(self, effect: effects.Introduced) -> None:
        if self._socket is not None:
            self._socket.is_batching = Feature.BATCH in effect.features
        self.writing.write(
            lambda tables: tables.set_meta(user_id=effect.user_id, epoch=effect.epoch)
        )

    def _settled(self, effect: effects.Settled) -> None:
        self.sending.settled(effect.client_message_id, effect.sequence)
        self.waits.changed()

    def _send_failed(self, effect: effects.SendFailed) -> None:
        entry = effect.entry
        self.sending.refused(entry)
        event = MessageRefused(
            chat_id=entry.chat_id,
            client_message_id=entry.client_message_id,
            text=entry.body.content,
            code=entry.code,
            reason=entry.reason,
            kind=entry.kind,
            target=None if entry.amends is None else entry.amends.target,
        )
        self.writing.end([entry], is_kept=effect.is_kept)
        self._happened("refused", event)
        self.waits.changed()

    def _rewritten(self, effect: effects.Rewritten) -> None:
        # Written at once, so that it is on the disk before it is marked as leaving.
        saved = self.store.do(lambda tables: tables.save_entries([effect.entry]))
        saved.add_done_callback(self._check_saved)

    def _dropped(self, effect: effects.Dropped) -> None:
        for entry in effect.entries:
            self.sending.refused(entry)
            self.waits.changed(entry.chat_id)
        self.writing.end(effect.entries, is_kept=False)
        self.waits.changed()

    def _check_saved(self, saved: "asyncio.Future[None]") -> None:
        error = saved.exception()
        if error is not None:
            self._store_failed(error)

    def _chat_changed(self, effect: effects.ChatChanged) -> None:
        self._happened("chat", msgspec.convert(effect.update, ChatUpdated, from_attributes=True))

    def _happened(self, kind: str, event: Event) -> None:
        body = msgspec.json.encode(event).decode()
        self.writing.write(lambda tables: tables.happened(kind, body))

    def _typed(self, effect: effects.Typed) -> None:
        event = msgspec.convert(effect.typing, Typing, from_attributes=True)
        self._fleeting(("typing", event.chat_id, event.user_id), event)

    def _fleeting(self, key: tuple[str, ...], event: Event) -> None:
        self.fleeting.put(key, event)
        self.news.set()

    def _replica_changed(self, effect: effects.ReplicaChanged) -> None:
        self.replica_changed(effect.replica)

    def replica_changed(self, replica: Replica) -> None:
        self.writing.replica(replica)
        self._fleeting(("ticks", replica.chat_id), TicksMoved(chat_id=replica.chat_id))
        self.waits.changed(replica.chat_id)
        self.on_replica(replica)

    def _mark(self, effect: effects.Mark) -> None:
        entries = effect.entries
        left_at_ms = self.credentials.wall_ms()
        keys = [entry.client_message_id for entry in entries]
        future = self.store.do(lambda tables: tables.mark_left(keys, left_at_ms))

        def done(marked: "asyncio.Future[None]") -> None:
            error = marked.exception()
            if error is not None:
                self._store_failed(error)
            else:
                self.apply(self.core.marked(entries, left_at_ms, self.now()))

        future.add_done_callback(done)

    def _status_changed(self, effect: effects.StatusChanged) -> None:
        status = effect.status
        self._fleeting(("status",), StatusMoved(status=status))
        if status.state is CLOSED:
            self._let_go(NORMAL_CLOSE)
            self.waits.fail(status.reason or "closed")
        elif status.state is READY:
            self.on_ready()
        # Some waits end when the connection is lost.
        self.waits.all_changed()

    # The store.

    def look_up(self, job: Callable[[Tables], T]) -> "asyncio.Future[T]":
        """Read from the store, after everything that was received until now is written."""
        self.writing.flush()
        return self.store.do(job)

    def write(self, write: Callable[[Tables], None]) -> None:
        """Add a write to the next job of the store."""
        self.writing.write(write)

    def _written(self, written: Written) -> None:
        self.sending.written(written)
        now = self.now()
        if written.ended:
            self.apply(self.core.saved(written.ended, now))
        for keep in written.keeps:
            count, chat_id = len(keep.items), keep.replica.chat_id
            self.apply(self.core.stored(keep.replica, keep.through, count, keep.generation, now))
            if chat_id in written.erased:
                self.apply(self.core.erased(keep, written.erased[chat_id], now))
            self.waits.changed(chat_id)
        self.waits.changed()
        self.news.set()

    def erased_elsewhere(self, replica: Replica, erased: Iterable[effects.Erased]) -> None:
        """Apply deletions that a page of history has shown before their entries come."""
        self.apply(self.core.erased_elsewhere(replica, erased, self.now()))

    def _store_failed(self, error: BaseException) -> None:
        """Close the client: it is not known any more what is on the disk."""
        if self.status.state is not CLOSED:
            _logger.error("the store failed: %s", error)
            self.apply(self.core.stop(self.now(), "store_failed"))

    # Waiting.

    def check_open(self) -> None:
        if self.status.state is CLOSED:
            raise closed_for(self.status.reason or "closed")

    @property
    def is_outbox_empty(self) -> bool:
        """Nothing waits to be sent or is on its way; failed entries do not count."""
        return self.sending.is_empty

    @property
    def is_flushed(self) -> bool:
        """The outbox is empty, and this device holds the entries that were in it."""
        core = self.core
        is_all_held = not any(replica.is_own_missing for replica in core.replicas.values())
        return self.is_outbox_empty and is_all_held and not core.awaited_chats

    # The socket.

    async def _connect(self, with_new_token: bool) -> None:
        socket = Socket(on_frame=self._received, on_end=self._ended)
        timeout_s = self.options.handshake_ms_max / 1000
        try:
            token = await self.credentials.token(with_new_token)
            self._socket = socket
            await socket.open(
                self.socket_url,
                headers={
                    "Authorization": f"Bearer {token}",
                    "X-Device-ID": self.credentials.device_id,
                    FEATURES_HEADER: ", ".join(FEATURES),
                },
                timeout_s=timeout_s,
                ssl_context=self.ssl_context,
            )
            self.apply(self.core.opened(self.now()))
        except HandshakeRefused as error:
            self._socket = None
            self.apply(self.core.refused(error.refusal, self.now()))
        except LoginNeeded:
            self.apply(self.core.stop(self.now(), LOGIN_NEEDED))
        except ClientError as error:
            self._socket = None
            _logger.debug("not connected: %s", error)
            self.apply(self.core.lost(self.now(), reason="unreachable"))

    def _received(self, frame: Received) -> None:
        self.apply(self.core.receive(frame, self.now()))

    def _ended(self, code: int | None) -> None:
        self._socket = None
        self.apply(self.core.lost(self.now(), code=code))

    def _let_go(self, code: int) -> None:
        if self._connecting is not None and self._connecting is not asyncio.current_task():
            self._connecting.cancel()
        self._connecting = None
        if self._socket is not None:
            self._socket.let_go(code)
            self._leaving = [one for one in self._leaving if not one.is_gone]
            self._leaving.append(self._socket)
            self._socket = None

    # Time.

    def _set_timer(self) -> None:
        self._is_timer_soon = False
        at_ms = self.core.next_deadline_ms()
        renew_at_ms = self.credentials.renew_at_ms
        if renew_at_ms is not None and self.status.state in (SYNCING, READY):
            wait_ms = max(renew_at_ms - self.credentials.wall_ms(), 0)
            due_ms = int(self._loop.time() * 1000) + wait_ms
            at_ms = due_ms if at_ms is None else min(at_ms, due_ms)
        if self._timer is not None:
            # A timer that fires too early only sets the next one: cheaper than exact timers.
            if at_ms is not None and self._timer_at_ms is not None and self._timer_at_ms <= at_ms:
                return
            self._timer.cancel()
            self._timer = None
        if at_ms is not None:
            self._timer_at_ms = at_ms
            self._timer = self._loop.call_at(at_ms / 1000 + 0.001, self._tick)

    def _tick(self) -> None:
        self._timer = None
        renew_at_ms = self.credentials.renew_at_ms
        if (
            renew_at_ms is not None
            and renew_at_ms <= self.credentials.wall_ms()
            and self.status.state in (SYNCING, READY)
        ):
            # If this renewal fails, the next try is at this time.
            self.credentials.renew_at_ms = self.credentials.wall_ms() + TOKEN_RETRY_MS
            self._renewing = self.spawn(self._renew())
        self.apply(self.core.tick(self.now()))

    async def _renew(self) -> None:
        """Get the next token in time, and change to a connection that uses it (CL-07)."""
        try:
            await self.credentials.token(True)
        except ClientError as error:
            # The connection goes on until its token ends; by then this is tried again.
            _logger.warning("the token could not be renewed: %s", error)
            return
        self.apply(self.core.renew(self.now()))

    def spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._loop.call_exception_handler(
                {"message": "a task of the client died", "exception": task.exception()}
            )
            if self.status.state is not CLOSED:
                self.apply(self.core.stop(self.now(), "internal_error"))
