"""The workloads `pairs`, `group` and `changes`: senders that keep a window outstanding.

A sender sends the next message when one was acknowledged. Receivers acknowledge delivery after 10
messages or 5 seconds. The methods on the path of every message are written for speed: they share
the machine with the server that they measure.
"""

import asyncio
import gc
from collections.abc import Sequence
from time import perf_counter
from typing import Final

import msgspec
from picows import WSFrame, WSTransport

from tidewire_bench.client import ACK_AFTER, Client, ConnectFailed, Lost, retry_delay_s
from tidewire_bench.figures import Figures, Meter
from tidewire_bench.frames import (
    EntryPush,
    Error,
    Push,
    SendAck,
    ack_template,
    decode_message,
    edit_template,
    react_template,
    send_template,
)
from tidewire_bench.ledger import Sent, Stream, check_streams
from tidewire_bench.target import LoadImpossible, Person, Target
from tidewire_bench.workload import Maker, Outcome, Progress, Timing

ACK_AFTER_S: Final = 5.0
CYCLE: Final = 10
CYCLE_MESSAGES: Final = 6
CYCLE_EDITS_END: Final = 8
"""Of each `CYCLE` entries of `changes`: `CYCLE_MESSAGES` messages, then edits, then reactions."""
_STEP_S: Final = 0.25


class HotClient(Client):
    """A client that checks first whether a frame is of the one kind that nearly all frames are."""

    def __init__(
        self,
        person: Person,
        name: str,
        meter: Meter,
        outcome: Outcome,
        *,
        is_offering_batch: bool,
        is_offering_entries: bool = False,
    ) -> None:
        super().__init__(
            person,
            outcome.errors,
            is_offering_batch=is_offering_batch,
            is_offering_entries=is_offering_entries,
        )
        self.name = name
        self.meter = meter
        self.outcome = outcome

    def lost(self, *, is_expected: bool) -> None:
        if not is_expected:
            self.outcome.faults.add(f"{self.name} lost its connection")


class Sender(HotClient):
    """Keeps a window of messages outstanding in one chat."""

    def __init__(
        self,
        person: Person,
        number: int,
        chat_id: str,
        meter: Meter,
        outcome: Outcome,
        *,
        is_offering_batch: bool,
    ) -> None:
        name = f"sender {number}"
        super().__init__(person, name, meter, outcome, is_offering_batch=is_offering_batch)
        self.sent = Sent(self.name)
        self.is_sending = True
        self._template = send_template(chat_id, number)

    def send_next(self, count: int) -> None:
        sent = self.sent
        template = self._template
        due = []
        for number in range(len(sent.sequences), len(sent.sequences) + count):
            sent.sequences.append(0)
            sent.at_s.append(perf_counter())
            due.append(template % (number, number))
        self.send_together(due)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        now_s = perf_counter()
        try:
            got = decode_message(frame.get_payload_as_memoryview())
        except msgspec.DecodeError:
            self.odd_frame(transport, frame)
            return
        sent = self.sent
        meter = self.meter
        acked = 0
        for one in got if isinstance(got, list) else (got,):
            if type(one) is not SendAck:
                self.received(one)
                continue
            number = int(one.request_id)
            if sent.sequences[number]:
                self.outcome.faults.add(f"{self.name} was sent two acks of message {number}")
                continue
            sent.sequences[number] = one.payload.sequence
            if meter.is_measuring:
                meter.acks_s.append(now_s - sent.at_s[number])
            acked += 1
        if acked and self.is_sending:
            self.send_next(acked)

    def refused(self, frame: Error, request_id: str) -> None:
        delay_s = retry_delay_s(frame)
        if delay_s is None:
            told = frame.payload
            self.outcome.faults.add(f"{self.name} was refused: {told.code} ({told.message})")
            return
        number = int(request_id)
        again = self._template % (number, number)
        asyncio.get_running_loop().call_later(delay_s, self.send, again)


class ChangingSender(Sender):
    """Of every ten entries six are messages, two are edits and two are reactions, each of another
    earlier message of its own."""

    def __init__(
        self,
        person: Person,
        number: int,
        chat_id: str,
        meter: Meter,
        outcome: Outcome,
        *,
        is_offering_batch: bool,
        window: int,
    ) -> None:
        super().__init__(
            person, number, chat_id, meter, outcome, is_offering_batch=is_offering_batch
        )
        self._edit = edit_template(chat_id, number)
        self._react = react_template(chat_id, number)
        self._lag = CYCLE * (1 + window // CYCLE)
        """An entry that is so far back was acknowledged."""

    def frame(self, number: int) -> bytes:
        """The entry with this number; the same each time."""
        place = number % CYCLE
        if place < CYCLE_MESSAGES or number < CYCLE + self._lag:
            return self._template % (number, number)
        target = self.sent.sequences[number - CYCLE_MESSAGES - self._lag]
        template = self._edit if place < CYCLE_EDITS_END else self._react
        return template % (number, number, target)

    def send_next(self, count: int) -> None:
        sent = self.sent
        due = []
        for number in range(len(sent.sequences), len(sent.sequences) + count):
            sent.sequences.append(0)
            sent.at_s.append(perf_counter())
            due.append(self.frame(number))
        self.send_together(due)

    def refused(self, frame: Error, request_id: str) -> None:
        delay_s = retry_delay_s(frame)
        if delay_s is None:
            super().refused(frame, request_id)
        else:
            again = self.frame(int(request_id))
            asyncio.get_running_loop().call_later(delay_s, self.send, again)


class Receiver(HotClient):
    """Gets everything of one chat, and acknowledges it."""

    def __init__(
        self,
        person: Person,
        name: str,
        chat_id: str,
        sent: Sent,
        meter: Meter,
        outcome: Outcome,
        *,
        is_offering_batch: bool,
        is_offering_entries: bool = False,
    ) -> None:
        super().__init__(
            person,
            name,
            meter,
            outcome,
            is_offering_batch=is_offering_batch,
            is_offering_entries=is_offering_entries,
        )
        self.stream = Stream(name, outcome.faults, is_at_least_once=outcome.is_at_least_once)
        self._chat_id = chat_id
        self._sent_at_s = sent.at_s
        self._ack = ack_template(chat_id)
        self._unacked = 0

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        now_s = perf_counter()
        try:
            got = decode_message(frame.get_payload_as_memoryview())
        except msgspec.DecodeError:
            self.odd_frame(transport, frame)
            return
        stream = self.stream
        meter = self.meter
        due: list[bytes] = []
        for one in got if isinstance(got, list) else (got,):
            if type(one) is not Push and type(one) is not EntryPush:
                self.received(one)
                continue
            message = one.payload
            # As in `number_of` and, for the next message, `Stream.take`; a call costs a tenth.
            number = int(message.client_message_id[24:], 16)
            if message.prev_sequence == stream.last and not stream.held:
                stream.last = message.sequence
                stream.sequences.append(message.sequence)
                stream.numbers.append(number)
            else:
                stream.take(message.sequence, message.prev_sequence, number)
            if meter.is_measuring:
                meter.deliveries_s.append(now_s - self._sent_at_s[number])
            self._unacked += 1
            if self._unacked >= ACK_AFTER:
                self._unacked = 0
                due.append(self._ack % stream.last)
        if due:
            self.send_together(due)

    def acknowledge(self) -> None:
        """Acknowledge the messages that were too few for an ack so far."""
        if self._unacked:
            self._unacked = 0
            self.send(self._ack % self.stream.last)

    def resync(self, delay_s: float) -> None:
        self.stream.is_syncing = True
        self._syncing = asyncio.ensure_future(self._sync(delay_s))

    async def _sync(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        try:
            async for page in self.pages(self._chat_id, self.stream.last):
                self.stream.take_all(page.messages)
        except Lost:
            return  # The end of the connection is a fault by itself.
        self.stream.synced()


class TalkLoad:
    """A number of conversations, with one sender and the same number of receivers each."""

    def __init__(
        self,
        *,
        chats: int,
        receivers: int,
        window: int,
        name: str,
        is_offering_batch: bool,
        is_changing: bool = False,
    ) -> None:
        self.name = name if is_offering_batch else f"{name} without batch"
        self._is_offering_batch = is_offering_batch
        self._is_changing = is_changing
        self.connections = chats * (1 + receivers)
        self._chats = chats
        self._receivers = receivers
        self._window = window
        self._talks: list[tuple[str, list[Person]]] = []
        self._senders: list[Sender] = []
        self._hearers: list[list[Receiver]] = []

    @classmethod
    def pairs(cls, count: int, window: int, *, is_offering_batch: bool = True) -> "TalkLoad":
        return cls(
            chats=count,
            receivers=1,
            window=window,
            name=f"pairs {count} {window}",
            is_offering_batch=is_offering_batch,
        )

    @classmethod
    def changes(cls, count: int, window: int, *, is_offering_batch: bool = True) -> "TalkLoad":
        """As pairs, with edits and reactions among the messages."""
        return cls(
            chats=count,
            receivers=1,
            window=window,
            name=f"changes {count} {window}",
            is_offering_batch=is_offering_batch,
            is_changing=True,
        )

    @classmethod
    def group(cls, members: int, window: int, *, is_offering_batch: bool = True) -> "TalkLoad":
        return cls(
            chats=1,
            receivers=members - 1,
            window=window,
            name=f"group {members} {window}",
            is_offering_batch=is_offering_batch,
        )

    async def prepare(self, maker: Maker) -> None:
        people = await maker.people(self.connections)
        size = 1 + self._receivers
        tables = [people[at : at + size] for at in range(0, len(people), size)]
        if self._chats == 1 and size != 2:
            self._talks = [(await maker.group(tables[0][0], tables[0][1:]), tables[0])]
        else:
            chat_ids = await maker.direct([(table[0], table[1]) for table in tables])
            self._talks = list(zip(chat_ids, tables, strict=True))

    async def measure(
        self, target: Target, timing: Timing, outcome: Outcome, progress: Progress
    ) -> Figures:
        meter = Meter(target)
        self._seat(meter, outcome)
        clients = [*(one for row in self._hearers for one in row), *self._senders]
        await _connect_all(clients, target, progress)
        # All objects made so far stay; the garbage collector need not scan them again and again.
        gc.collect()
        gc.freeze()
        for sender in self._senders:
            sender.send_next(self._window)
        await self._wait("warm-up", timing.warm_up_s, progress)
        meter.start()
        await self._wait(self.name, timing.measured_s, progress)
        meter.stop()
        await self._drain(timing, outcome)
        for client in clients:
            client.drop()
        for sender, hearers in zip(self._senders, self._hearers, strict=True):
            check_streams([hearer.stream for hearer in hearers], sender.sent, outcome.faults)
            outcome.repeats += sum(hearer.stream.repeats for hearer in hearers)
        messages = len(meter.acks_s)
        if self._receivers == 1:
            messages = min(messages, len(meter.deliveries_s))
        if messages == 0:
            outcome.faults.add("no message was acknowledged in the measured time")
        return meter.figures(self.name, messages)

    def _seat(self, meter: Meter, outcome: Outcome) -> None:
        batch = self._is_offering_batch
        for number, (chat_id, people) in enumerate(self._talks):
            seat = (people[0], number, chat_id, meter, outcome)
            if self._is_changing:
                sender: Sender = ChangingSender(*seat, is_offering_batch=batch, window=self._window)
            else:
                sender = Sender(*seat, is_offering_batch=batch)
            self._senders.append(sender)
            self._hearers.append(
                [
                    Receiver(
                        person,
                        f"receiver {number}.{at}",
                        chat_id,
                        sender.sent,
                        meter,
                        outcome,
                        is_offering_batch=batch,
                        is_offering_entries=self._is_changing,
                    )
                    for at, person in enumerate(people[1:])
                ]
            )

    async def _wait(self, stage: str, seconds: float, progress: Progress) -> None:
        """Let the load run, with a progress bar, and send the acks that are due by time alone."""
        started_s = acknowledged_s = perf_counter()
        while (spent_s := perf_counter() - started_s) < seconds:
            progress(stage, int(spent_s * 10), int(seconds * 10))
            await asyncio.sleep(min(_STEP_S, max(0.001, seconds - spent_s)))
            if perf_counter() - acknowledged_s >= ACK_AFTER_S:
                acknowledged_s = perf_counter()
                self._acknowledge()

    def _acknowledge(self) -> None:
        for row in self._hearers:
            for hearer in row:
                hearer.acknowledge()

    async def _drain(self, timing: Timing, outcome: Outcome) -> None:
        """Wait until everything that is outstanding has been acknowledged and has arrived."""
        for sender in self._senders:
            sender.is_sending = False
        end_s = perf_counter() + timing.give_up_s
        while perf_counter() < end_s:
            missing = sum(sender.sent.unacked for sender in self._senders)
            if missing == 0 and self._all_arrived():
                break
            if outcome.faults.count and not missing:
                break
            await asyncio.sleep(0.02)
        else:
            missing = sum(sender.sent.unacked for sender in self._senders)
            outcome.faults.add(f"{missing} messages were not acknowledged in {timing.give_up_s} s")
        self._acknowledge()

    def _all_arrived(self) -> bool:
        for sender, row in zip(self._senders, self._hearers, strict=True):
            last = max(sender.sent.sequences, default=0)
            if any(hearer.stream.last < last for hearer in row):
                return False
        return True


async def _connect_all(clients: Sequence[Client], target: Target, progress: Progress) -> None:
    """Connect one client after the other: this is not measured. Raises LoadImpossible."""
    for number, client in enumerate(clients):
        progress("connecting", number, len(clients))
        try:
            await client.connect(target, number)
        except ConnectFailed as error:
            raise LoadImpossible(
                f"connection {number + 1} of {len(clients)} failed: {error.kind}"
            ) from error
