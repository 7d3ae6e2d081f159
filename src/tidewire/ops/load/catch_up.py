"""The workload `catch-up`: one client that is far behind in one chat."""

from collections.abc import Sequence
from time import perf_counter

from tidewire.ops.load.client import Client, ConnectFailed, Lost
from tidewire.ops.load.figures import Figures, Meter
from tidewire.ops.load.frames import PushPart, number_of
from tidewire.ops.load.ledger import Stream
from tidewire.ops.load.target import LoadImpossible, Person, Target
from tidewire.ops.load.workload import Maker, Outcome, Progress, Timing


class CatchUpLoad:
    """M messages in one direct chat; one of the two has none of them."""

    def __init__(self, count: int) -> None:
        self.name = f"catch-up {count}"
        self.connections = 1
        self._count = count
        self._chat_id = ""
        self._reader: Person | None = None

    async def prepare(self, maker: Maker) -> None:
        author, self._reader = await maker.people(2)
        (self._chat_id,) = await maker.direct([(author, self._reader)])
        await maker.fill([(self._chat_id, author)], self._count)

    async def measure(
        self, target: Target, timing: Timing, outcome: Outcome, progress: Progress
    ) -> Figures:
        assert self._reader is not None
        client = Client(self._reader, outcome.errors)
        stream = Stream("the client", outcome.faults)
        meter = Meter(target)
        meter.start()
        try:
            await client.connect(target)
            head = client.heads.get(self._chat_id, 0)
            while stream.last < head and perf_counter() < meter.seconds + timing.give_up_s:
                page = await client.sync_page(self._chat_id, stream.last)
                _take(stream, page.messages)
                client.ack(self._chat_id, stream.last)
                progress("catching up", len(stream.numbers), self._count)
                if not page.has_more:
                    break
        except (ConnectFailed, Lost) as error:
            raise LoadImpossible(f"the client could not catch up: {error!r}") from error
        meter.stop()
        client.drop()
        if list(stream.numbers) != list(range(self._count)):
            outcome.faults.add(
                f"the client holds {len(stream.numbers)} messages, not all {self._count} in order"
            )
        figures = meter.figures(self.name, len(stream.numbers))
        figures.deliveries_per_s = None
        return figures


def _take(stream: Stream, messages: Sequence[PushPart]) -> None:
    for item in messages:
        stream.take(item.sequence, item.prev_sequence, number_of(item.client_message_id))
