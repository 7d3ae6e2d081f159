"""The source of ids."""

import secrets
from random import Random

from tidewire.domain.ids import UlidSource


def id_source() -> UlidSource:
    """A source of ids that no other process makes. They are unique, not secret, so a generator with
    a secret seed is enough, and saves a system call for every message."""
    return UlidSource(Random(secrets.randbits(256)).getrandbits)
