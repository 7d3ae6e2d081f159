"""What neighbours take from a process is told apart from what it takes itself."""

import os
import subprocess
import sys

from tests.support.cores import CoreTime, core_time, kept_waiting_s

RAN_S = 0.5
COMPUTE = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
while time.process_time() < float(sys.argv[2]):
    pass
print("done", flush=True)
input()
"""


def test_own_threads_are_no_neighbours() -> None:
    before = CoreTime(waited_ns=1_000_000_000, others_ran_ns=500_000_000)
    after = CoreTime(waited_ns=1_400_000_000, others_ran_ns=600_000_000)
    assert kept_waiting_s(before, after) == 0.3
    assert kept_waiting_s(before, after._replace(others_ran_ns=3_000_000_000)) == 0.0
    # A thread that has ended is not counted any more.
    assert kept_waiting_s(before, after._replace(others_ran_ns=0)) == 0.4


def test_two_processes_on_one_core_wait_for_each_other() -> None:
    core = min(os.sched_getaffinity(0))
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", COMPUTE, str(core), str(RAN_S)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == b"done\n"
        nothing = CoreTime(0, 0)
        waits_s = [kept_waiting_s(nothing, core_time(process.pid)) for process in processes]
    finally:
        for process in processes:
            process.communicate(b"\n")
    assert sum(waits_s) > RAN_S / 2
