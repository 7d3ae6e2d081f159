"""How long a process was ready to run but had no CPU core, because others were busy; from /proc.

A test that bounds a duration subtracts this, and so measures the program instead of the machine.
Time in which a process computes, sleeps or waits for a lock is not subtracted. Where the kernel
does not tell (no `schedstat`), nothing is subtracted.
"""

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class CoreTime(NamedTuple):
    """What the scheduler has counted for a process since its start."""

    waited_ns: int
    """Time in which its main thread was ready and had no core."""
    others_ran_ns: int
    """Time in which its other threads had a core."""


def core_time(pid: int) -> CoreTime:
    waited_ns = others_ran_ns = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        # A thread may end while this reads its file.
        with suppress(OSError, ValueError):
            ran, waited, _ = map(int, (task / "schedstat").read_text().split())
            if task.name == str(pid):
                waited_ns = waited
            else:
                others_ran_ns += ran
    return CoreTime(waited_ns, others_ran_ns)


def kept_waiting_s(before: CoreTime, after: CoreTime) -> float:
    """How long other programs kept the main thread from a core between two measurements.

    The process's own other threads may cause as much of the wait as they have run; that part is
    not counted: a server that starves its own loop is slow by itself.
    """
    waited_ns = after.waited_ns - before.waited_ns
    own_ns = max(0, after.others_ran_ns - before.others_ran_ns)
    return max(0, waited_ns - own_ns) / 1e9
