"""Our client does what the contract asks, and no check of that is empty.

Goal: every check passes with our client, and fails with the client that breaks its duty. Method:
the kit against our client, then against each mutant. `make test` runs each mutant against its own
check; CONFORMANCE_MATRIX=1 runs each against all checks, which takes some minutes: it must fail its
own and pass the others. Slow: most duties are about time.
"""

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest

from tests.support.client_mutants import MUTANTS, Mutant, holding, talking
from tidewire_conformance import ALL, Level, Report, run_conformance
from tidewire_conformance.__main__ import main
from tidewire_conformance.lines import LinesAdapter
from tidewire_conformance.sdk import TIME_SCALE, SdkAdapter
from tidewire_conformance.server import PlayedServer
from tidewire_conformance.stage import Stage

IS_MATRIX_WANTED = os.environ.get("CONFORMANCE_MATRIX") == "1"
DUTY_ROW = re.compile(r"\| [A-Z]{2}-\d\d \|")
MUTANT_PATIENCE_S = 1.5
"""A mutant that never does what is awaited is not waited for as long as a slow client."""
MUTANT_TRIES_MAX = 3
STILL_WORKS = ("MS-01", "MR-01", "MR-05")
"""A mutant still sends, receives and fetches: it breaks its rule, and is not just broken."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.mark.parametrize("has_features", [True, False], ids=["new server", "old server"])
async def test_our_client_conforms(*, has_features: bool) -> None:
    """Also beside a server that knows no features: it is sent bare frames, and sends them."""
    report = await run_conformance(SdkAdapter, has_features=has_features)
    assert not report.failed, f"\n{report}"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
async def test_mutant_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.apply(monkeypatch)
    if IS_MATRIX_WANTED:
        report = await run_conformance(SdkAdapter)
        expected = {mutant.duty, *mutant.also_breaks}
        assert {result.check.id for result in report.failed} == expected, f"\n{report}"
        return
    own, others = await asyncio.gather(
        _failed_once(mutant.duty),
        run_conformance(SdkAdapter, only={*STILL_WORKS} - {mutant.duty}),
    )
    assert own.failed, f"\n{own}"
    assert not others.failed, f"\n{others}"


async def _failed_once(duty: str, tries: int = MUTANT_TRIES_MAX) -> Report:
    """A busy machine makes a client slow that is too quick: then it is looked at again."""
    report = await run_conformance(SdkAdapter, only={duty}, patience_s=MUTANT_PATIENCE_S)
    return report if report.failed or tries == 1 else await _failed_once(duty, tries - 1)


async def test_client_behind_a_program_conforms() -> None:
    """The same by JSON lines, with a real SIGKILL; some checks only."""
    command = [sys.executable, "-m", "tidewire_conformance.child"]
    report = await run_conformance(
        lambda: LinesAdapter(command, time_scale=TIME_SCALE),
        only={"MS-04", "MS-06", "AK-03", "EH-05"},
    )
    assert not report.failed, f"\n{report}"
    assert len(report.results) == 4


def test_command_ends_with_one_when_a_must_is_broken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--only", "MS-06", "MR-05"]
    assert main(arguments) == 0
    assert "1 of 1 MUST, 1 of 1 SHOULD: conforms" in capsys.readouterr().out
    with monkeypatch.context() as broken:
        holding.waits_for_the_missing(broken)
        assert main([*arguments, "--patience", "3"]) == 0
        assert "1 of 1 MUST, 0 of 1 SHOULD: conforms" in capsys.readouterr().out
    talking.any_size_is_sent(monkeypatch)
    assert main(arguments) == 1
    assert "it took a text of 0 bytes" in capsys.readouterr().out


async def test_short_patience_is_not_for_getting_ready() -> None:
    """A slow machine would break every check before it has looked at its own duty."""
    server, adapter = PlayedServer(), SdkAdapter()
    await server.open()
    try:
        await Stage(server, adapter, patience_s=0.0).begin()
    finally:
        await adapter.dispose()
        await server.close()


async def test_client_that_does_not_even_start_fails() -> None:
    report = await run_conformance(lambda: LinesAdapter(["false"]), only={"MS-01"})
    assert not report.conforms
    assert "ProgramFailed" in str(report)


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


def test_document_lists_every_duty() -> None:
    document = (Path(__file__).parents[2] / "docs/conformance.md").read_text(encoding="utf-8")
    rows = [line for line in document.splitlines() if DUTY_ROW.match(line)]
    assert rows == [f"| {check.id} | {check.level} | {check.title} |" for check in ALL.values()]
