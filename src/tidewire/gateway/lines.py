"""The lines of one connection: which chats take its sends, and which wait for a refused one. PURE.

A line is what one connection sends to one chat. Its messages are stored in the order in which they
were sent. So a send that is refused and may succeed later closes its line: if the sends after it
were stored, its retry would come after them. A send that arrives on a closed line is refused with
the same code, and told which `client_message_id` it waits for. The line opens again when that
message arrives again, when a send says `is_first`, or by a timeout (decision 0008).

The connection numbers its sends. The store may refuse a send after a limit has refused later ones:
then the line waits for the earlier send. A refused send that comes again keeps its first number as
its place.
"""

from typing import Final

import msgspec

from tidewire.domain.errors import ErrorCode
from tidewire.domain.ids import ChatId, ClientMessageId
from tidewire.domain.limits import LINE_CLOSED_MS
from tidewire.wire.client_frames import SubmitPayload

LINES_MAX: Final = 1_000
"""How many lines of a connection are remembered. Lines with old refusals are forgotten; a
connection with more recent ones than this is closed."""
_SWEEP_MIN: Final = 64


class ClosedLine(msgspec.Struct, eq=False):
    """The refusal that a line waits for. Changed by `Lines` alone."""

    first_number: int = 0
    """The number of the send that opened the line by `is_first` or after the timeout. Refusals of
    sends with lower numbers do not close the line."""
    key: ClientMessageId | None = None
    """The refused `client_message_id`, as it was written; None while the line is open."""
    number: int = 0
    """The place of that send: its number when it was refused first."""
    places: dict[str, int] = {}
    """The numbers of refused sends when they were refused first, by key in lower case; the one
    refused last is at the end."""
    code: ErrorCode = ErrorCode.SERVICE_UNAVAILABLE
    retry_at_ms: int = 0
    until_ms: int = 0
    """When this may be forgotten: the line is open from then on."""

    def waits_for(self, send: SubmitPayload) -> bool:
        """True if this is the send that the line waits for. A UUID in upper or lower case is one
        key."""
        return self.key is not None and self.key.lower() == send.client_message_id.lower()

    def place_of(self, send: SubmitPayload, number: int, places_max: int) -> int:
        """The place of a refused send in its line; remembered, so that a retry keeps it."""
        key = send.client_message_id.lower()
        place = self.places.pop(key, number)
        self.places[key] = place
        if len(self.places) > places_max:
            del self.places[next(iter(self.places))]
        return place


class Lines:
    """The lines of one connection; only those that had a refused send a short while ago."""

    __slots__ = ("_lines", "_places_max", "_sweep_at")

    def __init__(self, *, waiting_max: int) -> None:
        """`waiting_max`: how many sends of the connection may be under way."""
        self._lines: dict[ChatId, ClosedLine] = {}
        # A send must keep its place until it is refused again. Others that are refused meanwhile:
        # those under way at its first refusal, and those under way together with its retry.
        self._places_max = 2 * waiting_max
        self._sweep_at = _SWEEP_MIN

    def __len__(self) -> int:
        """How many there are. Above `LINES_MAX`, none had expired when the last one came."""
        return len(self._lines)

    def admit(
        self,
        send: SubmitPayload,
        number: int,
        now_ms: int,
    ) -> ClosedLine | None:
        """None if a new send may proceed; otherwise the refusal that it must wait for."""
        line = self._lines.get(send.chat_id)
        if line is None or line.key is None:
            return None
        is_new = send.is_first or now_ms >= line.until_ms
        if is_new or line.waits_for(send):
            line.key = None
            if is_new:
                line.first_number = number
                line.places.clear()
            line.until_ms = now_ms + LINE_CLOSED_MS
            return None
        return line

    def refused(
        self,
        send: SubmitPayload,
        number: int,
        now_ms: int,
        *,
        code: ErrorCode,
        retry_after_ms: int = 0,
    ) -> ClosedLine | None:
        """Close the line of a refused send that may succeed later, and return None. If an earlier
        send has closed it already, return that refusal."""
        line = self._lines.get(send.chat_id)
        if line is None or now_ms >= line.until_ms:
            self._sweep(now_ms)
            line = self._lines[send.chat_id] = ClosedLine()
        elif number < line.first_number:
            return None
        place = line.place_of(send, number, self._places_max)
        if line.key is not None and line.number <= place:
            return None if line.waits_for(send) else line
        line.key = send.client_message_id
        line.number = place
        line.code = code
        line.retry_at_ms = now_ms + retry_after_ms
        line.until_ms = now_ms + LINE_CLOSED_MS
        return None

    def _sweep(self, now_ms: int) -> None:
        """Forget expired lines, each time that their number has doubled or is at its bound."""
        if len(self._lines) < self._sweep_at:
            return
        self._lines = {one: line for one, line in self._lines.items() if now_ms < line.until_ms}
        self._sweep_at = min(max(_SWEEP_MIN, 2 * len(self._lines)), LINES_MAX)
