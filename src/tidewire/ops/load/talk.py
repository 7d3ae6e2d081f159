"""The workloads `pairs` and `group`: senders that keep a window of messages outstanding.

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
from picows import WSFrame, WSMsgType, WSTransport

from tidewire.ops.load.client import TEXT, Client, ConnectFailed
from tidewire.ops.load.figures import Figures, Meter
from tidewire.ops.load.frames import (
    Error,
    Frame,
    Push,
    Resync,
    SendAck,
    SyncPage,
    ack_template,
    decode_frame,
    number_of,
    send_template,
    sync_request,
)
from tidewire.ops.load.ledger import Sent, Stream, check_streams
from tidewire.ops.load.target import LoadImpossible, Person, Target
from tidewire.ops.load.workload import Maker, Outcome, Progress, Timing

ACK_AFTER: Final = 10
ACK_AFTER_S: Final = 5.0
RETRIED: Final = frozenset({"RATE_LIMITED", "SERVER_BUSY", "SERVICE_UNAVAILABLE", "INTERNAL_ERROR"})
_RETRY_S_MIN: Final = 0.05
_STEP_S: Final = 0.25


class HotClient(Client):
    """Decodes first and asks later: nearly everything that comes is of one kind."""

    def __init__(self, person: Person, name: str, meter: Meter, outcome: Outcome) -> None:
        super().__init__(person, outcome.errors)
        self.name = name
        self.meter = meter
        self.outcome = outcome

    def odd_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """Not JSON that we know: a close, or something new."""
        if frame.msg_type == WSMsgType.CLOSE:
            self.closed_by_peer(transport, frame)
        elif frame.msg_type == TEXT:
            self.errors["unknown_frame"] += 1

    def lost(self, *, is_expected: bool) -> None:
        if not is_expected:
            self.outcome.faults.add(f"{self.name} lost its connection")


class Sender(HotClient):
    """Keeps a window of messages outstanding in one chat."""

    def __init__(
        self, person: Person, number: int, chat_id: str, meter: Meter, outcome: Outcome
    ) -> None:
        super().__init__(person, f"sender {number}", meter, outcome)
        self.sent = Sent(self.name)
        self.is_sending = True
        self._template = send_template(chat_id, number)

    def send(self) -> None:
        assert self.transport is not None
        sent = self.sent
        number = len(sent.sequences)
        sent.sequences.append(0)
        sent.at_s.append(perf_counter())
        self.transport.send(TEXT, self._template % (number, number))

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        now_s = perf_counter()
        try:
            got = decode_frame(frame.get_payload_as_memoryview())
        except msgspec.DecodeError:
            self.odd_frame(transport, frame)
            return
        if type(got) is not SendAck:
            self.frame_received(got)
            return
        number = int(got.request_id)
        sent = self.sent
        if sent.sequences[number]:
            self.outcome.faults.add(f"{self.name} was sent two acks of message {number}")
            return
        sent.sequences[number] = got.payload.sequence
        meter = self.meter
        if meter.is_measuring:
            meter.acks_s.append(now_s - sent.at_s[number])
        if self.is_sending:
            self.send()

    def refused(self, frame: Error) -> None:
        code = frame.payload.code
        self.errors[f"error_{code}"] += 1
        if frame.request_id is None:
            return
        if code not in RETRIED:
            self.outcome.faults.add(f"{self.name} was refused: {code} ({frame.payload.message})")
            return
        delay_s = max(_RETRY_S_MIN, frame.payload.details.retry_after_seconds)
        asyncio.get_running_loop().call_later(delay_s, self._again, int(frame.request_id))

    def _again(self, number: int) -> None:
        if self.transport is not None:
            self.transport.send(TEXT, self._template % (number, number))


class Receiver(HotClient):
    """Gets everything of one chat, and says so."""

    def __init__(
        self, person: Person, name: str, chat_id: str, sent: Sent, meter: Meter, outcome: Outcome
    ) -> None:
        super().__init__(person, name, meter, outcome)
        self.stream = Stream(name, outcome.faults, is_at_least_once=outcome.is_at_least_once)
        self._chat_id = chat_id
        self._sent_at_s = sent.at_s
        self._ack = ack_template(chat_id)
        self._unacked = 0

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        now_s = perf_counter()
        try:
            got = decode_frame(frame.get_payload_as_memoryview())
        except msgspec.DecodeError:
            self.odd_frame(transport, frame)
            return
        if type(got) is not Push:
            self.frame_received(got)
            return
        message = got.payload
        stream = self.stream
        # As `number_of` and `Stream.take` do it for the next message; a call costs a tenth.
        number = int(message.client_message_id[24:], 16)
        if message.prev_sequence == stream.last and not stream.held:
            stream.last = message.sequence
            stream.sequences.append(message.sequence)
            stream.numbers.append(number)
        else:
            stream.take(message.sequence, message.prev_sequence, number)
        meter = self.meter
        if meter.is_measuring:
            meter.deliveries_s.append(now_s - self._sent_at_s[number])
        self._unacked += 1
        if self._unacked >= ACK_AFTER:
            self._unacked = 0
            transport.send(TEXT, self._ack % stream.last)

    def acknowledge(self) -> None:
        """What was not worth an ack yet."""
        if self._unacked and self.transport is not None:
            self._unacked = 0
            self.transport.send(TEXT, self._ack % self.stream.last)

    def frame_received(self, frame: Frame | None) -> None:
        if isinstance(frame, Resync):
            self.errors["resync"] += 1
            self.stream.is_syncing = True
            delay_s = frame.payload.delay_ms / 1000
            asyncio.get_running_loop().call_later(delay_s, self._ask)
        elif isinstance(frame, SyncPage) and self.stream.is_syncing:
            for item in frame.payload.messages:
                number = number_of(item.client_message_id)
                self.stream.take(item.sequence, item.prev_sequence, number)
            if frame.payload.has_more:
                self._ask()
            else:
                self.stream.synced()
        else:
            super().frame_received(frame)

    def _ask(self) -> None:
        if self.transport is not None:
            self.transport.send(TEXT, sync_request(self._chat_id, self.stream.last, "resync"))


class TalkLoad:
    """So many conversations with one sender and so many receivers each."""

    def __init__(self, *, chats: int, receivers: int, window: int, name: str) -> None:
        self.name = name
        self.connections = chats * (1 + receivers)
        self._chats = chats
        self._receivers = receivers
        self._window = window
        self._talks: list[tuple[str, list[Person]]] = []
        self._senders: list[Sender] = []
        self._hearers: list[list[Receiver]] = []

    @classmethod
    def pairs(cls, count: int, window: int) -> "TalkLoad":
        return cls(chats=count, receivers=1, window=window, name=f"pairs {count} {window}")

    @classmethod
    def group(cls, members: int, window: int) -> "TalkLoad":
        return cls(chats=1, receivers=members - 1, window=window, name=f"group {members} {window}")

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
        # What was made so far stays; the collector need not look at it again and again.
        gc.collect()
        gc.freeze()
        for sender in self._senders:
            for _ in range(self._window):
                sender.send()
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
        for number, (chat_id, people) in enumerate(self._talks):
            sender = Sender(people[0], number, chat_id, meter, outcome)
            self._senders.append(sender)
            self._hearers.append(
                [
                    Receiver(
                        person, f"receiver {number}.{at}", chat_id, sender.sent, meter, outcome
                    )
                    for at, person in enumerate(people[1:])
                ]
            )

    async def _wait(self, stage: str, seconds: float, progress: Progress) -> None:
        """Let it run, with a bar, and with the acks that are due by time alone."""
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
    """One after the other: what counts comes later. Raises LoadImpossible."""
    for number, client in enumerate(clients):
        progress("connecting", number, len(clients))
        try:
            await client.connect(target, number)
        except ConnectFailed as error:
            raise LoadImpossible(
                f"connection {number + 1} of {len(clients)} failed: {error.kind}"
            ) from error
