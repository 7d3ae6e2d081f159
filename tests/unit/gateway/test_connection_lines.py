"""The lines of a connection: what is sent after a refused message waits for it (B1)."""

import dataclasses

import pytest

from tests.unit.gateway.fakes import Submit, Wanted, send, sync
from tests.unit.gateway.talk import Talk
from tests.unit.gateway.test_connection import ending_of, only_error
from tidewire.domain.errors import NotAMember, StoreUnavailable
from tidewire.domain.limits import LINE_CLOSED_MS
from tidewire.gateway.effects import NOTHING
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
