"""The machine's clocks, behind the `Clock` port."""

import time

from tidewire.ports.runtime import Clock


class SystemClock:
    """Time as the operating system tells it."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


_CONFORMS: type[Clock] = SystemClock
