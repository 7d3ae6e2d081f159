"""`tests.support.every_option`, and acknowledgements are written as they come, without gathering.

A control for measurements. Run as a program, it is the `tidewire` command. Holds no test.
"""

import sys
from functools import partial
from unittest.mock import patch

from tests.support.every_option import every_option
from tidewire import __main__
from tidewire.delivery.service import DeliveryService

if __name__ == "__main__":
    sys.argv[0] = __main__.__file__
    at_once = partial(DeliveryService, gather_ms=0)
    with every_option(), patch("tidewire.runtime.bootstrap.DeliveryService", at_once):
        __main__.main()
