"""The core of a connection, rule by rule (docs/protocol.md)."""

import pytest

from tests.unit.gateway.fakes import (
    CHAT,
    DEVICE,
    Submit,
    Wanted,
    ack,
    digest,
    heartbeat,
    read,
    send,
    sent,
    sync,
    typing_start,
    typing_stop,
)
from tests.unit.gateway.talk import Talk, refusal
from tidewire.domain.delivery import Advance
from tidewire.domain.errors import (
    CursorAhead,
    ErrorCode,
    NotAMember,
    SequenceAboveHead,
    StoreUnavailable,
)
from tidewire.domain.ids import ChatId, UserId
from tidewire.domain.resync import ResyncReason
from tidewire.gateway.effects import (
    CLOSING,
    CONNECTING,
    NOTHING,
    PING,
    READY,
    UNROUTE,
    Close,
    Establish,
    FetchDigest,
    FetchPage,
    Report,
    Send,
    SendPage,
    Typing,
)
from tidewire.gateway.options import GatewayOptions
from tidewire.wire.client_frames import ClientFrame
from tidewire.wire.error_table import CloseCode
from tidewire.wire.server_frames import (
    ChatDigestFrame,
    ConnectionClosingFrame,
    ErrorFrame,
    HeartbeatAckFrame,
    ResyncFrame,
    SendMessageAckFrame,
    SyncResponseFrame,
)


def moved(delivered: int = 0, read: int = 0) -> Advance:
    return Advance(user_id=UserId("user_1"), chat_id=CHAT, delivered=delivered, read=read)


def only_error(effects: Wanted) -> ErrorFrame:
    """The error that is all that was sent."""
    [frame] = sent(effects)
    assert isinstance(frame, ErrorFrame)
    return frame


def error_of(effects: Wanted) -> tuple[str | None, str]:
    frame = only_error(effects)
    return frame.request_id, frame.payload.code


def ending_of(effects: Wanted) -> tuple[str, int]:
    """The reason that the peer is told, and the code that the socket is closed with."""
    [closing] = [frame for frame in sent(effects) if isinstance(frame, ConnectionClosingFrame)]
    [close] = [effect for effect in effects if isinstance(effect, Close)]
    assert closing.payload.reason == close.reason
    assert UNROUTE in effects
    assert effects[-1] is close
    return closing.payload.reason, close.code


# The beginning.


def test_connection_reads_the_digest_once_the_route_is_registered() -> None:
    talk = Talk()
    assert talk.core.state is CONNECTING
    assert talk.core.opened() == (FetchDigest(None),)


def test_connection_is_established_when_the_first_digest_page_is_there() -> None:
    talk = Talk()
    talk.core.opened()
    [establish] = talk.digest_page()
    assert isinstance(establish, Establish)
    payload = establish.frame.payload
    assert (payload.connection_id, payload.user_id, payload.device_id) == (
        "conn_1",
        "user_1",
        DEVICE,
    )
    assert (payload.epoch, payload.heartbeat_interval_ms) == ("epoch_1", 30_000)
    page = establish.first_page
    assert page.request_id is None
    assert (page.payload.digest_id, page.payload.page, page.payload.last) == ("digest_1", 0, True)
    assert talk.core.state is READY


def test_connection_sends_a_long_digest_page_by_page_as_it_drains() -> None:
    talk = Talk()
    talk.core.opened()
    talk.digest_page("chat_5")
    assert talk.core.drained() == (FetchDigest(ChatId("chat_5")),)
    [page] = talk.digest_page("chat_9")
    assert isinstance(page, SendPage)
    assert isinstance(page.frame, ChatDigestFrame)
    assert (page.frame.payload.page, page.frame.payload.last) == (1, False)
    assert talk.core.drained() == (FetchDigest(ChatId("chat_9")),)
    [last] = talk.digest_page()
    assert isinstance(last, SendPage)
    assert isinstance(last.frame, ChatDigestFrame)
    assert (last.frame.payload.page, last.frame.payload.last) == (2, True)
    assert last.frame.payload.digest_id == "digest_1"
    assert talk.core.drained() == NOTHING


def test_connection_is_closed_for_later_when_the_first_digest_fails() -> None:
    talk = Talk()
    talk.core.opened()
    unrouted, error, close = talk.digest_failed(StoreUnavailable("no"))
    assert unrouted == UNROUTE
    assert error_of((error,)) == (None, "SERVICE_UNAVAILABLE")
    assert close == Close(CloseCode.TRY_AGAIN_LATER, "SERVICE_UNAVAILABLE")
    assert talk.core.state is CLOSING
    assert talk.core.close_reason == "SERVICE_UNAVAILABLE"


def test_connection_asks_the_client_to_sync_again_when_a_later_page_fails() -> None:
    talk = Talk()
    talk.core.opened()
    talk.digest_page("chat_5")
    talk.core.drained()
    [frame] = sent(talk.digest_failed(StoreUnavailable("no")))
    assert isinstance(frame, ResyncFrame)
    assert frame.payload.reason == "digest_incomplete"
    assert talk.core.state is READY


@pytest.mark.parametrize(
    ("frame", "request_id"),
    [
        (send("r1"), "r1"),
        (sync("s1"), "s1"),
        (digest("d1"), "d1"),
        (ack(), None),
        (read(), None),
        (typing_start(), None),
        (typing_stop(), None),
    ],
)
def test_connection_refuses_what_comes_before_it_is_established(
    frame: ClientFrame, request_id: str | None
) -> None:
    talk = Talk()
    talk.core.opened()
    assert error_of(talk.receive(frame)) == (request_id, "INVALID_MESSAGE")


def test_connection_counts_what_comes_before_it_is_established() -> None:
    talk = Talk()
    talk.core.opened()
    for _ in range(9):
        assert talk.core.state is CONNECTING
        talk.receive(ack())
    effects = talk.receive(ack())
    assert ending_of(effects) == ("protocol_error", 1008)


def test_connection_answers_heartbeats_and_nonsense_from_the_first_instant() -> None:
    talk = Talk()
    talk.core.opened()
    [frame] = sent(talk.receive(heartbeat("h1")))
    assert isinstance(frame, HeartbeatAckFrame)
    assert error_of(talk.receive(refusal("r1"))) == ("r1", "INVALID_MESSAGE")


# Requests.


def test_send_is_submitted_and_its_answer_has_the_stored_numbers() -> None:
    talk = Talk.ready()
    assert talk.receive(send("r1")) == (Submit(send("r1"), 1),)
    [frame] = sent(talk.stored(send("r1")))
    assert isinstance(frame, SendMessageAckFrame)
    assert frame.request_id == "r1"
    assert (frame.payload.sequence, frame.payload.prev_sequence) == (7, 6)
    assert frame.payload.client_message_id == send("r1").payload.client_message_id


def test_send_that_is_refused_is_answered_with_the_error() -> None:
    talk = Talk.ready()
    talk.receive(send("r1"))
    assert error_of(talk.stored(send("r1"), NotAMember())) == ("r1", "NOT_A_MEMBER")


def test_send_is_limited_per_chat_and_says_when_to_come_again() -> None:
    talk = Talk.ready()
    for number in range(20):
        assert talk.receive(send(f"r{number}"))[0] == Submit(send(f"r{number}"), number + 1)
    frame = only_error(talk.receive(send("r20")))
    assert (frame.request_id, frame.payload.code) == ("r20", "RATE_LIMITED")
    assert frame.payload.details == {"retry_after_seconds": 1}
    assert talk.receive(send("r21", chat_id="chat_2")) == (
        Submit(send("r21", chat_id="chat_2"), 22),
    )
    talk.now_ms += 100
    assert talk.receive(send("r22")) == (Submit(send("r22"), 23),)


def test_send_is_refused_as_busy_when_too_many_wait() -> None:
    talk = Talk.ready(GatewayOptions(requests_waiting_max=3))
    talk.receive(send("r1"))
    talk.receive(sync("s1"))
    talk.receive(digest("d1"))
    assert error_of(talk.receive(send("r2"))) == ("r2", "SERVER_BUSY")
    assert error_of(talk.receive(sync("s2"))) == ("s2", "SERVER_BUSY")
    assert error_of(talk.receive(digest("d2"))) == ("d2", "SERVER_BUSY")
    talk.stored(send("r1"))
    assert talk.receive(send("r3")) == (Submit(send("r3"), 3),)


def test_answered_requests_make_room_for_others() -> None:
    talk = Talk.ready(GatewayOptions(requests_waiting_max=1))
    for number in range(3):
        assert talk.receive(send(f"r{number}")) == (Submit(send(f"r{number}"), number + 1),)
        talk.stored(send(f"r{number}"))
        assert talk.receive(sync("s1")) == (FetchPage(sync("s1")),)
        talk.page(1)
        talk.core.drained()
        assert talk.receive(sync("s2")) == (FetchPage(sync("s2")),)
        talk.page_failed(NotAMember())
        assert talk.receive(digest("d1")) == (FetchDigest(None),)
        talk.digest_page()
        talk.core.drained()
        assert talk.receive(digest("d2")) == (FetchDigest(None),)
        talk.digest_failed(StoreUnavailable("no"))


def test_sync_is_read_and_answered_as_a_page() -> None:
    talk = Talk.ready()
    assert talk.receive(sync("s1", after=3)) == (FetchPage(sync("s1", after=3)),)
    [page] = talk.page(4, 5, has_more=True)
    assert isinstance(page, SendPage)
    assert isinstance(page.frame, SyncResponseFrame)
    assert page.frame.request_id == "s1"
    assert [item.sequence for item in page.frame.payload.messages] == [4, 5]
    assert (page.frame.payload.synced_through, page.frame.payload.next_sequence) == (5, 6)


def test_sync_reads_the_next_page_only_when_the_last_has_drained() -> None:
    talk = Talk.ready()
    talk.receive(sync("s1"))
    assert talk.receive(sync("s2")) == NOTHING
    talk.page(1)
    assert talk.receive(digest("d1")) == NOTHING
    assert talk.core.drained() == (FetchPage(sync("s2")),)
    talk.page(1)
    assert talk.core.drained() == (FetchDigest(None),)


def test_sync_that_fails_is_answered_and_makes_room_at_once() -> None:
    talk = Talk.ready()
    talk.receive(sync("s1"))
    talk.receive(sync("s2"))
    effects = talk.page_failed(CursorAhead(cursor=9, head=3))
    assert error_of(effects) == ("s1", "CURSOR_AHEAD")
    assert effects[-1] == FetchPage(sync("s2"))


def test_digest_on_request_has_the_request_id_on_every_page_and_a_new_id() -> None:
    talk = Talk.ready()
    assert talk.receive(digest("d1")) == (FetchDigest(None),)
    [first] = talk.digest_page("chat_5")
    assert isinstance(first, SendPage)
    assert talk.core.drained() == (FetchDigest(ChatId("chat_5")),)
    [last] = talk.digest_page()
    assert isinstance(last, SendPage)
    for page in (first.frame, last.frame):
        assert isinstance(page, ChatDigestFrame)
        assert (page.request_id, page.payload.digest_id) == ("d1", "digest_2")


def test_digest_on_request_that_fails_is_answered() -> None:
    talk = Talk.ready()
    talk.receive(digest("d1"))
    assert error_of(talk.digest_failed(StoreUnavailable("no"))) == ("d1", "SERVICE_UNAVAILABLE")
    assert talk.receive(sync("s1")) == (FetchPage(sync("s1")),)


def test_long_digest_takes_turns_with_syncs() -> None:
    talk = Talk.ready()
    talk.receive(digest("d1"))
    talk.receive(sync("s1"))
    talk.digest_page("chat_5")
    assert talk.core.drained() == (FetchPage(sync("s1")),)
    talk.page(1)
    assert talk.core.drained() == (FetchDigest(ChatId("chat_5")),)


def test_heartbeat_is_answered_with_its_request_id_if_it_has_one() -> None:
    talk = Talk.ready()
    [named] = sent(talk.receive(heartbeat("h1")))
    [unnamed] = sent(talk.receive(heartbeat()))
    assert isinstance(named, HeartbeatAckFrame)
    assert isinstance(unnamed, HeartbeatAckFrame)
    assert (named.request_id, unnamed.request_id) == ("h1", None)


# One-way frames.


def test_acks_and_reads_are_passed_on_and_not_answered() -> None:
    talk = Talk.ready()
    assert talk.receive(ack(5)) == (moved(delivered=5),)
    assert talk.receive(read(4)) == (moved(read=4),)


def test_position_above_the_head_is_told_without_a_request_id() -> None:
    talk = Talk.ready()
    effects = talk.core.position_refused(SequenceAboveHead(sequence=9, head=3), talk.wall_ms)
    assert error_of(effects) == (None, "INVALID_SEQUENCE")


def test_typing_is_passed_on_once_a_second_and_dropped_in_silence_otherwise() -> None:
    talk = Talk.ready()
    assert talk.receive(typing_start()) == (Typing(CHAT, True),)
    assert talk.receive(typing_start()) == (Report.TYPING_DROPPED,)
    assert talk.receive(typing_stop()) == (Typing(CHAT, False),)
    assert talk.receive(typing_stop()) == (Report.TYPING_DROPPED,)
    talk.now_ms += 1_000
    assert talk.receive(typing_start()) == (Typing(CHAT, True),)


def test_flood_of_small_frames_is_dropped_and_told_now_and_then() -> None:
    talk = Talk.ready(GatewayOptions(control_rate_per_second=10, control_burst=2))
    talk.receive(ack(1))
    talk.receive(read(1))
    told = talk.receive(ack(2))
    assert told[0] is Report.FLOOD_DROPPED
    assert error_of(told) == (None, "RATE_LIMITED")
    assert talk.receive(ack(3)) == (Report.FLOOD_DROPPED,)
    assert error_of(talk.receive(heartbeat("h1"))) == ("h1", "RATE_LIMITED")
    talk.now_ms += 100
    assert talk.receive(ack(4)) == (moved(delivered=4),)


def test_connection_that_floods_on_and_on_is_closed() -> None:
    talk = Talk.ready(
        GatewayOptions(control_rate_per_second=1, control_burst=1, throttled_frames_max=3)
    )
    for _ in range(3):
        assert talk.core.state is READY
        talk.receive(ack())
    assert ending_of(talk.receive(ack())) == ("rate_limited", 1013)


# What is not valid.


def test_refused_frame_is_answered_with_its_request_id() -> None:
    talk = Talk.ready()
    assert error_of(talk.receive(refusal("r1"))) == ("r1", "INVALID_MESSAGE")
    assert error_of(talk.receive(refusal(None))) == (None, "INVALID_MESSAGE")


def test_tenth_invalid_frame_in_a_minute_ends_the_connection() -> None:
    talk = Talk.ready()
    for _ in range(9):
        talk.receive(refusal())
    effects = talk.receive(refusal())
    assert ending_of(effects) == ("protocol_error", 1008)
    assert isinstance(sent(effects)[0], ErrorFrame)


def test_invalid_frames_far_apart_do_not_end_the_connection() -> None:
    talk = Talk.ready()
    for _ in range(50):
        talk.now_ms += 7_000
        talk.receive(refusal())
    assert talk.core.state is READY


def test_frame_of_an_unknown_type_is_ignored_or_answered_but_never_an_offence() -> None:
    talk = Talk.ready()
    for _ in range(50):
        assert talk.receive(refusal(counts=False, is_unknown=True)) == NOTHING
        answered = talk.receive(refusal("r1", counts=False, is_unknown=True))
        assert error_of(answered) == ("r1", "INVALID_MESSAGE")
    assert talk.core.state is READY


def test_text_that_is_too_long_is_no_offence() -> None:
    talk = Talk.ready()
    for _ in range(50):
        effects = talk.receive(refusal("r1", code=ErrorCode.MESSAGE_TOO_LARGE, counts=False))
        assert error_of(effects) == ("r1", "MESSAGE_TOO_LARGE")
    assert talk.core.state is READY


def test_refusals_that_are_no_offence_use_up_what_small_frames_may_come() -> None:
    talk = Talk.ready(GatewayOptions(control_rate_per_second=1, control_burst=4))
    for _ in range(2):
        assert talk.receive(refusal(counts=False, is_unknown=True)) == NOTHING
        answered = talk.receive(refusal("r1", code=ErrorCode.INVALID_ENCODING, counts=False))
        assert error_of(answered) == ("r1", "INVALID_ENCODING")
    answered = talk.receive(refusal("r2", code=ErrorCode.INVALID_ENCODING, counts=False))
    assert error_of(answered) == ("r2", "RATE_LIMITED")
    dropped, *told = talk.receive(refusal(counts=False, is_unknown=True))
    assert dropped is Report.FLOOD_DROPPED
    assert error_of(tuple(told)) == (None, "RATE_LIMITED")
    assert talk.receive(refusal(counts=False, is_unknown=True)) == (Report.FLOOD_DROPPED,)


def test_peer_that_sends_nothing_but_unknown_types_is_closed() -> None:
    options = GatewayOptions(control_rate_per_second=1, control_burst=1, throttled_frames_max=5)
    talk = Talk.ready(options)
    for _ in range(5):
        talk.receive(refusal(counts=False, is_unknown=True))
    effects = talk.receive(refusal(counts=False, is_unknown=True))
    assert ending_of(effects[1:]) == ("rate_limited", 1013)


# Outbound.


def test_slow_peer_is_reported_once_and_again_after_it_recovered() -> None:
    talk = Talk.ready(GatewayOptions(outbound_bytes_max=100_000))
    assert talk.outbound(79_999) == NOTHING
    assert talk.outbound(80_000) == (Report.BACKLOG,)
    assert talk.outbound(90_000) == NOTHING
    assert talk.core.is_backlogged
    assert talk.outbound(10) == NOTHING
    assert talk.outbound(100_000) == (Report.BACKLOG,)


def test_peer_that_is_too_slow_is_told_and_closed() -> None:
    talk = Talk.ready(GatewayOptions(outbound_bytes_max=100_000))
    effects = talk.outbound(100_001)
    assert effects[0] is Report.SLOW_CONSUMER
    error, closing = sent(effects)
    assert isinstance(error, ErrorFrame)
    assert (error.request_id, error.payload.code) == (None, "SLOW_CONSUMER")
    assert error.payload.details == {"buffer_bytes": 100_001, "limit_bytes": 100_000}
    assert isinstance(closing, ConnectionClosingFrame)
    assert ending_of(effects) == ("slow_consumer", 1008)
    assert talk.outbound(200_000) == NOTHING


def test_bound_holds_also_before_the_connection_is_established() -> None:
    talk = Talk()
    talk.core.opened()
    effects = talk.outbound(10_000_000)
    assert ending_of(effects) == ("slow_consumer", 1008)
    # Whatever was held back is forgotten with the route; the error must come after that.
    assert effects.index(UNROUTE) < next(
        index for index, effect in enumerate(effects) if isinstance(effect, Send)
    )


def test_resync_tells_reason_and_delay() -> None:
    talk = Talk.ready()
    [frame] = sent(talk.core.resync(ResyncReason.STORE_UNAVAILABLE, 120, talk.wall_ms))
    assert isinstance(frame, ResyncFrame)
    assert (frame.payload.reason, frame.payload.delay_ms) == ("store_unavailable", 120)


# Time.


def test_silent_peer_is_pinged_and_given_up_within_a_minute() -> None:
    talk = Talk.ready()
    assert talk.tick_after(25_000) == (PING,)
    effects = talk.tick_after(34_999)
    assert ending_of(effects) == ("idle_timeout", 4000)


def test_any_frame_or_pong_is_a_sign_of_life() -> None:
    talk = Talk.ready()
    for _ in range(20):
        talk.tick_after(20_000)
        talk.receive(refusal(counts=False, is_unknown=True))
        talk.tick_after(50_000)
        talk.core.heard(talk.now_ms)
    assert talk.core.state is READY


def test_connection_without_pings_is_closed_after_the_idle_timeout() -> None:
    talk = Talk.ready(GatewayOptions(ping_interval_ms=0))
    assert talk.tick_after(74_999) == NOTHING
    assert ending_of(talk.tick_after(1)) == ("idle_timeout", 4000)


def test_connection_ends_with_its_token() -> None:
    talk = Talk.ready(token_ms=10_000)
    assert talk.core.next_deadline_ms() == talk.now_ms + 10_000
    assert talk.core.tick(talk.now_ms + 9_999, talk.wall_ms) == NOTHING
    assert ending_of(talk.tick_after(10_000)) == ("token_expired", 1008)


def test_connection_comes_back_when_it_is_old_if_that_is_asked_for() -> None:
    talk = Talk.ready(GatewayOptions(connection_age_ms_max=5_000))
    assert talk.tick_after(3_749) == NOTHING
    assert ending_of(talk.tick_after(1_251)) == ("server_shutdown", 1012)


def test_connections_that_came_together_are_asked_to_come_back_one_by_one() -> None:
    """In the last quarter of their time, as evenly as their ids fall."""
    options = GatewayOptions(connection_age_ms_max=40_000)
    returns_ms = []
    for number in range(400):
        talk = Talk(options, connection_id=f"conn_{number}")
        # It is alive and has nothing else to wait for.
        talk.core.receive(heartbeat(), talk.now_ms + 20_000, talk.wall_ms)
        deadline_ms = talk.core.next_deadline_ms()
        assert deadline_ms is not None
        returns_ms.append(deadline_ms - talk.now_ms)
    assert 30_000 < min(returns_ms) < 31_000
    assert 39_000 < max(returns_ms) <= 40_000
    for second in range(30_000, 40_000, 1_000):
        assert 10 <= sum(second < one <= second + 1_000 for one in returns_ms) <= 80
