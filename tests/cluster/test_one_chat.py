"""Two gateways write into one chat as fast as they can. Slow: real processes on real servers."""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial

import pytest

from tests.cluster.hot import in_order_of_time
from tests.cluster.running import Cluster, Member, metric_of, running
from tests.e2e.chatting import RISING, Account, Frame, Phone, chained, new_key
from tidewire.engines.kafka.schema import MEMBERSHIPS, MESSAGES
from tidewire.fanout.lag import BEHIND_MS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

CHATS_TRIED_MAX = 40
RETRIED = ("SERVICE_UNAVAILABLE", "SERVER_BUSY", "RATE_LIMITED")
"""A machine that is busy with tests is no fault."""
SECONDS_MAX = 8.0
MESSAGES_MAX = 1_000
WINDOW = 8
"""How many messages of a writer are on their way at once."""
PATIENCE_S = 60.0
FIRST = 1
"""The sequence of the only message in the chat before the talk."""


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("one-chat")) as cluster:
        yield cluster
        cluster.verify()
        assert cluster.complaints() == []


class Seat:
    """One device, and everything it was told of the one chat, in order."""

    def __init__(self, account: Account, phone: Phone, chat_id: str) -> None:
        self.account = account
        self.phone = phone
        self._chat_id = chat_id
        self.messages: list[Frame] = []
        self.heard_s: dict[str, float] = {}
        """When each message first arrived."""
        self.acked = 0
        """What this device has acknowledged as delivered and as read."""
        self.shown = dict.fromkeys(RISING, 0)
        """As a client shows it: the maximum. Each gateway sends what it knows, in no order."""
        self.lies: list[tuple[str, int, int]] = []
        """Numbers above what a member who was in the chat all the time had acknowledged."""
        self.watched: list[Seat] = []
        self.waiting: dict[str, asyncio.Future[Frame]] = {}
        phone.on_frame = self._take

    def _take(self, frame: Frame) -> None:
        payload = frame["payload"]
        future = self.waiting.pop(frame.get("request_id", ""), None)
        if future is not None:
            future.set_result(frame)
        match frame["type"]:
            case "message" if self._is_of_the_talk(payload):
                self.messages.append(payload)
                self.heard_s.setdefault(payload["client_message_id"], time.monotonic())
            case "status_update" if payload["chat_id"] == self._chat_id:
                self._show(payload)
            case _:
                pass
        # This test does not use the inbox, and searching it would take longer and longer.
        self.phone.inbox.clear()

    def _is_of_the_talk(self, message: Frame) -> bool:
        """False for older messages, which a relay may publish again: of this and other chats."""
        sequence: int = message["sequence"]
        return message["chat_id"] == self._chat_id and sequence > FIRST

    def _show(self, numbers: Frame) -> None:
        most = min(seat.acked for seat in self.watched if seat is not self)
        for name, value in numbers.items():
            if name.startswith("others_") and value > most:
                self.lies.append((name, value, most))
            if name in RISING:
                self.shown[name] = max(self.shown[name], value)

    @property
    def heard(self) -> set[int]:
        return {message["sequence"] for message in self.messages}

    def has_heard(self, count: int) -> bool:
        return len(self.heard) >= count

    def shows_blue(self, sequence: int) -> bool:
        return self.shown["others_read"] == sequence

    async def tell(self, chat_id: str, sequence: int) -> None:
        self.acked = max(self.acked, sequence)
        await self.phone.ack(chat_id, sequence)
        await self.phone.read(chat_id, sequence)

    async def sync(self, chat_id: str) -> list[Frame]:
        messages: list[Frame] = []
        while True:
            cursor = messages[-1]["sequence"] if messages else 0
            wish = {"chat_id": chat_id, "last_acked_sequence": cursor, "limit": 500}
            page = (await self.ask("sync_request", wish))["payload"]
            messages += page["messages"]
            if not page["has_more"]:
                return messages

    async def digest(self, chat_id: str) -> Frame:
        chats = (await self.ask("digest_request", {}))["payload"]["chats"]
        [chat] = [one for one in chats if one["chat_id"] == chat_id]
        assert chat["chat_id"] == chat_id
        return dict(chat)

    async def ask(self, frame_type: str, payload: Frame) -> Frame:
        request_id = new_key()
        self.waiting[request_id] = asyncio.get_running_loop().create_future()
        await self.phone.post(frame_type, payload, request_id)
        async with asyncio.timeout(PATIENCE_S):
            return await self.waiting[request_id]


@dataclass
class Spoken:
    """A message as its writer knows it."""

    seat: Seat
    sent_s: float
    acked_s: float = 0.0
    sequence: int = 0


@dataclass
class Stay:
    """A time in which a guest was certainly not a member: from an answer to the next request."""

    out_s: float
    in_s: float


@dataclass
class Talk:
    """Everything that happens in the chat, as the clients that do it know."""

    chat_id: str
    owner: Account
    spoken: dict[str, Spoken] = field(default_factory=dict)
    retries: int = 0
    stays: defaultdict[str, list[Stay]] = field(default_factory=lambda: defaultdict(list))
    is_over: asyncio.Event = field(default_factory=asyncio.Event)

    async def write(self, seat: Seat) -> None:
        """Send without a pause."""

        async def one_after_the_other() -> None:
            while not self.is_over.is_set():
                await self._say(seat)

        await asyncio.gather(*(one_after_the_other() for _ in range(WINDOW)))

    async def _say(self, seat: Seat) -> None:
        key = new_key()
        spoken = self.spoken[key] = Spoken(seat, time.monotonic())
        payload = {"chat_id": self.chat_id, "client_message_id": key, "content": key}
        while True:
            answer = await seat.ask("send_message", payload)
            if answer["type"] == "send_message_ack":
                break
            assert answer["payload"]["code"] in RETRIED, answer
            self.retries += 1
        spoken.acked_s = time.monotonic()
        spoken.sequence = answer["payload"]["sequence"]

    async def acknowledge(self, seat: Seat) -> None:
        """Acknowledge and read messages while they arrive."""
        seen = 0
        while not self.is_over.is_set():
            if len(seat.messages) > seen:
                seen = len(seat.messages)
                newest = max(message["sequence"] for message in seat.messages)
                await seat.tell(self.chat_id, newest)
            await asyncio.sleep(0.05)

    async def come_and_go(self, seat: Seat, gateway: Member) -> None:
        """Be removed or leave, and be added again, in a loop."""
        user_id = seat.account.user_id
        members = f"/chats/{self.chat_id}/members"
        while not self.is_over.is_set():
            if len(self.stays[user_id]) % 2:
                await gateway.done("POST", f"/chats/{self.chat_id}/leave", by=seat.account)
            else:
                await gateway.done("DELETE", f"{members}/{user_id}", by=self.owner)
            out_s = time.monotonic()
            # Some messages are sent meanwhile.
            await once(self._words_from_now(20), "silence")
            self.stays[user_id].append(Stay(out_s, time.monotonic()))
            await gateway.done("POST", members, {"user_id": user_id}, by=self.owner)

    async def end_after(self, seconds: float, guests: list[Seat]) -> None:
        """End when the time is up or much has been said, and each guest has been out twice."""
        end_s = time.monotonic() + seconds
        await once(
            lambda: (
                (time.monotonic() > end_s or len(self.spoken) >= MESSAGES_MAX)
                and all(len(self.stays[seat.account.user_id]) > 1 for seat in guests)
            ),
            "the guests do not come and go",
        )
        self.is_over.set()

    def _words_from_now(self, count: int) -> Callable[[], bool]:
        wanted = len(self.spoken) + count
        return lambda: self.is_over.is_set() or len(self.spoken) >= wanted

    def of(self, seat: Seat) -> list[Spoken]:
        return [one for one in self.spoken.values() if one.seat is seat]

    def latest_s(self, seat: Seat) -> float:
        """The longest time from a message's answer to its push."""
        return max(at_s - self.spoken[key].acked_s for key, at_s in seat.heard_s.items())

    def wrongly_heard(self, seat: Seat) -> list[str]:
        """Messages that were sent after the answer to the guest's removal and arrived before the
        request to add the guest again. A guest who is back may read everything."""
        return [
            key
            for key, heard_s in seat.heard_s.items()
            for stay in self.stays[seat.account.user_id]
            if stay.out_s <= self.spoken[key].sent_s and heard_s <= stay.in_s
        ]


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def seated(
    stack: AsyncExitStack, cluster: Cluster, accounts: list[Account], chat_id: str
) -> list[Seat]:
    """Connect the devices, each at the next gateway."""
    phones = [
        await stack.enter_async_context(cluster.gateways[n % 2].phone(account))
        for n, account in enumerate(accounts)
    ]
    return [Seat(*pair, chat_id) for pair in zip(accounts, phones, strict=True)]


async def far_chat(cluster: Cluster, owner: Account, *others: Account) -> str:
    """A group of which one worker reads the messages, the other the changes of members: so the
    worker that pushes the messages is not told who has left. It has one message."""
    gateway = cluster.gateways[0]
    for _ in range(CHATS_TRIED_MAX):
        before = [await records_read(cluster, worker) for worker in cluster.workers]
        chat_id = await gateway.group(owner, *others[:-1])
        newcomer = {"user_id": others[-1].user_id}
        await gateway.done("POST", f"/chats/{chat_id}/members", newcomer, by=owner)
        first = {"client_message_id": new_key(), "content": "first"}
        await gateway.done("POST", f"/chats/{chat_id}/messages", first, by=owner)
        readers: list[int | None] = [None, None]
        async with asyncio.timeout(PATIENCE_S):
            while None in readers:
                for n, worker in enumerate(cluster.workers):
                    counts = zip(before[n], await records_read(cluster, worker), strict=True)
                    readers = [
                        n if now > then else known
                        for (then, now), known in zip(counts, readers, strict=True)
                    ]
        if readers[0] != readers[1]:
            return chat_id
    raise AssertionError("one worker reads both of every chat")


async def records_read(cluster: Cluster, worker: Member) -> list[float]:
    """How many records a worker has read: of messages, and of changes of members."""
    return [
        await metric_of(worker, "fanout_records_read_total", topic=cluster.topic_prefix + topic)
        for topic in (MESSAGES, MEMBERSHIPS)
    ]


async def once(is_so: Callable[[], bool], what: str) -> None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                if is_so():
                    return
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(what) from None


async def test_two_gateways_write_one_chat_while_members_come_and_go(
    cluster: Cluster, stack: AsyncExitStack
) -> None:
    accounts = await cluster.gateways[0].people(*(f"p{n}" for n in range(10)))
    owner = accounts[0]
    chat_id = await far_chat(cluster, *accounts)
    seats = await seated(stack, cluster, accounts, chat_id)
    writers, readers, guests = seats[:4], seats[4:6], seats[6:]
    for seat in seats:
        seat.watched = readers
    talk = Talk(chat_id, owner)
    await asyncio.gather(
        talk.end_after(SECONDS_MAX, guests),
        *(talk.write(seat) for seat in writers),
        *(talk.acknowledge(seat) for seat in seats),
        *(talk.come_and_go(seat, cluster.gateways[n % 2]) for n, seat in enumerate(guests)),
    )

    # One order, and nothing is missing in it.
    first, *stored = await readers[0].sync(chat_id)
    assert chained([first, *stored])
    assert first["sequence"] == FIRST
    assert len(stored) == len(talk.spoken)
    sequences = {message["client_message_id"]: message["sequence"] for message in stored}
    assert sequences == {key: one.sequence for key, one in talk.spoken.items()}
    assert in_order_of_time(talk.spoken.values())
    # The gateways conflicted, and the unused numbers are counted.
    assert await cluster.metric("durability_fences_failed_total") > 0
    holes = stored[-1]["sequence"] - len(stored) - FIRST
    assert await cluster.metric("durability_sequence_gaps_total") == holes

    # Members who stayed got everything, also the last messages of each gateway.
    for seat in [*writers, *readers]:
        wanted = {*sequences.values()} - {one.sequence for one in talk.of(seat)}
        await once(partial(seat.has_heard, len(wanted)), "a push is missing")
        assert seat.heard == wanted
    # A high load is no fault: no client had to sync again. On a machine with still more load,
    # pushes may be so late that clients are told to.
    are_in_time = max(map(talk.latest_s, [*writers, *readers])) < BEHIND_MS / 2000
    if are_in_time:
        assert await cluster.metric("gateway_resyncs_total") == 0
    # And they got it once. A relay publishes what the gateway has not published within 2 s, and
    # both may arrive; and if a worker stood still, the next one reads again what it had not
    # committed.
    if are_in_time and not await cluster.metric("outbox_relayed_total"):
        assert [len(seat.messages) - len(seat.heard) for seat in [*writers, *readers]] == [0] * 6
    # Guests got nothing from the time when they were out.
    for seat in guests:
        assert len(talk.stays[seat.account.user_id]) > 1
        assert talk.wrongly_heard(seat) == []

    # No tick has lied, none is taken back, and at the end all are blue.
    assert [seat.lies for seat in seats if seat.lies] == []
    head = stored[-1]["sequence"]
    for seat in seats:
        await seat.tell(chat_id, head)
    for seat in seats:
        await once(partial(seat.shows_blue, head), "a tick is not blue")
        digest = await seat.digest(chat_id)
        assert digest["head"] == digest["read"] == head
        assert digest["others_delivered"] >= digest["others_read"]
