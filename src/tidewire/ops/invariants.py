"""Every invariant that Tidewire must hold, in one list: `invariants.toml` beside this module.

Those of the specification come first, name for name: ADR-001 appendix C, ADR-004 appendix C,
ADR-008 appendix E. Then come those that our own promises add. Each entry is
- state: visible in a store. `checks.py` and `change_checks.py` check it for `tidewire verify`;
- trace: needs a history of requests and answers. `tests/support/trace.py` checks it;
- non-claim: says what is not promised, so there is nothing to check.
Where `instead` is set, the specification contradicts itself or another part of it; `instead` says
what we hold in its place, and why.
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
    """For a state: what its check counts, as named in `verify.Counts`."""


_LIST: Final = files("tidewire.ops").joinpath("invariants.toml").read_text("utf-8")

BY_NAME: Final = {
    name: msgspec.convert({"name": name, **entry}, Invariant)
    for name, entry in tomllib.loads(_LIST).items()
}

INVARIANTS: Final = tuple(BY_NAME.values())


def names_of(kind: Kind) -> tuple[str, ...]:
    """The names of one kind, in the order of the list."""
    return tuple(invariant.name for invariant in INVARIANTS if invariant.kind is kind)
