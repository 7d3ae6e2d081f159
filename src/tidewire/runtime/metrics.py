"""The metrics for Prometheus: the planes' plain counters under their public names.

This module counts nothing. The planes count with plain integers, which costs the hot path next to
nothing; they are read when the page is requested. Names are those of the specification where they
fit; no label ever holds the id of a chat, a user, a message or a connection.

A table (`metrics.toml`) names the metrics of one object, one per entry (a line that begins with a
space continues it): `kind name value : help`. The value is an attribute of the object (a method is
called); with a label, `name{label}`, it is a mapping, or several attributes as `key=attribute`.
The Prometheus client is imported for the first page: a server starts without it.
"""

import asyncio
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib.resources import files
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidewire import __version__
from tidewire.domain.audit import AuditAction
from tidewire.domain.errors import ErrorCode
from tidewire.edge.rest.services import RestCounters
from tidewire.gateway.counters import GatewayCounters
from tidewire.runtime.audit import AuditRecorder

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector

LAG_INTERVAL_S: Final = 1.0
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
TABLES: Final[Mapping[str, str]] = tomllib.loads(
    files("tidewire.runtime").joinpath("metrics.toml").read_text("utf-8")
)
"""The tables of the planes and of the process; an engine has its own tables in its entry."""

_LIMITED: Final = (ErrorCode.RATE_LIMITED,)
_NOT_BELIEVED: Final = (
    ErrorCode.UNAUTHORIZED,
    ErrorCode.DEVICE_MISMATCH,
    ErrorCode.INVALID_CREDENTIALS,
    ErrorCode.INVALID_REFRESH_TOKEN,
)
_DENIED: Final = (ErrorCode.NOT_A_MEMBER, ErrorCode.FORBIDDEN)

Source = tuple[str, object]
"""A table and the object that it is about; None: this process has no such object."""


class LoopLag:
    """Measures the lag of the event loop: sets a timer each second and notes how late it fires."""

    def __init__(self) -> None:
        """Must be made on the event loop that it is to watch."""
        self.last_s = 0.0
        self.highest_s = 0.0
        """Since the start."""
        self._loop = asyncio.get_running_loop()
        self._due_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._due_at = self._loop.time() + LAG_INTERVAL_S
        self._timer = self._loop.call_at(self._due_at, self._called)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _called(self) -> None:
        self.last_s = max(0.0, self._loop.time() - self._due_at)
        self.highest_s = max(self.highest_s, self.last_s)
        self.start()


class ProcessNumbers:
    """The numbers of the process itself, for the table `process`."""

    versions: Final = {__version__: 1}

    def __init__(self, lag: LoopLag, failures_by_kind: Mapping[str, int]) -> None:
        self.lag = lag
        self.failures_by_kind = failures_by_kind
        """Requests that failed unexpectedly."""

    def tasks_count(self) -> int:
        """All tasks on the event loop, those of libraries included."""
        return len(asyncio.all_tasks())


class SecurityNumbers:
    """What several parts have refused, in sum, and audit records, for the table `security`."""

    def __init__(self, gateway: GatewayCounters, rest: RestCounters, trail: AuditRecorder) -> None:
        self.rest = rest
        self.trail = trail
        self._gateway = gateway

    def auth_failures(self) -> int:
        return sum(self._gateway.auth_failures_by_reason.values()) + _sum_of(
            self.rest.errors_sent_by_code, _NOT_BELIEVED
        )

    def rate_limits(self) -> int:
        handshakes = self._gateway.handshakes_refused_by_error.get("rate_limited", 0)
        return handshakes + self._refused(_LIMITED)

    def access_denied(self) -> int:
        return self._gateway.acks_not_a_member + self._refused(_DENIED)

    def audit_records(self) -> Mapping[str, int]:
        return {action.value: self.trail.counts[action] for action in AuditAction}

    def _refused(self, codes: Iterable[ErrorCode]) -> int:
        return _sum_of(self._gateway.errors_sent_by_code, codes) + _sum_of(
            self.rest.errors_sent_by_code, codes
        )


def _sum_of(counts: Mapping[Any, int], codes: Iterable[ErrorCode]) -> int:
    return sum(counts.get(code, 0) for code in codes)


def registry_of(collector: "Collector") -> "CollectorRegistry":
    """A registry of this collector alone."""
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry()
    registry.register(collector)
    return registry


class Metrics:
    """Renders the page for `/metrics`."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = [(entries_of(table), of) for table, of in sources if of is not None]

    @cached_property
    def _registry(self) -> "CollectorRegistry":
        from prometheus_client import ProcessCollector

        registry = registry_of(self)
        # CPU, memory and file handles of the process, from /proc.
        ProcessCollector(registry=registry)
        return registry

    def render(self) -> bytes:
        from prometheus_client import generate_latest

        return generate_latest(self._registry)

    async def page(self) -> bytes:
        """As `render`; async, because `SummedMetrics.page` has to ask other processes."""
        return self.render()

    def families(self) -> "Iterable[Metric]":
        """All metrics on the page."""
        return self._registry.collect()

    def describe(self) -> "Iterable[Metric]":
        """Nothing: the registry would otherwise collect once just to learn the names."""
        return ()

    def collect(self) -> "Iterator[Metric]":
        for entries, source in self._sources:
            for entry in entries:
                yield _family(entry, source)


class _Entry(NamedTuple):
    """An entry of a table. An attribute that is given without a key has the key ""."""

    kind: str
    name: str
    label: str
    attributes: Mapping[str, str]
    help_text: str


def entries_of(table: str) -> list[_Entry]:
    found = []
    for text in re.split(r"\n(?! )", table.strip()):
        head, _, help_text = " ".join(text.split()).partition(" : ")
        kind, name, *values = head.split()
        name, _, label = name.removesuffix("}").partition("{")
        pairs = (value.rpartition("=") for value in values)
        attributes = {key: attribute for key, _, attribute in pairs}
        found.append(_Entry(kind, name, label, attributes, help_text))
    return found


def _family(entry: _Entry, source: object) -> "Metric":
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily

    kind, name, label, attributes, help_text = entry
    values = {key: _value(source, attribute) for key, attribute in attributes.items()}
    value = values.get("", values)
    if kind == "histogram":
        return _histogram(name, help_text, value)
    if kind == "summary":
        return SummaryMetricFamily(
            name, help_text, count_value=values["count"], sum_value=values["sum"]
        )
    simple = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}
    family: CounterMetricFamily | GaugeMetricFamily = simple[kind](
        name, help_text, labels=[label] if label else None
    )
    for key, number in value.items() if label else (("", value),):
        family.add_metric([str(key)] if label else [], float(number))
    return family


def _value(source: object, attribute: str) -> Any:
    value = attrgetter(attribute)(source)
    return value() if callable(value) else value


def _histogram(name: str, help_text: str, histogram: Any) -> "Metric":
    """In the form that Prometheus wants: seconds, and counts of all values at or below a bound."""
    from prometheus_client.core import HistogramMetricFamily

    buckets, below = [], 0
    bounds = [str(bound / 1000) for bound in histogram.bounds]
    for bound, count in zip([*bounds, "+Inf"], histogram.counts, strict=True):
        below += count
        buckets.append((bound, float(below)))
    return HistogramMetricFamily(name, help_text, buckets=buckets, sum_value=histogram.total / 1000)
