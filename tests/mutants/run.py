"""`make mutants`: put each fault into a copy of the code, run its tests, and list what survives.

A fault is noticed if its tests fail. One that survives shows a promise without a test. The exit
code is 1 if any survives.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path

from tests.mutants.faults import ROOT, Fault, load_faults

TIMEOUT_S = 300.0
PYTEST_FAILED = 1


class Verdict(StrEnum):
    NOTICED = "noticed"
    SURVIVED = "SURVIVED"
    UNCLEAR = "UNCLEAR"
    """The tests could not run at all, so nothing was shown."""


def try_fault(fault: Fault) -> tuple[Verdict, str]:
    """The verdict, and what pytest said last."""
    with tempfile.TemporaryDirectory(prefix="tidewire-mutant-") as directory:
        source = Path(directory) / "src"
        shutil.copytree(
            ROOT / "src" / "tidewire",
            source / "tidewire",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        file = source / "tidewire" / fault.file
        file.write_text(fault.applied_to(file.read_text(encoding="utf-8")), encoding="utf-8")
        return _run_tests(fault, source)


def _run_tests(fault: Fault, source: Path) -> tuple[Verdict, str]:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", "0"]
    # Before the installed path: processes that the tests start run the changed code as well.
    environment = os.environ | {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    if not fault.needs_stack:
        environment["STACK"] = "off"
    try:
        done = subprocess.run(
            [*command, *fault.tests],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Verdict.NOTICED, f"no end after {TIMEOUT_S:.0f} s"
    last = next((line for line in reversed(done.stdout.splitlines()) if "passed" in line), "")
    if done.returncode == os.EX_OK:
        return Verdict.SURVIVED, last
    if done.returncode == PYTEST_FAILED:
        failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
        return Verdict.NOTICED, failed[0] if failed else last
    return Verdict.UNCLEAR, done.stdout[-500:]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time (2)")
    parser.add_argument("--only", default="", help="faults whose name or file holds this text")
    parser.add_argument("--without-stack", action="store_true", help="leave the cluster's out")
    wanted = parser.parse_args(arguments)
    faults = [
        fault
        for fault in load_faults()
        if wanted.only in f"{fault.name} {fault.file}"
        and not (wanted.without_stack and fault.needs_stack)
    ]
    started_s = time.monotonic()
    with ThreadPoolExecutor(wanted.jobs) as pool:
        verdicts = []
        for fault, (verdict, said) in zip(faults, pool.map(try_fault, faults), strict=True):
            verdicts.append(verdict)
            print(f"{verdict:9} {fault.file}: {fault.name}", flush=True)
            if verdict is not Verdict.NOTICED:
                print(f"          {said}", flush=True)
    survived = sum(verdict is not Verdict.NOTICED for verdict in verdicts)
    print(
        f"\n{len(faults)} faults, {len(faults) - survived} noticed, {survived} not, "
        f"{time.monotonic() - started_s:.0f} s"
    )
    return 1 if survived else os.EX_OK


if __name__ == "__main__":
    sys.exit(main())
