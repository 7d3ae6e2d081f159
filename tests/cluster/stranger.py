"""A client written from docs/protocol.md alone, with no code of ours. Holds no test.

It keeps the rules of "What a client does" in their simplest form, in memory: one send in flight, a
sync in every doubt, and what is pushed during a sync is dropped and asked for again. Numbers in
comments are those of the rules.
"""

import asyncio
import json
import uuid
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus, WebSocketException

from tests.e2e.chatting import Account, Address, Frame

BACK_S: Final = 0.3
"""The pause before it reconnects, or asks again."""
SILENCE_S: Final = 60.0
ACK_S: Final = 0.5
RETRIED: Final = {"RATE_LIMITED", "SERVER_BUSY", "SERVICE_UNAVAILABLE", "INTERNAL_ERROR"}


@dataclass
class Log:
    """What this device has of a chat."""

    cursor: int = 0
    texts: dict[int, str] = field(default_factory=dict)
    version: int = 0
    is_ours: bool = False
    is_syncing: bool = False
    pushed: int = 0
    """The highest sequence that this device knows to exist."""
    acked: int = 0
    others_delivered: int = 0
    others_read: int = 0

    def take(self, item: Frame) -> bool:
        """Continue the chain (2); False: something is missing before it."""
        sequence = item["sequence"]
        self.pushed = max(self.pushed, sequence)
        if item["prev_sequence"] > self.cursor:
            return False
        if sequence > self.cursor:
            self.cursor = sequence
            self.texts[sequence] = item.get("content", "")
        return True


@dataclass
class Draft:
    """A message that is kept until it is answered (1)."""

    chat_id: str
    text: str
    key: str = field(default_factory=lambda: str(uuid.uuid4()))
    sequence: int | None = None
    refused: str | None = None


class Stranger:
    def __init__(self, address: Address, account: Account) -> None:
        self.logs: dict[str, Log] = {}
        self.drafts: list[Draft] = []
        """All that was ever written."""
        self.faults: list[str] = []
        self.times_connected = 0
        self._address = address
        self._account = account
        self._waiting: deque[Draft] = deque()
        self._asked: dict[str, tuple[str, Any]] = {}
        """By request id: the open requests of this connection, and what each is about."""
        self._listed: dict[str, bool] | None = None
        """While a digest arrives: by chat that was ours when it began, whether it has come."""
        self._epoch: str | None = None
        self._socket: ClientConnection | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_over = False

    # What a person does.

    async def write(self, chat_id: str, text: str) -> None:
        draft = Draft(chat_id, text)
        self.drafts.append(draft)
        self._waiting.append(draft)
        self._later(self._send_next)

    def is_in(self, chat_id: str) -> bool:
        return chat_id in self.logs and self.logs[chat_id].is_ours

    async def run(self) -> None:
        """Stay connected, and reconnect after any error, until `end`."""
        while not self._is_over:
            try:
                await self._be_connected()
            except (OSError, TimeoutError, WebSocketException) as error:
                if isinstance(error, InvalidStatus) and error.response.status_code < 429:
                    raise
            await asyncio.sleep(BACK_S)

    async def end(self) -> None:
        self._is_over = True
        if self._socket is not None:
            await self._socket.close()
        for task in self._tasks:
            task.cancel()

    # The connection.

    async def _be_connected(self) -> None:
        async with (
            asyncio.timeout(None) as silence,
            connect(
                self._address.socket_url,
                additional_headers=self._account.headers,
                ping_interval=None,
                proxy=None,
            ) as socket,
        ):
            self._asked.clear()
            self._listed = None
            for log in self.logs.values():
                log.is_syncing = False
            loop = asyncio.get_running_loop()
            chores = asyncio.create_task(self._do_chores(socket))
            try:
                async for text in socket:
                    silence.reschedule(loop.time() + SILENCE_S)
                    frame = json.loads(text)
                    if frame["type"] == "connection_established":
                        self._established(socket, frame["payload"])
                    else:
                        self._receive(frame)
            finally:
                self._socket = None
                chores.cancel()

    def _established(self, socket: ClientConnection, payload: Frame) -> None:
        self._socket = socket
        self.times_connected += 1
        # 6
        if self._epoch not in (None, payload["epoch"]):
            self.faults.append("another epoch, and nobody has restored anything")
        self._epoch = payload["epoch"]
        self._later(self._send_next)

    async def _do_chores(self, socket: ClientConnection) -> None:
        """Send heartbeats (7), and acknowledge what is kept (3), as read at once."""
        beats = 0
        while True:
            await asyncio.sleep(ACK_S)
            if self._socket is not socket:
                continue
            beats += 1
            if beats % 20 == 0:
                await self._post("heartbeat", {})
            for chat_id, log in self.logs.items():
                if log.is_ours and log.cursor > log.acked:
                    log.acked = log.cursor
                    await self._post("read", {"chat_id": chat_id, "last_read_sequence": log.cursor})

    def _later(self, act: Callable[[], Awaitable[None]], delay_s: float = 0.0) -> None:
        async def do() -> None:
            await asyncio.sleep(delay_s)
            # If the connection is gone, the next one begins with all of this.
            with suppress(WebSocketException):
                await act()

        task = asyncio.create_task(do())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _post(self, kind: str, payload: Frame, about: Any = None) -> None:
        if self._socket is None:
            return
        frame: Frame = {"type": kind, "payload": payload}
        if about is not None:
            request_id = frame["request_id"] = str(uuid.uuid4())
            self._asked[request_id] = (kind, about)
        await self._socket.send(json.dumps(frame))

    # Asking.

    async def _send_next(self) -> None:
        """Send the next message, if no other is in flight."""
        is_one_open = any(kind == "send_message" for kind, _ in self._asked.values())
        if self._waiting and not is_one_open:
            draft = self._waiting[0]
            seen = self.logs[draft.chat_id].cursor if draft.chat_id in self.logs else 0
            wish = {
                "chat_id": draft.chat_id,
                "client_message_id": draft.key,
                "content": draft.text,
                "seen_sequence": seen,
            }
            await self._post("send_message", wish, draft)

    async def _sync(self, chat_id: str) -> None:
        log = self.logs[chat_id]
        if log.is_ours and not log.is_syncing:
            log.is_syncing = True
            wish = {"chat_id": chat_id, "last_acked_sequence": log.cursor, "limit": 500}
            await self._post("sync_request", wish, chat_id)

    async def _ask_for_digest(self) -> None:
        if not any(kind == "digest_request" for kind, _ in self._asked.values()):
            await self._post("digest_request", {}, "all")

    # Being told.

    def _receive(self, frame: Frame) -> None:
        payload = frame["payload"]
        request_id = frame.get("request_id", "")
        match frame["type"]:
            case "chat_digest":
                if payload["last"]:
                    self._asked.pop(request_id, None)
                self._take_digest(payload)
            case "message":
                self._take_push(payload)
            case "send_message_ack":
                _, draft = self._asked.pop(request_id)
                self._take_answer(draft, payload)
            case "sync_response":
                self._asked.pop(request_id)
                self._take_page(payload)
            case "status_update":
                self._take_numbers(self.logs.setdefault(payload["chat_id"], Log()), payload)
            case "chat_update":
                self._take_change(payload)
            case "resync":
                # 5
                self._later(self._ask_for_digest, payload["delay_ms"] / 1000)
            case "error" if request_id:
                self._take_error(*self._asked.pop(request_id), payload)
            case "error" if payload["code"] != "INVALID_SEQUENCE":
                pass
            case "error":
                self.faults.append(f"told unasked: {payload}")
            case _:
                pass

    def _take_digest(self, payload: Frame) -> None:
        """Rule 4, and 10 for what it says about members."""
        if payload["page"] == 0:
            self._listed = {one: False for one, log in self.logs.items() if log.is_ours}
        for chat in payload["chats"]:
            log = self.logs.setdefault(chat["chat_id"], Log())
            self._hear_of(chat["chat_id"])
            if chat["membership_version"] < log.version:
                continue
            log.version, log.is_ours = chat["membership_version"], True
            self._take_numbers(log, chat)
            log.pushed = max(log.pushed, chat["head"])
            if log.pushed > log.cursor:
                self._later(partial(self._sync, chat["chat_id"]))
        if payload["last"]:
            for chat_id, is_listed in (self._listed or {}).items():
                if not is_listed:
                    self.logs[chat_id].is_ours = False
            self._listed = None

    def _hear_of(self, chat_id: str) -> None:
        if self._listed is not None:
            self._listed[chat_id] = True

    @staticmethod
    def _take_numbers(log: Log, numbers: Frame) -> None:
        log.others_delivered = max(log.others_delivered, numbers["others_delivered"])
        log.others_read = max(log.others_read, numbers["others_read"])

    def _take_push(self, payload: Frame) -> None:
        chat_id = payload["chat_id"]
        log = self.logs.get(chat_id)
        if log is None or not log.is_ours:
            # 11: an update was missed, or this one is late.
            self._later(self._ask_for_digest)
            return
        if log.is_syncing:
            # 12, in its simplest form.
            log.pushed = max(log.pushed, payload["sequence"])
        elif not log.take(payload):
            self._later(partial(self._sync, chat_id))

    def _take_answer(self, draft: Draft, payload: Frame) -> None:
        draft.sequence = payload["sequence"]
        self._waiting.popleft()
        log = self.logs.setdefault(draft.chat_id, Log())
        own = {**payload, "content": draft.text}
        if log.is_ours and not log.is_syncing and not log.take(own):
            self._later(partial(self._sync, draft.chat_id))
        log.pushed = max(log.pushed, draft.sequence or 0)
        self._later(self._send_next)

    def _take_page(self, payload: Frame) -> None:
        chat_id = payload["chat_id"]
        log = self.logs[chat_id]
        log.is_syncing = False
        for item in payload["messages"]:
            if not log.take(item):
                self.faults.append(f"a page of {chat_id} has a hole before {item['sequence']}")
        log.cursor = max(log.cursor, payload["synced_through"])
        if payload["has_more"] or log.pushed > log.cursor:
            self._later(partial(self._sync, chat_id))

    def _take_change(self, payload: Frame) -> None:
        """Rules 10 and 11."""
        chat_id = payload["chat_id"]
        log = self.logs.setdefault(chat_id, Log())
        if payload["membership_version"] < log.version:
            return
        log.version = payload["membership_version"]
        is_own = payload.get("user_id") == self._account.user_id
        log.is_ours = not (is_own and payload["change"] == "member_removed")
        self._hear_of(chat_id)
        if log.is_ours and payload["head"] > log.cursor:
            log.pushed = max(log.pushed, payload["head"])
            self._later(partial(self._sync, chat_id))

    def _take_error(self, kind: str, about: Any, payload: Frame) -> None:
        is_retried = payload["code"] in RETRIED
        match kind:
            case "send_message" if is_retried:
                self._later(self._send_next, BACK_S)
            case "send_message":
                about.refused = payload["code"]
                self._waiting.popleft()
                self._later(self._send_next)
            case "digest_request":
                self._listed = None
                self._later(self._ask_for_digest, BACK_S)
            case "sync_request":
                log = self.logs[about]
                log.is_syncing = False
                if is_retried:
                    self._later(partial(self._sync, about), BACK_S)
                elif payload["code"] != "NOT_A_MEMBER":
                    self.faults.append(f"a sync of {about} was refused: {payload}")
            case _:
                self.faults.append(f"{kind} was refused: {payload}")
