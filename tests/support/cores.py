"""How long a process was ready to run and had no core: what busy neighbours do to it, from /proc.

A test that bounds a duration subtracts this, and so measures the program instead of the machine.
Time that a process computes, sleeps or waits for a lock stays in. Where the kernel does not tell
(no `schedstat`), nothing is subtracted.
"""

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class CoreTime(NamedTuple):
    """What the scheduler has counted for a process since its start."""

    waited_ns: int
    """In which its main thread was ready and had no core."""
    others_ran_ns: int
    """In which its other threads had one."""


def core_time(pid: int) -> CoreTime:
    waited_ns = others_ran_ns = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        # A thread may end while we look.
        with suppress(OSError, ValueError):
            ran, waited, _ = map(int, (task / "schedstat").read_text().split())
            if task.name == str(pid):
                waited_ns = waited
            else:
                others_ran_ns += ran
    return CoreTime(waited_ns, others_ran_ns)


def kept_waiting_s(before: CoreTime, after: CoreTime) -> float:
    """How long other programs kept the main thread from a core between two looks.

    As much as its own threads have run may be their doing, and is not counted: a server that
    starves its own loop is slow by itself.
    """
    waited_ns = after.waited_ns - before.waited_ns
    own_ns = max(0, after.others_ran_ns - before.others_ran_ns)
    return max(0, waited_ns - own_ns) / 1e9
