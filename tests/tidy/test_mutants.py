"""The list of deliberate faults fits the code: each can still be put in, and names its tests."""

import ast

import pytest

from tests.mutants.faults import ROOT, Fault, load_faults

FAULTS = load_faults()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.file}: {fault.name}")
def test_fault_can_be_put_in(fault: Fault) -> None:
    changed = fault.applied_to(fault.path.read_text(encoding="utf-8"))
    ast.parse(changed)
    assert fault.tests
    for test in fault.tests:
        assert (ROOT / test.partition("::")[0]).exists(), test


def test_list_is_long_enough_and_names_no_fault_twice() -> None:
    names = [(fault.file, fault.name) for fault in FAULTS]
    assert len(set(names)) == len(names)
    assert len(names) >= 60


def test_fault_whose_text_is_gone_is_told() -> None:
    fault = Fault(name="x", file="y.py", before="gone", after="", tests=["tests"])
    with pytest.raises(ValueError, match="0 times"):
        fault.applied_to("something else")
