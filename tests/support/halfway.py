"""`tests.support.every_option`, and an erasure stops and waits after HALFWAY messages.

So a test that kills a server in the middle of an erasure need not be quicker than the server. Run
as a program, it is the `tidewire` command. Holds no test.
"""

import asyncio
import sys
from itertools import count
from typing import Any, Final
from unittest.mock import patch

from tests.support.every_option import every_option
from tidewire import __main__
from tidewire.ops import erase

HALFWAY: Final = 10 * erase.AT_ONCE

if __name__ == "__main__":
    sys.argv[0] = __main__.__file__
    numbers, really_erase = count(1), erase._erase

    async def erase_some(*arguments: Any) -> bool:
        if next(numbers) > HALFWAY:
            await asyncio.Event().wait()
        return await really_erase(*arguments)

    with every_option(), patch("tidewire.ops.erase._erase", erase_some):
        __main__.main()
