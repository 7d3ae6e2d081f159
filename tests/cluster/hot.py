"""Several gateways that write into one chat as fast as they can, and the results. Holds no test.

`python -m tests.cluster.hot --gateways 1,2,3,5,1` prints the rate of each turn, which has so many
gateways. The six writers are the same each time, with six messages in flight each.
"""

import argparse
import asyncio
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from tests.cluster.running import Cluster, Member, metric_of, running
from tests.e2e.chatting import Account, Frame, HungUp, Phone, new_key

ANSWER_S_MAX = 15.0
COUNTED = (
    "durability_fences_failed_total",
    "durability_sequence_gaps_total",
    "dynamodb_requests_total",
)


class Timed(Protocol):
    """A message with its answer."""

    sent_s: float
    acked_s: float
    sequence: int


def in_order_of_time(spoken: Iterable[Timed]) -> bool:
    """Whether each message that was sent after another's ack also has a higher sequence."""
    by_ack = sorted(spoken, key=lambda one: one.acked_s)
    highest = done = 0
    for one in sorted(by_ack, key=lambda one: one.sent_s):
        while by_ack[done].acked_s < one.sent_s:
            highest = max(highest, by_ack[done].sequence)
            done += 1
        if one.sequence <= highest:
            return False
    return True


@dataclass
class Said:
    """A message as its writer knows it: its line, and its number in that line."""

    line: int
    number: int
    sent_s: float
    acked_s: float
    sequence: int


@dataclass
class Outcome:
    """The answers that writers got within a time."""

    seconds: float
    said: dict[str, Said] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    fences_failed: float = 0
    unused: float = 0
    requests: float = 0
    """All requests to the database: a number that does not depend on how busy the machine is."""

    @property
    def rate(self) -> float:
        return len(self.said) / self.seconds

    @property
    def unused_share(self) -> float:
        return self.unused / max(1.0, len(self.said) + self.unused)

    @property
    def is_in_order(self) -> bool:
        """Whether messages are in order of time, and those of one connection in its own order."""
        lines: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for one in self.said.values():
            lines[one.line].append((one.number, one.sequence))
        return in_order_of_time(self.said.values()) and all(
            sorted(line) == sorted(line, key=lambda pair: pair[1]) for line in lines.values()
        )

    def silence_s(self, lines: Collection[int], from_s: float) -> float:
        """The longest time from `from_s` on in which the writer of one of these lines got no
        answer."""
        longest_s = 0.0
        for line in lines:
            acks = sorted(one.acked_s for one in self.said.values() if one.line == line)
            times = [from_s, *(acked_s for acked_s in acks if acked_s > from_s)]
            longest_s = max([longest_s, *(b - a for a, b in pairwise(times))])
            assert len(times) > 1, f"line {line} got no answer any more"
        return longest_s

    def __str__(self) -> str:
        took = sorted(one.acked_s - one.sent_s for one in self.said.values())
        return (
            f"{self.rate:.0f} messages/s, {sum(self.refused.values())} refused, "
            f"{self.unused_share:.1%} numbers unused, {self.fences_failed:.0f} fences lost, "
            f"{self.requests / max(1, len(self.said)):.2f} requests a message, "
            f"ack p50 {took[len(took) // 2]:.2f} s, p99 {took[len(took) * 99 // 100]:.2f} s"
        )


class Writer:
    """One connection that always has `window` messages of one chat in flight."""

    def __init__(self, number: int, account: Account, gateway: Member, window: int) -> None:
        self.gateway = gateway
        self.number = number
        self._sent_count = 0
        self._account = account
        self._window = window
        self._answers: dict[str, asyncio.Future[Frame]] = {}
        self._phone: Phone | None = None

    async def connect(self, stack: AsyncExitStack) -> None:
        self._phone = await stack.enter_async_context(self.gateway.phone(self._account))
        self._phone.on_frame = self._take

    def _take(self, frame: Frame) -> None:
        answer = self._answers.pop(frame.get("request_id", ""), None)
        if answer is not None and not answer.done():
            answer.set_result(frame)
        assert self._phone is not None
        self._phone.inbox.clear()

    async def write(self, chat_id: str, until: asyncio.Event, outcome: Outcome) -> None:
        """Write until it is over, the gateway is gone, or a message was refused."""
        await asyncio.gather(
            *(self._one_by_one(chat_id, until, outcome) for _ in range(self._window))
        )

    async def _one_by_one(self, chat_id: str, until: asyncio.Event, outcome: Outcome) -> None:
        assert self._phone is not None
        while not until.is_set() and self.gateway.is_running:
            key, request_id, sent_s = new_key(), new_key(), time.monotonic()
            self._sent_count += 1
            number = self._sent_count
            answer = asyncio.get_running_loop().create_future()
            self._answers[request_id] = answer
            payload = {"chat_id": chat_id, "client_message_id": key, "content": key}
            try:
                await self._phone.post("send_message", payload, request_id)
                async with asyncio.timeout(ANSWER_S_MAX):
                    frame = await answer
            except (HungUp, OSError, TimeoutError):
                if self.gateway.is_running:
                    outcome.refused["no answer"] += 1
                return
            if frame["type"] == "send_message_ack":
                sequence = frame["payload"]["sequence"]
                acked_s = time.monotonic()
                outcome.said[key] = Said(self.number, number, sent_s, acked_s, sequence)
            else:
                # The line is closed until this message is sent again, which this writer does not.
                outcome.refused[frame["payload"]["message"]] += 1
                return


async def seated(
    stack: AsyncExitStack, gateways: Sequence[Member], accounts: Sequence[Account], window: int
) -> list[Writer]:
    """Connect the writers, each at the next gateway."""
    writers = [
        Writer(number, account, gateways[number % len(gateways)], window)
        for number, account in enumerate(accounts)
    ]
    for writer in writers:
        await writer.connect(stack)
    return writers


async def contend(
    cluster: Cluster,
    writers: Sequence[Writer],
    chat_id: str,
    seconds: float,
    meanwhile: Callable[[], Awaitable[None]] | None = None,
) -> Outcome:
    """Let all writers write for `seconds`, and as long again after `meanwhile`, if given."""
    gateways = [one for one in cluster.gateways if one.is_running]
    before = [sum([await metric_of(one, name) for one in gateways]) for name in COUNTED]
    is_over = asyncio.Event()
    began_s = time.monotonic()
    outcome = Outcome(seconds)
    writing = [asyncio.create_task(one.write(chat_id, is_over, outcome)) for one in writers]
    await asyncio.sleep(seconds)
    if meanwhile is not None:
        await meanwhile()
        await asyncio.sleep(seconds)
    is_over.set()
    await asyncio.gather(*writing)
    outcome.seconds = time.monotonic() - began_s
    gateways = [one for one in gateways if one.is_running]
    after = [sum([await metric_of(one, name) for one in gateways]) for name in COUNTED]
    outcome.fences_failed, outcome.unused, outcome.requests = (
        now - then for now, then in zip(after, before, strict=True)
    )
    return outcome


async def _measure(cluster: Cluster, turns: Sequence[int], seconds: float) -> None:
    accounts = await cluster.gateways[0].people(*(f"p{number}" for number in range(6)))
    for count in turns:
        async with AsyncExitStack() as stack:
            chat_id = await cluster.gateways[0].group(*accounts)
            writers = await seated(stack, cluster.gateways[:count], accounts, 6)
            # First a time in which the gateways learn which of them writes.
            await contend(cluster, writers, chat_id, 1.5)
            print(count, await contend(cluster, writers, chat_id, seconds), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gateways", default="1,2,3,5,1", help="of each turn")
    parser.add_argument("--seconds", type=float, default=5.0, help="a turn")
    options = parser.parse_args()
    turns = [int(one) for one in options.gateways.split(",")]
    with (
        tempfile.TemporaryDirectory() as directory,
        running(Path(directory), gateways=max(turns), workers=1) as cluster,
    ):
        asyncio.run(_measure(cluster, turns, options.seconds))
        cluster.verify()


if __name__ == "__main__":
    main()
