"""Carries out what the core wants: the socket, the store's thread, timers, and who waits for what.

One driver owns one core, and everything happens on one event loop. What the core wants stored is
gathered for a turn of the loop and goes to the store's thread as one job.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from random import Random
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

import msgspec

from tidewire.client.connection import CLOSED, READY, SYNCING, Connection
from tidewire.client.credentials import Credentials
from tidewire.client.effects import (
    ChatChanged,
    Connect,
    Disconnect,
    Effect,
    EntryChanged,
    Introduced,
    Keep,
    Mark,
    Now,
    PauseReading,
    PlaceChanged,
    Restart,
    ResumeReading,
    Send,
    Settled,
    Status,
    StatusChanged,
    Typed,
)
from tidewire.client.errors import (
    LOGIN_NEEDED,
    ClientClosed,
    ClientError,
    LoginNeeded,
    closed_for,
)
from tidewire.client.fleeting import Fleeting
from tidewire.client.link import NORMAL_CLOSE
from tidewire.client.model import ChatUpdated, Kept, MessageRefused, StatusMoved, TicksMoved, Typing
from tidewire.client.options import ClientOptions
from tidewire.client.outbox import FLYING, QUEUED, Entry, Outbox
from tidewire.client.places import Place
from tidewire.client.sent import Sent
from tidewire.client.store import Store
from tidewire.client.tables import Tables
from tidewire.client.transport import HandshakeRefused, Received, Socket
from tidewire.client.waits import Waits
from tidewire.client.writing import Writing, Written
from tidewire.domain.ids import ClientMessageId

TOKEN_RETRY_MS: Final = 30_000

_logger = logging.getLogger("tidewire.client")

T = TypeVar("T")


class Driver:
    def __init__(
        self,
        *,
        socket_url: str,
        device_id: str,
        ssl_context: ssl.SSLContext | None,
        store: Store,
        credentials: Credentials,
        options: ClientOptions,
        random: Random,
        wall_ms: Callable[[], int],
    ) -> None:
        self._socket_url = socket_url
        self._device_id = device_id
        self._ssl_context = ssl_context
        self.store = store
        self._credentials = credentials
        self.options = options
        self._random = random
        self._wall_ms = wall_ms
        self._loop = asyncio.get_running_loop()
        self.core = Connection(options, random, outbox=Outbox(options, random))
        self.fleeting = Fleeting(options.happenings_max)
        self.handles: WeakValueDictionary[str, Sent] = WeakValueDictionary()
        self.on_place: Callable[[Place], None] = lambda _: None
        """Is told of every place that has changed."""
        self.on_ready: Callable[[], None] = lambda: None
        self.news = asyncio.Event()
        """Set when there may be events that nobody has been given."""
        self._number = 0
        self._entering: dict[ClientMessageId, Entry] = {}
        self.waits = Waits(self._loop, self.check_open)
        self._socket: Socket | None = None
        # Let go of, and maybe not closed yet.
        self._leaving: list[Socket] = []
        self._connecting: asyncio.Task[None] | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms: int | None = None
        self._is_timer_soon = False
        self._writing = Writing(
            store,
            own_id=lambda: self.core.user_id or "",
            on_written=self._written,
            on_fault=self._store_failed,
        )

    def now(self) -> Now:
        return Now(int(self._loop.time() * 1000), self._wall_ms())

    @property
    def status(self) -> Status:
        return self.core.status

    # Beginning and end.

    async def load(self) -> None:
        """Take up what the last life left."""

        def read(tables: Tables) -> tuple[Any, ...]:
            return (
                tables.places(),
                tables.entries(),
                tables.meta("user_id"),
                tables.meta("epoch"),
            )

        places, entries, user_id, epoch = await self.store.do(read)
        self._number = max((entry.number for entry in entries), default=0)
        self.core = Connection(
            self.options,
            self._random,
            outbox=Outbox(self.options, self._random, entries),
            places=places,
            user_id=user_id,
            epoch=epoch,
        )

    def start(self) -> None:
        self.apply(self.core.start(self.now()))

    async def close(self, linger_s: float) -> None:
        """Let what is on its way arrive, tell the server what is stored, and end."""
        if linger_s > 0:
            await self._linger(linger_s)
        await self._writing.flushed()
        self.apply(self.core.stop(self.now(), "closed"))
        await self._writing.flushed()
        for socket in self._leaving:
            # What was said last has to arrive before the event loop may end.
            await socket.gone()
        if self._timer is not None:
            self._timer.cancel()
        for task in [*self._tasks]:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.store.close()

    async def _linger(self, linger_s: float) -> None:
        """Wait for the outbox, while there is somebody to send it to."""
        with suppress(TimeoutError, ClientClosed):
            async with asyncio.timeout(linger_s):
                await self.waits.until_change(
                    lambda: self.is_outbox_empty or self.status.state not in (SYNCING, READY)
                )

    # Effects.

    def apply(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            # Ordered by how often they come.
            kind = type(effect)
            if kind is Keep:
                self._writing.keep(effect)  # type: ignore[arg-type]
            elif kind is Send:
                if self._socket is not None:
                    self._socket.send(effect.frame)  # type: ignore[union-attr]
            else:
                self._apply_rare(effect)
        if not self._is_timer_soon:
            # Once a turn of the loop, however much happens in it.
            self._is_timer_soon = True
            self._loop.call_soon(self._set_timer)

    def _apply_rare(self, effect: Effect) -> None:
        match effect:
            case Settled():
                self._settled(effect)
            case PlaceChanged():
                self.place_changed(effect.place)
            case Mark():
                self._mark(effect.entries)
            case EntryChanged():
                self._entry_changed(effect.entry)
            case ChatChanged():
                self._chat_changed(effect)
            case Typed():
                typed = effect.typing
                self.fleeting.put(
                    ("typing", typed.chat_id, typed.user_id),
                    Typing(chat_id=typed.chat_id, user_id=typed.user_id, is_typing=typed.is_typing),
                )
                self.news.set()
            case StatusChanged():
                self._status_changed(effect.status)
            case Connect():
                self._connecting = self.spawn(self._connect(effect.with_new_token))
            case Disconnect():
                self._let_go(effect.code)
            case Restart():
                records = [place.record() for place in effect.places]
                epoch = effect.epoch
                # What was received before belongs to the old life, and goes first.
                self._writing.flush()
                self._writing.write(lambda tables: tables.restart(records, epoch))
                self._writing.flush()
            case Introduced():
                user_id, epoch_now = effect.user_id, effect.epoch
                self._writing.write(
                    lambda tables: tables.set_meta(user_id=user_id, epoch=epoch_now)
                )
            case PauseReading():
                if self._socket is not None:
                    self._socket.pause()
            case ResumeReading():
                if self._socket is not None:
                    self._socket.resume()
            case _:
                raise AssertionError(effect)

    def _settled(self, settled: Settled) -> None:
        handle = self.handles.get(settled.client_message_id)
        if handle is not None:
            handle.settle(settled.sequence)
        self.waits.changed()

    def _entry_changed(self, entry: Entry) -> None:
        handle = self.handles.get(entry.client_message_id)
        if handle is not None:
            handle.refuse(entry.code, entry.reason)
        body = msgspec.json.encode(
            MessageRefused(
                chat_id=entry.chat_id,
                client_message_id=entry.client_message_id,
                text=entry.content,
                code=entry.code,
                reason=entry.reason,
            )
        ).decode()

        def write(tables: Tables) -> None:
            tables.save_entries([entry])
            tables.happened("refused", body)

        self._writing.write(write)
        self.waits.changed()

    def _chat_changed(self, changed: ChatChanged) -> None:
        update = changed.update
        event = ChatUpdated(
            chat_id=update.chat_id,
            change=update.change,
            name=update.name,
            user_id=update.user_id,
            changed_by=update.changed_by,
        )
        body = msgspec.json.encode(event).decode()
        self._writing.write(lambda tables: tables.happened("chat", body))

    def place_changed(self, place: Place) -> None:
        self._writing.place(place)
        self.fleeting.put(("ticks", place.chat_id), TicksMoved(chat_id=place.chat_id))
        self.news.set()
        self.waits.chat_changed(place.chat_id)
        self.on_place(place)

    def _mark(self, entries: Sequence[Entry]) -> None:
        left_at_ms = self._wall_ms()
        keys = [entry.client_message_id for entry in entries]
        future = self.store.do(lambda tables: tables.mark_left(keys, left_at_ms))

        def done(marked: "asyncio.Future[None]") -> None:
            error = marked.exception()
            if error is not None:
                self._store_failed(error)
            else:
                self.apply(self.core.marked(entries, left_at_ms, self.now()))

        future.add_done_callback(done)

    def _status_changed(self, status: Status) -> None:
        self.fleeting.put(("status",), StatusMoved(status=status))
        self.news.set()
        if status.state is CLOSED:
            self._let_go(NORMAL_CLOSE)
            reason = status.reason or "closed"
            self.waits.fail(reason)
            for handle in list(self.handles.values()):
                handle.end(reason)
        elif status.state is READY:
            self.on_ready()
        # What a lost connection leaves open is waited for no longer.
        for chat_id in self.waits.chat_ids():
            self.waits.chat_changed(chat_id)
        self.waits.changed()

    # The store.

    def look_up(self, job: Callable[[Tables], T]) -> "asyncio.Future[T]":
        """Read from the store; what was received until now is in it."""
        self._writing.flush()
        return self.store.do(job)

    def write(self, write: Callable[[Tables], None]) -> None:
        """Write something with whatever is written next."""
        self._writing.write(write)

    def _written(self, written: Written) -> None:
        for entry in written.entries:
            del self._entering[entry.client_message_id]
            self._enter(entry, written.known.get(entry.client_message_id))
        now = self.now()
        for place, through, count, life in written.places():
            self.apply(self.core.stored(place, through, count, life, now))
            self.waits.chat_changed(place.chat_id)
        self.waits.changed()
        self.news.set()

    def _enter(self, entry: Entry, known: Kept | None) -> None:
        """An entry is on the disk, or was stored by the server in an earlier life."""
        if known is not None:
            handle = self.handles.get(entry.client_message_id)
            if handle is not None:
                handle.settle(known.sequence)
        elif self.status.state is not CLOSED:
            self.apply(self.core.submit(entry, self.now()))

    def _store_failed(self, error: BaseException) -> None:
        """Nobody can know what is on the disk: this is the end."""
        if self.status.state is not CLOSED:
            _logger.error("the store failed: %s", error)
            self.apply(self.core.stop(self.now(), "store_failed"))

    # Sending.

    async def send(self, handle: Sent, *, content_type: str, seen: int) -> Sent:
        """Put a message into the outbox; returns when it is on the disk."""
        self.check_open()
        key = ClientMessageId(handle.client_message_id)
        known = self.core.outbox.get(key) or self._entering.get(key)
        if known is not None:
            return self.handle_of(known)
        self.core.outbox.check_room(1 + len(self._entering))
        self._number += 1
        now = self.now()
        entry = Entry(
            client_message_id=key,
            chat_id=handle.chat_id,
            content=handle.text,
            content_type=content_type,
            seen_sequence=seen,
            created_at_ms=now.wall_ms,
            number=self._number,
            # It may leave as soon as it is written; that saves a second write.
            left_at_ms=now.wall_ms if self.status.state is READY else None,
        )
        self._entering[key] = entry
        self.handles[key] = handle
        # Whoever gives up waiting does not take the message back.
        await asyncio.shield(self._writing.enter(entry))
        return handle

    def handle_of(self, entry: Entry) -> Sent:
        handle = self.handles.get(entry.client_message_id)
        if handle is None:
            handle = Sent(self, entry.client_message_id, entry.chat_id, entry.content)
            if entry.state not in (QUEUED, FLYING):
                handle.refuse(entry.code, entry.reason)
            self.handles[entry.client_message_id] = handle
        return handle

    async def retry(self, client_message_id: str) -> bool:
        self._number += 1
        entry = self.core.outbox.retry(ClientMessageId(client_message_id), self._number)
        if entry is None:
            return False
        await self.store.do(lambda tables: tables.save_entries([entry]))
        self.apply(self.core.resubmit(entry, self.now()))
        return True

    async def drop(self, client_message_id: str) -> bool:
        entry = self.core.outbox.drop(ClientMessageId(client_message_id))
        if entry is None:
            return False
        await self.store.do(lambda tables: tables.drop_entry(client_message_id))
        self.waits.changed()
        return True

    # Waiting.

    def check_open(self) -> None:
        if self.status.state is CLOSED:
            raise closed_for(self.status.reason or "closed")

    @property
    def is_outbox_empty(self) -> bool:
        """Nothing is waiting to be sent, or on its way; what has failed does not count."""
        return not self._entering and not self.core.outbox.waiting_chats()

    @property
    def is_flushed(self) -> bool:
        """The outbox is empty, and what was in it is among the messages here."""
        return self.is_outbox_empty and not any(
            place.is_own_missing for place in self.core.places.values()
        )

    # The socket.

    async def _connect(self, with_new_token: bool) -> None:
        socket = Socket(on_frame=self._received, on_end=self._ended)
        timeout_s = self.options.handshake_ms_max / 1000
        try:
            token = await self._credentials.token(with_new_token)
            self._socket = socket
            await socket.open(
                self._socket_url,
                headers={"Authorization": f"Bearer {token}", "X-Device-ID": self._device_id},
                timeout_s=timeout_s,
                ssl_context=self._ssl_context,
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
        renew_at_ms = self._credentials.renew_at_ms
        if renew_at_ms is not None and self.status.state in (SYNCING, READY):
            wait_ms = max(renew_at_ms - self._wall_ms(), 0)
            due_ms = int(self._loop.time() * 1000) + wait_ms
            at_ms = due_ms if at_ms is None else min(at_ms, due_ms)
        if self._timer is not None:
            # A timer that is early finds nothing to do and sets the next: cheaper than exact ones.
            if at_ms is not None and self._timer_at_ms is not None and self._timer_at_ms <= at_ms:
                return
            self._timer.cancel()
            self._timer = None
        if at_ms is not None:
            self._timer_at_ms = at_ms
            self._timer = self._loop.call_at(at_ms / 1000 + 0.001, self._tick)

    def _tick(self) -> None:
        self._timer = None
        renew_at_ms = self._credentials.renew_at_ms
        if (
            renew_at_ms is not None
            and renew_at_ms <= self._wall_ms()
            and self.status.state in (SYNCING, READY)
        ):
            # Not again until this has come to something.
            self._credentials.renew_at_ms = self._wall_ms() + TOKEN_RETRY_MS
            self._renewing = self.spawn(self._renew())
        self.apply(self.core.tick(self.now()))

    async def _renew(self) -> None:
        """Get the next token in time, and change to a connection of its own (CL-07)."""
        try:
            await self._credentials.token(True)
        except ClientError as error:
            # The connection lives on until its token ends; by then this is tried again.
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
