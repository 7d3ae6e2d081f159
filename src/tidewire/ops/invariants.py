"""Every invariant that Tidewire is measured by, in one list: `invariants.toml` beside this module.

Those of the specification come first, name for name: ADR-001 appendix C, ADR-004 appendix C,
ADR-008 appendix E. Then comes what our own promises add. Each entry is
- state: can be seen in a store. `ops/checks.py` checks it, `tidewire verify` runs it;
- trace: needs a history of what was asked and answered. `tests/support/trace.py` checks it;
- non-claim: says what is not promised, so there is nothing to check.
Where `instead` is set, the specification contradicts itself or another part of it, and that is what
we hold in its place, and why.
"""

import tomllib
from enum import StrEnum
from importlib.resources import files
from typing import Final

import msgspec


class Kind(StrEnum):
    STATE = "state"
    TRACE = "trace"
    NON_CLAIM = "non-claim"


class Invariant(msgspec.Struct, frozen=True):
    name: str
    source: str
    kind: Kind
    statement: str
    instead: str | None = None
    per: str = "chats"
    """Of a state: what one item of its check is, as `verify.Counts` calls it."""


_LIST: Final = files("tidewire.ops").joinpath("invariants.toml").read_text("utf-8")

BY_NAME: Final = {
    name: msgspec.convert({"name": name, **entry}, Invariant)
    for name, entry in tomllib.loads(_LIST).items()
}

INVARIANTS: Final = tuple(BY_NAME.values())


def names_of(kind: Kind) -> tuple[str, ...]:
    """The names of one kind, in the order of the list."""
    return tuple(invariant.name for invariant in INVARIANTS if invariant.kind is kind)
