"""Ports for servers that are stopped and started again at the same address. Holds no test."""

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
"""Above the well-known ports of programs, and the ports that browsers refuse to connect to."""
SLOT_PORTS: Final = 128
"""More than a test needs; after so many ports the first one is given out again."""
ANY: Final = 0
SLOTS: Final = Path(tempfile.gettempdir()) / f"tidewire-test-ports-{os.getuid()}"

_held: Final[list[TextIOWrapper]] = []


def free_port() -> int:
    """A port that stays free while no server listens there: below the system's ephemeral ports, and
    in a slot that no other test process chooses from. Where nearly all ports are ephemeral, it has
    to be one of them."""
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
    """The ports of the first slot that no other process has; this process keeps it to its end."""
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
