"""How long to wait before trying again: doubling, bounded, and varied by a quarter. PURE."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from random import Random

VARIATION: Final = 0.25
"""Each wait is this part longer or shorter, so that not everybody comes back at once (CL-06)."""

_DOUBLINGS_MAX: Final = 30


def varied(wait_ms: float, random: "Random", variation: float = VARIATION) -> int:
    """The wait, a random part longer or shorter."""
    return round(wait_ms * (1 - variation + 2 * variation * random.random()))


def backoff_ms(failures: int, random: "Random", *, first_ms: int, longest_ms: int) -> int:
    """The wait after so many failures in a row, the first being 1."""
    assert failures >= 1
    doublings = min(failures - 1, _DOUBLINGS_MAX)
    return varied(min(first_ms << doublings, longest_ms), random)
