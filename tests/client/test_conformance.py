"""Our client does what the contract asks, and no check of that is empty.

Goal: every check passes with our client, and fails with the client that breaks its duty. Method:
the kit against our client, then against each mutant. `make test` runs each mutant against its own
check; CONFORMANCE_MATRIX=1 runs each against all checks, which takes some minutes: it must fail its
own and pass the others. Slow: most duties are about time.
"""

import os

import pytest

from tests.support.client_mutants import MUTANTS, Mutant
from tidewire.client.conformance import ALL, Level, run_conformance
from tidewire.client.conformance.sdk import SdkAdapter

IS_MATRIX_WANTED = os.environ.get("CONFORMANCE_MATRIX") == "1"
MUTANT_PATIENCE_S = 2.0
"""A mutant that never does what is awaited is not waited for as long as a slow client."""
STILL_WORKS = ("MS-01", "MR-01", "MR-05")
"""A mutant still sends, receives and fetches: it breaks its rule, and is not just broken."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


async def test_our_client_conforms() -> None:
    report = await run_conformance(SdkAdapter)
    assert not report.failed, f"\n{report}"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
async def test_mutant_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.apply(monkeypatch)
    if IS_MATRIX_WANTED:
        report = await run_conformance(SdkAdapter)
        expected = {mutant.duty, *mutant.also_breaks}
    else:
        only = {mutant.duty, *STILL_WORKS}
        report = await run_conformance(SdkAdapter, only=only, patience_s=MUTANT_PATIENCE_S)
        expected = {mutant.duty}
    assert {result.check.id for result in report.failed} == expected, f"\n{report}"


def test_each_duty_has_a_check_and_a_mutant() -> None:
    duties = {
        Level.MUST: "CL-01 CL-02 CL-03 CL-04 CL-05 CL-06 MS-01 MS-02 MS-03 MS-04 MS-05 MS-06 "
        "MR-01 MR-02 MR-03 MR-04 AK-01 AK-02 AK-03 AK-04 AK-05 RS-01 RS-02 RS-03 RS-04 "
        "EH-01 EH-02 EH-03 EH-04",
        Level.SHOULD: "CL-07 CL-08 MS-07 MR-05 AK-06 RS-05 EH-05",
    }
    for level, ids in duties.items():
        of_contract = [c.id for c in ALL.values() if c.level is level and c.id[:2] != "TW"]
        assert sorted(of_contract) == sorted(ids.split())
    assert {mutant.duty for mutant in MUTANTS} == set(ALL)
