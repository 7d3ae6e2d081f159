"""Ports for servers that are stopped and come back at their address. Holds no test."""

import fcntl
import os
import socket
import tempfile
from functools import cache
from io import TextIOWrapper
from itertools import cycle
from pathlib import Path
from typing import Final

LOWEST: Final = 20_000
"""Above what programs have for their own, and what browsers refuse to talk to."""
SLOT_PORTS: Final = 128
"""More than a test needs before its first port is given again."""
ANY: Final = 0
SLOTS: Final = Path(tempfile.gettempdir()) / f"tidewire-test-ports-{os.getuid()}"

_held: Final[list[TextIOWrapper]] = []


def free_port() -> int:
    """A port that stays free while no server listens there: below those that the system gives to
    programs that ask for any, and of a slot that no other process of tests chooses from. Where the
    system gives nearly all, it has to be one of them."""
    for _ in range(SLOT_PORTS):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", next(_own_ports())))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise AssertionError(f"none of {SLOT_PORTS} ports is free")


@cache
def _own_ports() -> "cycle[int]":
    """Those of the first slot that no other process has; this one has it until it ends."""
    system = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
    SLOTS.mkdir(exist_ok=True)
    for first in range(LOWEST, int(system.split()[0]) - SLOT_PORTS, SLOT_PORTS):
        slot = (SLOTS / str(first)).open("w")
        try:
            fcntl.flock(slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            slot.close()
            continue
        _held.append(slot)
        return cycle(range(first, first + SLOT_PORTS))
    return cycle([ANY])
