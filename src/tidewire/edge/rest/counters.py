"""What has happened over REST so far, as plain numbers for whoever shows them."""

from tidewire.domain.errors import ErrorCode


class RestCounters:
    """Everything only grows."""

    __slots__ = ("errors_sent_by_code",)

    def __init__(self) -> None:
        self.errors_sent_by_code: dict[str, int] = {}
        """Every request that was refused, or that failed."""

    def sent(self, code: ErrorCode) -> None:
        self.errors_sent_by_code[code] = self.errors_sent_by_code.get(code, 0) + 1
