"""The wish to end, whoever has it: a signal, or a part of the program that died."""

import asyncio
import logging
import os
import signal
from typing import Final

EXIT_DONE: Final = 0
EXIT_BROKEN: Final = 70
"""A part died (EX_SOFTWARE): whoever watches the process may start it again."""

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

_logger: Final = logging.getLogger(__name__)


class Stop:
    """Waits for the first wish. A second signal ends the process there and then: everything that
    was acknowledged is on the disk already."""

    def __init__(self) -> None:
        """Must be made on the event loop."""
        self.exit_code = EXIT_DONE
        self._wanted = asyncio.Event()

    @property
    def is_wanted(self) -> bool:
        return self._wanted.is_set()

    async def wait(self) -> None:
        await self._wanted.wait()

    def ask(self, why: str) -> None:
        if not self.is_wanted:
            _logger.info("stopping", extra={"why": why})
            self._wanted.set()

    def died(self, name: str, error: BaseException) -> None:
        """A task died (`TaskSupervisor.on_death`): end in order, and say that it was no wish."""
        self.exit_code = EXIT_BROKEN
        self.ask(f"the task {name} died")

    def listen(self) -> None:
        """Take the signals over."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._signalled, number)

    def ignore(self) -> None:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    def _signalled(self, number: signal.Signals) -> None:
        if self.is_wanted:
            _logger.warning("stopped at once by a second signal")
            os._exit(128 + number)
        self.ask(number.name)
