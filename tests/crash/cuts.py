"""Power cuts by the thousand: `python -m tests.crash.cuts --cuts 2000 [--seed S]`.

The same as `make test` does with a few hundred. If there are faults, it prints them, keeps the
files, and ends with exit code 1.
"""

import argparse
import logging
import secrets
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.crash.lives import Story, survive
from tests.crash.power import tally


def summary(story: Story) -> str:
    """A summary of a run in a few lines."""
    return (
        f"{story.cuts} cuts and {story.kills} kills, {story.restarts} restarts of the log, "
        f"{story.found} unanswered sends stored after all; hit:\n{tally(story.hits)}\n"
        f"logs that were left:\n{tally(story.logs)}\n"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuts", type=int, default=300)
    parser.add_argument("--seed", default=secrets.token_hex(4))
    given = parser.parse_args()
    # A store that dies logs it every time; here that is expected.
    logging.disable()
    directory = Path(tempfile.mkdtemp(prefix="tidewire-cuts-"))
    sys.stdout.write(f"seed {given.seed}, files in {directory}\n")
    began = time.monotonic()

    def progress(story: Story) -> None:
        sys.stdout.write(f"\r{story.cuts} cuts, {time.monotonic() - began:.0f} s ")
        sys.stdout.flush()

    story, faults = survive(directory, given.seed, given.cuts, told=progress)
    sys.stdout.write("\n" + summary(story))
    for fault in faults:
        sys.stdout.write(f"FAULT {fault}\n")
    if not faults:
        shutil.rmtree(directory)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
