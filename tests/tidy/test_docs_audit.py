"""docs/operations.md names every action of the audit trail: programs filter by them."""

import re

from tests.tidy.repository import ROOT
from tidewire.domain.audit import AuditAction


def told() -> set[str]:
    """The actions in the table of the page."""
    page = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    table = page.partition("| action | actor | target | when |\n")[2].partition("\n\n")[0]
    first_cells = [line.split("|")[1] for line in table.splitlines()]
    return set(re.findall(r"`([\w.]+)`", "".join(first_cells)))


def test_page_names_every_action_and_no_other() -> None:
    assert told() == {action.value for action in AuditAction}
