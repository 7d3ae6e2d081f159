"""Ports for servers that are stopped and come back at their address. Holds no test."""

import socket
from pathlib import Path
from random import SystemRandom
from typing import Final

LOWEST: Final = 20_000
"""Above what programs have for their own, and what browsers refuse to talk to."""
TRIES: Final = 100
ANY: Final = 0


def free_port() -> int:
    """A port that stays free while no server listens there: below those that the system gives to
    programs that ask for any. Of those another test's server may get the one that is needed again;
    where the system gives nearly all, it has to be one of them."""
    system = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
    own = range(LOWEST, int(system.split()[0]))
    # Tests that run beside this one must not choose the same: no seed that they share decides.
    for port in SystemRandom().sample(own, TRIES) if len(own) >= TRIES else [ANY]:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise AssertionError(f"none of {TRIES} ports is free")
