"""How a connection ends, for every reason and in every state."""

import pytest

from tests.unit.gateway.fakes import (
    heartbeat,
    send,
    sent,
    sync,
)
from tests.unit.gateway.talk import STORED, Talk, check_connection, refusal
from tests.unit.gateway.test_connection import ending_of
from tidewire.domain.errors import (
    SequenceAboveHead,
    TidewireError,
)
from tidewire.domain.resync import ResyncReason
from tidewire.gateway.effects import (
    CLOSED,
    CLOSING,
    CONNECTING,
    LINGERING,
    NOTHING,
    READY,
    UNROUTE,
    Close,
    Send,
    State,
)
from tidewire.wire.error_table import CloseCode, CloseReason
from tidewire.wire.server_frames import (
    ConnectionClosingFrame,
)


@pytest.mark.parametrize("reason", list(CloseReason))
def test_every_reason_is_said_before_the_socket_is_closed(reason: CloseReason) -> None:
    talk = Talk.ready()
    assert ending_of(talk.end(reason))[0] == reason
    assert talk.core.state is CLOSING
    assert talk.core.close_reason == reason
    assert talk.end(reason) == NOTHING


def test_end_says_when_to_come_back() -> None:
    [closing] = sent(Talk.ready().end(CloseReason.SERVER_SHUTDOWN, delay_ms=1_234))
    assert isinstance(closing, ConnectionClosingFrame)
    assert closing.payload.reconnect_delay_ms == 1_234


@pytest.mark.parametrize("reason", sorted(LINGERING))
def test_connection_stays_for_the_answers_that_are_owed(reason: CloseReason) -> None:
    talk = Talk.ready()
    talk.receive(send("r1"))
    talk.receive(send("r2"))
    effects = talk.end(reason)
    assert effects[0] == UNROUTE
    assert not any(isinstance(effect, Close) for effect in effects)
    [first] = talk.stored(send("r1"))
    assert isinstance(first, Send)
    second, close = talk.stored(send("r2"))
    assert isinstance(second, Send)
    assert isinstance(close, Close)
    assert close.reason == reason


def test_connection_does_not_stay_longer_than_its_grace() -> None:
    talk = Talk.ready()
    talk.receive(send("r1"))
    talk.end(CloseReason.SERVER_SHUTDOWN)
    assert talk.core.next_deadline_ms() == talk.now_ms + 5_000
    assert talk.core.tick(talk.now_ms + 4_999, talk.wall_ms) == NOTHING
    [close] = talk.tick_after(5_000)
    assert isinstance(close, Close)
    assert talk.core.next_deadline_ms() is None
    assert talk.core.tick(talk.now_ms, talk.wall_ms) == NOTHING
    assert talk.stored(send("r1")) == NOTHING


@pytest.mark.parametrize("reason", sorted(set(CloseReason) - LINGERING))
def test_connection_does_not_stay_for_other_reasons(reason: CloseReason) -> None:
    talk = Talk.ready()
    talk.receive(send("r1"))
    assert ending_of(talk.end(reason))[0] == reason
    assert talk.stored(send("r1")) == NOTHING


def test_revocation_overrules_a_connection_that_lingers() -> None:
    talk = Talk.ready()
    talk.receive(send("r1"))
    talk.end(CloseReason.SERVER_SHUTDOWN)
    assert talk.end(CloseReason.TOKEN_EXPIRED) == NOTHING
    [close] = talk.end(CloseReason.SESSION_REVOKED)
    assert isinstance(close, Close)
    assert close.reason == "session_revoked"


def test_closing_connection_takes_nothing_in_and_sends_nothing_new() -> None:
    talk = Talk.ready()
    talk.receive(send("r1"))
    talk.receive(sync("s1"))
    talk.end(CloseReason.SERVER_SHUTDOWN)
    assert talk.receive(send("r2")) == NOTHING
    assert talk.receive(heartbeat("h1")) == NOTHING
    assert talk.receive(refusal("r3")) == NOTHING
    assert talk.page(1) == NOTHING
    assert talk.digest_page() == NOTHING
    assert talk.core.drained() == NOTHING
    assert talk.core.resync(ResyncReason.STORE_UNAVAILABLE, 0, talk.wall_ms) == NOTHING
    above = SequenceAboveHead(sequence=9, head=3)
    assert talk.core.position_refused(above, talk.wall_ms) == NOTHING


def test_lost_connection_leaves_its_route_and_is_closed_for_good() -> None:
    talk = Talk.ready()
    talk.receive(send("r1"))
    assert talk.core.lost() == (UNROUTE,)
    assert talk.core.state is CLOSED
    assert talk.core.lost() == NOTHING
    assert talk.stored(send("r1"), STORED) == NOTHING
    assert talk.end(CloseReason.SESSION_REVOKED) == NOTHING
    assert talk.receive(send("r2")) == NOTHING
    assert talk.outbound(10**9) == NOTHING
    assert talk.core.tick(talk.now_ms, talk.wall_ms) == NOTHING
    assert talk.core.next_deadline_ms() is None
    assert talk.core.close_reason is None


def test_lost_connection_that_was_closing_has_left_its_route_already() -> None:
    talk = Talk.ready()
    talk.end(CloseReason.SESSION_REVOKED)
    assert talk.core.lost() == NOTHING
    assert talk.core.state is CLOSED


@pytest.mark.parametrize("state", [CONNECTING, READY, CLOSING])
def test_broken_connection_ends_with_1011_in_any_state(state: State) -> None:
    talk = Talk() if state is CONNECTING else Talk.ready()
    if state is CLOSING:
        talk.receive(send("r1"))
        talk.end(CloseReason.SERVER_SHUTDOWN)
    *before, close = talk.core.broken(talk.wall_ms)
    assert close == Close(CloseCode.INTERNAL_ERROR, "INTERNAL_ERROR")
    assert [type(one).__name__ for one in before] == (
        [] if state is CLOSING else ["Unroute", "Send"]
    )
    assert talk.core.state is CLOSING
    assert talk.core.close_reason == "INTERNAL_ERROR"
    assert talk.core.next_deadline_ms() is None
    check_connection(talk.core)
    talk.core.lost()
    assert talk.core.broken(talk.wall_ms) == NOTHING


def test_first_digest_that_fails_unexpectedly_closes_with_1011() -> None:
    talk = Talk()
    talk.core.opened()
    *_, close = talk.digest_failed(TidewireError())
    assert close == Close(CloseCode.INTERNAL_ERROR, "INTERNAL_ERROR")
    assert talk.core.state is CLOSING
