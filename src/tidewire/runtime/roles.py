"""What a process does: everything by itself, or its part of a cluster."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Role(StrEnum):
    SINGLE = "single"
    """One process on SQLite, nothing else needed."""
    ALL = "all"
    """A gateway and a fan-out worker of a cluster in one process."""
    GATEWAY = "gateway"
    """Serves clients, stores what they send, tells the event log."""
    FANOUT = "fanout"
    """Reads the event log and pushes. Serves nobody but probes."""

    @property
    def is_clustered(self) -> bool:
        return self is not Role.SINGLE

    @property
    def serves(self) -> bool:
        """It takes clients' connections."""
        return self is not Role.FANOUT

    @property
    def fans_out(self) -> bool:
        """It reads the event log."""
        return self in (Role.ALL, Role.FANOUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """This process's part in a cluster."""

    role: Role = Role.SINGLE
    """What this process does: everything by itself, or a part of a cluster."""
    token_key_file: Path | None = None
    """What tokens are signed with; the same for all gateways. Made if it is not there. None: a file
    in the data directory."""
