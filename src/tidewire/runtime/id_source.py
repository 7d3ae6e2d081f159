"""Where ids come from."""

import secrets
from random import Random

from tidewire.domain.ids import UlidSource


def id_source() -> UlidSource:
    """Ids that no other process makes. They are unique, not secret, so a generator with a secret
    seed is enough, and spares every message a call into the kernel."""
    return UlidSource(Random(secrets.randbits(256)).getrandbits)
