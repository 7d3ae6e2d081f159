"""The workload `catch-up`: one client that is far behind in one chat."""

from time import perf_counter

from tidewire_bench.client import Client, ConnectFailed, Lost
from tidewire_bench.figures import Figures, Meter
from tidewire_bench.ledger import Stream
from tidewire_bench.target import LoadImpossible, Target
from tidewire_bench.workload import Maker, Outcome, Progress, Timing


class CatchUpLoad:
    """M messages in one direct chat; one of the two has none of them."""

    def __init__(self, count: int) -> None:
        self.name = f"catch-up {count}"
        self.connections = 1
        self._count = count

    async def prepare(self, maker: Maker) -> None:
        author, self._reader = await maker.people(2)
        (self._chat_id,) = await maker.direct([(author, self._reader)])
        await maker.fill([(self._chat_id, author)], self._count)

    async def measure(
        self, target: Target, timing: Timing, outcome: Outcome, progress: Progress
    ) -> Figures:
        client = Client(self._reader, outcome.errors)
        stream = Stream("the client", outcome.faults)
        meter = Meter(target)
        meter.start()
        try:
            await client.connect(target)
            async for page in client.pages(self._chat_id, 0):
                stream.take_all(page.messages)
                client.ack(self._chat_id, stream.last)
                progress("catching up", len(stream.numbers), self._count)
                if perf_counter() > meter.seconds + timing.give_up_s:
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
