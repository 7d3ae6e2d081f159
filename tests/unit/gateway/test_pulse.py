"""Is the peer still there: any sign of life counts, and nobody is given up unasked."""

from tidewire.gateway.options import GatewayOptions
from tidewire.gateway.pulse import Pulse, Verdict

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
