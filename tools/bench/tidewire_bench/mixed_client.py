"""A client in many chats that talks, listens, goes away and comes back, and checks everything.

What it gets goes through its readers in the `Book`; the numbers that it is shown are compared with
every later digest.
"""

import asyncio
from dataclasses import replace
from random import Random
from time import perf_counter
from typing import Final

from picows import WSFrame, WSTransport

from tidewire_bench.book import Book, Reader
from tidewire_bench.changes import OVERTAKEN, Changes, Wish
from tidewire_bench.client import ACK_AFTER, ANSWER_S_MAX, TEXT, Client, Lost, retry_delay_s
from tidewire_bench.frames import (
    CONTENT,
    HEARTBEAT,
    RISING,
    AckPart,
    Change,
    ChangePart,
    Closing,
    DigestEntry,
    DigestPart,
    EntryPush,
    Error,
    Frame,
    Item,
    Numbers,
    Push,
    SendAck,
    Status,
    message_key,
    number_of,
    one_way,
    request,
    sender_of,
)
from tidewire_bench.rest import API, Rest, data_of, said
from tidewire_bench.target import LoadImpossible, Person, Target
from tidewire_bench.workload import Outcome

GAP_S_MAX: Final = 10.0
"""How long the predecessor of a message that has arrived may be missing."""
EXPECTED_CLOSINGS: Final = frozenset({"server_shutdown", "token_expired", "slow_consumer"})
"""The reasons for which a well-behaved client may be closed in these runs."""


class MixedClient(Client):
    """One person, one device, any number of chats; its memory outlives its connections."""

    def __init__(self, person: Person, number: int, book: Book, outcome: Outcome) -> None:
        # Half of the clients offer each feature, so that all forms are in use at the same time.
        super().__init__(
            person,
            outcome.errors,
            is_offering_batch=number % 2 == 0,
            is_offering_entries=number % 4 < 2,
        )
        self.number = number
        self.name = f"client {number}"
        self.book = book
        self.outcome = outcome
        self.readers: dict[str, Reader] = {}
        self.under_way: dict[str, tuple[int, str]] = {}
        """Number and text of the message that waits for its ack, by chat."""
        self.changes = Changes()
        self.wishes: dict[str, Wish] = {}
        """The change that is under way instead of a message, by chat."""
        self.shown: dict[str, Numbers] = {}
        self.closings: list[Closing] = []
        """The last few `connection_closing` frames."""
        self.is_complete = False
        """Connected, and everything that the digest showed to be missing was synced."""
        self._counts: dict[str, int] = {}
        self._unacked: dict[str, int] = {}
        self._digest: dict[str, DigestEntry] = {}
        self._is_asking = False
        """A digest was asked for, and its pages are being read."""
        self._asking: asyncio.Future[None] | None = None
        self._changed = asyncio.Event()
        """Set each time an ack or the end of the connection has come."""

    # For the code that drives it.

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
                page = await self.sync_page(chat_id, reader.cursor)
                # The reader may be gone by now: its user was removed.
                reader.paged(page.messages, page.synced_through)
                if not page.has_more:
                    break
                reader = self.readers.get(chat_id)

    async def history(self, chat_id: str) -> list[tuple[int, str]]:
        """All that the server has stored of a chat: sequence and key. Raises Lost."""
        return [
            (item.sequence, item.client_message_id)
            async for page in self.pages(chat_id, 0)
            for item in page.messages
        ]

    def can_say(self, chat_id: str) -> bool:
        return self.transport is not None and self.is_complete and chat_id not in self.under_way

    def say(self, chat_id: str, content: str = CONTENT) -> None:
        """Send the next message to a chat that has none under way."""
        self.take_number(chat_id, content)
        self._post(chat_id)

    def change(self, chat_id: str, chance: Random) -> str:
        """Send a change of a message, under the next number. Returns its kind, or "" if nothing can
        be changed."""
        wish = self.changes.wish(chat_id, chance)
        if wish is None:
            return ""
        self.take_number(chat_id, CONTENT)
        self.wishes[chat_id] = wish
        self._post(chat_id)
        return wish[0]

    def take_number(self, chat_id: str, content: str) -> int:
        """Return the number of the next message, which is under way from now on."""
        assert chat_id not in self.under_way
        number = self._counts.get(chat_id, 0)
        self._counts[chat_id] = number + 1
        self.under_way[chat_id] = number, content
        return number

    async def said(self, chat_id: str) -> None:
        """Wait until no own message is under way there. Raises Lost."""
        while chat_id in self.under_way:
            if self.transport is None:
                raise Lost
            self._changed.clear()
            await self._changed.wait()

    def _post(self, chat_id: str) -> None:
        if self.transport is None or chat_id not in self.under_way:
            return
        number, content = self.under_way[chat_id]
        key = message_key(self.number, number)
        kind, fields = self.wishes.get(chat_id, ("send_message", {"content": content}))
        entry = {"chat_id": chat_id, "client_message_id": key, **fields}
        self.send(request(kind, f"{chat_id}:{number}", **entry))

    def tell(self, kind: str, chat_id: str, **fields: int) -> None:
        """Send a one-way frame about a chat."""
        self.send(one_way(kind, chat_id=chat_id, **fields))

    def acknowledge(self, chat_id: str, *, is_read: bool = False) -> None:
        """Acknowledge everything that has arrived there, as delivered or as read."""
        reader = self.readers.get(chat_id)
        self._unacked.pop(chat_id, None)
        if reader is None or reader.last == 0:
            return
        if is_read:
            self.tell("read", chat_id, last_read_sequence=reader.last)
        else:
            self.tell("ack", chat_id, last_acked_sequence=reader.last)

    def acknowledge_rest(self) -> None:
        """Acknowledge the messages that were too few for an ack so far."""
        for chat_id in list(self._unacked):
            self.acknowledge(chat_id)

    def beat(self) -> None:
        self.send(HEARTBEAT)

    def check_gaps(self) -> None:
        if self.is_complete and not self._is_asking:
            now_s = perf_counter()
            for reader in self.readers.values():
                reader.check_gap(now_s, GAP_S_MAX)

    def leave(self) -> None:
        """Close as a client should: with a close frame. The server ends the connection then."""
        self.is_leaving = True
        if self.transport is not None:
            self.flush()
            self.transport.send_close()

    async def ended(self) -> None:
        """Wait until the connection is gone."""
        while self.transport is not None:
            self._changed.clear()
            await self._changed.wait()

    async def refresh(self, rest: Rest) -> None:
        """Get new tokens for the refresh token. Raises LoadImpossible if they are refused."""
        body = {"refresh_token": self.person.refresh_token, "device_id": self.person.device_id}
        answer = await rest.ask("POST", f"{API}/auth/refresh", body)
        if not answer.is_success:
            raise LoadImpossible(f"{self.name} could not refresh its token: {said(answer)}")
        tokens = data_of(answer)["tokens"]
        self.person = replace(
            self.person, token=tokens["access_token"], refresh_token=tokens["refresh_token"]
        )

    # What comes.

    def odd_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == TEXT:
            self.outcome.faults.add(f"{self.name} was sent a frame that it does not know")
        else:
            super().odd_frame(transport, frame)

    def received(self, frame: Frame) -> None:
        match frame:
            case Push(payload) | EntryPush(payload):
                self._pushed(payload)
            case SendAck(payload):
                self._acked(payload)
            case Status(payload):
                self._show(
                    payload.chat_id,
                    others_delivered=payload.others_delivered,
                    others_read=payload.others_read,
                    delivered=payload.own_delivered,
                    read=payload.own_read,
                )
            case Change(payload):
                self._membership(payload)
            case Closing(payload):
                super().received(frame)
                self.closings = [*self.closings[-3:], frame]
                if payload.reason not in EXPECTED_CLOSINGS and not self.is_leaving:
                    self.outcome.faults.add(f"{self.name} was closed: {payload.reason}")
            case _:
                super().received(frame)

    def _show(self, chat_id: str, **numbers: int) -> None:
        """Raise the shown numbers of a chat to these, where these are higher."""
        shown = self.shown.get(chat_id)
        if shown is not None:
            for name, number in numbers.items():
                setattr(shown, name, max(getattr(shown, name), number))

    def _pushed(self, message: Item) -> None:
        chat_id = message.chat_id
        reader = self.readers.get(chat_id)
        if reader is None:
            self.outcome.faults.add(f"{self.name} was pushed a message of {chat_id}, not its chat")
            return
        if message.kind is None:
            is_own = sender_of(message.client_message_id) == self.number
            self.changes.met(chat_id, message.sequence, is_own=is_own)
        reader.pushed(message, is_awaiting=self._is_awaiting(chat_id))
        self._show(chat_id, head=message.sequence)
        waiting = self._unacked.get(chat_id, 0) + 1
        self._unacked[chat_id] = waiting
        if waiting >= ACK_AFTER:
            self.acknowledge(chat_id)

    def _acked(self, ack: AckPart) -> None:
        waiting = self.under_way.get(ack.chat_id)
        number = number_of(ack.client_message_id)
        if waiting is None or waiting[0] != number:
            self.outcome.faults.add(f"{self.name} was sent an ack of {number}, not waiting for it")
            return
        del self.under_way[ack.chat_id]
        kind, fields = self.wishes.pop(ack.chat_id, ("send_message", {}))
        if kind == "send_message":
            self.changes.met(ack.chat_id, ack.sequence, is_own=True)
        elif kind == "delete_message":
            self.book.deletions.add(ack.chat_id, int(str(fields["target"])))
        reader = self.readers.get(ack.chat_id)
        if reader is not None:
            reader.acked(
                ack.sequence,
                ack.prev_sequence,
                ack.client_message_id,
                is_awaiting=self._is_awaiting(ack.chat_id),
            )
            self._show(ack.chat_id, head=ack.sequence)
        self._changed.set()

    def digested(self, digest: DigestPart) -> None:
        if digest.page == 0:
            self._digest = {}
        for entry in digest.chats:
            self._entry(entry)
        if digest.last and self._is_asking:
            self._asking = asyncio.ensure_future(self._ask_pages())
        elif digest.last:
            for chat_id in self.readers.keys() - self._digest.keys():
                self._shut(chat_id)
        super().digested(digest)

    def _entry(self, entry: DigestEntry) -> None:
        chat_id = entry.chat_id
        self._digest[chat_id] = entry
        if chat_id not in self.readers:
            self._opened(chat_id, entry.joined_sequence)
        shown = self.shown[chat_id]
        for name in RISING:
            told, now = getattr(shown, name), getattr(entry, name)
            # A digest that was asked for may be older than pushes that came meanwhile.
            if told > now and not self._is_asking:
                self.outcome.faults.add(
                    f"{self.name} was shown {name} {told} of {chat_id}, but the digest says {now}"
                )
            setattr(shown, name, max(told, now))
        if self.readers[chat_id].last > entry.head and not self._is_asking:
            self.outcome.faults.add(f"{self.name} has more of {chat_id} than the digest says")

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
        """The person is not a member any more: forget the chat."""
        reader = self.readers.pop(chat_id, None)
        if reader is not None:
            self.book.close(reader)
        self.changes.forget(chat_id)
        for memory in (self.shown, self._counts, self._unacked, self.under_way, self._digest):
            memory.pop(chat_id, None)
        self.wishes.pop(chat_id, None)

    def resync(self, delay_s: float) -> None:
        if not self._is_asking:
            self._is_asking = True
            asyncio.get_running_loop().call_later(delay_s, self._ask_digest)

    def _ask_digest(self) -> None:
        if self.transport is None:
            self._is_asking = False
        self.send(request("digest_request", "digest"))

    async def _ask_pages(self) -> None:
        try:
            await self.catch_up()
        except Lost:
            self.errors["lost"] += 1
        finally:
            self._is_asking = False

    def refused(self, frame: Error, request_id: str) -> None:
        delay_s = retry_delay_s(frame)
        if request_id.startswith("s"):
            super().refused(frame, request_id)
        elif delay_s is not None:
            chat_id = request_id.rpartition(":")[0]
            asyncio.get_running_loop().call_later(delay_s, self._again, chat_id, self.transport)
        elif frame.payload.code in OVERTAKEN and request_id.rpartition(":")[0] in self.wishes:
            # Nothing is stored under its key: send a message instead, as no number may be missing.
            chat_id = request_id.rpartition(":")[0]
            del self.wishes[chat_id]
            self._post(chat_id)
        else:
            told = frame.payload
            self.outcome.faults.add(f"{self.name} was refused: {told.code} ({told.message})")

    def _again(self, chat_id: str, transport: WSTransport | None) -> None:
        # If there is a new connection, it has sent the message again already.
        if transport is self.transport:
            self._post(chat_id)

    def lost(self, *, is_expected: bool) -> None:
        self.is_complete = False
        self._is_asking = False
        self._changed.set()

    def got_no_page(self) -> None:
        self.outcome.faults.add(f"{self.name} got no page in {ANSWER_S_MAX} s")
