"""The lines of a connection: what is sent after a refused message waits for it (B1)."""

import dataclasses

import pytest

from tests.unit.gateway.fakes import Submit, Wanted, send, sync
from tests.unit.gateway.talk import Talk
from tests.unit.gateway.test_connection import ending_of, only_error
from tidewire.domain.errors import NotAMember, StoreUnavailable
from tidewire.domain.limits import LINE_CLOSED_MS
from tidewire.gateway.effects import NOTHING, READY, Send
from tidewire.gateway.lines import LINES_MAX
from tidewire.gateway.options import GatewayOptions


def after_of(effects: Wanted) -> tuple[str, object]:
    payload = only_error(effects).payload
    return payload.code, (payload.details or {}).get("after")


@pytest.mark.parametrize("limit", ["rate", "busy", "store"])
def test_refused_send_takes_the_later_ones_along_whoever_refuses(limit: str) -> None:
    talk = Talk.ready(GatewayOptions(send_chat_burst=2, requests_waiting_max=3))
    talk.receive(send("r1", key=1))
    if limit == "rate":
        talk.receive(send("r2", key=2))
    elif limit == "busy":
        talk.receive(sync("s1"))
        talk.receive(sync("s2"))
    refused = talk.receive(send("r3", key=3))
    if limit == "store":
        refused = talk.stored(send("r3", key=3), StoreUnavailable("away"))
    code, after = after_of(refused)
    assert after is None
    key = send(key=3).payload.client_message_id
    talk.stored(send("r1", key=1))
    assert after_of(talk.receive(send("r4", key=4))) == (code, key)
    assert after_of(talk.receive(send("r5", key=5))) == (code, key)
    assert talk.receive(send("r6", key=6, chat_id="chat_2")) != NOTHING


def test_send_that_is_refused_for_good_takes_nothing_along() -> None:
    talk = Talk.ready()
    talk.receive(send("r1", key=1))
    talk.stored(send("r1", key=1), NotAMember())
    assert talk.receive(send("r2", key=2)) == (Submit(send("r2", key=2), 2),)


def test_answers_of_sends_that_were_taken_along_name_the_first() -> None:
    talk = Talk.ready()
    for key in (1, 2, 3):
        talk.receive(send(f"r{key}", key=key))
    away = StoreUnavailable("away")
    assert after_of(talk.stored(send("r1", key=1), away))[1] is None
    first = send(key=1).payload.client_message_id
    assert after_of(talk.stored(send("r2", key=2), away)) == ("SERVICE_UNAVAILABLE", first)
    assert after_of(talk.receive(send("r4", key=4)))[1] == first
    talk.now_ms += LINE_CLOSED_MS
    assert talk.receive(send("r5", key=5)) == (Submit(send("r5", key=5), 5),)


def test_connection_with_too_many_closed_lines_ends() -> None:
    options = GatewayOptions(send_user_burst=1, send_user_rate_per_second=1)
    talk = Talk.ready(dataclasses.replace(options, throttled_frames_max=10**6))
    talk.receive(send("r0"))
    for number in range(LINES_MAX):
        assert len(talk.receive(send(f"r{number + 1}", chat_id=f"chat_{number + 1}"))) == 1
    ended = talk.receive(send("last", chat_id="chat_last"))
    assert ending_of(ended)[0] == "rate_limited"


def test_connection_with_too_many_lines_that_the_store_has_closed_ends() -> None:
    """The answers to its sends come first; those still under way are stored all the same."""
    waiting = LINES_MAX + 2
    talk = Talk.ready(
        GatewayOptions(send_user_burst=waiting, requests_waiting_max=waiting, ping_interval_ms=0)
    )
    sends = [send(f"r{number}", chat_id=f"chat_{number}") for number in range(waiting)]
    for one in sends:
        talk.receive(one)
    away = StoreUnavailable("away")
    for one in sends[:LINES_MAX]:
        assert len(talk.stored(one, away)) == 1
    effects = talk.stored(sends[-2], away)
    assert isinstance(effects[0], Send)
    assert ending_of(effects)[0] == "rate_limited"
    assert talk.stored(sends[-1], away) == NOTHING


def test_lines_that_have_expired_end_no_connection() -> None:
    """There are always as many as there may be, and each that comes is one more than that until
    the one of 10 s ago is forgotten."""
    talk = Talk.ready(GatewayOptions(requests_waiting_max=1, throttled_frames_max=10**6))
    talk.receive(send("r0"))
    for number in range(1, 3 * LINES_MAX):
        talk.now_ms += LINE_CLOSED_MS // LINES_MAX
        refused = talk.receive(send(f"r{number}", chat_id=f"chat_{number}"))
        assert only_error(refused).payload.code == "SERVER_BUSY"
        assert talk.core.state is READY


@pytest.mark.parametrize("waiting", [100, 1_000])
def test_sends_that_come_again_keep_their_places_however_many_may_be_under_way(
    waiting: int,
) -> None:
    """All are refused and come again; then all are refused once more: the first one, then the
    others from the last one back."""
    talk = Talk.ready(
        GatewayOptions(
            send_chat_burst=2 * waiting, send_user_burst=2 * waiting, requests_waiting_max=waiting
        )
    )
    first = [send(f"first{key}", key=key) for key in range(waiting)]
    again = [send(f"again{key}", key=key) for key in range(waiting)]
    away = StoreUnavailable("away")
    for one in first:
        talk.receive(one)
    for one in first:
        talk.stored(one, away)
    for one in again:
        assert isinstance(talk.receive(one)[0], Submit)
    assert after_of(talk.stored(again[0], away))[1] is None
    for one in reversed(again[1:]):
        assert after_of(talk.stored(one, away))[1] == again[0].payload.client_message_id
