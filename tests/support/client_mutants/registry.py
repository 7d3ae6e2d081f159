"""The list of mutants, in the order in which they are written. Holds no test."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

Patch = pytest.MonkeyPatch
Apply = Callable[[Patch], None]


@dataclass(frozen=True)
class Mutant:
    """`also_breaks`: other duties that cannot be kept without this one, each with the reason."""

    duty: str
    apply: Apply
    also_breaks: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.duty}-{self.apply.__name__}"


MUTANTS: list[Mutant] = []


def mutant(duty: str, **also_breaks: str) -> Callable[[Apply], Apply]:
    def register(apply: Apply) -> Apply:
        named = {name.replace("_", "-"): reason for name, reason in also_breaks.items()}
        MUTANTS.append(Mutant(duty, apply, named))
        return apply

    return register
