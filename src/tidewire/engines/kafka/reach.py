"""Whether any broker can be reached, and what the vendor's client says if none can."""

import logging
from typing import Final

from confluent_kafka import KafkaError

_logger: Final = logging.getLogger(__name__)


class Reach:
    """What one client knows of the brokers. The client tries again by itself; the log says once
    that it fails, with the reason of the last try, and once that it has succeeded."""

    def __init__(self, *, meanwhile: str, again: str) -> None:
        self.is_reached = True
        """False while no broker can be reached, as far as is known."""
        self._meanwhile = meanwhile
        self._again = again
        self._reason = ""

    def failed(self, error: KafkaError) -> None:
        """The client reports each broker that it cannot reach, then that all are down."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._reason = error.str()
        elif self.is_reached:
            self.is_reached = False
            _logger.error(
                "no broker of the event log can be reached; %s (%s)",
                self._meanwhile,
                self._reason or error.str(),
            )

    def succeeded(self) -> None:
        if not self.is_reached:
            self.is_reached = True
            _logger.warning("%s", self._again)
