"""Sends, offences and typing: what passes and what does not (rates: tests/unit/domain)."""

from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.rates import Rate
from tidewire.gateway.limits import (
    FLOOD_TOLD_EVERY_MS,
    Offences,
    Pulse,
    SendLimiter,
    TypingGate,
    Verdict,
)
from tidewire.gateway.options import GatewayOptions

ANN = UserId("ann")
BEN = UserId("ben")
ONE = ChatId("chat_1")
TWO = ChatId("chat_2")


def send_limiter(*, per_chat: Rate, per_user: Rate, reactions: Rate | None = None) -> SendLimiter:
    return SendLimiter(
        per_chat=per_chat, per_user=per_user, reactions=reactions or per_user, keys_max=1_000
    )


def test_send_limiter_counts_per_chat_and_per_user() -> None:
    limiter = send_limiter(per_chat=Rate(10, burst=20), per_user=Rate(30, burst=30))
    assert sum(limiter.take(ANN, ONE, 0) == 0 for _ in range(50)) == 20
    assert sum(limiter.take(ANN, TWO, 0) == 0 for _ in range(50)) == 10
    assert sum(limiter.take(BEN, ONE, 0) == 0 for _ in range(50)) == 20
    # The longer of the two waits is the one to tell.
    assert limiter.take(ANN, ONE, 0) == 100
    assert limiter.take(ANN, TWO, 0) == 34
    assert len(limiter) == 5


def test_send_limiter_spends_nothing_on_what_it_refuses() -> None:
    limiter = send_limiter(per_chat=Rate(1, burst=1), per_user=Rate(1, burst=10))
    assert limiter.take(ANN, ONE, 0) == 0
    for _ in range(100):
        assert limiter.take(ANN, ONE, 0) > 0
    assert limiter.take(ANN, TWO, 0) == 0


def test_reactions_are_limited_besides_and_count_as_sends() -> None:
    limiter = send_limiter(
        per_chat=Rate(1, burst=4), per_user=Rate(1, burst=6), reactions=Rate(1, burst=3)
    )
    assert [limiter.take_reaction(ANN, ONE, 0) == 0 for _ in range(4)] == [True] * 3 + [False]
    assert limiter.take_reaction(ANN, TWO, 0) == 1_000
    # What was left of the chat's allowance, and of the user's, is for messages.
    assert [limiter.take(ANN, ONE, 0) == 0 for _ in range(2)] == [True, False]
    assert [limiter.take(ANN, TWO, 0) == 0 for _ in range(3)] == [True, True, False]
    assert limiter.take_reaction(BEN, ONE, 0) == 0


def test_reaction_that_the_other_limits_refuse_is_not_counted() -> None:
    limiter = send_limiter(
        per_chat=Rate(1, burst=1), per_user=Rate(1, burst=9), reactions=Rate(1, burst=2)
    )
    assert limiter.take_reaction(ANN, ONE, 0) == 0
    for _ in range(9):
        assert limiter.take_reaction(ANN, ONE, 0) == 1_000
    assert limiter.take_reaction(ANN, TWO, 0) == 0


def test_reactions_through_other_processes_count() -> None:
    limiter = send_limiter(per_chat=Rate(1, burst=5), per_user=Rate(1, burst=5))
    views = limiter.share()
    assert limiter.take_reaction(ANN, ONE, 0) == 0
    assert views["send_reactions"].take_used(10) == [(ANN, 1)]
    views["send_reactions"].learn(ANN, 6_000_000, 0)
    assert limiter.take_reaction(ANN, ONE, 0) == 2_000
    assert limiter.take(ANN, ONE, 0) == 0


def test_invalid_frames_are_counted_within_a_sliding_window() -> None:
    offences = Offences(invalid_max=3, throttled_max=9, window_ms=60_000)
    at_ms = (0, 30_000, 60_000, 61_000)
    assert [offences.invalid(one) for one in at_ms] == [False, False, False, True]


def test_throttled_frames_are_counted_anew_in_every_window() -> None:
    offences = Offences(invalid_max=9, throttled_max=3, window_ms=60_000)
    assert [offences.throttled(one) for one in (0, 1, 60_000)] == [False, False, False]
    assert [offences.throttled(one) for one in (60_001, 60_002)] == [False, True]


def test_offences_are_counted_apart() -> None:
    offences = Offences(invalid_max=2, throttled_max=2, window_ms=1_000)
    assert not offences.invalid(0)
    assert not offences.throttled(0)
    assert offences.invalid(1)
    assert offences.throttled(1)


def test_offences_tell_of_a_flood_now_and_then() -> None:
    offences = Offences(invalid_max=2, throttled_max=2, window_ms=1_000)
    assert offences.flooded(0)
    assert not offences.flooded(FLOOD_TOLD_EVERY_MS - 1)
    assert offences.flooded(FLOOD_TOLD_EVERY_MS)


def test_typing_gate_passes_a_start_a_second_in_each_chat() -> None:
    gate = TypingGate(interval_ms=1_000, chats_max=8)
    assert gate.start(ONE, 0)
    assert not gate.start(ONE, 999)
    assert gate.start(TWO, 999)
    assert gate.start(ONE, 1_000)


def test_typing_gate_passes_one_stop_after_a_start() -> None:
    gate = TypingGate(interval_ms=1_000, chats_max=8)
    assert not gate.stop(ONE)
    assert gate.start(ONE, 0)
    assert gate.stop(ONE)
    assert not gate.stop(ONE)


def test_typing_gate_is_bounded_and_lets_the_oldest_go() -> None:
    gate = TypingGate(interval_ms=1_000, chats_max=2)
    assert gate.start(ChatId("a"), 0)
    assert gate.start(ChatId("b"), 500)
    assert not gate.start(ChatId("c"), 999)
    assert gate.start(ChatId("c"), 1_000)
    assert len(gate) == 2
    assert not gate.stop(ChatId("a"))
    assert gate.stop(ChatId("b"))


def test_sends_through_other_processes_count_per_chat_and_per_user() -> None:
    rate = Rate(1, burst=5)
    limiter = send_limiter(per_chat=rate, per_user=rate)
    views = limiter.share()
    assert limiter.take(UserId("ann"), ChatId("c1"), 0) == 0
    assert views["send_chat"].take_used(10) == [("ann c1", 1)]
    assert views["send_user"].take_used(10) == [("ann", 1)]
    # Elsewhere he has used up what he has in this chat.
    views["send_chat"].learn("ann c1", 6_000_000, 0)
    assert limiter.take(UserId("ann"), ChatId("c1"), 0) == 2_000
    assert limiter.take(UserId("ann"), ChatId("c2"), 0) == 0
    views["send_user"].learn("ann", 7_000_000, 0)
    # And what he has sent here since is not in that yet.
    assert limiter.take(UserId("ann"), ChatId("c2"), 0) == 4_000


OPTIONS = GatewayOptions(ping_interval_ms=25_000, pong_timeout_ms=30_000)
WITHOUT_PINGS = GatewayOptions(ping_interval_ms=0)


def test_pulse_asks_after_some_silence_and_gives_up_after_more() -> None:
    pulse = Pulse(OPTIONS, 0)
    assert pulse.next_deadline_ms() == 25_000
    assert pulse.look(24_999) is Verdict.ALIVE
    assert pulse.look(25_000) is Verdict.ASK
    assert pulse.next_deadline_ms() == 55_000
    assert pulse.look(54_999) is Verdict.ALIVE
    assert pulse.look(55_000) is Verdict.DEAD


def test_pulse_goes_on_when_an_answer_comes() -> None:
    pulse = Pulse(OPTIONS, 0)
    assert pulse.look(25_000) is Verdict.ASK
    pulse.heard_at_ms = 25_100
    assert pulse.next_deadline_ms() == 50_100
    assert pulse.look(50_099) is Verdict.ALIVE
    assert pulse.look(50_100) is Verdict.ASK


def test_pulse_gives_nobody_up_unasked_however_late_it_looks() -> None:
    pulse = Pulse(OPTIONS, 0)
    assert pulse.look(1_000_000) is Verdict.ASK
    assert pulse.look(1_029_999) is Verdict.ALIVE
    assert pulse.look(1_030_000) is Verdict.DEAD


def test_pulse_without_pings_waits_for_the_idle_timeout() -> None:
    pulse = Pulse(WITHOUT_PINGS, 0)
    assert pulse.next_deadline_ms() == 75_000
    assert pulse.look(74_999) is Verdict.ALIVE
    assert pulse.look(75_000) is Verdict.DEAD
