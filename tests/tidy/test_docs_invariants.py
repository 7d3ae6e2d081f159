"""docs/guarantees.md lists every invariant as ops/invariants.py has it, no more and no less."""

from tests.support.trace import CHECKS
from tests.tidy.repository import ROOT
from tidewire.ops.invariants import INVARIANTS, Kind

PAGE = ROOT / "docs/guarantees.md"


def table() -> str:
    """The table of all invariants: name, source, kind, where it is checked, what it says."""
    rows = [
        f"| `{one.name}` | {one.source} | {one.kind} | {_where(one.name, one.kind)} "
        f"| {one.statement} |"
        for one in INVARIANTS
    ]
    return "\n".join(["| name | from | kind | checked by | says |", "|---|---|---|---|---|", *rows])


def differences() -> str:
    """What we hold in place of what the specification says, and why."""
    rows = [f"| `{one.name}` | {one.instead} |" for one in INVARIANTS if one.instead]
    return "\n".join(["| name | what we hold, and why |", "|---|---|", *rows])


def _where(name: str, kind: Kind) -> str:
    match kind:
        case Kind.STATE:
            return "`tidewire verify`"
        case Kind.TRACE:
            check = CHECKS[name]
            return f"`{check.__module__.rpartition('.')[2]}.{check.__name__}`"
        case Kind.NON_CLAIM:
            return "nothing to check"


def test_page_has_the_table_of_all_invariants() -> None:
    assert table() in PAGE.read_text(encoding="utf-8"), (
        f"docs/guarantees.md does not have this table of invariants:\n{table()}"
    )


def test_page_has_the_differences_from_the_specification() -> None:
    assert differences() in PAGE.read_text(encoding="utf-8"), (
        f"docs/guarantees.md does not have this table of differences:\n{differences()}"
    )


def test_table_has_a_row_for_every_invariant() -> None:
    lines = table().splitlines()
    assert len(lines) == len(INVARIANTS) + 2
    assert all(line.count("|") == lines[0].count("|") for line in lines), "a cell holds a bar"
