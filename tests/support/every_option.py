"""`tidewire` in which every option can be set, also those that operators cannot.

Tests shorten times and raise limits. Run as a program, it is the command. Holds no test.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tidewire import __main__
from tidewire.runtime.config import OPTIONS, SLOTS


@contextmanager
def every_option() -> Iterator[None]:
    """Until the end of this, `runtime.config.load` takes all of them."""
    settings = dict(SLOTS)
    SLOTS.update(OPTIONS)
    try:
        yield
    finally:
        SLOTS.clear()
        SLOTS.update(settings)


if __name__ == "__main__":
    # What a command says of how it was called is as ever.
    sys.argv[0] = __main__.__file__
    with every_option():
        __main__.main()
