"""One page of metrics for all processes of a server: counters and sizes are summed."""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from tidewire.runtime.metrics import Metrics, registry_of

if TYPE_CHECKING:
    from prometheus_client.core import Metric

Sample = tuple[str, dict[str, str], float]
Family = tuple[str, str, str, list[Sample]]
"""Name, help, kind and samples."""
Numbers = list[Family]

_HIGHEST: Final = frozenset(
    {
        "tidewire_info",
        "event_loop_lag_seconds",
        "event_loop_lag_max_seconds",
        "durability_batch_size",
        "process_start_time_seconds",
        "process_max_fds",
    }
)
"""Metrics that cannot be summed: the page shows the highest value."""
_GROWING: Final = ("counter", "histogram", "summary")


def numbers_of(metrics: Metrics) -> Numbers:
    """The metrics of one process, as plain values."""
    return [
        (
            family.name,
            family.documentation,
            family.type,
            [(sample.name, dict(sample.labels), float(sample.value)) for sample in family.samples],
        )
        for family in metrics.families()
    ]


def summed(pages: Iterable[Numbers]) -> Numbers:
    """All pages in one, in the order in which names appear first."""
    families: dict[str, tuple[str, str]] = {}
    values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for page in pages:
        for name, help_text, kind, samples in page:
            families.setdefault(name, (help_text, kind))
            known = values.setdefault(name, {})
            for sample, labels, value in samples:
                key = (sample, tuple(labels.items()))
                if name in _HIGHEST:
                    known[key] = max(known.get(key, value), value)
                else:
                    known[key] = known.get(key, 0.0) + value
    return [
        (
            name,
            *families[name],
            [(sample, dict(labels), value) for (sample, labels), value in known.items()],
        )
        for name, known in values.items()
    ]


class SummedMetrics:
    """The page of all processes. The last known counts of a gateway that has ended stay in the
    sums, so that a counter does not go back."""

    def __init__(
        self, own: Metrics, ask_gateways: Callable[[], Awaitable[dict[int, Numbers]]]
    ) -> None:
        self._own = own
        self._ask_gateways = ask_gateways
        self._last: dict[int, Numbers] = {}
        self._gone: Numbers = []
        self._page: Numbers = []

    async def page(self) -> bytes:
        from prometheus_client import generate_latest

        self._last.update(await self._ask_gateways())
        self._page = summed([numbers_of(self._own), self._gone, *self._last.values()])
        return generate_latest(registry_of(self))

    def gone(self, gateway: int) -> None:
        """This gateway has ended: keep its counters."""
        last = self._last.pop(gateway, [])
        growing = [family for family in last if family[2] in _GROWING]
        self._gone = summed([self._gone, growing])

    def describe(self) -> "Iterable[Metric]":
        return ()

    def collect(self) -> "Iterator[Metric]":
        from prometheus_client.core import Metric

        for name, help_text, kind, samples in self._page:
            family = Metric(name, help_text, kind)
            for sample, labels, value in samples:
                family.add_sample(sample, labels, value)
            yield family
