"""The interface of every workload: it needs people and chats, and then measures."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tidewire_bench.figures import Figures
from tidewire_bench.ledger import Faults
from tidewire_bench.target import Person, Target

Progress = Callable[[str, int, int | None], None]
"""`progress(stage, done, total)`: for a bar on a terminal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long the parts of a run take. The defaults are the workloads' definition."""

    warm_up_s: float = 2.0
    measured_s: float = 10.0
    give_up_s: float = 60.0
    """How long stragglers are waited for."""


@dataclass(slots=True)
class Outcome:
    """What a run collects on its way."""

    faults: Faults = field(default_factory=Faults)
    errors: Counter[str] = field(default_factory=Counter)
    """What went wrong and was handled, by kind."""
    is_at_least_once: bool = False
    """Pushes may come again and out of order, as those of a cluster."""
    repeats: int = 0
    """How many pushes came again."""


class Maker(Protocol):
    """Makes what a workload needs, before it begins."""

    async def people(self, count: int) -> list[Person]: ...

    async def direct(self, pairs: Sequence[tuple[Person, Person]]) -> list[str]:
        """The direct chats of these pairs, in this order."""
        ...

    async def group(self, owner: Person, others: Sequence[Person]) -> str: ...

    async def fill(self, chats: Sequence[tuple[str, Person]], count: int) -> None:
        """Store `count` messages, numbered from 0, in each chat, by this author."""
        ...


class Workload(Protocol):
    """One of `pairs`, `changes`, `group`, `idle`, `storm`, `catch-up`."""

    @property
    def name(self) -> str: ...

    @property
    def connections(self) -> int:
        """How many connections there are at the same time."""
        ...

    async def prepare(self, maker: Maker) -> None: ...

    async def measure(
        self, target: Target, timing: Timing, outcome: Outcome, progress: Progress
    ) -> Figures: ...
