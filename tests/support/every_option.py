"""`tidewire` in which every option can be set, also those that operators cannot set.

Tests shorten times and raise limits. Run as a program, it is the `tidewire` command. Holds no test.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tidewire import __main__
from tidewire.runtime.config import OPTIONS, SLOTS


@contextmanager
def every_option() -> Iterator[None]:
    """Inside this context `runtime.config.load` accepts all options."""
    settings = dict(SLOTS)
    SLOTS.update(OPTIONS)
    try:
        yield
    finally:
        SLOTS.clear()
        SLOTS.update(settings)


if __name__ == "__main__":
    # So that the command's usage text names the program as always.
    sys.argv[0] = __main__.__file__
    with every_option():
        __main__.main()
