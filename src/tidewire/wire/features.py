"""Parts of the protocol that a client offers when it connects, and that a server turns on. PURE.

A client names what it knows in the header `X-Tidewire-Features` (`batch, entries`), or, in
a browser, as subprotocols (`with.batch`). A feature that both sides know is on, and
`connection_established` lists it. An unknown name is ignored, so an old server or client works.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

FEATURES_HEADER: Final = "X-Tidewire-Features"
FEATURE_PREFIX: Final = "with."
"""The prefix of a feature's name among the subprotocols."""


class Feature(StrEnum):
    BATCH = "batch"
    """Frames may come, and be sent, as arrays."""
    ENTRIES = "entries"
    """Entries that are no messages come as `entry`, with all that they say."""


def known_features(names: Iterable[str]) -> tuple[Feature, ...]:
    """Those of the offered names that are known here, each once, in our order."""
    offered = frozenset(names)
    return tuple(feature for feature in Feature if feature in offered)
