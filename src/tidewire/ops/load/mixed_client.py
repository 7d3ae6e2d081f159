"""A client in many chats that talks, listens, goes away and comes back, and checks everything.

What it gets goes through its readers in the `Book`; the numbers that it is shown are held against
every later digest.
"""

import asyncio
from dataclasses import replace
from time import perf_counter
from typing import Final

import msgspec
from picows import WSFrame, WSMsgType, WSTransport

from tidewire.ops.load.book import Book, Reader
from tidewire.ops.load.client import ANSWER_S_MAX, TEXT, Client, Lost
from tidewire.ops.load.frames import CONTENT, Closing, Error, Resync, number_of
from tidewire.ops.load.mixed_frames import (
    HEARTBEAT,
    RISING,
    SYNC_LIMIT,
    Acked,
    AckedPart,
    Change,
    ChangePart,
    Digest,
    DigestEntry,
    MixedFrame,
    Numbers,
    Page,
    PagePart,
    Pushed,
    PushedPart,
    Status,
    decode_mixed,
    message_key,
    one_way,
    request,
)
from tidewire.ops.load.rest_calls import API, Rest
from tidewire.ops.load.target import LoadImpossible, Person, Target
from tidewire.ops.load.workload import Outcome

ACK_AFTER: Final = 10
GAP_S_MAX: Final = 10.0
"""How long a message may be missing before one that has arrived."""
RETRIED: Final = frozenset({"RATE_LIMITED", "SERVER_BUSY", "SERVICE_UNAVAILABLE", "INTERNAL_ERROR"})
_RETRY_S_MIN: Final = 0.05
EXPECTED_CLOSINGS: Final = frozenset({"server_shutdown", "token_expired", "slow_consumer"})
"""What a well-behaved client may be told in these runs."""


class MixedClient(Client):
    """One person, one device, any number of chats; its memory outlives its connections."""

    def __init__(self, person: Person, number: int, book: Book, outcome: Outcome) -> None:
        super().__init__(person, outcome.errors)
        self.number = number
        self.name = f"client {number}"
        self.book = book
        self.outcome = outcome
        self.readers: dict[str, Reader] = {}
        self.under_way: dict[str, tuple[int, str]] = {}
        """Number and text of the message that waits for its ack, by chat."""
        self.shown: dict[str, Numbers] = {}
        self.closings: list[Closing] = []
        """The last few."""
        self.is_complete = False
        """Connected, and everything that the digest showed to be missing was synced."""
        self._counts: dict[str, int] = {}
        self._unacked: dict[str, int] = {}
        self._digest: dict[str, DigestEntry] = {}
        self._is_asking = False
        """A digest was asked for, and its pages are being read."""
        self._asking: asyncio.Future[None] | None = None
        self._sync: asyncio.Future[PagePart] | None = None
        self._syncs = 0
        self._changed = asyncio.Event()
        """Set whenever an ack or the end of the connection has come."""

    # For whoever drives it.

    async def arrive(self, target: Target) -> None:
        """Connect, compare the digest, send again what has no ack, sync. Raises ConnectFailed,
        Lost."""
        for reader in self.readers.values():
            reader.connected()
        await self.connect(target, self.number)
        for chat_id in list(self.under_way):
            self._post(chat_id)
        await self.catch_up()
        self._caught_up()

    def _caught_up(self) -> None:
        self.is_complete = True
        for chat_id, reader in self.readers.items():
            reader.check_held(is_awaiting=self._is_awaiting(chat_id))

    def _is_awaiting(self, chat_id: str) -> bool:
        """True if something besides a push may bring what is missing."""
        return not self.is_complete or self._is_asking or chat_id in self.under_way

    async def catch_up(self) -> None:
        """Sync each chat in which the digest's head is above the cursor. Raises Lost."""
        for chat_id, entry in list(self._digest.items()):
            reader = self.readers.get(chat_id)
            while reader is not None and reader.cursor < entry.head:
                page = await self._page_after(chat_id, reader.cursor)
                # The reader may have gone meanwhile: somebody was removed.
                reader.paged(page.messages, page.synced_through)
                if not page.has_more:
                    break
                reader = self.readers.get(chat_id)

    async def _page_after(self, chat_id: str, after: int) -> PagePart:
        if self.transport is None:
            raise Lost
        self._syncs += 1
        self._sync = asyncio.get_running_loop().create_future()
        wish = {"chat_id": chat_id, "last_acked_sequence": after, "limit": SYNC_LIMIT}
        self.transport.send(TEXT, request("sync_request", f"s{self._syncs}", **wish))
        try:
            return await asyncio.wait_for(self._sync, ANSWER_S_MAX)
        except TimeoutError as error:
            self.outcome.faults.add(f"{self.name} got no page in {ANSWER_S_MAX} s")
            raise Lost from error

    async def history(self, chat_id: str) -> list[tuple[int, str]]:
        """All that the server has stored of a chat: sequence and key. Raises Lost."""
        stored: list[tuple[int, str]] = []
        cursor, has_more = 0, True
        while has_more:
            page = await self._page_after(chat_id, cursor)
            stored += [(item.sequence, item.client_message_id) for item in page.messages]
            cursor, has_more = page.synced_through, page.has_more
        return stored

    def can_say(self, chat_id: str) -> bool:
        return self.transport is not None and self.is_complete and chat_id not in self.under_way

    def say(self, chat_id: str, content: str = CONTENT) -> None:
        """Send the next message to a chat that has none under way."""
        self.take_number(chat_id, content)
        self._post(chat_id)

    def take_number(self, chat_id: str, content: str) -> int:
        """The number of the next message, which is now under way."""
        assert chat_id not in self.under_way
        number = self._counts.get(chat_id, 0)
        self._counts[chat_id] = number + 1
        self.under_way[chat_id] = number, content
        return number

    async def said(self, chat_id: str) -> None:
        """Wait until nothing of ours is under way there. Raises Lost."""
        while chat_id in self.under_way:
            if self.transport is None:
                raise Lost
            self._changed.clear()
            await self._changed.wait()

    def _post(self, chat_id: str) -> None:
        if self.transport is None or chat_id not in self.under_way:
            return
        number, content = self.under_way[chat_id]
        self.transport.send(
            TEXT,
            request(
                "send_message",
                f"{chat_id}:{number}",
                chat_id=chat_id,
                client_message_id=message_key(self.number, number),
                content=content,
            ),
        )

    def tell(self, kind: str, chat_id: str, **fields: int) -> None:
        """A one-way frame about a chat."""
        if self.transport is not None:
            self.transport.send(TEXT, one_way(kind, chat_id=chat_id, **fields))

    def acknowledge(self, chat_id: str, *, is_read: bool = False) -> None:
        """Say how far we have got there."""
        reader = self.readers.get(chat_id)
        self._unacked.pop(chat_id, None)
        if reader is None or reader.last == 0:
            return
        if is_read:
            self.tell("read", chat_id, last_read_sequence=reader.last)
        else:
            self.tell("ack", chat_id, last_acked_sequence=reader.last)

    def acknowledge_rest(self) -> None:
        """What was not worth an ack yet."""
        for chat_id in list(self._unacked):
            self.acknowledge(chat_id)

    def beat(self) -> None:
        if self.transport is not None:
            self.transport.send(TEXT, HEARTBEAT)

    def check_gaps(self) -> None:
        if self.is_complete and not self._is_asking:
            now_s = perf_counter()
            for reader in self.readers.values():
                reader.check_gap(now_s, GAP_S_MAX)

    def leave(self) -> None:
        """Close as a client should: with a close frame. The server ends the connection then."""
        self._is_leaving = True
        if self.transport is not None:
            self.transport.send_close()

    async def ended(self) -> None:
        """Wait until the connection is gone."""
        while self.transport is not None:
            self._changed.clear()
            await self._changed.wait()

    async def refresh(self, rest: Rest) -> None:
        """New tokens for the old. Raises LoadImpossible if they are refused."""
        body = {"refresh_token": self.person.refresh_token, "device_id": self.person.device_id}
        answer = await rest.ask("POST", f"{API}/auth/refresh", body)
        if not answer.is_good:
            raise LoadImpossible(f"{self.name} could not refresh its token: {answer.said}")
        tokens = answer.data["tokens"]
        self.person = replace(
            self.person, token=tokens["access_token"], refresh_token=tokens["refresh_token"]
        )

    # For picows.

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == TEXT:
            try:
                got = decode_mixed(frame.get_payload_as_memoryview())
            except msgspec.DecodeError:
                self.outcome.faults.add(f"{self.name} was sent a frame that it does not know")
                return
            self.received(got)
        elif frame.msg_type == WSMsgType.CLOSE:
            self.closed_by_peer(transport, frame)

    def received(self, frame: MixedFrame) -> None:
        match frame:
            case Pushed(payload):
                self._pushed(payload)
            case Acked(payload):
                self.acked(payload)
            case Status(payload):
                known = self.shown.get(payload.chat_id)
                if known is not None:
                    known.others_delivered = max(known.others_delivered, payload.others_delivered)
                    known.others_read = max(known.others_read, payload.others_read)
                    known.delivered = max(known.delivered, payload.own_delivered)
                    known.read = max(known.read, payload.own_read)
            case Digest(payload):
                if payload.page == 0:
                    self._digest = {}
                for entry in payload.chats:
                    self._digested(entry)
                if payload.last:
                    self._digest_ended()
            case Page(_, payload):
                if self._sync is not None and not self._sync.done():
                    self._sync.set_result(payload)
            case Change(payload):
                self._membership(payload)
            case Error():
                self.refused(frame)
            case Closing():
                self.closings = [*self.closings[-3:], frame]
                self.errors[f"closing_{frame.payload.reason}"] += 1
                self.reconnect_delay_s = frame.payload.reconnect_delay_ms / 1000
                if frame.payload.reason not in EXPECTED_CLOSINGS and not self._is_leaving:
                    self.outcome.faults.add(f"{self.name} was closed: {frame.payload.reason}")
            case Resync():
                self._resync(frame)
            case _:
                pass

    def _pushed(self, message: PushedPart) -> None:
        chat_id = message.chat_id
        reader = self.readers.get(chat_id)
        if reader is None:
            self.outcome.faults.add(f"{self.name} was pushed a message of {chat_id}, not its chat")
            return
        reader.pushed(message, is_awaiting=self._is_awaiting(chat_id))
        self.shown[chat_id].head = max(self.shown[chat_id].head, message.sequence)
        waiting = self._unacked.get(chat_id, 0) + 1
        self._unacked[chat_id] = waiting
        if waiting >= ACK_AFTER:
            self.acknowledge(chat_id)

    def acked(self, ack: AckedPart) -> None:
        """Also for an answer over REST."""
        waiting = self.under_way.get(ack.chat_id)
        number = number_of(ack.client_message_id)
        if waiting is None or waiting[0] != number:
            self.outcome.faults.add(f"{self.name} was sent an ack of {number}, not waiting for it")
            return
        del self.under_way[ack.chat_id]
        reader = self.readers.get(ack.chat_id)
        if reader is not None:
            reader.acked(
                ack.sequence,
                ack.prev_sequence,
                ack.client_message_id,
                is_awaiting=self._is_awaiting(ack.chat_id),
            )
            self.shown[ack.chat_id].head = max(self.shown[ack.chat_id].head, ack.sequence)
        self._changed.set()

    def _digested(self, entry: DigestEntry) -> None:
        chat_id = entry.chat_id
        self._digest[chat_id] = entry
        if chat_id not in self.readers:
            self._opened(chat_id, entry.joined_sequence)
        shown = self.shown[chat_id]
        for name in RISING:
            told, now = getattr(shown, name), getattr(entry, name)
            # One that was asked for may have been read before what was pushed meanwhile.
            if told > now and not self._is_asking:
                self.outcome.faults.add(
                    f"{self.name} was shown {name} {told} of {chat_id}, but the digest says {now}"
                )
            setattr(shown, name, max(told, now))
        if self.readers[chat_id].last > entry.head and not self._is_asking:
            self.outcome.faults.add(f"{self.name} has more of {chat_id} than the digest says")

    def _digest_ended(self) -> None:
        if not self._is_asking:
            for chat_id in self.readers.keys() - self._digest.keys():
                self._shut(chat_id)
            self.digest_complete()
            return
        self._asking = asyncio.ensure_future(self._ask_pages())

    def _membership(self, change: ChangePart) -> None:
        if change.change == "created" and change.chat_id not in self.readers:
            self._opened(change.chat_id, 0)
        elif change.user_id == self.person.user_id and change.change == "member_added":
            self._shut(change.chat_id)
            self._opened(change.chat_id, change.joined_sequence)
        elif change.user_id == self.person.user_id and change.change == "member_removed":
            self._shut(change.chat_id)

    def _opened(self, chat_id: str, joined: int) -> None:
        self.readers[chat_id] = self.book.open(
            chat_id, self.name, sender=self.number, joined=joined
        )
        self.shown[chat_id] = Numbers(chat_id)

    def _shut(self, chat_id: str) -> None:
        """Not our chat any more."""
        reader = self.readers.pop(chat_id, None)
        if reader is not None:
            self.book.close(reader)
        for memory in (self.shown, self._counts, self._unacked, self.under_way, self._digest):
            memory.pop(chat_id, None)

    def _resync(self, frame: Resync) -> None:
        self.errors["resync"] += 1
        if not self._is_asking:
            self._is_asking = True
            delay_s = frame.payload.delay_ms / 1000
            asyncio.get_running_loop().call_later(delay_s, self._ask_digest)

    def _ask_digest(self) -> None:
        if self.transport is None:
            self._is_asking = False
            return
        self.transport.send(TEXT, request("digest_request", "digest"))

    async def _ask_pages(self) -> None:
        try:
            await self.catch_up()
        except Lost:
            self.errors["lost"] += 1
        finally:
            self._is_asking = False

    def refused(self, frame: Error) -> None:
        code = frame.payload.code
        self.errors[f"error_{code}"] += 1
        if frame.request_id is None:
            return
        if frame.request_id.startswith("s") and self._sync is not None and not self._sync.done():
            self._sync.set_exception(Lost(code))
        elif code in RETRIED:
            delay_s = max(_RETRY_S_MIN, frame.payload.details.retry_after_seconds)
            chat_id = frame.request_id.rpartition(":")[0]
            asyncio.get_running_loop().call_later(delay_s, self._again, chat_id, self.transport)
        else:
            self.outcome.faults.add(f"{self.name} was refused: {code} ({frame.payload.message})")

    def _again(self, chat_id: str, transport: WSTransport | None) -> None:
        # A new connection has sent it again already.
        if transport is self.transport:
            self._post(chat_id)

    def lost(self, *, is_expected: bool) -> None:
        self.is_complete = False
        self._is_asking = False
        if self._sync is not None and not self._sync.done():
            self._sync.set_exception(Lost())
        self._changed.set()
