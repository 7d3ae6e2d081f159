"""`python -m tidewire_conformance`: checks our client, or the one that a program drives.

Prints one line per check, and exits with 1 if a MUST is broken.
"""

import argparse
import asyncio
import shlex
import sys

from tidewire_conformance.adapter import Adapter
from tidewire_conformance.checks import ALL
from tidewire_conformance.lines import LinesAdapter
from tidewire_conformance.runner import PARALLEL, run_conformance
from tidewire_conformance.sdk import TIME_SCALE, SdkAdapter


def main(
    arguments: list[str] | None = None, *, program: str = "python -m tidewire_conformance"
) -> int:
    parser = argparse.ArgumentParser(
        prog=program,
        description="See whether a client does what the contract asks of it.",
    )
    parser.add_argument(
        "--command", help="the program that drives the client, speaking JSON lines; default: ours"
    )
    parser.add_argument(
        "--time-scale",
        type=float,
        help=f"what the client's own waits are multiplied with (ours: {TIME_SCALE}, others: 1)",
    )
    parser.add_argument("--only", nargs="+", metavar="ID", choices=ALL, help="these checks only")
    parser.add_argument(
        "--patience", type=float, metavar="SECONDS", help="how long to wait for what has to come"
    )
    parser.add_argument("--parallel", type=int, default=PARALLEL, help="checks at the same time")
    parser.add_argument(
        "--no-features",
        action="store_true",
        help="play an old server, which turns on nothing that the client offers",
    )
    parser.add_argument("--list", action="store_true", help="say what each check sees, and end")
    given = parser.parse_args(arguments)
    if given.list:
        for check in ALL.values():
            sys.stdout.write(f"{check.id}  {check.level}  {check.title}\n  {check.explanation}\n")
        return 0

    def adapter() -> Adapter:
        if given.command is None:
            return SdkAdapter(time_scale=given.time_scale or TIME_SCALE)
        return LinesAdapter(shlex.split(given.command), time_scale=given.time_scale or 1.0)

    report = asyncio.run(
        run_conformance(
            adapter,
            only=given.only,
            patience_s=given.patience,
            parallel=given.parallel,
            has_features=not given.no_features,
        )
    )
    sys.stdout.write(f"{report}\n")
    return 0 if report.conforms else 1


if __name__ == "__main__":
    sys.exit(main())
