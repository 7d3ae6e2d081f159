"""Lines: after a refusal that may be retried, nothing of the connection overtakes in that chat."""

import msgspec

from tidewire.domain.errors import ErrorCode
from tidewire.domain.ids import ChatId, ClientMessageId
from tidewire.domain.limits import LINE_CLOSED_MS
from tidewire.gateway.lines import ClosedLine, Lines
from tidewire.wire.client_frames import SendMessagePayload

CHAT = ChatId("chat_1")
OTHER = ChatId("chat_2")
NOW_MS = 1_000_000
BUSY = ErrorCode.SERVER_BUSY
WAITING_MAX = 8


def key(number: int) -> ClientMessageId:
    return ClientMessageId(f"{number:08x}-0000-4000-8000-00000000000a")


def payload(number: int, *, is_first: bool = False, chat: ChatId = CHAT) -> SendMessagePayload:
    return SendMessagePayload(
        client_message_id=key(number), chat_id=chat, content="x", is_first=is_first
    )


class Bench:
    """Lines, and a connection's counter of sends."""

    def __init__(self) -> None:
        self.lines = Lines(waiting_max=WAITING_MAX)
        self.count = 0
        self.now_ms = NOW_MS

    def sends(self, number: int, *, is_first: bool = False, chat: ChatId = CHAT) -> int | None:
        """A send arrives: the number it got, or None if it waits for another."""
        self.count += 1
        send = payload(number, is_first=is_first, chat=chat)
        line = self.lines.admit(send, self.count, self.now_ms)
        return self.count if line is None else None

    def is_refused(
        self, number: int, count: int, *, code: ErrorCode = BUSY, chat: ChatId = CHAT
    ) -> ClosedLine | None:
        return self.lines.refused(payload(number, chat=chat), count, self.now_ms, code=code)


def test_line_is_open_until_a_send_is_refused() -> None:
    bench = Bench()
    assert bench.sends(1) == 1
    assert bench.sends(2) == 2
    assert bench.is_refused(2, 2) is None
    assert bench.sends(3) is None
    assert bench.sends(3, chat=OTHER) is not None


def test_closed_line_says_what_it_waits_for() -> None:
    bench = Bench()
    bench.is_refused(1, bench.sends(1) or 0, code=ErrorCode.RATE_LIMITED)
    line = bench.lines.admit(payload(2), 2, NOW_MS)
    assert line is not None
    assert (line.key, line.code) == (key(1), ErrorCode.RATE_LIMITED)


def test_line_opens_with_the_refused_one_however_it_is_written() -> None:
    bench = Bench()
    bench.is_refused(1, bench.sends(1) or 0)
    shouted = msgspec.structs.replace(payload(1), client_message_id=key(1).upper())
    assert bench.lines.admit(shouted, 2, NOW_MS) is None
    assert bench.sends(2) is not None


def test_line_opens_with_a_send_that_is_first() -> None:
    bench = Bench()
    bench.is_refused(1, bench.sends(1) or 0)
    assert bench.sends(2) is None
    assert bench.sends(3, is_first=True) is not None
    assert bench.sends(4) is not None


def test_line_opens_by_itself_after_a_while() -> None:
    bench = Bench()
    bench.is_refused(1, bench.sends(1) or 0)
    bench.now_ms += LINE_CLOSED_MS - 1
    assert bench.sends(2) is None
    bench.now_ms += 1
    assert bench.sends(3) is not None
    assert bench.sends(4) is not None


def test_refusals_behind_the_first_do_not_prolong_it() -> None:
    bench = Bench()
    first, second = bench.sends(1), bench.sends(2)
    bench.is_refused(1, first or 0)
    bench.now_ms += LINE_CLOSED_MS - 1
    behind = bench.is_refused(2, second or 0)
    assert behind is not None
    assert behind.key == key(1)
    bench.now_ms += 1
    assert bench.sends(3) is not None


def test_line_closes_anew_if_the_refused_one_is_refused_again() -> None:
    bench = Bench()
    bench.is_refused(1, bench.sends(1) or 0)
    bench.now_ms += LINE_CLOSED_MS - 1
    again = bench.sends(1)
    assert bench.is_refused(1, again or 0) is None
    bench.now_ms += LINE_CLOSED_MS - 1
    assert bench.sends(2) is None


def test_earlier_send_that_is_refused_later_is_what_the_line_waits_for() -> None:
    """m1 is with the store when a limit refuses m2; then the store fails m1."""
    bench = Bench()
    first, second = bench.sends(1), bench.sends(2)
    bench.is_refused(2, second or 0)
    assert bench.is_refused(1, first or 0) is None
    assert bench.sends(2) is None
    assert bench.sends(1) is not None


def test_send_that_comes_again_keeps_its_place_before_later_ones() -> None:
    """m1 and m2 are with the store when m1's time runs out. The client sends m1 again; then m2
    fails, and m1 once more: the line waits for m1."""
    bench = Bench()
    first, second = bench.sends(1), bench.sends(2)
    bench.is_refused(1, first or 0)
    again = bench.sends(1)
    assert bench.is_refused(2, second or 0) is None
    assert bench.is_refused(1, again or 0) is None
    assert bench.sends(2) is None
    assert bench.sends(1) is not None


def test_send_that_comes_again_keeps_its_place_behind_earlier_ones() -> None:
    """m1 is with the store when a limit refuses m2. The client sends m2 again; then both fail. If
    the line waited for m2, it would be stored before m1."""
    bench = Bench()
    first, second = bench.sends(1), bench.sends(2)
    bench.is_refused(2, second or 0)
    again = bench.sends(2)
    assert bench.is_refused(1, first or 0) is None
    behind = bench.is_refused(2, again or 0)
    assert behind is not None
    assert behind.key == key(1)
    assert bench.sends(2) is None
    assert bench.sends(1) is not None


def test_sends_that_come_again_keep_their_places_though_each_has_opened_the_line() -> None:
    """As before; then m1 is sent again, and m2 before m1 is answered. Both fail once more."""
    bench = Bench()
    first, second = bench.sends(1), bench.sends(2)
    bench.is_refused(2, second or 0)
    again = bench.sends(2)
    bench.is_refused(1, first or 0)
    first = bench.sends(1)
    bench.is_refused(2, again or 0)
    again = bench.sends(2)
    assert bench.is_refused(1, first or 0) is None
    assert bench.is_refused(2, again or 0) is not None
    assert bench.sends(2) is None
    assert bench.sends(1) is not None


def test_send_of_before_the_first_does_not_close_its_line() -> None:
    """The client has said that it waits for nothing earlier."""
    bench = Bench()
    first, second = bench.sends(1), bench.sends(2)
    bench.is_refused(2, second or 0)
    third = bench.sends(3, is_first=True)
    assert bench.is_refused(1, first or 0) is None
    assert bench.sends(4) is not None
    assert bench.is_refused(3, third or 0) is None
    assert bench.sends(1) is None


def test_places_that_are_remembered_have_a_bound() -> None:
    bench = Bench()
    bench.is_refused(1, bench.sends(1) or 0)
    for number in range(2, 5 * WAITING_MAX):
        assert bench.sends(number - 1) is not None
        bench.is_refused(number, bench.sends(number) or 0)
    line = bench.lines.admit(payload(0), bench.count, bench.now_ms)
    assert line is not None
    assert len(line.places) == 2 * WAITING_MAX


def test_send_that_is_refused_again_and_again_keeps_its_place_however_many_are_refused() -> None:
    """Each time as many are under way as may be: it, the last one that was refused, new ones."""
    bench = Bench()
    first, last = bench.sends(0), 1
    for number in range(2, 9 * WAITING_MAX, WAITING_MAX):
        others = [last, *range(number, number + WAITING_MAX - 2)]
        counts = [bench.sends(one) or 0 for one in others]
        assert bench.is_refused(0, first or 0) is None
        for one, count in zip(others, counts, strict=True):
            behind = bench.is_refused(one, count)
            assert behind is not None
            assert behind.key == key(0)
        first, last = bench.sends(0), others[-1]


def test_equal_send_that_is_refused_too_is_not_behind_itself() -> None:
    bench = Bench()
    first, again = bench.sends(1), bench.sends(1)
    bench.is_refused(1, first or 0)
    assert bench.is_refused(1, again or 0) is None
    assert bench.sends(2) is None


def test_lines_of_long_ago_are_forgotten() -> None:
    bench = Bench()
    for number in range(5_000):
        chat = ChatId(f"chat_{number}")
        bench.is_refused(number, bench.sends(number, chat=chat) or 0, chat=chat)
        bench.now_ms += 100
    # A hundred are closed at any time, and twice as many may be there before it is looked.
    assert len(bench.lines) <= 2 * LINE_CLOSED_MS // 100 + 1
